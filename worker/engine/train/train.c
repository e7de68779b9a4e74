#include "worker/engine/train/train.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/protocol/exit.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/train/fit.h"
#include "worker/engine/train/train_impl.h"

#define GEMM_SIDE 256
#define GEMM_SIDE_MOST 8192 /* of a GPU, which small products do not fill */
#define GEMM_LONG_US 1000
#define GEMM_US 20000

static struct flight *signal_flight; /* for the handler: set before it is installed */

/* A SIGTERM that comes before there is a page to note it on waits until there is. */
static void hold_terminate(bool hold)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static void on_terminate(int number)
{
    (void)number;
    flight_order_set(signal_flight, FLIGHT_ABORT); /* one atomic store */
}

static int open_flight(struct train *t, struct merr *err)
{
    struct sigaction sa = {.sa_handler = on_terminate};
    char path[RUN_PATH_MAX + 32];
    int r;

    (void)snprintf(path, sizeof(path), "%s/rank-%05d.flight", t->run.folder, t->run.rank);
    r = flight_open(path, &t->flight, err);
    if (r == -ENOENT) /* started by hand: nobody watches, but the rank needs its page */
        r = flight_create(path, &t->flight, err);
    if (r != 0)
        return r;
    signal_flight = t->flight;
    if (sigaction(SIGTERM, &sa, NULL) != 0 || sigaction(SIGINT, &sa, NULL) != 0)
        return merr_errno(err, -errno, "cannot handle SIGTERM");
    hold_terminate(false);
    return 0;
}

/* --- what there is to do ------------------------------------------------------------------------------- */

/* The model the spec and the weights it starts from describe together. */
static int read_model(struct train *t, struct merr *err)
{
    json_t *source = NULL;
    int r;

    TRY(train_source(t, &source, err));
    r = model_from_spec(t->spec, source, t->mesh->tp, t->mesh->tp_index, &t->model, err);
    json_decref(source);
    return r;
}

/* Which layers are whose. */
static int plan_stages(struct train *t, struct merr *err)
{
    struct layer_range chunk[PARAM_CHUNKS_MAX];
    int pp = t->mesh->pp;

    t->chunks = pp > 1 ? t->spec->parallel.chunks : 1;
    if (t->chunks > PARAM_CHUNKS_MAX || t->model.layers / pp < t->chunks)
        return merr_set(err, -EINVAL, "%d layers cannot be split over pp %d with chunks %d", t->model.layers, pp,
                        t->chunks);
    t->split = (struct plan_split){
        .layers = t->model.layers, .stages = pp * t->chunks, .head_cost = model_head_cost(&t->model)};
    if (pp > 1 && t->spec->parallel.layers.n == t->split.stages)
        t->split.given = t->spec->parallel.layers.v;
    for (int i = 0; i < t->chunks; i++)
        plan_split_layers(&t->split, i * pp + t->mesh->pp_index, &chunk[i].begin, &chunk[i].end);
    return params_init(&t->params, &t->model, chunk, t->chunks, t->mesh->first, t->mesh->last, err);
}

static bool coded_in_spec(const char *codec)
{
    return *codec && strcmp(codec, "none") != 0;
}

static enum kern_type type_of(const struct train *t)
{
    return t->spec->train.precision == PRECISION_BF16 ? KERN_BF16 : KERN_F32;
}

static int blocks_of(const struct train *t, int chunk)
{
    return t->params.chunk[chunk].end - t->params.chunk[chunk].begin;
}

/* Blocks of a chunk that recompute leaves out. */
static int kept_of(const struct train *t, int chunk)
{
    const struct spec_counts *remade = &t->spec->parallel.recompute_layers;
    int n = remade->n == t->split.stages ? remade->v[chunk * t->mesh->pp + t->mesh->pp_index] : INT_MAX;

    return n < blocks_of(t, chunk) ? blocks_of(t, chunk) - n : 0;
}

static struct stage_cfg stage_config(struct train *t, int chunk)
{
    bool all = strcmp(t->spec->memory.policy, "all") == 0;
    int most = t->spec->train.batch.length;

    return (struct stage_cfg){
        .k = t->k,
        .stream = t->stream,
        .model = &t->model,
        .params = &t->params,
        .tp = t->tp,
        .tp_wire = t->wire[BYTES_TP],
        .type = type_of(t),
        .cp = t->cp,
        .cp_size = t->mesh->cp,
        .cp_index = t->mesh->cp_index,
        .cp_mode = t->spec->parallel.cp_mode,
        .recompute = all ? RECOMPUTE_FULL : t->spec->parallel.recompute,
        .kept = kept_of(t, chunk),
        .run = t->run_blocks,
        .some = t->keep_bytes != NULL,
        .keep_bytes = t->keep_bytes ? t->keep_bytes[chunk] : 0,
        .weights = t->weights,
        .matrices = t->matrices,
        .reduce = t->reduce,
        .micro = t->micro,
        .length = t->length,
        .docs = train_batch_docs(t),
        .slots = t->slots[chunk],
        .bodies = t->bodies,
        .stores = t->cut > 0 ? t->mesh->pp : 0,
        .store_tokens = t->cut > 0 ? most : 0,
        .layers = t->params.chunk[chunk],
        .first = t->mesh->first && chunk == 0,
        .last = t->mesh->last && chunk == t->chunks - 1,
        .split = t->schedule->kind == SCHEDULE_ZB_H1,
    };
}

/* What blocks may keep of the budget once the rest of the activations has its part, shared among all slots by their
 * blocks; the estimates of what they take have a margin, which is let stand where everything fits. */
static void share_budget(struct train *t, uint64_t room)
{
    uint64_t all = 0;

    for (int i = 0; i < t->chunks; i++)
        all += (uint64_t)t->slots[i] * blocks_of(t, i);
    for (int i = 0; i < t->chunks; i++) {
        struct stage_cfg s = stage_config(t, i);
        uint64_t most = (uint64_t)blocks_of(t, i) * stage_block_bytes(&s), share = room * blocks_of(t, i) / all;

        most += most / 32;
        t->keep_bytes[i] = (size_t)(share < most ? share : most) / 64 * 64;
    }
}

/* memory.policy and its budget. */
static int plan_memory(struct train *t, struct merr *err)
{
    const char *policy = t->spec->memory.policy;
    uint64_t budget = (uint64_t)t->spec->memory.activation_budget_mib << 20, need = 0;
    bool mimose = strcmp(policy, "mimose") == 0;
    int most = 1;

    for (int i = 0; i < t->chunks; i++)
        most = blocks_of(t, i) > most ? blocks_of(t, i) : most;
    if (strcmp(policy, "sqrt") == 0)
        t->run_blocks = (int)ceil(sqrt(most));
    if (mimose) {
        t->keep_bytes = calloc(t->chunks, sizeof(*t->keep_bytes));
        if (!t->keep_bytes)
            return merr_set(err, -ENOMEM, "no memory for %d chunks", t->chunks);
    }
    for (int i = 0; i < t->chunks; i++) {
        struct stage_cfg s = stage_config(t, i);

        need += stage_bytes(&s, i == 0);
    }
    if (budget > 0 && need > budget)
        return merr_set(err, -EINVAL,
                        "memory.activation_budget_mib %d is too small: activations take %llu MiB%s; want "
                        "at least that, a smaller train.batch.micro%s",
                        t->spec->memory.activation_budget_mib, (unsigned long long)((need + (1 << 20) - 1) >> 20),
                        mimose ? " even when no block keeps any" : "", mimose ? "" : ", or memory.policy 'mimose'");
    if (mimose)
        share_budget(t, budget - need);
    return 0;
}

static int plan(struct train *t, struct merr *err)
{
    const struct job_spec *s = t->spec;

    TRY(run_check(&t->run, err));
    TRY(read_model(t, err));
    if (s->parallel.cp_mode == CP_ULYSSES && t->model.kv_heads_local % t->mesh->cp)
        return merr_set(err, -EINVAL,
                        "parallel.cp_mode 'ulysses' cannot share the %d kv_heads that a rank of tp %d "
                        "has among cp %d",
                        t->model.kv_heads_local, t->mesh->tp, t->mesh->cp);
    TRY(plan_stages(t, err));
    if (s->parallel.exact == EXACT_STRICT && coded_in_spec(s->compress.dp))
        TRY(keyed_new(s->compress.dp, s->train.init.seed, &t->params, &t->keyed, err));
    TRY(train_batch_open(t, err));
    TRY(train_batch_plan(t, err));
    return plan_memory(t, err);
}

/* --- ranks ----------------------------------------------------------------------------------------------- */

static int gate(void *arg, int place, struct merr *err)
{
    return train_saves_gate(arg, place, err);
}

static struct optim_cfg optim_config(struct train *t)
{
    return (struct optim_cfg){
        .k = t->k,
        .stream = t->stream,
        .params = &t->params,
        .mesh = *t->mesh,
        .leaves = t->spec->parallel.virtual_workers,
        .share = t->run.share,
        .zero = t->spec->parallel.zero,
        .dp = t->dp,
        .cp = t->cp,
        .pair = t->pair,
        .sum = {[PARAM_SUM_TP] = t->model.sequence_parallel ? t->tp : NULL, [PARAM_SUM_KV] = t->kv},
        .m = t->keep ? handoff_m(t->keep) : NULL,
        .v = t->keep ? handoff_v(t->keep) : NULL,
        .wire = t->wire[BYTES_DP],
        .keyed = t->keyed,
        .coded = t->mesh->dp > 1 && !t->keyed && coded_in_spec(t->spec->compress.dp),
        .weights = t->weights,
        .beta1 = t->spec->train.optimizer.beta1,
        .beta2 = t->spec->train.optimizer.beta2,
        .eps = t->spec->train.optimizer.eps,
        .weight_decay = t->spec->train.optimizer.weight_decay,
        .gate = gate,
        .gate_arg = t,
    };
}

/* What node-mates read in place; with keep: also what this rank has to itself, so that it lies there. */
static size_t shared_bytes(struct train *t, bool keep)
{
    struct stage_cfg s = stage_config(t, 0);
    size_t bytes = 0;

    if (t->k->device)
        return 0; /* kernels there cannot reach it */
    if (t->mesh->tp > 1)
        bytes += stage_reduce_floats(&s) * sizeof(float) + COMM_SHARED_ALIGN;
    if (t->mesh->dp > 1 || keep)
        bytes += (t->params.weight_n + t->params.grad_n * t->buffers) * sizeof(float) +
                 COMM_SHARED_ALIGN * (1 + (size_t)t->buffers);
    return bytes;
}

/* MUSTER_CUDA_GRAPHS: "off", or CUDA graphs take the place of calls. */
static int use_graphs(bool *ret, struct merr *err)
{
    const char *word = getenv("MUSTER_CUDA_GRAPHS");

    if (word && strcmp(word, "off") != 0)
        return merr_set(err, -EINVAL, "MUSTER_CUDA_GRAPHS is '%.32s': want off, or nothing", word);
    *ret = !word;
    return 0;
}

static int open_world(struct train *t, struct merr *err)
{
    train_keep_open(t, shared_bytes(t, true));
    return train_world_open(t, shared_bytes(t, t->keep), err);
}

/* --- memory ---------------------------------------------------------------------------------------------- */

static int arena(struct train *t, bool share, size_t floats, float **ret, struct merr *err)
{
    if (!share)
        return t->k->mem_alloc(t->stream, floats * sizeof(float), (void **)ret, err);
    *ret = comm_shared_alloc(t->world, floats * sizeof(float));
    return *ret ? 0 : merr_set(err, -ENOMEM, "the shared arena is too small for %zu MiB", floats * sizeof(float) >> 20);
}

/* What comes on top of what this file allocates. */
static uint64_t planned_rest(const struct train *t, const struct fit *f)
{
    uint64_t state = f->weights + f->optimizer, ring = state < MCK_POOL_BYTES ? state : MCK_POOL_BYTES;
    uint64_t rows = (uint64_t)t->micro * t->length;
    uint64_t kv = (uint64_t)t->model.qkv_local - t->model.q_local, shared = t->mesh->cp > 1 ? t->mesh->cp * kv : 0;
    uint64_t widened = rows * (2 * (t->model.qkv_local + t->model.q_local) + shared) * sizeof(float);

    return PLAN_PROGRAM_BYTES + ring + (type_of(t) == KERN_F32 ? 0 : widened);
}

/* What this rank will allocate. */
static struct fit planned(struct train *t)
{
    struct optim_cfg o = optim_config(t);
    size_t weight = sizeof(float) + (type_of(t) == KERN_F32 ? 0 : kern_size(type_of(t)));
    struct fit f = {
        .weights = t->params.weight_n * weight,
        .gradients = t->params.grad_n * t->buffers * sizeof(float),
        .optimizer = optim_bytes(&o),
    };

    for (int i = 0; i < t->chunks; i++) {
        struct stage_cfg s = stage_config(t, i);

        f.activations += stage_bytes(&s, i == 0);
        s.run = 0;
        s.some = false;
        if (!s.split)
            s.recompute = RECOMPUTE_FULL;
        s.kept = 0;
        f.activations_least += stage_bytes(&s, i == 0);
    }
    f.rest = planned_rest(t, &f);
    return f;
}

int train_ranks_here(const struct train *t)
{
    int here = 0;

    for (int i = 0; i < t->run.world; i++)
        here += t->run.node_of[i] == t->run.node_of[t->mesh->rank];
    return here;
}

/* Each rank for itself: others may have GPUs of their own, and where they share one, allocating tells. */
static int check_fit_gpu(struct train *t, struct fit *need, struct merr *err)
{
    struct capacity room;
    struct fit there = *need;

    there.rest = FIT_GPU_BYTES;
    TRY(t->k->device->room(0, &room.free, &room.total, err));
    TRY(fit_check(&there, 1, &room, "its GPU", err));
    *need = (struct fit){.rest = need->rest}; /* that is the host's */
    return 0;
}

/* Before ranks meet: none of them has allocated anything yet. */
static int check_fit(struct train *t, struct merr *err)
{
    struct fit need = planned(t);
    struct capacity room;

    if (t->k->device)
        TRY(check_fit_gpu(t, &need, err));
    capacity_here(&room);
    if (room.free > 0 && t->run.memory[0])
        room.free += handoff_bytes(t->run.memory); /* is ours again */
    return fit_check(&need, train_ranks_here(t), &room, "this node", err);
}

static void print_plan(struct train *t)
{
    const struct mesh *m = t->mesh;
    struct fit need = planned(t);
    int layers = 0, slots = 0;
    const double mib = 1 << 20;
    double weights = (double)need.weights / mib, grads = (double)need.gradients / mib;
    double optimizer = (double)need.optimizer / mib, acts = (double)need.activations / mib;
    double rest = (double)need.rest / mib;

    for (int i = 0; i < t->chunks; i++) {
        layers += t->params.chunk[i].end - t->params.chunk[i].begin;
        slots += t->slots[i];
    }
    log_info("rank %d of %d: tp %d/%d, cp %d/%d, dp %d/%d, pp %d/%d, %d layers from %d on in %d chunks, leaves %d-%d "
             "of %d, %d micro-batches of %d sequences, %d threads, kernels '%s'",
             m->rank, t->run.world, m->tp_index, m->tp, m->cp_index, m->cp, m->dp_index, m->dp, m->pp_index, m->pp,
             layers, t->params.chunk[0].begin, t->chunks, t->leaf_begin, t->leaf_end - 1,
             t->spec->parallel.virtual_workers, t->micros, t->micro, t->run.threads, t->k->name);
    log_info("memory: weights %.1f MiB, gradients %.1f (%d buffers), optimizer %.1f, activations %.1f (%d slots), "
             "rest %.1f, all %.1f MiB",
             weights, grads, t->buffers, optimizer, acts, slots, rest, (double)fit_all(&need) / mib);
}

static int build_stages(struct train *t, struct merr *err)
{
    t->stage = calloc(t->chunks, sizeof(struct stage *));
    if (!t->stage)
        return merr_set(err, -ENOMEM, "no memory for %d stages", t->chunks);
    for (int i = 0; i < t->chunks; i++) {
        struct stage_cfg s = stage_config(t, i);

        s.scratch = i ? t->stage[0] : NULL;
        TRY(stage_new(&s, &t->stage[i], err));
    }
    return 0;
}

static int leaf_complete(void *arg, int leaf, float *buffer, size_t at, size_t n, struct merr *err)
{
    const struct train *t = arg;

    return optim_leaf(t->optim, leaf, buffer, at, n, err);
}

/* The part of the gradient arena [at, end) of rest, and with n > 0 as many floats from tied on. */
static int add_tree(struct train *t, size_t at, size_t end, size_t tied, size_t n, struct merr *err)
{
    struct tree_span span[TREE_SPANS_MAX] = {{at, end - at}, {tied, n}};

    TRY(tree_init(&t->tree[t->trees], t->k, t->stream, t->leaf_begin, t->leaf_end, t->pool, span, 1 + (n > 0), err));
    if (t->keyed)
        tree_on_complete(&t->tree[t->trees], leaf_complete, t);
    t->trees++;
    return 0;
}

static int build_trees(struct train *t, struct merr *err)
{
    const struct params *p = &t->params;

    t->tree = calloc(PIPE_TREE_HEAD(t->chunks) + 1, sizeof(*t->tree));
    if (!t->tree)
        return merr_set(err, -ENOMEM, "no memory for the gradients' trees");
    for (int i = 0; i < t->chunks; i++) {
        size_t tied_n = i == 0 && t->mesh->first ? p->tied_n : 0;

        TRY(add_tree(t, p->chunk_at[i], p->blocks_at[i], p->rest_n, tied_n, err));
        TRY(add_tree(t, p->blocks_at[i], p->chunk_at[i + 1], 0, 0, err));
    }
    if (!t->mesh->last)
        return 0;
    /* the head's own part of a tied tensor's gradient, or all of it */
    return add_tree(t, p->chunk_at[t->chunks], p->rest_n, p->grad_head_at ? p->grad_head_at : p->rest_n, p->tied_n,
                    err);
}

/* Messages of a GPU are tried in memory such as theirs. */
static int tune_pipe(struct train *t, size_t floats, struct merr *err)
{
    void *x = NULL;
    int r;

    if (t->k->device && t->mesh->pp > 1)
        TRY(t->k->mem_alloc(t->stream, WIRE_PIPE_FLOATS * sizeof(float), &x, err));
    r = wire_tune(t->wire[BYTES_PP], WIRE_PIPE, x, floats, err);
    if (x)
        t->k->mem_free(t->stream, x);
    return r;
}

int train_tune(struct train *t, int kind, struct merr *err)
{
    struct stage_cfg s = stage_config(t, 0);

    switch (kind) {
    case BYTES_TP:
        return wire_tune(t->wire[kind], WIRE_SUMS, t->reduce, stage_reduce_floats(&s), err);
    case BYTES_PP:
        return tune_pipe(t, stage_trunk_floats(&s), err);
    default:
        return wire_tune(t->wire[kind], WIRE_SHARES, t->pool[0], t->params.weight_n, err);
    }
}

static int build(struct train *t, struct merr *err)
{
    bool host = !t->k->device, shared = host && (t->mesh->dp > 1 || t->keep);
    struct stage_cfg s = stage_config(t, 0);
    struct optim_cfg o = optim_config(t);

    t->weights_owned = t->pool_owned = !shared;
    TRY(arena(t, shared, t->params.weight_n, &t->weights, err)); /* the first: handoff.h */
    if (type_of(t) != KERN_F32)
        TRY(t->k->mem_alloc(t->stream, t->params.weight_n * kern_size(type_of(t)), &t->matrices, err));
    t->pool = calloc(t->buffers, sizeof(*t->pool));
    if (!t->pool)
        return merr_set(err, -ENOMEM, "no memory for the gradients' table");
    for (int i = 0; i < t->buffers; i++)
        TRY(arena(t, shared, t->params.grad_n, &t->pool[i], err));
    if (t->mesh->tp > 1)
        TRY(arena(t, host, stage_reduce_floats(&s), &t->reduce, err));
    for (int i = 0; i < BYTES; i++)
        TRY(train_tune(t, i, err));
    TRY(build_stages(t, err));
    o.weights = t->weights;
    TRY(optim_new(&o, &t->optim, err));
    TRY(build_trees(t, err));
    return pipe_new(&(struct pipe_cfg){.stage = t->stage,
                                       .slots = t->slots,
                                       .chunks = t->chunks,
                                       .floats = stage_trunk_floats(&s),
                                       .rows = s.micro * s.length,
                                       .mesh = t->mesh,
                                       .pp = t->wire[BYTES_PP],
                                       .k = t->k,
                                       .stream = t->stream,
                                       .flight = t->flight},
                    &t->pipe, err);
}

int train_weights_changed(struct train *t, struct merr *err)
{
    size_t n = t->params.weight_n;

    t->k->weights_changed(t->stream, t->weights, n * sizeof(float));
    if (!t->matrices)
        return 0;
    t->k->weights_changed(t->stream, t->matrices, n * kern_size(KERN_BF16));
    return t->k->to_bf16(t->stream, t->weights, n, t->matrices, err);
}

/* Ranks of this node share its cores: their threads together are no faster than that. */
static double core_share(const struct train *t)
{
    int here = train_ranks_here(t);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores > 0 && (long)here * t->run.threads > cores ? (double)cores / ((double)here * t->run.threads) : 1;
}

/* The fastest of several square products in a row. */
static int time_product(struct train *t, int side, int64_t *ret_us, struct merr *err)
{
    struct kern_gemm g = {.type = type_of(t), .m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
    size_t n = (size_t)side * side;
    int64_t began, last, best = INT64_MAX;
    float *memory;

    TRY(t->k->mem_alloc(t->stream, 3 * n * sizeof(float), (void **)&memory, err));
    g.a = memory;
    g.b = memory + n;
    g.c = memory + 2 * n;
    TRY(t->k->gemm(t->stream, &g, err)); /* the first makes what the others reuse */
    TRY(t->k->stream_sync(t->stream, err));
    began = last = clock_mono_us();
    do {
        int64_t now;

        TRY(t->k->gemm(t->stream, &g, err));
        TRY(t->k->stream_sync(t->stream, err));
        now = clock_mono_us();
        best = now - last < best ? now - last : best;
        last = now;
    } while (last - began < GEMM_US);
    t->k->mem_free(t->stream, memory);
    *ret_us = best > 0 ? best : 1;
    return 0;
}

/* Matrix products a second of all ranks together: what utilisation is measured against. */
static int calibrate(struct train *t, struct merr *err)
{
    int64_t us = 0;
    int side = GEMM_SIDE;

    TRY(time_product(t, side, &us, err));
    while (t->k->device && us < GEMM_LONG_US && side < GEMM_SIDE_MOST) {
        int64_t of_larger;
        int r = time_product(t, 2 * side, &of_larger, err);

        if (r == -ENOMEM) /* others have the GPU's memory: the smaller one must do */
            break;
        TRY(r);
        side *= 2;
        us = of_larger;
    }
    t->peak_flops = 2.0 * side * side * side / ((double)us * 1e-6) * core_share(t);
    return comm_all_reduce(t->all, &t->peak_flops, 1, COMM_F64, COMM_SUM, err);
}

/* --- from start to end ----------------------------------------------------------------------------------- */

/* Until nobody holds the job before its state is read (hold.h). */
static int wait_held(const struct train *t, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + HOLD_MOST_S * INT64_C(1000000);

    while (hold_start_wanted(&t->hold)) {
        if (flight_aborted(t->flight))
            return merr_set(err, -ECANCELED, "told to give up");
        if (clock_mono_us() > deadline_us)
            return merr_set(err, -EINVAL, "'%s' has held the run before its start for %d s", t->hold.path, HOLD_MOST_S);
        (void)poll(NULL, 0, HOLD_LOOK_MS);
    }
    return 0;
}

static int train_run(struct train *t, struct merr *err)
{
    const char *kernels = getenv("MUSTER_KERNELS");
    struct kern_cfg cfg = {.threads = t->run.threads, .apart = t->run.world == 1};

    TRY(hold_init(&t->hold, t->spec->name, err));
    TRY(kern_find(kernels ? kernels : "auto", &t->k, err));
    TRY(use_graphs(&cfg.record, err));
    TRY(plan(t, err));
    TRY(check_fit(t, err));
    TRY(open_world(t, err));
    TRY(t->k->stream_new(&cfg, &t->stream, err));
    TRY(calibrate(t, err));
    print_plan(t);
    TRY(build(t, err));
    train_keep_touch(t);
    TRY(wait_held(t, err));
    TRY(train_restore(t, err));
    TRY(optim_check_replicas(t->optim, err));
    TRY(report_cut(t->report, t->step, err));
    TRY(train_batch_start(t, err));
    return train_loop(t, err);
}

static void train_clear(struct train *t)
{
    train_savers_close(t);
    pipe_free(t->pipe);
    for (int i = 0; i < t->trees; i++)
        tree_clear(&t->tree[i]);
    free(t->tree);
    optim_free(t->optim);
    for (int i = t->chunks - 1; t->stage && i >= 0; i--) /* the first last: others work in its scratch */
        stage_free(t->stage[i]);
    free(t->stage);
    free(t->slots);
    free(t->keep_bytes);
    if (t->k && t->k->device && t->reduce)
        t->k->mem_free(t->stream, t->reduce);
    for (int i = 0; t->pool_owned && t->pool && i < t->buffers; i++)
        t->k->mem_free(t->stream, t->pool[i]);
    if (t->matrices)
        t->k->mem_free(t->stream, t->matrices);
    if (t->weights_owned && t->weights)
        t->k->mem_free(t->stream, t->weights);
    free(t->pool);
    for (int i = 0; i < BYTES; i++)
        wire_free(t->wire[i]);
    comm_world_close(t->world);
    handoff_close(t->keep);
    if (t->stream)
        t->k->stream_free(t->stream);
    schedule_free(t->schedule);
    schedule_free(t->eval_schedule);
    free(t->loss);
    free(t->samples);
    free(t->sums);
    free(t->eval_sums);
    keyed_free(t->keyed);
    params_clear(&t->params);
    train_batch_close(t);
    report_free(t->report);
    run_clear(&t->run);
}

static const char *class_of(enum exit_cause cause)
{
    return cause == EXIT_CAUSE_USER ? "user" : cause == EXIT_CAUSE_NODE ? "node" : "system";
}

/* Whose fault an error is. */
static enum exit_cause cause_of(const struct train *t, int code)
{
    if (t->flight && flight_aborted(t->flight))
        return EXIT_CAUSE_ABORTED;
    switch (-code) {
    case EINVAL:
    case ENOTSUP:
    case ENOENT:
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENOTDIR:
    case EFBIG:
    case EBADMSG:
    case EMSGSIZE:
    case ELOOP:
    case ENAMETOOLONG:
        return EXIT_CAUSE_USER;
    case EDOM: /* found by all; one rank stands for it */
        return t->fault_rank == t->mesh->rank ? EXIT_CAUSE_USER : EXIT_CAUSE_ABORTED;
    case ENOMEM:
    case EIO:
    case ENOSPC:
    case EROFS:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENODEV:
        return EXIT_CAUSE_NODE;
    case ECANCELED:
    case ECONNRESET:
    case ETIMEDOUT:
    case EPIPE:
    case ECONNREFUSED:
        return EXIT_CAUSE_ABORTED;
    default:
        return EXIT_CAUSE_INTERNAL;
    }
}

static enum exit_cause finish(struct train *t, int code, const struct merr *err)
{
    enum exit_cause cause;

    if (code >= 0)
        return code == 0 ? EXIT_CAUSE_DONE : EXIT_CAUSE_DRAINED;
    cause = cause_of(t, code);
    log_error("%s", err->text);
    if (cause != EXIT_CAUSE_ABORTED && t->report)
        (void)report_event_take(t->report,
                                json_pack("{s:s, s:s, s:i, s:s}", "type", "fault", "class", class_of(cause), "rank",
                                          t->run.mesh.rank, "message", err->text),
                                NULL);
    return cause;
}

/* Leave the cause of the end for whoever watches, also where the run could not be read. Returns the status to end
 * with. */
static int tell_cause(struct flight *flight, const char *folder, int rank, enum exit_cause cause)
{
    struct flight *page = flight;
    char path[RUN_PATH_MAX + 32];

    (void)snprintf(path, sizeof(path), "%s/rank-%05d.flight", folder, rank);
    if (page || flight_open(path, &page, NULL) == 0)
        flight_cause_set(page, cause);
    if (!flight && page)
        flight_close(page);
    return exit_status(cause);
}

int train_main(const char *folder, int rank)
{
    struct train t = {.fault_rank = -1};
    struct merr err = {""};
    enum exit_cause cause;
    int code;

    hold_terminate(true);
    code = run_read(folder, rank, &t.run, &err);
    if (code == 0) {
        t.spec = t.run.spec;
        t.mesh = &t.run.mesh;
        code = open_flight(&t, &err);
    } else {
        (void)report_open(folder, folder, rank > 0 ? rank : 1, &t.report, NULL);
    }
    if (code == 0 && rank >= t.run.world) {
        cause = train_source_node(&t.run, t.flight);
        run_clear(&t.run);
        return tell_cause(t.flight, folder, rank, cause);
    }
    if (code == 0)
        code = report_open(t.run.folder, t.run.dir, rank, &t.report, &err);
    if (code == 0)
        code = train_run(&t, &err);
    cause = finish(&t, code, &err);
    if (t.flight)
        flight_phase_set(t.flight, FLIGHT_EXIT, t.step);
    if (t.flight && cause != EXIT_CAUSE_DONE && cause != EXIT_CAUSE_DRAINED)
        flight_order_set(t.flight, FLIGHT_ABORT); /* nothing on the way out may wait for a peer */
    train_clear(&t);
    return tell_cause(t.flight, folder, rank, cause); /* the page stays mapped: the handler may still write to it */
}
