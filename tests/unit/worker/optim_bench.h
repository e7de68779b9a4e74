/* optim_bench - an optimizer on one rank, and gradients that are known, for the tests of its modules. */
#ifndef MUSTER_TESTS_UNIT_WORKER_OPTIM_BENCH_H
#define MUSTER_TESTS_UNIT_WORKER_OPTIM_BENCH_H

#include <stdlib.h>

#include "tests/unit/test.h"
#include "worker/engine/model/family.h"
#include "worker/engine/optim/optim.h"

struct bench {
    struct model_cfg model;
    struct params p;
    const struct kern_ops *k;
    struct kern_stream *s;
    struct tree tree;
    struct optim *o;
    float *pool[TREE_PARTIALS_MAX], *w;
    int leaves;
};

static inline void open_stored(struct bench *b, int leaves, int (*gate)(void *, int, struct merr *), void *arg,
                               const struct optim_store *store)
{
    struct kern_cfg kc = {.threads = 1};
    struct optim_cfg oc;

    *b = (struct bench){.k = kern_plain(),
                        .leaves = leaves,
                        .model = {.family = &family_gpt2,
                                  .layers = 2,
                                  .hidden = 8,
                                  .heads = 2,
                                  .ffn = 32,
                                  .context = 4,
                                  .vocab = 70,
                                  .tied = true}};
    assert_int_equal(model_cut(&b->model, 1, 0, NULL), 0);
    assert_int_equal(b->k->stream_new(&kc, &b->s, NULL), 0);
    assert_int_equal(params_init(&b->p, &b->model, &(struct layer_range){0, 2}, 1, true, true, NULL), 0);
    b->w = calloc(b->p.weight_n, sizeof(float));
    params_fill(&b->p, 1, 1, b->w);
    for (int i = 0; i < tree_buffers(0, leaves); i++)
        b->pool[i] = calloc(b->p.grad_n, sizeof(float));
    assert_int_equal(tree_init(&b->tree, b->k, b->s, 0, leaves, b->pool, &(struct tree_span){0, b->p.grad_n}, 1, NULL),
                     0);
    oc = (struct optim_cfg){.k = b->k,
                            .stream = b->s,
                            .params = &b->p,
                            .leaves = leaves,
                            .zero = 1,
                            .weights = b->w,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .store = store,
                            .gate = gate,
                            .gate_arg = arg};
    mesh_init(&oc.mesh, 1, 1, 1, 1, 0);
    assert_int_equal(optim_new(&oc, &b->o, NULL), 0);
}

static inline void open_gated(struct bench *b, int leaves, int (*gate)(void *, int, struct merr *), void *arg)
{
    open_stored(b, leaves, gate, arg, NULL);
}

static inline void open_bench(struct bench *b, int leaves)
{
    open_gated(b, leaves, NULL, NULL);
}

static inline void close_bench(struct bench *b)
{
    optim_free(b->o);
    for (int i = 0; i < b->tree.buffers; i++)
        free(b->pool[i]);
    tree_clear(&b->tree);
    params_clear(&b->p);
    b->k->stream_free(b->s);
    free(b->w);
}

static inline float gradient(const struct bench *b, int leaf, size_t i)
{
    (void)b;
    return (float)((double)((i * 2654435761u + (size_t)leaf * 40503u) % 2001) - 1000) * 1e-4f;
}

/* Only real elements have gradients, as from the model. */
static inline void run_leaves(struct bench *b)
{
    tree_reset(&b->tree);
    assert_int_equal(optim_begin(b->o, 0, NULL), 0);
    for (int leaf = 0; leaf < b->leaves; leaf++) {
        float *g;

        assert_int_equal(tree_leaf(&b->tree, leaf, &g, NULL), 0);
        for (int i = 0; i < b->p.n; i++)
            for (size_t e = b->p.v[i].at; e < b->p.v[i].at + b->p.v[i].box[0].len[0]; e++)
                g[e] = gradient(b, leaf, e);
        g[b->p.grad_head_at] = 0.5f; /* the head's part of the tied tensor's first element */
        assert_int_equal(tree_push(&b->tree, NULL), 0);
    }
    assert_int_equal(optim_reduce(b->o, &b->tree, 0, NULL), 0);
}

#endif
