/* repair - damaged chunks of a snapshot made again from the parity of a group none of whose nodes is lost (parity.h)
 *
 * Each node reads all that it holds: its data files chunk by chunk, its parity piece by piece. Pieces that are summed
 * up in one piece of parity are a stripe; what one node brings to it is the sum of what all others do. So where one
 * node's is damaged the others send theirs to it, and it writes the bytes of its damaged chunks, no others.
 */
#ifndef MUSTER_WORKER_RECOVER_REPAIR_H
#define MUSTER_WORKER_RECOVER_REPAIR_H

#include "worker/engine/comm/comm.h"
#include "worker/snapshot/survey.h"

struct repair_cfg {
    const char *dir; /* this node's memory for the job */
    struct comm_world *world;
    const int *leader;               /* rank that speaks for each node */
    int node;                        /* this one */
    const struct survey_loss *group; /* a whole one */
};

/* Called by the leaders of the group's nodes; does nothing on others. *ret_chunks: how many of this node are whole
 * again. What fails on this node alone is in *ret_own with its words in why; the return value is of the world. */
int repair_group(const struct repair_cfg *cfg, uint64_t *ret_chunks, int *ret_own, struct merr *why, struct merr *err);

#endif
