#include "worker/engine/train/step.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/store.h"

/* Steps between looks at one of PARTS parts of the weights: do all replicas hold the same? */
#define CHECK_EVERY 16
#define PARTS 128

#define BUCKET_FLOATS (1 << 18) /* of gradients go to other replicas together */

/* The step's one sum over the world: squares by tensor and tp index, then losses by leaf, then these. */
enum {
    SUM_DRAIN,
    SUM_FIRM,
    SUM_MOVE,
    SUM_BROKEN,
    SUM_CONTEXT,
    SUM_BYTES,
    SUM_TUNE = SUM_BYTES + BYTES,
    SUM_SAVES = SUM_TUNE + BYTES,
    SUM_HOLD = SUM_SAVES + SAVE_VOTES,
    SUM_TEST,
    SUM_EXTRAS
};

struct step_result {
    double loss, norm, lr;
    uint64_t bytes[BYTES], context_bytes;
    bool drain, firm, move; /* agreed on by all ranks, as are these; firm: it must end on disk; move: other nodes, or
                                 other memory, go on from what is left */
    bool hold;              /* no step is to begin until it is told again */
    bool test;              /* ranks test their devices */
    double saves[SAVE_VOTES];
    bool tune[BYTES];
    int64_t began_us;
};

int step_init(struct step *step, struct merr *err)
{
    const struct rank *rank = step->rank;
    int v = rank->spec->parallel.virtual_workers;

    TRY(eval_init(&step->eval, step->shard, step->source, err));
    step->squares = (size_t)rank->params.tensors * rank->mesh->tp;
    step->sums = calloc(step->squares + v + SUM_EXTRAS + rank->mesh->dp, sizeof(*step->sums));
    return step->sums ? 0 : merr_set(err, -ENOMEM, "no memory for a step's sums");
}

void step_clear(struct step *step)
{
    eval_clear(&step->eval);
    free(step->loss);
    free(step->sums);
}

/* Documents make another number of micro-batches each step. */
static int make_losses(struct step *step, struct merr *err)
{
    int n = step->source->micros;
    double *loss;

    if (n <= step->losses)
        return 0;
    loss = realloc(step->loss, n * sizeof(*loss));
    if (!loss)
        return merr_set(err, -ENOMEM, "no memory for the losses of %d micro-batches", n);
    step->loss = loss;
    step->losses = n;
    return 0;
}

static uint64_t sent(const struct comm_group *g)
{
    return g ? comm_bytes_sent(g) : 0;
}

/* This rank's part of what is agreed on for when so many steps are done: orders, saves, and whether to go on. */
static void vote(const struct step *step, uint64_t done, double *extra)
{
    enum flight_order order = flight_order_get(step->rank->flight);

    extra[SUM_DRAIN] = order == FLIGHT_DRAIN || order == FLIGHT_MOVE || order == FLIGHT_HAND_OVER;
    extra[SUM_MOVE] = order == FLIGHT_MOVE || !step->handover->agreed;
    extra[SUM_FIRM] = order == FLIGHT_DRAIN || handover_must_be_durable(step->handover);
    extra[SUM_HOLD] = hold_wanted(&step->hold, done);
    extra[SUM_TEST] = device_test_wanted(step->rank, step->tested);
    save_vote(step->save, extra + SUM_SAVES);
}

/* And what the votes of all ranks come to. */
static void count_votes(const double *extra, struct step_result *r)
{
    r->drain = extra[SUM_DRAIN] > 0;
    r->firm = extra[SUM_FIRM] > 0;
    r->move = extra[SUM_MOVE] > 0;
    r->hold = extra[SUM_HOLD] > 0;
    r->test = extra[SUM_TEST] > 0;
    memcpy(r->saves, extra + SUM_SAVES, sizeof(r->saves));
}

/* What this rank adds to the step's sum besides the squares. */
static void contribute(struct step *step)
{
    const struct rank *rank = step->rank;
    struct source *source = step->source;
    int v = rank->spec->parallel.virtual_workers;
    double *losses = step->sums + step->squares, *extra = losses + v;
    uint64_t now[BYTES] = {sent(rank->tp) + sent(rank->kv), sent(rank->pp) + sent(rank->pair), sent(rank->dp)};

    if (rank->mesh->last && rank->mesh->tp_index == 0)
        for (int i = 0; i < source->micros; i++)
            losses[source->leaf_begin + i / source->per_leaf] += step->loss[i];
    vote(step, step->shard->step + 1, extra);
    if (rank->mesh->tp_index == 0 && rank->mesh->cp_index == 0 && rank->mesh->first)
        extra[SUM_EXTRAS + rank->mesh->dp_index] = step->leaf_ms;
    extra[SUM_BROKEN] = keyed_broken_take(rank->keyed);
    extra[SUM_CONTEXT] = (double)(sent(rank->cp) - step->context_before);
    step->context_before = sent(rank->cp);
    for (int i = 0; i < BYTES; i++) {
        extra[SUM_BROKEN] += wire_broken_take(rank->wire[i]);
        extra[SUM_BYTES + i] = (double)(now[i] - step->bytes_before[i]);
        step->bytes_before[i] = now[i];
        extra[SUM_TUNE + i] = wire_departs(rank->wire[i]);
    }
}

static int reduce(struct step *step, struct step_result *r, struct merr *err)
{
    const struct rank *rank = step->rank;
    struct shard *shard = step->shard;
    int v = rank->spec->parallel.virtual_workers;
    double *extra = step->sums + step->squares + v, square = 0;
    size_t n = step->squares + v + SUM_EXTRAS + rank->mesh->dp;

    flight_phase_set(rank->flight, FLIGHT_REDUCE, shard->step);
    memset(step->sums, 0, n * sizeof(*step->sums));
    TRY(optim_reduce(shard->optim, &shard->tree[0], shard->step, err));
    TRY(optim_squares(shard->optim, step->sums, err));
    contribute(step);
    TRY(comm_all_reduce(rank->all, step->sums, n, COMM_F64, COMM_SUM, err));
    for (size_t i = 0; i < step->squares; i++)
        square += step->sums[i];
    r->norm = extra[SUM_BROKEN] > 0 ? INFINITY : sqrt(square); /* a codec met numbers that are not finite */
    r->loss = tree_sum(step->sums + step->squares, v) / (double)step->source->targets;
    count_votes(extra, r);
    r->context_bytes = (uint64_t)extra[SUM_CONTEXT];
    for (int i = 0; i < BYTES; i++) {
        r->bytes[i] = (uint64_t)extra[SUM_BYTES + i];
        r->tune[i] = extra[SUM_TUNE + i] > 0;
    }
    return 0;
}

/* The words for a step whose loss or gradient is not finite, and the rank where it shows first. */
static void name_culprit(struct step *step, const struct step_result *r, struct merr *err)
{
    const struct rank *rank = step->rank;
    char name[PARAM_NAME_MAX];
    int stage;

    for (size_t i = 0; i < step->squares; i++) {
        int tp_index = (int)(i % rank->mesh->tp);

        if (isfinite(step->sums[i]))
            continue;
        stage = params_place(&rank->model, (int)(i / rank->mesh->tp), &rank->split, name);
        step->fault_rank = mesh_rank(rank->mesh, tp_index, 0, 0, stage % rank->mesh->pp);
        (void)merr_set(err, -EDOM,
                       "step %llu: the gradient of '%s' is not finite (stage %d, tensor-parallel index %d, "
                       "rank %d; loss %g)",
                       (unsigned long long)step->shard->step, name, stage, tp_index, step->fault_rank, r->loss);
        return;
    }
    step->fault_rank = mesh_rank(rank->mesh, 0, 0, 0, rank->mesh->pp - 1);
    (void)merr_set(err, -EDOM, "step %llu: the loss is %g, the gradient norm %g (stage %d, rank %d)",
                   (unsigned long long)step->shard->step, r->loss, r->norm, rank->split.stages - 1, step->fault_rank);
}

/* 0: go on with the update; 1: leave this step's update out; -EDOM: give up. The same on every rank. */
static int check_finite(struct step *step, const struct step_result *r, struct merr *err)
{
    const struct rank *rank = step->rank;
    struct merr why;

    if (isfinite(r->loss) && isfinite(r->norm)) {
        step->skipped = 0;
        return 0;
    }
    name_culprit(step, r, &why);
    step->skipped++;
    if (rank->spec->train.on_nonfinite == NONFINITE_SKIP && step->skipped <= rank->spec->train.nonfinite_limit) {
        if (rank->mesh->rank != 0)
            return 1;
        log_warn("%s; its update is left out", why.text);
        TRY(report_note(rank->report, step->shard->step, why.text, err));
        return 1;
    }
    step->fault_cause = rank->spec->train.on_nonfinite == NONFINITE_ROLL_BACK ? EXIT_CAUSE_NUMBERS : EXIT_CAUSE_USER;
    return merr_set(err, -EDOM, "%s; a lower learning rate, more warmup or on_nonfinite 'skip' may help", why.text);
}

static int check_replicas(struct step *step, uint64_t turn, size_t parts, struct merr *err)
{
    struct optim_odd odd;
    struct merr why;
    int r = optim_check_replicas(step->shard->optim, turn, parts, &odd, &why);

    if (r != -EDOM)
        return r < 0 ? merr_set(err, r, "%s", why.text) : 0;
    step->fault_rank = odd.rank;
    step->fault_cause = odd.alone ? EXIT_CAUSE_REPLICA : EXIT_CAUSE_NUMBERS;
    return merr_set(err, r, "step %llu: %s", (unsigned long long)step->shard->step, why.text);
}

int step_check_start(struct step *step, struct merr *err)
{
    return check_replicas(step, 0, 1, err);
}

/* Replicas: gradients go to their owners while the backward goes on to the layers before. */
static int layer_done(void *arg, struct tree *tree, int layer, struct merr *err)
{
    struct step *step = arg;
    size_t from = step->rank->params.layer[layer].at;

    if (tree->mark - from >= BUCKET_FLOATS || from == tree->span[0].at) {
        TRY(tree_push_from(tree, from, err));
        TRY(optim_reduce_from(step->shard->optim, tree, from, err));
    }
    comm_poll(step->rank->world);
    return 0;
}

static int load(void *arg, int micro, bool text, struct stage_slot *slot, struct merr *err)
{
    struct step *step = arg;
    int64_t began_us = clock_mono_us();
    int r = source_load(step->source, micro, text, slot, err);

    step->summary.data_us += clock_mono_us() - began_us;
    return r;
}

static int take_step(struct step *step, struct step_result *r, struct merr *err)
{
    const struct rank *rank = step->rank;
    struct shard *shard = step->shard;
    struct source *source = step->source;
    struct pipe_run run = {
        .done = rank->dp && !wire_coded(rank->wire[BYTES_DP]) ? layer_done : NULL,
        .load = load,
        .arg = step,
        .tree = shard->tree,
        .step = shard->step,
    };
    double clip = rank->spec->train.optimizer.clip, scale = 1;
    int64_t began_us;
    int skip;

    summary_begin(&step->summary);
    r->began_us = step->summary.began_us;
    flight_phase_set(rank->flight, FLIGHT_DATA, shard->step);
    TRY(source_next(source, shard->step, err));
    flight_phase_set(rank->flight, FLIGHT_FORWARD, shard->step);
    step->summary.data_us += clock_mono_us() - r->began_us;
    for (int i = 0; i < shard->trees; i++)
        tree_reset(&shard->tree[i]);
    TRY(optim_begin(shard->optim, shard->step, err));
    TRY(make_losses(step, err));
    run.schedule = source->schedule;
    run.loss = step->loss;
    run.rows = source_rows(source);
    run.per_leaf = source->per_leaf;
    run.weight = (float)(1.0 / (double)source->targets);
    began_us = clock_mono_us();
    TRY(pipe_go(shard->pipe, &run, err));
    step->leaf_ms = (double)(clock_mono_us() - began_us) * 1e-3 / (source->leaf_end - source->leaf_begin);
    TRY(reduce(step, r, err));
    skip = check_finite(step, r, err);
    if (skip < 0)
        return skip;
    if (shard->step % CHECK_EVERY == 0) /* with the weights that the step has read, before they are replaced */
        TRY(check_replicas(step, shard->step / CHECK_EVERY, PARTS, err));
    r->lr = optim_lr(rank->spec, shard->step);
    if (clip > 0 && clip / (r->norm + 1e-6) < 1)
        scale = clip / (r->norm + 1e-6);
    flight_phase_set(rank->flight, FLIGHT_UPDATE, shard->step);
    if (!skip) {
        TRY(optim_update(shard->optim, shard->step + 1, r->lr, scale, err));
        TRY(shard_weights_changed(shard, err));
    } else if (shard->store) {
        TRY(optim_carry(shard->optim, err));
    }
    summary_computed(&step->summary, shard->step, step->save->gate_us, source_work(source));
    shard->step++;
    shard->tokens += source->tokens;
    return save_seal(step->save, err);
}

/* Once, when calls turn out to be none that CUDA graphs take. */
static void tell_refusal(struct step *step)
{
    const struct rank *rank = step->rank;
    struct kern_recordings all;

    if (step->refusal_told || !rank->k->recordings)
        return;
    rank->k->recordings(rank->stream, &all);
    step->refusal_told = all.refused > 0;
    if (step->refusal_told)
        log_warn("rank %d: calls of a step cannot be recorded as a CUDA graph and go one by one: %s", rank->mesh->rank,
                 all.why);
}

static int report(struct step *step, const struct step_result *r, struct merr *err)
{
    struct shard *shard = step->shard;
    const struct rank *rank = step->rank;
    double seconds = (double)(clock_mono_us() - r->began_us) * 1e-6;
    double rate = (double)step->source->tokens / seconds;
    struct report_step s = {
        .step = shard->step - 1,
        .tokens = shard->tokens,
        .loss = r->loss,
        .grad_norm = r->norm,
        .lr = r->lr,
        .tokens_per_s = rate,
        .step_ms = seconds * 1e3,
        .mfu = step->peak_flops > 0
                   ? rate * model_flops_per_token(&rank->model, source_length(step->source)) / step->peak_flops
                   : 0,
        .stall_ms = (double)save_stall_us(step->save) * 1e-3,
        .bytes_tp = r->bytes[BYTES_TP],
        .bytes_pp = r->bytes[BYTES_PP],
        .bytes_dp = r->bytes[BYTES_DP],
        .bytes_cp = r->context_bytes,
        .generation = rank->run.generation,
        .ranks = rank->run.world,
        .replicas = rank->mesh->dp,
        .leaf_ms = step->sums + step->squares + rank->spec->parallel.virtual_workers + SUM_EXTRAS,
    };
    uint64_t blocks = 0, dropped = 0;

    for (int i = 0; i < rank->chunks; i++) {
        struct stage_usage u;

        stage_usage_take(shard->stage[i], &u);
        s.activation_mib += (double)u.peak_bytes / (1 << 20);
        blocks += u.blocks;
        dropped += u.dropped;
    }
    s.recomputed = (double)dropped / (double)(blocks > 0 ? blocks : 1);
    source_report(step->source, &s);
    for (int i = 0; i < BYTES; i++) {
        struct wire_times times;

        wire_times_take(rank->wire[i], &times);
        s.wire_ms[i] = times.spent_ms;
        s.wire_predicted_ms[i] = times.predicted_ms;
    }
    return rank->mesh->rank == 0 ? report_metrics(rank->report, &s, err) : 0;
}

/* In the log, which people read. */
static void tell_progress(struct step *step, const struct step_result *r)
{
    const struct progress_step s = {.steps = step->shard->step,
                                    .tokens = step->shard->tokens,
                                    .of = (uint64_t)step->rank->spec->train.steps,
                                    .loss = r->loss,
                                    .norm = r->norm,
                                    .began_us = r->began_us};
    char line[PROGRESS_LINE_MAX];

    if (step->rank->mesh->rank == 0 && progress_take(&step->progress, &s, clock_mono_us(), line))
        log_info("%s", line);
}

/* A loss or gradient norm far above what it was of late ends nothing, and is told once. */
static int tell_jumps(struct step *step, const struct step_result *r, struct merr *err)
{
    static const char *const names[] = {"loss", "gradient norm"};
    const double now[] = {r->loss, r->norm};
    const struct rank *rank = step->rank;
    uint64_t number = step->shard->step - 1;
    char text[160];
    double level;

    if (rank->mesh->rank != 0 || number < (uint64_t)rank->spec->train.optimizer.warmup)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (!jump_take(&step->jump[i], now[i], &level))
            continue;
        (void)snprintf(text, sizeof(text), "step %llu: the %s is %.4g, %.1f times what it was of late (%.4g)",
                       (unsigned long long)number, names[i], now[i], now[i] / level, level);
        log_warn("%s", text);
        TRY(report_event_take(rank->report,
                              json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:s}", "type", "numbers", "class", "jump", "of",
                                        names[i], "step", (json_int_t)number, "value", now[i], "level", level,
                                        "message", text),
                              err));
    }
    return 0;
}

/* The link of a kind of groups is not what it was: decide again how they travel. */
static int tune_again(struct step *step, int kind, struct merr *err)
{
    const struct rank *rank = step->rank;
    const char *said;

    if (kind == BYTES_DP)
        TRY(save_settle(step->save, err));
    TRY(shard_tune(step->shard, kind, err));
    if (kind == BYTES_DP)
        TRY(optim_follow_wire(step->shard->optim, err));
    said = wire_said(rank->wire[kind]);
    if (rank->mesh->rank != 0 || !*said)
        return 0;
    return report_note(rank->report, step->shard->step, said, err);
}

/* What comes between two steps. Returns 1 when drained. */
static int boundary(struct step *step, const struct step_result *r, struct merr *err)
{
    struct shard *shard = step->shard;
    int eval = step->rank->spec->train.eval.every_steps;
    bool end = shard->step == (uint64_t)step->rank->spec->train.steps;
    double seconds = (double)(clock_mono_us() - r->began_us) * 1e-6;
    bool left = false;

    if (r->drain && !r->firm && !end && r->move) {
        TRY(save_leave(step->save, &left, err));
    } else if (r->drain && !r->firm && !end) {
        TRY(handover_leave(step->handover, err));
        return 1;
    }
    if (left) {
        handover_drop(step->handover);
        return 1;
    }
    for (int i = 0; i < BYTES && !end; i++)
        if (r->tune[i])
            TRY(tune_again(step, i, err));
    TRY(save_due(step->save, r->saves, seconds, r->drain || end, err));
    if (end || (eval > 0 && shard->step % eval == 0 && !r->drain))
        TRY(eval_run(&step->eval, err));
    if (r->drain && !end) {
        TRY(save_finish(step->save, err));
        handover_drop(step->handover);
        return 1;
    }
    return r->test && !end ? device_test_run(step->rank, &step->tested, err) : 0;
}

/* A number that is another one once more is being saved. */
static uint64_t newest_save(const struct save *save)
{
    uint64_t all = 0;

    for (int i = 0; i < SAVE_PLACES; i++)
        all += save->saver[i].saved_step + (uint64_t)save->saver[i].under_way;
    return all;
}

/* What was done after a step besides training, and how much this rank has sent by then. */
static void tell_summary(struct step *step, uint64_t saved_before, bool paused)
{
    const struct rank *rank = step->rank;
    const struct shard *shard = step->shard;
    int every = rank->spec->train.eval.every_steps;
    uint32_t flags = (newest_save(step->save) != saved_before ? FLIGHT_SAVED : 0) | (paused ? FLIGHT_PAUSED : 0);
    uint64_t all =
        sent(rank->tp) + sent(rank->kv) + sent(rank->pp) + sent(rank->pair) + sent(rank->dp) + sent(rank->cp);

    if (every > 0 && shard->step % every == 0)
        flags |= FLIGHT_EVALUATED;
    summary_end(&step->summary, flags, all);
}

/* While somebody holds the run (hold.h): obey orders and follow what is being saved. Returns 1 when drained. */
static int wait_held(struct step *step, struct step_result *r, struct merr *err)
{
    struct shard *shard = step->shard;
    double extra[SUM_EXTRAS];
    int64_t deadline_us = clock_mono_us() + HOLD_MOST_S * INT64_C(1000000);

    TRY(save_open(step->save, err));
    memset(r->tune, 0, sizeof(r->tune));
    for (bool told = false;; told = true) {
        memset(extra, 0, sizeof(extra));
        vote(step, shard->step, extra);
        TRY(comm_all_reduce(step->rank->all, extra, SUM_EXTRAS, COMM_F64, COMM_SUM, err));
        count_votes(extra, r);
        if (r->drain)
            return boundary(step, r, err);
        TRY(save_asked(step->save, r->saves, err));
        if (!r->hold)
            return 0;
        if (clock_mono_us() > deadline_us)
            return merr_set(err, -EINVAL,
                            "'%s' has held the run before step %llu for %d s: write a larger number, or "
                            "remove it",
                            step->hold.path, (unsigned long long)shard->step, HOLD_MOST_S);
        if (!told && step->rank->mesh->rank == 0)
            log_info("held before step %llu by '%s'", (unsigned long long)shard->step, step->hold.path);
        (void)poll(NULL, 0, HOLD_LOOK_MS);
    }
}

static void tell_graphs(const struct step *step)
{
    const struct rank *rank = step->rank;
    struct kern_recordings all;

    if (!rank->k->recordings)
        return;
    rank->k->recordings(rank->stream, &all);
    log_info("rank %d: %llu CUDA graphs, launched %llu times", rank->mesh->rank, (unsigned long long)all.made,
             (unsigned long long)all.launched);
}

static void tell_attention(const struct step *step)
{
    const struct rank *rank = step->rank;
    struct kern_attention_ways w;
    const char *why;

    if (!rank->k->attention_ways)
        return;
    rank->k->attention_ways(rank->stream, &w);
    why = w.by_us > 0 && *w.why ? w.why : "";
    if (w.library)
        log_info("rank %d: %llu calls of attention were queued for cuDNN %zu.%zu.%zu, %llu for our own kernels%s%s",
                 rank->mesh->rank, (unsigned long long)w.by_library, w.library / 10000, w.library / 100 % 100,
                 w.library % 100, (unsigned long long)w.by_us, *why ? ": " : "", why);
    else if (*why)
        log_info("rank %d: attention is computed by our own kernels: %s", rank->mesh->rank, why);
}

static int all_steps(struct step *step, struct merr *err)
{
    const struct rank *rank = step->rank;
    struct shard *shard = step->shard;
    struct step_result r = {.hold = hold_may(&step->hold), .began_us = clock_mono_us()};
    uint64_t steps = (uint64_t)rank->spec->train.steps;
    int drained;

    if (shard->step == 0 || shard->step >= steps)
        TRY(eval_run(&step->eval, err));
    while (shard->step < steps) {
        bool tunes = false;
        uint64_t saved;

        drained = r.hold ? wait_held(step, &r, err) : 0;
        if (drained != 0)
            return drained;
        saved = newest_save(step->save);
        TRY(take_step(step, &r, err));
        tell_refusal(step);
        TRY(report(step, &r, err));
        tell_progress(step, &r);
        TRY(tell_jumps(step, &r, err));
        TRY(save_open(step->save, err));
        drained = boundary(step, &r, err);
        if (drained != 0)
            return drained;
        for (int i = 0; i < BYTES; i++)
            tunes = tunes || r.tune[i];
        tell_summary(step, saved, tunes || r.hold || r.test);
    }
    TRY(save_open(step->save, err));
    TRY(save_finish(step->save, err));
    if (rank->mesh->rank != 0)
        return 0;
    if (shard->store)
        store_forget(rank);
    return report_event_take(rank->report, json_pack("{s:s, s:I}", "type", "finished", "step", (json_int_t)shard->step),
                             err);
}

int step_loop(struct step *step, struct merr *err)
{
    int r;

    step->summary.flight = step->rank->flight;
    r = all_steps(step, err);
    tell_graphs(step);
    tell_attention(step);
    return r;
}
