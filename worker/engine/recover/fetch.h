/* fetch - chunks of a snapshot's files sent from the nodes that have them to those whose ranks will read them
 *
 * All ranks tell each other what they need, so every node knows who sends what to whom; then some chunks a round go
 * from each node to each other.
 */
#ifndef MUSTER_WORKER_RECOVER_FETCH_H
#define MUSTER_WORKER_RECOVER_FETCH_H

#include "worker/engine/recover/recover.h"

struct fetch_cfg {
    struct comm_group *all, *leaders; /* leaders: NULL on ranks that lead no node */
    const int *node_of, *leader;      /* as in recover.h; [nodes] */
    int rank, size, nodes, node;
    const char *folder; /* the view: own files, and others' with holes */
    const int *owner;   /* node that has each file */
    recover_needed *needed;
    void *arg;
};

/* Collective. Adds the bytes of all nodes to *bytes. Failures as in recover_gather. */
int fetch_chunks(const struct fetch_cfg *cfg, struct mck *c, uint64_t *bytes, int *ret_own, struct merr *why,
                 struct merr *err);

#endif
