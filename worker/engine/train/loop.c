/* The steps of a training run, and what is agreed on between them. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/train_impl.h"

#define CHECK_EVERY 500 /* steps between looks at whether replicas are the same */

#define BUCKET_FLOATS (1 << 18) /* of gradients go to other replicas together */

struct step_result {
    double loss, norm, lr;
    uint64_t bytes[BYTES], context_bytes;
    bool drain, firm, move; /* agreed on by all ranks, as are these; firm: it must end on disk; move: other nodes, or
                                 other memory, go on from what is left */
    bool hold;              /* no step is to begin for now */
    double saves[SAVE_VOTES];
    bool tune[BYTES];
    int64_t began_us;
};

static uint64_t sent(const struct comm_group *g)
{
    return g ? comm_bytes_sent(g) : 0;
}

/* This rank's part of what is agreed on for when so many steps are done: orders, saves, and whether to go on. */
static void vote(const struct train *t, uint64_t done, double *extra)
{
    enum flight_order order = flight_order_get(t->flight);

    extra[SUM_DRAIN] = order == FLIGHT_DRAIN || order == FLIGHT_MOVE || order == FLIGHT_HAND_OVER;
    extra[SUM_MOVE] = order == FLIGHT_MOVE || !t->keeps;
    extra[SUM_FIRM] = order == FLIGHT_DRAIN || train_must_be_durable(t);
    extra[SUM_HOLD] = hold_wanted(&t->hold, done);
    train_save_votes(t, extra + SUM_SAVES);
}

/* And what the votes of all ranks come to. */
static void count_votes(const double *extra, struct step_result *r)
{
    r->drain = extra[SUM_DRAIN] > 0;
    r->firm = extra[SUM_FIRM] > 0;
    r->move = extra[SUM_MOVE] > 0;
    r->hold = extra[SUM_HOLD] > 0;
    memcpy(r->saves, extra + SUM_SAVES, sizeof(r->saves));
}

/* What this rank adds to the step's sum besides the squares. */
static void contribute(struct train *t)
{
    int v = t->spec->parallel.virtual_workers;
    double *losses = t->sums + t->squares, *extra = losses + v;
    uint64_t now[BYTES] = {sent(t->tp) + sent(t->kv), sent(t->pp) + sent(t->pair), sent(t->dp)};

    if (t->mesh->last && t->mesh->tp_index == 0)
        for (int i = 0; i < t->micros; i++)
            losses[t->leaf_begin + i / t->per_leaf] += t->loss[i];
    vote(t, t->step + 1, extra);
    if (t->mesh->tp_index == 0 && t->mesh->cp_index == 0 && t->mesh->first)
        extra[SUM_EXTRAS + t->mesh->dp_index] = t->leaf_ms;
    extra[SUM_BROKEN] = keyed_broken_take(t->keyed);
    extra[SUM_CONTEXT] = (double)(sent(t->cp) - t->context_before);
    t->context_before = sent(t->cp);
    for (int i = 0; i < BYTES; i++) {
        extra[SUM_BROKEN] += wire_broken_take(t->wire[i]);
        extra[SUM_BYTES + i] = (double)(now[i] - t->bytes_before[i]);
        t->bytes_before[i] = now[i];
        extra[SUM_TUNE + i] = wire_departs(t->wire[i]);
    }
}

static int reduce(struct train *t, struct step_result *r, struct merr *err)
{
    int v = t->spec->parallel.virtual_workers;
    double *extra = t->sums + t->squares + v, square = 0;
    size_t n = t->squares + v + SUM_EXTRAS + t->mesh->dp;

    flight_phase_set(t->flight, FLIGHT_REDUCE, t->step);
    memset(t->sums, 0, n * sizeof(*t->sums));
    TRY(optim_reduce(t->optim, &t->tree[0], t->step, err));
    TRY(optim_squares(t->optim, t->sums, err));
    contribute(t);
    TRY(comm_all_reduce(t->all, t->sums, n, COMM_F64, COMM_SUM, err));
    for (size_t i = 0; i < t->squares; i++)
        square += t->sums[i];
    r->norm = extra[SUM_BROKEN] > 0 ? INFINITY : sqrt(square); /* a codec met numbers that are not finite */
    r->loss = tree_sum(t->sums + t->squares, v) / (double)t->targets;
    count_votes(extra, r);
    r->context_bytes = (uint64_t)extra[SUM_CONTEXT];
    for (int i = 0; i < BYTES; i++) {
        r->bytes[i] = (uint64_t)extra[SUM_BYTES + i];
        r->tune[i] = extra[SUM_TUNE + i] > 0;
    }
    return 0;
}

/* The words for a step whose loss or gradient is not finite, and the rank where it shows first. */
static void name_culprit(struct train *t, const struct step_result *r, struct merr *err)
{
    char name[PARAM_NAME_MAX];
    int stage;

    for (size_t i = 0; i < t->squares; i++) {
        int tp_index = (int)(i % t->mesh->tp);

        if (isfinite(t->sums[i]))
            continue;
        stage = params_place(&t->model, (int)(i / t->mesh->tp), &t->split, name);
        t->fault_rank = mesh_rank(t->mesh, tp_index, 0, 0, stage % t->mesh->pp);
        (void)merr_set(err, -EDOM,
                       "step %llu: the gradient of '%s' is not finite (stage %d, tensor-parallel index %d, "
                       "rank %d; loss %g)",
                       (unsigned long long)t->step, name, stage, tp_index, t->fault_rank, r->loss);
        return;
    }
    t->fault_rank = mesh_rank(t->mesh, 0, 0, 0, t->mesh->pp - 1);
    (void)merr_set(err, -EDOM, "step %llu: the loss is %g, the gradient norm %g (stage %d, rank %d)",
                   (unsigned long long)t->step, r->loss, r->norm, t->split.stages - 1, t->fault_rank);
}

/* 0: go on with the update; 1: leave this step's update out; -EDOM: give up. The same on every rank. */
static int check_finite(struct train *t, const struct step_result *r, struct merr *err)
{
    struct merr why;

    if (isfinite(r->loss) && isfinite(r->norm)) {
        t->skipped = 0;
        return 0;
    }
    name_culprit(t, r, &why);
    t->skipped++;
    if (t->spec->train.on_nonfinite == NONFINITE_SKIP && t->skipped <= t->spec->train.nonfinite_limit) {
        if (t->mesh->rank != 0)
            return 1;
        log_warn("%s; its update is left out", why.text);
        TRY(report_note(t->report, t->step, why.text, err));
        return 1;
    }
    return merr_set(err, -EDOM, "%s; a lower learning rate, more warmup or on_nonfinite 'skip' may help", why.text);
}

/* Replicas: gradients go to their owners while the backward goes on to the layers before. */
static int layer_done(void *arg, struct tree *tree, int layer, struct merr *err)
{
    struct train *t = arg;
    size_t from = t->params.layer[layer].at;

    if (tree->mark - from >= BUCKET_FLOATS || from == tree->span[0].at) {
        TRY(tree_push_from(tree, from, err));
        TRY(optim_reduce_from(t->optim, tree, from, err));
    }
    comm_poll(t->world);
    return 0;
}

static int step(struct train *t, struct step_result *r, struct merr *err)
{
    struct pipe_run run = {
        .done = t->dp && !wire_coded(t->wire[BYTES_DP]) ? layer_done : NULL,
        .load = train_load,
        .arg = t,
        .tree = t->tree,
        .step = t->step,
    };
    double clip = t->spec->train.optimizer.clip, scale = 1;
    int64_t began_us;
    int skip;

    r->began_us = clock_mono_us();
    TRY(train_batch_next(t, err));
    for (int i = 0; i < t->trees; i++)
        tree_reset(&t->tree[i]);
    TRY(optim_begin(t->optim, t->step, err));
    run.schedule = t->schedule;
    run.loss = t->loss;
    run.rows = train_batch_rows(t);
    run.per_leaf = t->per_leaf;
    run.weight = (float)(1.0 / (double)t->targets);
    began_us = clock_mono_us();
    TRY(pipe_go(t->pipe, &run, err));
    t->leaf_ms = (double)(clock_mono_us() - began_us) * 1e-3 / (t->leaf_end - t->leaf_begin);
    TRY(reduce(t, r, err));
    skip = check_finite(t, r, err);
    if (skip < 0)
        return skip;
    r->lr = optim_lr(t->spec, t->step);
    if (clip > 0 && clip / (r->norm + 1e-6) < 1)
        scale = clip / (r->norm + 1e-6);
    flight_phase_set(t->flight, FLIGHT_UPDATE, t->step);
    if (!skip) {
        TRY(optim_update(t->optim, t->step + 1, r->lr, scale, err));
        TRY(train_weights_changed(t, err));
    }
    t->step++;
    t->tokens += t->step_tokens;
    return 0;
}

/* Once, when calls turn out to be none that CUDA graphs take. */
static void tell_refusal(struct train *t)
{
    struct kern_recordings all;

    if (t->refusal_told || !t->k->recordings)
        return;
    t->k->recordings(t->stream, &all);
    t->refusal_told = all.refused > 0;
    if (t->refusal_told)
        log_warn("rank %d: calls of a step cannot be recorded as a CUDA graph and go one by one: %s", t->mesh->rank,
                 all.why);
}

static int report(struct train *t, const struct step_result *r, struct merr *err)
{
    double seconds = (double)(clock_mono_us() - r->began_us) * 1e-6;
    double rate = (double)t->step_tokens / seconds;
    struct report_step s = {
        .step = t->step - 1,
        .tokens = t->tokens,
        .loss = r->loss,
        .grad_norm = r->norm,
        .lr = r->lr,
        .tokens_per_s = rate,
        .step_ms = seconds * 1e3,
        .mfu = t->peak_flops > 0 ? rate * model_flops_per_token(&t->model, train_batch_length(t)) / t->peak_flops : 0,
        .stall_ms = (double)train_saves_stall_us(t) * 1e-3,
        .bytes_tp = r->bytes[BYTES_TP],
        .bytes_pp = r->bytes[BYTES_PP],
        .bytes_dp = r->bytes[BYTES_DP],
        .bytes_cp = r->context_bytes,
        .generation = t->run.generation,
        .ranks = t->run.world,
        .replicas = t->mesh->dp,
        .leaf_ms = t->sums + t->squares + t->spec->parallel.virtual_workers + SUM_EXTRAS,
    };
    uint64_t blocks = 0, dropped = 0;

    for (int i = 0; i < t->chunks; i++) {
        struct stage_usage u;

        stage_usage_take(t->stage[i], &u);
        s.activation_mib += (double)u.peak_bytes / (1 << 20);
        blocks += u.blocks;
        dropped += u.dropped;
    }
    s.recomputed = (double)dropped / (double)(blocks > 0 ? blocks : 1);
    train_batch_report(t, &s);
    for (int i = 0; i < BYTES; i++) {
        struct wire_times times;

        wire_times_take(t->wire[i], &times);
        s.wire_ms[i] = times.spent_ms;
        s.wire_predicted_ms[i] = times.predicted_ms;
    }
    return t->mesh->rank == 0 ? report_metrics(t->report, &s, err) : 0;
}

/* The link of a kind of groups is not what it was: decide again how they travel. */
static int tune_again(struct train *t, int kind, struct merr *err)
{
    const char *said;

    if (kind == BYTES_DP)
        TRY(train_settle(t, err));
    TRY(train_tune(t, kind, err));
    if (kind == BYTES_DP)
        TRY(optim_follow_wire(t->optim, err));
    said = wire_said(t->wire[kind]);
    if (t->mesh->rank != 0 || !*said)
        return 0;
    return report_note(t->report, t->step, said, err);
}

/* What comes between two steps. Returns 1 when drained. */
static int boundary(struct train *t, const struct step_result *r, struct merr *err)
{
    int eval = t->spec->train.eval.every_steps;
    bool end = t->step == (uint64_t)t->spec->train.steps;
    double seconds = (double)(clock_mono_us() - r->began_us) * 1e-6;
    bool left = false;

    if (r->drain && !r->firm && !end && r->move) {
        TRY(train_saves_leave(t, &left, err));
    } else if (r->drain && !r->firm && !end) {
        TRY(train_hand_over(t, err));
        return 1;
    }
    if (left) {
        train_keep_drop(t);
        return 1;
    }
    for (int i = 0; i < BYTES && !end; i++)
        if (r->tune[i])
            TRY(tune_again(t, i, err));
    TRY(train_saves(t, r->saves, seconds, r->drain || end, err));
    if (t->step % CHECK_EVERY == 0)
        TRY(optim_check_replicas(t->optim, err));
    if (end || (eval > 0 && t->step % eval == 0 && !r->drain))
        TRY(train_evaluate(t, err));
    if (r->drain && !end) {
        TRY(train_saves_finish(t, err));
        train_keep_drop(t);
        return 1;
    }
    return 0;
}

/* While somebody holds the run (hold.h): obey orders and follow what is being saved. Returns 1 when drained. */
static int wait_held(struct train *t, struct step_result *r, struct merr *err)
{
    double extra[SUM_EXTRAS];
    int64_t deadline_us = clock_mono_us() + HOLD_MOST_S * INT64_C(1000000);

    TRY(train_savers_open(t, err));
    memset(r->tune, 0, sizeof(r->tune));
    for (bool told = false;; told = true) {
        memset(extra, 0, sizeof(extra));
        vote(t, t->step, extra);
        TRY(comm_all_reduce(t->all, extra, SUM_EXTRAS, COMM_F64, COMM_SUM, err));
        count_votes(extra, r);
        if (r->drain)
            return boundary(t, r, err);
        TRY(train_saves_asked(t, r->saves, err));
        if (!r->hold)
            return 0;
        if (clock_mono_us() > deadline_us)
            return merr_set(err, -EINVAL,
                            "'%s' has held the run before step %llu for %d s: write a larger number, or "
                            "remove it",
                            t->hold.path, (unsigned long long)t->step, HOLD_MOST_S);
        if (!told && t->mesh->rank == 0)
            log_info("held before step %llu by '%s'", (unsigned long long)t->step, t->hold.path);
        (void)poll(NULL, 0, HOLD_LOOK_MS);
    }
}

static void tell_graphs(const struct train *t)
{
    struct kern_recordings all;

    if (!t->k->recordings)
        return;
    t->k->recordings(t->stream, &all);
    log_info("rank %d: %llu CUDA graphs, launched %llu times", t->mesh->rank, (unsigned long long)all.made,
             (unsigned long long)all.launched);
}

static int all_steps(struct train *t, struct merr *err)
{
    struct step_result r = {.hold = hold_may(&t->hold), .began_us = clock_mono_us()};
    uint64_t steps = (uint64_t)t->spec->train.steps;
    int drained;

    if (t->step == 0 || t->step >= steps)
        TRY(train_evaluate(t, err));
    while (t->step < steps) {
        drained = r.hold ? wait_held(t, &r, err) : 0;
        if (drained != 0)
            return drained;
        TRY(step(t, &r, err));
        tell_refusal(t);
        TRY(report(t, &r, err));
        TRY(train_savers_open(t, err));
        drained = boundary(t, &r, err);
        if (drained != 0)
            return drained;
    }
    TRY(train_savers_open(t, err));
    TRY(train_saves_finish(t, err));
    if (t->mesh->rank != 0)
        return 0;
    return report_event_take(t->report, json_pack("{s:s, s:I}", "type", "finished", "step", (json_int_t)t->step), err);
}

int train_loop(struct train *t, struct merr *err)
{
    int r = all_steps(t, err);

    tell_graphs(t);
    return r;
}
