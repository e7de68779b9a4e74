/* recover - snapshots in the memories of a job's nodes, made readable on each node that trains on
 *
 * Whatever layout wrote a snapshot, and whichever of its nodes are still there: what a lost node had is made again from
 * parity (rebuild.h), each rank says which chunks it will read, and each node is sent those that it does not have,
 * once. They lie at their places in sparse files of a folder that reads as a checkpoint; everything read from it is
 * checked against its checksums like any other.
 *
 * All ranks make the same calls in the same order; a world of one node does without talk.
 */
#ifndef MUSTER_WORKER_RECOVER_RECOVER_H
#define MUSTER_WORKER_RECOVER_RECOVER_H

#include "checkpoint/checkpoint.h"
#include "worker/engine/comm/comm.h"

struct recover_cfg {
    const char *dir; /* this node's memory for the job; "": none, and then none is used on any node */
    struct comm_world *world;
    struct comm_group *all; /* of all ranks in order */
    const int *node_of;     /* [size]: the lowest rank on the node of each */
    int rank, size;
    int source_nodes; /* the last so many ranks lead nodes that the job has left: they send what they have and need
                               nothing. With them a node without memory hinders nothing but recover_gather */
};

struct recover_stats {
    const char *source; /* "memory": each node its own; "peers": also others'; "parity": a lost node's too */
    double survey_s, rebuild_s, gather_s;
    uint64_t rebuilt_bytes, fetched_bytes; /* of all nodes */
};

/* Which chunks this rank will read: as mck_needed. */
typedef int recover_needed(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk),
                           void *take_arg, struct merr *err);

struct recover;

/* Look into all memories. */
int recover_open(const struct recover_cfg *cfg, struct recover **ret, struct merr *err);
void recover_free(struct recover *r); /* NULL is fine */

/* The newest step below limit that can be had: 1, or 0. Speaks with nobody. ret_lost, unless NULL: words for the newest
 * that is newer and cannot be had, or "". */
int recover_newest(const struct recover *r, uint64_t limit, uint64_t *ret_step, struct merr *ret_lost,
                   struct merr *err);

/* Make that step (recover_newest's of this limit) readable. Returns the world's failure. *ret_own is what failed here
 * alone, with words in why: the snapshot cannot be used when it did on any rank. The path lives as long as r. */
int recover_gather(struct recover *r, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path,
                   int *ret_own, struct merr *why, struct merr *err);

/* After that step could not be read: make what is damaged of it again from parity, where none of its nodes is lost. All
 * ranks call it. *ret_chunks: how many chunks are whole again, on all nodes together; gather then goes on from them.
 * *ret_own is what failed here alone, with words in why. */
int recover_repair(struct recover *r, uint64_t limit, uint64_t *ret_chunks, int *ret_own, struct merr *why,
                   struct merr *err);

/* Instead: write that step to disk, a job's checkpoint folder, each node what it has. Needs no memory. All ranks call
 * it; failures as in recover_gather. */
int recover_flush(struct recover *r, uint64_t limit, const char *disk, uint64_t generation, int *ret_own,
                  struct merr *why, struct merr *err);

const struct recover_stats *recover_stats(const struct recover *r);

#endif
