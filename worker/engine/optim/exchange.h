/* exchange - gradients of all replicas on their way to the owners of their pieces, while the backward still goes on
 *
 * The gradient arena is cut into regions, and each region over the replicas in pieces (params_cut): replica i owns
 * piece i, and finishes the canonical tree (tree.h) for it from the nodes that the replicas are left with. What is
 * complete in the last leaf is sent at once, from the end of the first region down; the rest when all is done. The
 * order in which parts travel changes no bit: they are only put where tree_finish() finds them.
 *
 * With codecs keyed by tensor (keyed.h), each leaf is coded before it is added to another. A replica's node then
 * travels as the coded leaves below it, each as soon as it is complete, and its owners add them up; or as a sum
 * in f32 where that is shorter, as it is for nodes of many leaves. Which of both changes no bit either.
 */
#ifndef MUSTER_WORKER_OPTIM_EXCHANGE_H
#define MUSTER_WORKER_OPTIM_EXCHANGE_H

#include <stddef.h>

#include "base/merr.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/optim/keyed.h"
#include "worker/engine/optim/tree.h"

#define EXCHANGE_REGIONS 3

struct exchange_cfg {
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct comm_group *group; /* NULL: nothing travels */
    int replicas, index;
    int leaves;                                /* V */
    const int *share;                          /* [replicas] leaves of each; borrowed; NULL: evenly */
    struct tree_span region[EXCHANGE_REGIONS]; /* n a multiple of PARAM_BLOCK, or 0 */
    struct keyed *keyed;                       /* NULL: f32 */
};

struct exchange;

/* -ENOMEM. */
int exchange_new(const struct exchange_cfg *cfg, struct exchange **ret, struct merr *err);
/* Waits for messages that are still under way, which after a failure end at once when the rank is told to abort. */
void exchange_free(struct exchange *x);

/* Nodes of all replicas together, and those of this one. */
int exchange_nodes(const struct exchange *x);
int exchange_own_nodes(const struct exchange *x);

/* Replica i's piece of a region: its beginning in the region and its floats. */
void exchange_piece(const struct exchange *x, int region, int i, size_t *ret_begin, size_t *ret_n);

/* Most bytes exchange_new() takes for what travels. */
size_t exchange_bytes(const struct exchange_cfg *cfg);

/* With codecs: a step begins, for rounding by chance; what the others send coded may come. */
int exchange_begin(struct exchange *x, uint64_t step, struct merr *err);
/* With codecs: [at, at + n) of a leaf's buffer is complete. It becomes what coding leaves of it. */
int exchange_leaf(struct exchange *x, int leaf, float *buffer, size_t at, size_t n, struct merr *err);

/* Of region 0, [from, what went before or its end) is final in the last leaf under way of the tree: send it. */
int exchange_from(struct exchange *x, const struct tree *t, size_t from, struct merr *err);

/* The tree is done: send what is left, wait for everything. -EIO: a coded leaf is not good, err names whose. */
int exchange_rest(struct exchange *x, const struct tree *t, struct merr *err);

/* Our piece of a region in every node, by lo, for tree_finish(): node[exchange_nodes()], value likewise. */
void exchange_values(const struct exchange *x, int region, const struct tree *t, struct tree_node *node, float **value);

#endif
