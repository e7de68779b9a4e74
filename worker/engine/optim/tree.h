/* tree - one canonical binary tree over the V leaves of a step, summed alike by any number of replicas
 *
 * The value of node (lo, size), size a power of two, is value(lo, size/2) + value(lo + size/2, size/2); a
 * right half that begins at or past V is left out; (i, 1) is leaf i. The root is (0, 2^ceil(log2 V)). A
 * replica with leaves [a, b) adds up a binary counter: after each leaf it merges equal neighbours that form
 * an aligned node, so it keeps at most 2·log2 V buffers, and ends with the nodes named by tree_partials().
 * Owners finish the tree from all replicas' nodes. Same additions, same bits, however the leaves are spread.
 */
#ifndef MUSTER_WORKER_OPTIM_TREE_H
#define MUSTER_WORKER_OPTIM_TREE_H

#include <stddef.h>

#include "base/merr.h"
#include "worker/engine/kernels/kernels.h"

#define TREE_PARTIALS_MAX 64

struct tree_node {
    int lo, size;
};

/* Nodes that a replica with leaves [begin, end) is left with, by lo. At most TREE_PARTIALS_MAX. */
int tree_partials(int begin, int end, struct tree_node *ret);

/* Most buffers that are in use at once while it gets there, the leaf under way included. */
int tree_buffers(int begin, int end);

#define TREE_SPANS_MAX 2

struct tree_span { /* floats of a buffer */
    size_t at, n;
};

/* Called with floats of a leaf's buffer that are complete, before they are added to anything. */
typedef int (*tree_leaf_fn)(void *arg, int leaf, float *buffer, size_t at, size_t n, struct merr *err);

/* The binary counter over the spans of its buffers. Several trees of the same leaves may share the buffers, each with
 * spans of its own: when all are done, they have left their nodes in the same buffers. */
struct tree {
    const struct kern_ops *k;
    struct kern_stream *stream;
    struct tree_span span[TREE_SPANS_MAX];
    int spans;
    int begin, end, leaf; /* leaf: the next or the one under way */
    int buffers;
    float **pool; /* borrowed */
    int *free;    /* indexes into pool */
    int n_free;
    int current; /* of the leaf under way, -1: none */
    size_t mark; /* of that leaf, span[0] is merged from here on */
    struct tree_node node[TREE_PARTIALS_MAX];
    int at[TREE_PARTIALS_MAX]; /* pool index of each node */
    int nodes;
    tree_leaf_fn complete; /* NULL: nobody looks */
    void *arg;
};

/* pool: tree_buffers(begin, end) buffers, borrowed for the tree's life. */
int tree_init(struct tree *t, const struct kern_ops *k, struct kern_stream *s, int begin, int end, float **pool,
              const struct tree_span *span, int spans, struct merr *err);
void tree_clear(struct tree *t);

/* From now on complete(arg, …) sees the floats of each leaf once, and may change them. */
void tree_on_complete(struct tree *t, tree_leaf_fn complete, void *arg);

/* A new step: all buffers are free. */
void tree_reset(struct tree *t);

/* The buffer of a leaf, its spans zeroed, which must be the next one or the one under way. */
int tree_leaf(struct tree *t, int leaf, float **ret, struct merr *err);

/* The leaf under way is complete: merge what can be. */
int tree_push(struct tree *t, struct merr *err);

/* Of the leaf under way all gradients of span[0] from `from` on are complete: merge what can be there. Calls for one
 * leaf go down; tree_push() does the rest. */
int tree_push_from(struct tree *t, size_t from, struct merr *err);

/* The buffers that will hold the replica's nodes after the leaf under way, which must be its last, by lo; at most
 * TREE_PARTIALS_MAX. Their parts from t->mark on are final. */
int tree_last(const struct tree *t, float **ret);

/* Finish the tree over V leaves for n elements from nodes with their values, sorted by lo; the values are used up,
 * *ret points to the one that holds the sum. Every leaf must be covered exactly once: -EPROTO. */
int tree_finish(const struct kern_ops *k, struct kern_stream *s, int leaves, const struct tree_node *node,
                float *const *value, int nodes, size_t n, float **ret, struct merr *err);

/* The same tree over one double a leaf: v[V] is used up, the sum is returned. */
double tree_sum(double *v, int leaves);

#endif
