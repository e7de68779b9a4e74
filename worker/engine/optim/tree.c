#include "worker/engine/optim/tree.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

/* Whether the last two nodes are the halves of one aligned node. */
static bool mergeable(const struct tree_node *node, int n)
{
    return n >= 2 && node[n - 2].size == node[n - 1].size && node[n - 2].lo % (2 * node[n - 2].size) == 0 &&
           node[n - 2].lo + node[n - 2].size == node[n - 1].lo;
}

static int walk(int begin, int end, struct tree_node *node, int *ret_most)
{
    int n = 0, most = 1;

    assert(begin >= 0 && begin < end);
    for (int leaf = begin; leaf < end; leaf++) {
        assert(n < TREE_PARTIALS_MAX);
        node[n++] = (struct tree_node){leaf, 1};
        if (n > most)
            most = n;
        for (; mergeable(node, n); n--)
            node[n - 2].size *= 2;
    }
    *ret_most = most;
    return n;
}

int tree_partials(int begin, int end, struct tree_node *ret)
{
    int most;

    return walk(begin, end, ret, &most);
}

int tree_buffers(int begin, int end)
{
    struct tree_node node[TREE_PARTIALS_MAX];
    int most;

    (void)walk(begin, end, node, &most);
    return most;
}

int tree_init(struct tree *t, const struct kern_ops *k, struct kern_stream *s, int begin, int end, float **pool,
              const struct tree_span *span, int spans, struct merr *err)
{
    assert(spans <= TREE_SPANS_MAX);
    *t = (struct tree){.k = k,
                       .stream = s,
                       .begin = begin,
                       .end = end,
                       .spans = spans,
                       .buffers = tree_buffers(begin, end),
                       .pool = pool};
    for (int i = 0; i < spans; i++)
        t->span[i] = span[i];
    t->free = calloc(t->buffers, sizeof(*t->free));
    if (!t->free)
        return merr_set(err, -ENOMEM, "no memory for %d gradient buffers", t->buffers);
    tree_reset(t);
    return 0;
}

void tree_clear(struct tree *t)
{
    free(t->free);
    t->free = NULL;
}

void tree_on_complete(struct tree *t, tree_leaf_fn complete, void *arg)
{
    t->complete = complete;
    t->arg = arg;
}

void tree_reset(struct tree *t)
{
    t->leaf = t->begin;
    t->nodes = 0;
    t->current = -1;
    t->n_free = t->buffers;
    for (int i = 0; i < t->buffers; i++)
        t->free[i] = t->buffers - 1 - i;
}

int tree_leaf(struct tree *t, int leaf, float **ret, struct merr *err)
{
    assert(leaf == t->leaf && leaf < t->end);
    if (t->current < 0) {
        assert(t->n_free > 0);
        t->current = t->free[--t->n_free];
        t->mark = t->span[0].at + t->span[0].n;
        for (int i = 0; i < t->spans; i++)
            TRY(t->k->fill(t->stream, t->pool[t->current] + t->span[i].at, 0, t->span[i].n, err));
    }
    *ret = t->pool[t->current];
    return 0;
}

/* The nodes after the leaf under way, before any is merged. */
static int stack_of(const struct tree *t, struct tree_node *node, int *at)
{
    assert(t->current >= 0 && t->nodes < TREE_PARTIALS_MAX);
    memcpy(node, t->node, t->nodes * sizeof(*node));
    memcpy(at, t->at, t->nodes * sizeof(*at));
    node[t->nodes] = (struct tree_node){t->leaf, 1};
    at[t->nodes] = t->current;
    return t->nodes + 1;
}

/* [from, from + n) of the leaf under way is complete: merge the stack's nodes there. */
static int merge(struct tree *t, size_t from, size_t n, struct merr *err)
{
    struct tree_node node[TREE_PARTIALS_MAX];
    int at[TREE_PARTIALS_MAX], nodes = stack_of(t, node, at);

    if (t->complete && n > 0)
        TRY(t->complete(t->arg, t->leaf, t->pool[t->current], from, n, err));
    for (; n > 0 && mergeable(node, nodes); nodes--) {
        TRY(t->k->add(t->stream, t->pool[at[nodes - 2]] + from, t->pool[at[nodes - 1]] + from, n, err));
        node[nodes - 2].size *= 2;
    }
    return 0;
}

int tree_push_from(struct tree *t, size_t from, struct merr *err)
{
    assert(from >= t->span[0].at && from <= t->mark);
    TRY(merge(t, from, t->mark - from, err));
    t->mark = from;
    return 0;
}

int tree_last(const struct tree *t, float **ret)
{
    struct tree_node node[TREE_PARTIALS_MAX];
    int at[TREE_PARTIALS_MAX], nodes = stack_of(t, node, at);

    assert(t->leaf == t->end - 1);
    for (; mergeable(node, nodes); nodes--)
        node[nodes - 2].size *= 2;
    for (int i = 0; i < nodes; i++)
        ret[i] = t->pool[at[i]];
    return nodes;
}

int tree_push(struct tree *t, struct merr *err)
{
    TRY(tree_push_from(t, t->span[0].at, err));
    for (int i = 1; i < t->spans; i++)
        TRY(merge(t, t->span[i].at, t->span[i].n, err));
    t->node[t->nodes] = (struct tree_node){t->leaf++, 1};
    t->at[t->nodes++] = t->current;
    t->current = -1;
    for (; mergeable(t->node, t->nodes); t->nodes--) {
        t->node[t->nodes - 2].size *= 2;
        t->free[t->n_free++] = t->at[t->nodes - 1];
    }
    return 0;
}

struct finish {
    const struct kern_ops *k;
    struct kern_stream *s;
    int leaves;
    const struct tree_node *node;
    float *const *value;
    int nodes, at; /* at: the next node, they come by lo */
    size_t n;
    struct merr *err;
};

static int finish(struct finish *f, int lo, int size, float **ret)
{
    float *left, *right;
    int r;

    if (f->at == f->nodes || f->node[f->at].lo != lo || f->node[f->at].size > size)
        return merr_set(f->err, -EPROTO, "the gradient of leaf %d is missing or there twice", lo);
    if (f->node[f->at].size == size) {
        *ret = f->value[f->at++];
        return 0;
    }
    r = finish(f, lo, size / 2, &left);
    if (r == 0 && lo + size / 2 < f->leaves) {
        r = finish(f, lo + size / 2, size / 2, &right);
        if (r == 0)
            r = f->k->add(f->s, left, right, f->n, f->err);
    }
    if (r == 0)
        *ret = left;
    return r;
}

static int root_size(int leaves)
{
    int size = 1;

    while (size < leaves)
        size *= 2;
    return size;
}

int tree_finish(const struct kern_ops *k, struct kern_stream *s, int leaves, const struct tree_node *node,
                float *const *value, int nodes, size_t n, float **ret, struct merr *err)
{
    struct finish f = {k, s, leaves, node, value, nodes, 0, n, err};
    float *sum;
    int r = finish(&f, 0, root_size(leaves), &sum);

    if (r == 0 && f.at != nodes)
        r = merr_set(err, -EPROTO, "%d gradients are left over", nodes - f.at);
    if (r == 0)
        *ret = sum;
    return r;
}

double tree_sum(double *v, int leaves)
{
    for (int half = 1; half < root_size(leaves); half *= 2)
        for (int lo = 0; lo + half < leaves; lo += 2 * half)
            v[lo] += v[lo + half];
    return v[0];
}
