#include "scheduler/plan/shape.h"

#include <assert.h>
#include <stddef.h>

int plan_micro(int leaf_sequences, int length)
{
    int micro = 1;

    for (int m = 1; m <= leaf_sequences; m++)
        if (leaf_sequences % m == 0 && (long)m * length <= PLAN_MICRO_TOKENS)
            micro = m;
    return micro;
}

int plan_cp(const struct plan_shape *shape)
{
    return shape->cp > 1 ? shape->cp : 1;
}

int plan_stage_ranks(const struct plan_shape *shape)
{
    return shape->tp * plan_cp(shape) * shape->dp;
}

int plan_remade(const struct plan_shape *shape, int stage, int blocks)
{
    if (shape->recompute == PLAN_RECOMPUTE_NONE)
        return 0;
    return shape->n_remade > 0 && shape->remade[stage] < blocks ? shape->remade[stage] : blocks;
}

struct layout plan_shape_layout(const struct plan_shape *shape)
{
    return (struct layout){.tp = shape->tp,
                           .pp = shape->pp,
                           .cp = plan_cp(shape),
                           .dp = shape->dp,
                           .world = plan_stage_ranks(shape) * shape->pp};
}

size_t plan_rows(const struct plan_job *job, const struct plan_shape *shape)
{
    size_t cp = (size_t)plan_cp(shape);

    return ((size_t)shape->micro * (size_t)job->length + cp - 1) / cp;
}

int plan_dim(const struct plan_model *m)
{
    return m->dim > 0 ? m->dim : m->hidden / m->heads;
}

double plan_seen(const struct plan_model *m, double length)
{
    double w = m->window;

    return w > 0 && w < length ? 2 * w - w * w / length : length;
}

bool plan_cut(const struct plan_model *m, int tp, struct plan_cut *ret)
{
    int unit = PLAN_VOCAB_ALIGN * tp, copies = tp > m->kv_heads ? tp / m->kv_heads : 1;

    if (tp < 1 || (m->dim == 0 && m->hidden % m->heads != 0) || (m->fused && tp > m->kv_heads) || m->heads % tp != 0 ||
        m->ffn % tp != 0 || (m->kv_heads % tp != 0 && tp % m->kv_heads != 0))
        return false;
    *ret = (struct plan_cut){.dim = plan_dim(m),
                             .parts = m->family == PLAN_LLAMA ? 2 : 1,
                             .heads = m->heads / tp,
                             .ffn = m->ffn / tp,
                             .vocab = (m->vocab + unit - 1) / unit * PLAN_VOCAB_ALIGN};
    ret->q = ret->heads * ret->dim;
    ret->kv = m->kv_heads * copies / tp * ret->dim;
    ret->qkv = ret->q + 2 * ret->kv;
    return true;
}

double plan_block_weights(const struct plan_model *m)
{
    double h = m->hidden, q = (double)m->heads * plan_dim(m), kv = (double)m->kv_heads * plan_dim(m);
    int parts = m->family == PLAN_LLAMA ? 2 : 1;

    return 2 * h * q + 2 * h * kv + (parts + 1) * h * m->ffn;
}

/* In blocks. */
static double head_cost(const struct plan_model *m)
{
    return (double)m->vocab * m->hidden / plan_block_weights(m);
}

struct plan_split plan_split_of(const struct plan_model *m, const struct plan_shape *shape)
{
    return (struct plan_split){.layers = m->layers,
                               .stages = shape->pp * shape->chunks,
                               .given = shape->n_layers > 0 ? shape->layers : NULL,
                               .head_cost = head_cost(m)};
}

int plan_micros(const struct plan_job *job, const struct plan_shape *shape, int r)
{
    int leaf = job->sequences / job->virtual_workers / shape->micro, begin, end;

    if (r < 0)
        return (job->virtual_workers + shape->dp - 1) / shape->dp * leaf;
    plan_leaves(job->virtual_workers, shape->dp, r, &begin, &end);
    return (end - begin) * leaf;
}
