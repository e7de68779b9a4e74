/* tiny - a small model of either family with fresh weights, and gradients compared */
#ifndef MUSTER_TESTS_UNIT_WORKER_TINY_H
#define MUSTER_TESTS_UNIT_WORKER_TINY_H

#include <math.h>
#include <stdlib.h>

#include "tests/unit/test.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage.h"

/* Sums in another order; the terms are of the size of the largest gradient. Floats are doubles in mk/test.mk. */
#define TOLERANCE (sizeof(float) == sizeof(double) ? 1e-10 : 1e-5)

#define TINY_LAYERS 5
#define TINY_VOCAB 21
#define TINY_WINDOW 11
#define TINY_CONTEXT 64

struct tiny {
    struct model_cfg model;
    struct params p;
    const struct kern_ops *k;
    struct kern_stream *s;
    float *w;
    uint16_t *rounded; /* w in bf16 */
};

/* family: 0 GPT-2, 1 Llama with heads that share keys and values, 2 the same with norms of heads, in a window. */
static inline void tiny_open(struct tiny *m, int family, double dropout, const struct kern_ops *k)
{
    struct kern_cfg kc = {.threads = 1};

    *m = (struct tiny){.k = k};
    m->model = (struct model_cfg){.family = family ? &family_llama : &family_gpt2,
                                  .layers = TINY_LAYERS,
                                  .hidden = 16,
                                  .heads = 4,
                                  .kv_heads = family ? 2 : 4,
                                  .ffn = 20,
                                  .context = TINY_CONTEXT,
                                  .vocab = TINY_VOCAB,
                                  .tied = true,
                                  .norm_eps = 1e-5,
                                  .dropout = dropout,
                                  .seed = 5};
    if (family)
        m->model.rope.theta = 100;
    if (family > 1) {
        m->model.qk_norm = true;
        m->model.window = TINY_WINDOW;
    }
    assert_int_equal(model_cut(&m->model, 1, 0, NULL), 0);
    assert_int_equal(k->stream_new(&kc, &m->s, NULL), 0);
    assert_int_equal(params_init(&m->p, &m->model, &(struct layer_range){0, TINY_LAYERS}, 1, true, true, NULL), 0);
    m->w = calloc(m->p.weight_n, sizeof(*m->w));
    m->rounded = calloc(m->p.weight_n, sizeof(*m->rounded));
    assert_non_null(m->w);
    assert_non_null(m->rounded);
    params_fill(&m->p, 3, 1, m->w);
    assert_int_equal(k->to_bf16(m->s, m->w, m->p.weight_n, m->rounded, NULL), 0);
}

static inline void tiny_close(struct tiny *m)
{
    params_clear(&m->p);
    m->k->stream_free(m->s);
    free(m->w);
    free(m->rounded);
}

/* All of the model on one rank, for micro-batches of so many rows. */
static inline struct stage_cfg tiny_cfg(const struct tiny *m, int rows, int docs, int slots)
{
    return (struct stage_cfg){.k = m->k,
                              .stream = m->s,
                              .model = &m->model,
                              .params = &m->p,
                              .weights = m->w,
                              .precision = {.matrices = m->rounded},
                              .part = {.layers = m->p.chunk[0], .first = true, .last = true},
                              .sizes = {.micro = 1, .length = rows, .docs = docs, .slots = slots}};
}

/* Token r of document d; the one after it is the target. */
static inline int32_t tiny_token(int d, int r)
{
    return (31 * d + r) * 7 % TINY_VOCAB;
}

static inline float *tiny_gradients(const struct tiny *m)
{
    float *g = calloc(m->p.grad_n, sizeof(*g));

    assert_non_null(g);
    return g;
}

/* Largest difference over the largest element. */
static inline double relative_difference(const float *a, const float *b, size_t n)
{
    double most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    assert_true(most > 0);
    return off / most;
}

static inline double tiny_difference(const struct tiny *m, const float *a, const float *b)
{
    return relative_difference(a, b, m->p.grad_n);
}

#endif
