/* rebuild - the data files that a lost node had, made again from those and the parity of its group (parity.h)
 *
 * Piece by piece, each survivor sends every other one what its parity covers, so that each comes to one segment of the
 * lost stream and sends it to the node that is to have the files: about a stream in and a stream out of every node.
 */
#ifndef MUSTER_WORKER_RECOVER_REBUILD_H
#define MUSTER_WORKER_RECOVER_REBUILD_H

#include "worker/engine/comm/comm.h"
#include "worker/snapshot/survey.h"

struct rebuild_cfg {
    const char *dir; /* this node's memory for the job */
    struct comm_world *world;
    const int *leader; /* rank that speaks for each node */
    int node;          /* this one */
    int target;        /* the node that is to have the files */
    const struct survey_plan *plan;
    const struct survey_loss *loss;
};

/* Called by the leaders of the loss's holders and of the target; does nothing on others. What fails on this node alone
 * is in *ret_own with its words in why; the return value is of the world. Files that stand under their names on the
 * target afterwards are whole. */
int rebuild_loss(const struct rebuild_cfg *cfg, int *ret_own, struct merr *why, struct merr *err);

#endif
