#include "scheduler/plan/memory.h"

#include <assert.h>
#include <limits.h>

#define ALIGN_FLOATS 16     /* of each array among the activations */
#define LEAVES_COUNTED 1024 /* leaves are walked up to so many */

static size_t padded(size_t n)
{
    return (n + PLAN_TENSOR_BLOCK - 1) / PLAN_TENSOR_BLOCK * PLAN_TENSOR_BLOCK;
}

/* --- parameters ---------------------------------------------------------------------------------------------- */

static size_t gpt2_vectors(size_t h, const struct plan_cut *c)
{
    return 6 * padded(h) + padded(3 * (size_t)c->q) + padded(c->ffn);
}

static size_t gpt2_block(size_t h, const struct plan_cut *c)
{
    return gpt2_vectors(h, c) + padded(h * 3 * c->q) + padded(c->q * h) + padded(h * c->ffn) + padded(c->ffn * h);
}

static size_t llama_vectors(const struct plan_model *m, const struct plan_cut *c)
{
    return 2 * padded(m->hidden) + (m->qkv_bias ? padded(c->q) + 2 * padded(c->kv) : 0) +
           (m->qk_norm ? 2 * padded(c->dim) : 0);
}

static size_t llama_block(const struct plan_model *m, const struct plan_cut *c)
{
    size_t h = m->hidden, q = padded(c->q * h), kv = padded(c->kv * h), ffn = padded(h * c->ffn);

    if (m->fused)
        return llama_vectors(m, c) + padded(c->qkv * h) + q + padded(2 * h * c->ffn) + ffn;
    return llama_vectors(m, c) + 2 * q + 2 * kv + 3 * ffn;
}

/* Elements of weights of one dimension: norms and biases. */
static size_t vectors(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *cut, int r)
{
    const struct plan_model *m = &job->model;
    struct plan_split split = plan_split_of(m, shape);
    size_t h = m->hidden, block = m->family == PLAN_GPT2 ? gpt2_vectors(h, cut) : llama_vectors(m, cut);
    size_t n = r == shape->pp - 1 ? (m->family == PLAN_GPT2 ? 2 : 1) * padded(h) : 0;

    for (int i = 0; i < shape->chunks; i++) {
        int begin, end;

        plan_split_layers(&split, i * shape->pp + r, &begin, &end);
        n += (size_t)(end - begin) * block;
    }
    return n;
}

void plan_elements(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *cut, int r,
                   size_t *ret_weights, size_t *ret_gradients)
{
    const struct plan_model *m = &job->model;
    struct plan_split split = plan_split_of(m, shape);
    size_t h = m->hidden, vocabulary = padded((size_t)cut->vocab * h), n = 0;
    size_t block = m->family == PLAN_GPT2 ? gpt2_block(h, cut) : llama_block(m, cut);
    bool first = r == 0, last = r == shape->pp - 1;

    for (int i = 0; i < shape->chunks; i++) {
        int begin, end;

        plan_split_layers(&split, i * shape->pp + r, &begin, &end);
        n += (size_t)(end - begin) * block;
    }
    if (first && m->family == PLAN_GPT2)
        n += padded((size_t)m->context * h);
    if (last)
        n += (m->family == PLAN_GPT2 ? 2 : 1) * padded(h);
    if (m->tied)
        n += first || last ? vocabulary : 0;
    else
        n += (size_t)(first + last) * vocabulary;
    *ret_weights = n;
    *ret_gradients = n + (m->tied && first && last ? vocabulary : 0);
}

/* Maximal aligned nodes of the tree over the leaves [begin, end). */
static int nodes(int begin, int end)
{
    int n = 0;

    for (int size; begin < end; begin += size, n++)
        for (size = 1; begin % (2 * size) == 0 && begin + 2 * size <= end; size *= 2)
            ;
    return n;
}

int plan_leaf_buffers(int begin, int end)
{
    int most = 1;

    for (int leaf = begin; leaf < end; leaf++) {
        int n = nodes(begin, leaf) + 1;

        most = n > most ? n : most;
    }
    return most;
}

/* Of all replicas of many leaves no more than a whole tree can have in use. */
static int buffers(const struct plan_job *job, const struct plan_shape *shape, int replica)
{
    int most = 1, from = replica < 0 ? 0 : replica, to = replica < 0 ? shape->dp : replica + 1;

    if (replica < 0 && job->virtual_workers > LEAVES_COUNTED) {
        while (1 << most < job->virtual_workers)
            most++;
        return 2 * most + 1;
    }
    for (int r = from; r < to; r++) {
        int begin, end, n;

        plan_leaves(job->virtual_workers, shape->dp, r, &begin, &end);
        n = plan_leaf_buffers(begin, end);
        most = n > most ? n : most;
    }
    return most;
}

/* Gradients that come from other replicas: all their nodes, of which there are fewest where a replica has most. */
static uint64_t exchange(const struct plan_job *job, int dp, int replica, size_t gradients)
{
    size_t piece = gradients / (size_t)dp;
    int all = 0, own = INT_MAX;

    if (dp == 1)
        return 0;
    for (int r = 0; r < dp; r++) {
        int begin, end, n;

        plan_leaves(job->virtual_workers, dp, r, &begin, &end);
        n = nodes(begin, end);
        all += n;
        if (r == replica || (replica < 0 && n < own))
            own = n;
    }
    return sizeof(float) * (uint64_t)(all - own) * (piece < PLAN_EXCHANGE_FLOATS ? piece : PLAN_EXCHANGE_FLOATS);
}

static uint64_t optimizer(const struct plan_job *job, int dp, int replica, size_t weights, size_t gradients)
{
    uint64_t w = weights, g = gradients, d = (uint64_t)dp;

    if (job->dp_keyed) /* masters and moments, coded weights, every leaf's piece: no codec takes more than floats */
        return sizeof(float) * (3 * w / d + w + g / d * (uint64_t)job->virtual_workers);
    if (job->dp_coded && dp > 1)
        return sizeof(float) * 3 * w / d;
    if (job->stored)
        return plan_store_bytes(w / d) + exchange(job, dp, replica, gradients);
    if (plan_narrow(job))
        return sizeof(float) * 3 * w / d + exchange(job, dp, replica, gradients);
    return sizeof(float) * (job->zero ? 2 * w / d : 2 * w + (d > 1 ? w : 0)) + exchange(job, dp, replica, gradients);
}

/* --- activations --------------------------------------------------------------------------------------------- */

struct rows {          /* of a micro-batch */
    size_t all, trunk; /* trunk: what a rank has of the stream between blocks */
    size_t type;       /* bytes of what goes into matrix products */
    bool normed;       /* queries and keys stay as they were before their norms, too */
};

static size_t floats(size_t n)
{
    return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static size_t typed(const struct rows *r, size_t n)
{
    return floats((n * r->type + sizeof(float) - 1) / sizeof(float));
}

static size_t cheap(const struct rows *r, size_t h, const struct plan_cut *c)
{
    return 2 * typed(r, r->trunk * h) + typed(r, r->all * c->ffn);
}

static size_t dear(const struct rows *r, size_t h, const struct plan_cut *c)
{
    size_t normed = r->normed ? typed(r, r->all * c->q) + typed(r, r->all * c->kv) : 0;

    return normed + 4 * floats(r->trunk) + typed(r, r->all * c->qkv) + typed(r, r->all * c->q) +
           floats(r->all * c->heads) + floats(r->trunk * h) + typed(r, r->all * c->parts * c->ffn);
}

/* Of a slot of a stage with so many blocks, remade of which make again what the kind of recomputation drops. */
static size_t slot_floats(const struct rows *r, size_t h, const struct plan_cut *c, enum plan_recompute recompute,
                          int layers, int remade)
{
    size_t n = (size_t)(layers + 1) * floats(r->trunk * h), whole = (size_t)(layers - remade);
    size_t dears = recompute == PLAN_RECOMPUTE_FULL ? whole : (size_t)layers;

    return n + whole * cheap(r, h, c) + dears * dear(r, h, c);
}

/* With cp: keys and values of all its ranks, their gradients, and what travels of both; or of some heads all that
 * attention takes and makes, and what travels of it. */
static size_t shared_floats(const struct plan_job *job, const struct plan_shape *s, const struct rows *r,
                            const struct plan_cut *c)
{
    size_t mine = r->all * 2 * (size_t)c->kv, all = mine * (size_t)plan_cp(s);
    size_t qkv = r->all * c->qkv, q = r->all * c->q, lse = r->all * c->heads;
    size_t travels = ((qkv + 2 * q) * r->type + sizeof(float) - 1) / sizeof(float) + lse;

    if (plan_cp(s) == 1)
        return 0;
    if (job->cp_heads)
        return 2 * typed(r, qkv) + 2 * typed(r, q) + floats(lse) + 2 * floats(travels);
    return typed(r, all) + 2 * floats(all) + floats(mine);
}

static size_t scratch_floats(const struct plan_job *job, const struct plan_shape *s, const struct rows *r, size_t h,
                             const struct plan_cut *c)
{
    size_t n = floats(r->all * h);

    if (s->recompute != PLAN_RECOMPUTE_NONE)
        n += cheap(r, h, c);
    if (s->recompute == PLAN_RECOMPUTE_FULL)
        n += dear(r, h, c);
    n += typed(r, r->all * c->parts * c->ffn) + (c->parts > 1 ? typed(r, r->all * c->ffn) : 0);
    n += typed(r, r->all * c->qkv) + typed(r, r->all * c->q) + (job->bf16 ? typed(r, r->all * h) : 0);
    n += floats(r->trunk * h) + (s->schedule == SCHEDULE_ZB_H1 ? floats(r->trunk * h) : 0);
    n += shared_floats(job, s, r, c);
    return n + (r->trunk < r->all ? floats(r->all * h) : 0);
}

static size_t head_floats(const struct plan_job *job, const struct plan_shape *s, const struct rows *r, size_t h,
                          const struct plan_cut *c)
{
    size_t head = r->all < PLAN_HEAD_ROWS ? r->all : PLAN_HEAD_ROWS;

    return typed(r, r->all * h) + 2 * floats(r->trunk) + floats(head * c->vocab) +
           (job->bf16 ? typed(r, head * c->vocab) : 0) + floats(head * 3 * s->tp) + floats(head);
}

static uint64_t activations(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *c, int r,
                            const struct rows *rows, const int *slots)
{
    struct plan_split split = plan_split_of(&job->model, shape);
    size_t h = job->model.hidden, n = scratch_floats(job, shape, rows, h, c);

    for (int i = 0; i < shape->chunks; i++) {
        int begin, end, stage = i * shape->pp + r;

        plan_split_layers(&split, stage, &begin, &end);
        n += (size_t)slots[i] *
             slot_floats(rows, h, c, shape->recompute, end - begin, plan_remade(shape, stage, end - begin));
    }
    if (r == shape->pp - 1)
        n += head_floats(job, shape, rows, h, c);
    return sizeof(float) * (uint64_t)n;
}

int plan_slots(const struct schedule *s, const struct schedule *forward, int r, int chunk)
{
    int step = schedule_slots(s, r, chunk) + (s->ranks > 1); /* a last message may still be under way */
    int eval = forward ? schedule_slots(forward, r, chunk) : 0;

    if (step > s->micros)
        step = s->micros;
    return step > eval ? step : eval;
}

void plan_memory_of(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *cut, int r,
                    int replica, const int *slots, struct plan_memory *ret)
{
    bool parts = job->sequence_parallel && shape->tp > 1;
    struct rows rows = {
        .all = plan_rows(job, shape), .type = job->bf16 ? 2 : sizeof(float), .normed = job->model.qk_norm};
    size_t weights, gradients, shared = plan_cp(shape) > 1 ? 2 * (size_t)cut->kv * (size_t)plan_cp(shape) : 0;

    assert(r >= 0 && r < shape->pp);
    rows.trunk = parts ? rows.all / shape->tp : rows.all;
    plan_elements(job, shape, cut, r, &weights, &gradients);
    *ret = (struct plan_memory){
        .weights =
            weights * (job->bf16 ? 2 : 0) + (plan_narrow(job) ? vectors(job, shape, cut, r) : weights) * sizeof(float),
        .gradients = (uint64_t)gradients * buffers(job, shape, replica) * sizeof(float),
        .optimizer = optimizer(job, shape->dp, replica, weights, gradients),
        .activations = activations(job, shape, cut, r, &rows, slots),
    };
    ret->rest = (job->program_bytes > 0 ? job->program_bytes : PLAN_PROGRAM_BYTES) +
                (job->stored ? 0 : plan_ring_bytes(weights, job->zero ? shape->dp : 1)) +
                (job->bf16 ? (uint64_t)rows.all * (2 * (cut->qkv + cut->q) + shared) * sizeof(float) : 0);
}
