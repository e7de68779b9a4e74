/* give - snapshots from nodes that a job has left, for its next generation
 *
 * A job may go on on other nodes than those in whose memories it left its state. On each node that it left one process,
 * a *giver*, then takes part in recovering (recover.h): it has the ranks' memory folder of before and no device. The
 * ranks that train and the givers meet in a world of their own, so whatever becomes of a giver, the ranks lose that
 * world and no other: they do without.
 *
 * Rank 0 says what is to be done, and all do it together: gather a snapshot, write it to disk, end. Givers end once
 * they are told whether their snapshot was loaded on every rank.
 */
#ifndef MUSTER_WORKER_TIER_GIVE_H
#define MUSTER_WORKER_TIER_GIVE_H

#include "worker/snapshot/recover.h"

struct give_cfg {
    const char *dir;        /* this node's memory for the job; "": none */
    const char *rendezvous; /* folder; borrowed during the call */
    const char *disk;       /* the job's checkpoint folder; outlives the calls */
    const int *node_of;     /* [size]: the lowest rank on the node of each that trains */
    int size, givers;       /* ranks that train, and others: numbered from size on */
    int rank;
    uint64_t generation;
    struct flight *flight;
};

/* --- ranks that train: all make the same calls in the same order --- */

struct give;

/* Meet the givers and look into all memories. Fails within seconds when a giver does not come. */
int give_open(const struct give_cfg *cfg, struct give **ret, struct merr *err);

/* What all nodes have between them; borrowed, good until give_free. */
struct recover *give_recover(struct give *g);

/* As recover_gather and recover_flush, together with the givers, of which *ret_own tells too. After a failure of the
 * world, which is the return value, g is good for give_free alone. */
int give_gather(struct give *g, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path, int *ret_own,
                struct merr *why, struct merr *err);
int give_flush(struct give *g, uint64_t limit, int *ret_own, struct merr *why, struct merr *err);

/* Let the givers go. loaded: all ranks go on and need nothing more of them. A giver that does not hear it finds out. */
void give_end(struct give *g, bool loaded);
void give_free(struct give *g); /* NULL is fine */

/* --- givers --- */

/* Give until told to end. *ret_loaded: no rank needs this node's memory any more. */
int give_serve(const struct give_cfg *cfg, bool *ret_loaded, struct merr *err);

#endif
