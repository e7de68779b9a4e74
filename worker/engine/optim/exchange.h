/* exchange - gradients of all replicas on their way to the owners of their pieces, while the backward still goes on
 *
 * The gradient arena is cut into regions, and each region over the replicas in pieces (params_cut): replica i owns
 * piece i, and finishes the canonical tree (tree.h) for it from the nodes that the replicas are left with. A piece
 * travels in buckets, from its end down, and an owner has room for EXCHANGE_SLOTS of them from each node: it finishes a
 * bucket as soon as all of it is there, and then says that there is room for one more. Buckets that are complete in the
 * last leaf are sent at once, the rest when all is done. None of this changes a bit: a bucket's additions are the
 * tree's, whenever they are made.
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
#define EXCHANGE_SLOTS 3
#define EXCHANGE_BUCKET ((size_t)1 << 20) /* floats */

struct exchange_cfg {
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct comm_group *group; /* NULL: nothing travels */
    int replicas, index;
    int leaves;                                /* V */
    const int *share;                          /* [replicas] leaves of each; borrowed; NULL: evenly */
    struct tree_span region[EXCHANGE_REGIONS]; /* n a multiple of PARAM_BLOCK, or 0 */
    struct keyed *keyed;                       /* NULL: f32 */
    size_t bucket;                             /* floats, a multiple of PARAM_BLOCK; 0: EXCHANGE_BUCKET (tests) */
};

struct exchange;

/* -ENOMEM. */
int exchange_new(const struct exchange_cfg *cfg, struct exchange **ret, struct merr *err);
/* Waits for messages that are still under way, which after a failure end at once when the rank is told to abort. */
void exchange_free(struct exchange *x);

/* Nodes of this replica. */
int exchange_own_nodes(const struct exchange *x);

/* Replica i's piece of a region: its beginning in the region and its floats. */
void exchange_piece(const struct exchange *x, int region, int i, size_t *ret_begin, size_t *ret_n);

/* About the bytes exchange_new() takes for what travels: a piece more or less for uneven cuts. */
size_t exchange_bytes(const struct exchange_cfg *cfg);

/* A step begins: what the others send may come. Its number is for codecs, which round by chance. */
int exchange_begin(struct exchange *x, uint64_t step, struct merr *err);
/* With codecs: [at, at + n) of a leaf's buffer is complete. It becomes what coding leaves of it. */
int exchange_leaf(struct exchange *x, int leaf, float *buffer, size_t at, size_t n, struct merr *err);

/* Of region 0, [from, what went before or its end) is final in the last leaf under way of the tree: send it, and finish
 * what has come. Our pieces hold sums and parts of them from now on. */
int exchange_from(struct exchange *x, const struct tree *t, size_t from, struct merr *err);

/* The tree is done: send what is left, wait for everything. -EIO: a coded leaf is not good, err names whose. */
int exchange_rest(struct exchange *x, const struct tree *t, struct merr *err);

/* Our piece of a region then: the sum over all leaves. */
float *exchange_sum(const struct exchange *x, int region, const struct tree *t);

#endif
