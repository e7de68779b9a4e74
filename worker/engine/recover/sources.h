/* sources - snapshots from nodes that a job has left, for its next generation
 *
 * A job may go on on other nodes than those in whose memories it left its state. Each node that it left is a *source
 * node*: one process there takes part in recovering (recover.h), with the folder of the ranks of before and no device.
 * The ranks that train and the source nodes meet in a world of their own, so whatever becomes of a source node, the
 * ranks lose that world and no other: they do without.
 *
 * Rank 0 says what is to be done, and all do it together: gather a snapshot, write it to disk, end. Source nodes end
 * once they are told whether their snapshot was loaded on every rank.
 */
#ifndef MUSTER_WORKER_RECOVER_SOURCES_H
#define MUSTER_WORKER_RECOVER_SOURCES_H

#include "worker/engine/recover/recover.h"

struct sources_cfg {
    const char *dir;        /* this node's memory for the job; "": none */
    const char *rendezvous; /* folder; borrowed during the call */
    const char *disk;       /* the job's checkpoint folder; outlives the calls */
    const int *node_of;     /* [size]: the lowest rank on the node of each that trains */
    int size, source_nodes; /* ranks that train, and those of source nodes, numbered from size on */
    int rank;
    uint64_t generation;
    struct flight *flight;
};

/* --- ranks that train: all make the same calls in the same order --- */

struct sources;

/* Meet the source nodes and look into all memories. Fails within seconds when one does not come. */
int sources_open(const struct sources_cfg *cfg, struct sources **ret, struct merr *err);

/* What all nodes have between them; borrowed, good until sources_free. */
struct recover *sources_recover(struct sources *s);

/* As recover_gather and recover_flush, together with the source nodes, of which *ret_own tells too. After a failure of
 * the world, which is the return value, s is good for sources_free alone. */
int sources_gather(struct sources *s, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path,
                   int *ret_own, struct merr *why, struct merr *err);
int sources_flush(struct sources *s, uint64_t limit, int *ret_own, struct merr *why, struct merr *err);

/* Let the source nodes go. loaded: all ranks go on and need nothing more of them. One that does not hear it finds out
 * by itself. */
void sources_end(struct sources *s, bool loaded);
void sources_free(struct sources *s); /* NULL is fine */

/* --- source nodes --- */

/* Give until told to end. *ret_loaded: no rank needs this node's memory any more. */
int sources_serve(const struct sources_cfg *cfg, bool *ret_loaded, struct merr *err);

#endif
