#include "worker/engine/train/shard.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/model/family.h"
#include "worker/engine/train/fit.h"
#include "worker/engine/train/store.h"
#include "worker/snapshot/handoff.h"

/* --- what it is made of ------------------------------------------------------------------------------------ */

static int blocks_of(const struct shard *shard, int chunk)
{
    return shard->rank->params.chunk[chunk].end - shard->rank->params.chunk[chunk].begin;
}

/* Blocks of a chunk that recompute leaves out. */
static int kept_of(const struct shard *shard, int chunk)
{
    const struct rank *rank = shard->rank;
    const struct spec_counts *remade = &rank->spec->parallel.recompute_layers;
    int n = remade->n == rank->split.stages ? remade->v[chunk * rank->mesh->pp + rank->mesh->pp_index] : INT_MAX;

    return n < blocks_of(shard, chunk) ? blocks_of(shard, chunk) - n : 0;
}

/* What stays of activations: a job names a policy, or what all blocks make again (api/spec_check.c: not both). */
static const char *policy_of(const struct rank *rank)
{
    const char *policy = rank->spec->memory.policy;

    return strcmp(policy, "none") == 0 ? retain_recompute(rank->spec->parallel.recompute) : policy;
}

/* By the GPU's memory, which GPUs of a class have alike; 0: as on processors. */
static int head_rows(const struct rank *rank)
{
    uint64_t left, all;
    struct merr err;

    if (!rank->k->device || rank->k->device->room(0, &left, &all, &err) < 0)
        return 0;
    return fit_head_rows(all, rank->model.vocab_local);
}

static struct stage_cfg stage_config(const struct shard *shard, int chunk)
{
    const struct rank *rank = shard->rank;
    const struct source *source = shard->source;
    int most = rank->spec->train.batch.length;

    return (struct stage_cfg){
        .k = rank->k,
        .stream = rank->stream,
        .model = &rank->model,
        .params = &rank->params,
        .part = {.tp = rank->tp,
                 .tp_wire = rank->wire[BYTES_TP],
                 .layers = rank->params.chunk[chunk],
                 .first = rank->mesh->first && chunk == 0,
                 .last = rank->mesh->last && chunk == rank->chunks - 1},
        .precision = {.type = rank_type(rank), .matrices = shard->matrices, .vectors = shard->vectors},
        .context = {.mode = rank->spec->parallel.cp_mode,
                    .group = rank->cp,
                    .size = rank->mesh->cp,
                    .index = rank->mesh->cp_index},
        .retain = {.policy = policy_of(rank),
                   .kept = kept_of(shard, chunk),
                   .run = shard->run_blocks,
                   .keep_bytes = shard->keep_bytes[chunk]},
        .weights = shard->weights,
        .reduce = shard->reduce,
        .sizes = {.micro = source->micro,
                  .length = source->length,
                  .docs = source_docs(source),
                  .head_rows = head_rows(rank),
                  .slots = source->slots[chunk],
                  .bodies = source->bodies,
                  .stores = source->cut > 0 ? rank->mesh->pp : 0,
                  .store_tokens = source->cut > 0 ? most : 0},
        .split = source->schedule->kind == SCHEDULE_ZB_H1};
}

/* What blocks may keep of the budget once the rest of the activations has its part, shared among all slots by their
 * blocks; the estimates of what they take have a margin, which is let stand where everything fits. */
static void share_budget(struct shard *shard, uint64_t left)
{
    uint64_t all = 0;

    for (int i = 0; i < shard->rank->chunks; i++)
        all += (uint64_t)shard->source->slots[i] * blocks_of(shard, i);
    for (int i = 0; i < shard->rank->chunks; i++) {
        struct stage_cfg s = stage_config(shard, i);
        uint64_t most = (uint64_t)blocks_of(shard, i) * stage_block_bytes(&s), share = left * blocks_of(shard, i) / all;

        most += most / 32;
        shard->keep_bytes[i] = (size_t)(share < most ? share : most) / 64 * 64;
    }
}

/* memory.policy and its budget. */
int shard_plan(struct shard *shard, const struct rank *rank, const struct source *source, struct merr *err)
{
    struct retain_cfg retain = {.policy = policy_of(rank)};
    uint64_t budget = (uint64_t)rank->spec->memory.activation_budget_mib << 20, need = 0;
    bool plans = retain_plans(&retain);
    int most = 1;

    shard->rank = rank;
    shard->source = source;
    shard->keep_bytes = calloc(rank->chunks, sizeof(*shard->keep_bytes));
    if (!shard->keep_bytes)
        return merr_set(err, -ENOMEM, "no memory for %d chunks", rank->chunks);
    shard->buffers = tree_buffers(source->leaf_begin, source->leaf_end);
    for (int i = 0; i < rank->chunks; i++)
        most = blocks_of(shard, i) > most ? blocks_of(shard, i) : most;
    shard->run_blocks = (int)ceil(sqrt(most));
    for (int i = 0; i < rank->chunks; i++) {
        struct stage_cfg s = stage_config(shard, i);

        need += stage_bytes(&s, i == 0);
    }
    if (budget > 0 && need > budget)
        return merr_set(err, -EINVAL,
                        "memory.activation_budget_mib %d is too small: activations take %llu MiB%s; want "
                        "at least that, a smaller train.batch.micro%s",
                        rank->spec->memory.activation_budget_mib, (unsigned long long)((need + (1 << 20) - 1) >> 20),
                        plans ? " even when no block keeps any" : "", plans ? "" : ", or memory.policy 'mimose'");
    if (plans)
        share_budget(shard, budget - need);
    return 0;
}

static struct optim_cfg optim_config(const struct shard *shard)
{
    const struct rank *rank = shard->rank;

    return (struct optim_cfg){
        .k = rank->k,
        .stream = rank->stream,
        .params = &rank->params,
        .mesh = *rank->mesh,
        .leaves = rank->spec->parallel.virtual_workers,
        .share = rank->run.share,
        .zero = rank->spec->parallel.zero,
        .dp = rank->dp,
        .cp = rank->cp,
        .pair = rank->pair,
        .sum = {[PARAM_SUM_TP] = rank->model.sequence_parallel || rank->model.qk_norm ? rank->tp : NULL,
                [PARAM_SUM_KV] = rank->kv},
        .wire = rank->wire[BYTES_DP],
        .keyed = rank->keyed,
        .store = store_calls(shard->store),
        .stored = store_wanted(rank),
        .coded = rank->mesh->dp > 1 && !rank->keyed && rank_coded(rank->spec->compress.dp),
        .weights = shard->weights,
        .narrow = shard_is_narrow(rank),
        .matrices = shard->matrices,
        .vectors = shard->vectors,
        .beta1 = rank->spec->train.optimizer.beta1,
        .beta2 = rank->spec->train.optimizer.beta2,
        .eps = rank->spec->train.optimizer.eps,
        .weight_decay = rank->spec->train.optimizer.weight_decay,
    };
}

bool shard_is_narrow(const struct rank *rank)
{
    return rank_type(rank) != KERN_F32 && rank->spec->parallel.zero && !rank_coded(rank->spec->compress.dp);
}

/* Of the weights, as all replicas hold them. */
static size_t weight_bytes(const struct rank *rank)
{
    size_t matrices = rank_type(rank) == KERN_F32 ? 0 : rank->params.weight_n * kern_size(rank_type(rank));

    return matrices + (shard_is_narrow(rank) ? rank->params.vector_n : rank->params.weight_n) * sizeof(float);
}

size_t shard_shared_bytes(const struct shard *shard, bool all)
{
    const struct rank *rank = shard->rank;
    struct stage_cfg s = stage_config(shard, 0);
    size_t bytes = 0;

    if (rank->k->device)
        return 0; /* kernels there cannot reach it */
    if (rank->mesh->tp > 1)
        bytes += stage_reduce_floats(&s) * sizeof(float) + COMM_SHARED_ALIGN;
    if (rank->mesh->dp > 1 || all)
        bytes += (shard_is_narrow(rank) ? weight_bytes(rank) : rank->params.weight_n * sizeof(float)) +
                 rank->params.grad_n * shard->buffers * sizeof(float) +
                 COMM_SHARED_ALIGN * (2 + (size_t)shard->buffers);
    return bytes;
}

/* --- memory ---------------------------------------------------------------------------------------------- */

static int arena(struct shard *shard, bool share, size_t bytes, void **ret, struct merr *err)
{
    const struct rank *rank = shard->rank;

    if (!share)
        return rank->k->mem_alloc(rank->stream, bytes, ret, err);
    *ret = comm_shared_alloc(rank->world, bytes);
    return *ret ? 0 : merr_set(err, -ENOMEM, "the shared arena is too small for %zu MiB", bytes >> 20);
}

/* What comes on top of what this file allocates. */
static uint64_t planned_rest(const struct shard *shard)
{
    const struct rank *rank = shard->rank;
    uint64_t ring =
        store_wanted(rank) ? 0 : plan_ring_bytes(rank->params.weight_n, rank->spec->parallel.zero ? rank->mesh->dp : 1);
    uint64_t rows = (uint64_t)shard->source->micro * shard->source->length;
    uint64_t kv = (uint64_t)rank->model.qkv_local - rank->model.q_local,
             shared = rank->mesh->cp > 1 ? rank->mesh->cp * kv : 0;
    uint64_t widened = rows * (2 * (rank->model.qkv_local + rank->model.q_local) + shared) * sizeof(float);

    return PLAN_PROGRAM_BYTES + ring + (rank_type(rank) == KERN_F32 ? 0 : widened);
}

/* What this rank will allocate. */
static struct fit planned(const struct shard *shard)
{
    const struct rank *rank = shard->rank;
    struct optim_cfg o = optim_config(shard);
    struct fit f = {
        .weights = weight_bytes(rank),
        .gradients = rank->params.grad_n * shard->buffers * sizeof(float),
        .optimizer = optim_bytes(&o),
    };

    for (int i = 0; i < rank->chunks; i++) {
        struct stage_cfg s = stage_config(shard, i);

        f.activations += stage_bytes(&s, i == 0);
        s.retain = (struct retain_cfg){.policy = s.split ? "none" : "full"};
        f.activations_least += stage_bytes(&s, i == 0);
    }
    if (store_wanted(rank))
        f.optimizer += store_bytes(rank->params.weight_n / (size_t)rank->mesh->dp);
    f.rest = planned_rest(shard);
    return f;
}

/* Floats of workspace on a GPU: sums of a bf16 product with a bias before they are rounded, or a number for each row
 * and head in attention's backward. */
static uint64_t work_floats(const struct shard *shard)
{
    const struct model_cfg *m = &shard->rank->model;
    int width = m->heads_local;

    if (rank_type(shard->rank) == KERN_BF16 && m->family->fc_end == KERN_BIAS_GELU)
        width = m->ffn_local > m->qkv_local ? m->ffn_local : m->qkv_local;
    return (uint64_t)shard->source->micro * (uint64_t)shard->source->length * (uint64_t)width;
}

/* Most communicators that this rank may come to have, if ranks speak by NCCL: one for each group, and one each way with
 * each of whom it trades messages. */
static int communicators(const struct rank *rank)
{
    const struct mesh *m = rank->mesh;
    int groups = (m->tp > 1) + (m->cp > 1) + (m->dp > 1) + (m->pp > 1) + (m->pp > 1 && rank->model.tied);

    return groups + 2 * (m->dp - 1) + 2 * (m->cp > 1) + (m->pp > 1 ? 4 : 0);
}

/* Each rank for itself: others may have GPUs of their own, and where they share one, allocating tells. */
static int check_fit_gpu(const struct shard *shard, struct fit *need, struct merr *err)
{
    struct capacity here;
    struct fit there = *need;

    there.rest = fit_gpu_rest(work_floats(shard), communicators(shard->rank));
    TRY(shard->rank->k->device->room(0, &here.free, &here.total, err));
    TRY(fit_check(&there, 1, &here, "its GPU", err));
    *need = (struct fit){.rest = need->rest}; /* that is the host's */
    return 0;
}

int shard_check_fit(const struct shard *shard, struct merr *err)
{
    const struct rank *rank = shard->rank;
    struct fit need = planned(shard);
    struct capacity here;

    if (rank->k->device)
        TRY(check_fit_gpu(shard, &need, err));
    capacity_here(&here);
    if (here.free > 0 && rank->run.memory[0])
        here.free += handoff_bytes(rank->run.memory); /* is ours again */
    return fit_check(&need, rank_ranks_here(rank), &here, "this node", err);
}

void shard_print_plan(const struct shard *shard)
{
    const struct rank *rank = shard->rank;
    const struct source *source = shard->source;
    const struct mesh *m = rank->mesh;
    struct fit need = planned(shard);
    int layers = 0, slots = 0;
    const double mib = 1 << 20;
    double weights = (double)need.weights / mib, grads = (double)need.gradients / mib;
    double optimizer = (double)need.optimizer / mib, acts = (double)need.activations / mib;
    double rest = (double)need.rest / mib;

    for (int i = 0; i < rank->chunks; i++) {
        layers += rank->params.chunk[i].end - rank->params.chunk[i].begin;
        slots += source->slots[i];
    }
    log_info("rank %d of %d: tp %d/%d, cp %d/%d, dp %d/%d, pp %d/%d, %d layers from %d on in %d chunks, leaves %d-%d "
             "of %d, %d micro-batches of %d sequences, %d threads, kernels '%s'",
             m->rank, rank->run.world, m->tp_index, m->tp, m->cp_index, m->cp, m->dp_index, m->dp, m->pp_index, m->pp,
             layers, rank->params.chunk[0].begin, rank->chunks, source->leaf_begin, source->leaf_end - 1,
             rank->spec->parallel.virtual_workers, source->micros, source->micro, rank->run.threads, rank->k->name);
    log_info("memory: weights %.1f MiB, gradients %.1f (%d buffers), optimizer %.1f, activations %.1f (%d slots), "
             "rest %.1f, all %.1f MiB",
             weights, grads, shard->buffers, optimizer, acts, slots, rest, (double)fit_all(&need) / mib);
}

static int build_stages(struct shard *shard, struct merr *err)
{
    const struct rank *rank = shard->rank;

    shard->stage = calloc(rank->chunks, sizeof(struct stage *));
    if (!shard->stage)
        return merr_set(err, -ENOMEM, "no memory for %d stages", rank->chunks);
    for (int i = 0; i < rank->chunks; i++) {
        struct stage_cfg s = stage_config(shard, i);

        s.scratch = i ? shard->stage[0] : NULL;
        TRY(stage_new(&s, &shard->stage[i], err));
    }
    return 0;
}

static int leaf_complete(void *arg, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    const struct shard *shard = arg;

    return optim_leaf(shard->optim, leaf, buffer, at, n, err);
}

/* The part of the gradient arena [at, end) of rest, and with n > 0 as many floats from tied on. */
static int add_tree(struct shard *shard, size_t at, size_t end, size_t tied, size_t n, struct merr *err)
{
    const struct rank *rank = shard->rank;
    struct tree_span span[TREE_SPANS_MAX] = {{at, end - at}, {tied, n}};

    TRY(tree_init(&shard->tree[shard->trees], rank->k, rank->stream, shard->source->leaf_begin, shard->source->leaf_end,
                  shard->pool, span, 1 + (n > 0), err));
    if (rank->keyed)
        tree_on_complete(&shard->tree[shard->trees], leaf_complete, shard);
    shard->trees++;
    return 0;
}

static int build_trees(struct shard *shard, struct merr *err)
{
    const struct rank *rank = shard->rank;
    const struct params *p = &rank->params;

    shard->tree = calloc(PIPE_TREE_HEAD(rank->chunks) + 1, sizeof(*shard->tree));
    if (!shard->tree)
        return merr_set(err, -ENOMEM, "no memory for the gradients' trees");
    for (int i = 0; i < rank->chunks; i++) {
        size_t tied_n = i == 0 && rank->mesh->first ? p->tied_n : 0;

        TRY(add_tree(shard, p->chunk_at[i], p->blocks_at[i], p->rest_n, tied_n, err));
        TRY(add_tree(shard, p->blocks_at[i], p->chunk_at[i + 1], 0, 0, err));
    }
    if (!rank->mesh->last)
        return 0;
    /* the head's own part of a tied tensor's gradient, or all of it */
    return add_tree(shard, p->chunk_at[rank->chunks], p->rest_n, p->grad_head_at ? p->grad_head_at : p->rest_n,
                    p->tied_n, err);
}

/* Messages of a GPU are tried in memory such as theirs. */
static int tune_pipe(struct shard *shard, size_t floats, struct merr *err)
{
    const struct rank *rank = shard->rank;
    void *x = NULL;
    int r;

    if (rank->k->device && rank->mesh->pp > 1)
        TRY(rank->k->mem_alloc(rank->stream, WIRE_PIPE_FLOATS * sizeof(float), &x, err));
    r = wire_tune(rank->wire[BYTES_PP], WIRE_PIPE, x, floats, err);
    if (x)
        rank->k->mem_free(rank->stream, x);
    return r;
}

int shard_tune(struct shard *shard, int kind, struct merr *err)
{
    const struct rank *rank = shard->rank;
    struct stage_cfg s = stage_config(shard, 0);

    switch (kind) {
    case BYTES_TP:
        return wire_tune(rank->wire[kind], WIRE_SUMS, shard->reduce, stage_reduce_floats(&s), err);
    case BYTES_PP:
        return tune_pipe(shard, stage_trunk_floats(&s), err);
    default:
        return wire_tune(rank->wire[kind], WIRE_SHARES, shard->pool[0], rank->params.weight_n, err);
    }
}

static int build_weights(struct shard *shard, bool shared, struct merr *err)
{
    const struct rank *rank = shard->rank;
    size_t n = rank->params.weight_n, type = kern_size(rank_type(rank));

    if (!shard_is_narrow(rank)) {
        TRY(arena(shard, shared, n * sizeof(float), (void **)&shard->weights, err));
        return rank_type(rank) == KERN_F32 ? 0 : rank->k->mem_alloc(rank->stream, n * type, &shard->matrices, err);
    }
    TRY(arena(shard, shared, n * type, &shard->matrices, err));
    return arena(shard, shared, (rank->params.vector_n + 1) * sizeof(float), (void **)&shard->vectors, err);
}

int shard_build(struct shard *shard, const struct shard_place *place, struct merr *err)
{
    const struct rank *rank = shard->rank;
    bool host = !rank->k->device, shared = host && (rank->mesh->dp > 1 || place->shared);
    struct stage_cfg s = stage_config(shard, 0);
    struct optim_cfg o;

    shard->weights_owned = shard->pool_owned = !shared;
    TRY(build_weights(shard, shared, err)); /* the first: handoff.h */
    shard->pool = calloc(shard->buffers, sizeof(*shard->pool));
    if (!shard->pool)
        return merr_set(err, -ENOMEM, "no memory for the gradients' table");
    for (int i = 0; i < shard->buffers; i++)
        TRY(arena(shard, shared, rank->params.grad_n * sizeof(float), (void **)&shard->pool[i], err));
    if (rank->mesh->tp > 1)
        TRY(arena(shard, host, stage_reduce_floats(&s) * sizeof(float), (void **)&shard->reduce, err));
    for (int i = 0; i < BYTES; i++)
        TRY(shard_tune(shard, i, err));
    TRY(build_stages(shard, err));
    if (store_wanted(rank))
        TRY(store_new(rank, shard_is_narrow(rank), &shard->store, err));
    o = optim_config(shard);
    o.m = place->m;
    o.v = place->v;
    o.master = place->master;
    o.gate = place->gate;
    o.gate_arg = place->gate_arg;
    TRY(optim_new(&o, &shard->optim, err));
    TRY(build_trees(shard, err));
    return pipe_new(&(struct pipe_cfg){.stage = shard->stage,
                                       .slots = shard->source->slots,
                                       .chunks = rank->chunks,
                                       .floats = stage_trunk_floats(&s),
                                       .rows = s.sizes.micro * s.sizes.length,
                                       .mesh = rank->mesh,
                                       .pp = rank->wire[BYTES_PP],
                                       .k = rank->k,
                                       .stream = rank->stream,
                                       .flight = rank->flight},
                    &shard->pipe, err);
}

int shard_weights_changed(struct shard *shard, struct merr *err)
{
    const struct rank *rank = shard->rank;
    size_t n = rank->params.weight_n;

    if (shard->weights)
        rank->k->weights_changed(rank->stream, shard->weights, n * sizeof(float));
    if (shard->matrices)
        rank->k->weights_changed(rank->stream, shard->matrices, n * kern_size(KERN_BF16));
    if (!shard->matrices || !shard->weights) /* narrow: the optimizer has rounded them */
        return 0;
    return rank->k->to_bf16(rank->stream, shard->weights, n, shard->matrices, err);
}

struct state_view shard_view(const struct shard *shard, bool moments)
{
    const struct rank *rank = shard->rank;

    return (struct state_view){
        .params = &rank->params,
        .mesh = rank->mesh,
        .zero = rank->spec->parallel.zero,
        .weights = shard->weights,
        .master = optim_master(shard->optim),
        .range = moments || shard->vectors ? optim_ranges(shard->optim) : NULL,
        .m = moments ? optim_m(shard->optim) : NULL,
        .v = moments ? optim_v(shard->optim) : NULL,
        .device = rank->k->device,
    };
}

void shard_touch(struct shard *shard)
{
    const struct kern_ops *k = shard->rank->k;
    struct kern_stream *stream = shard->rank->stream;
    const struct optim_range *r = optim_ranges(shard->optim);
    const struct params *p = &shard->rank->params;
    float *master = optim_master(shard->optim);

    if (!k->mem_touch || shard->weights_owned)
        return;
    if (shard->weights)
        k->mem_touch(stream, shard->weights, p->weight_n * sizeof(float));
    else
        k->mem_touch(stream, shard->matrices, p->weight_n * kern_size(KERN_BF16));
    for (int i = 0; i < shard->buffers; i++)
        k->mem_touch(stream, shard->pool[i], p->grad_n * sizeof(float));
    for (int i = 0; i < 2; i++) {
        size_t bytes = (r[i].end - r[i].begin) * sizeof(float);

        if (!shard->store) {
            k->mem_touch(stream, optim_m(shard->optim) + r[i].state, bytes);
            k->mem_touch(stream, optim_v(shard->optim) + r[i].state, bytes);
        }
        if (master)
            k->mem_touch(stream, master + r[i].state, bytes);
    }
}

void shard_zero(struct shard *shard)
{
    const struct optim_range *r = optim_ranges(shard->optim);

    float *master = optim_master(shard->optim);

    if (shard->weights)
        memset(shard->weights, 0, shard->rank->params.weight_n * sizeof(float));
    for (int i = 0; i < 2 && !shard->store; i++) {
        if (master)
            memset(master + r[i].state, 0, (r[i].end - r[i].begin) * sizeof(float));
        memset(optim_m(shard->optim) + r[i].state, 0, (r[i].end - r[i].begin) * sizeof(float));
        memset(optim_v(shard->optim) + r[i].state, 0, (r[i].end - r[i].begin) * sizeof(float));
    }
}

void shard_clear(struct shard *shard)
{
    const struct kern_ops *k = shard->rank ? shard->rank->k : NULL; /* without a plan there is nothing else */
    struct kern_stream *stream = k ? shard->rank->stream : NULL;

    pipe_free(shard->pipe);
    for (int i = 0; i < shard->trees; i++)
        tree_clear(&shard->tree[i]);
    free(shard->tree);
    optim_free(shard->optim);
    store_free(shard->store);
    for (int i = shard->stage ? shard->rank->chunks - 1 : -1; i >= 0;
         i--) /* the first last: others work in its scratch */
        stage_free(shard->stage[i]);
    free(shard->stage);
    free(shard->keep_bytes);
    if (k && k->device && shard->reduce)
        k->mem_free(stream, shard->reduce);
    for (int i = 0; shard->pool_owned && shard->pool && i < shard->buffers; i++)
        k->mem_free(stream, shard->pool[i]);
    if (shard->matrices && (shard->weights_owned || shard->weights))
        k->mem_free(stream, shard->matrices);
    if (shard->weights_owned && shard->vectors)
        k->mem_free(stream, shard->vectors);
    if (shard->weights_owned && shard->weights)
        k->mem_free(stream, shard->weights);
    free(shard->pool);
}
