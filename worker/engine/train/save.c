/* What training leaves behind: checkpoints, begun between two steps and written beside the next ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/snapshot/parity.h"
#include "worker/snapshot/memory_quota.h"
#include "worker/snapshot/capacity.h"
#include "worker/engine/train/train_impl.h"

#define FINISH_US (INT64_C(600) * 1000000) /* for the last checkpoint to be committed */
#define SAVES_AT_ONCE 2                    /* the checkpoint writer takes no more */
#define SNAPSHOTS 3                        /* two are kept in memory while the next is made */
#define BUFFER_PADDING_BYTES 4096
#define FILE_PADDING_BYTES (4u << 20)
#define MEMORY_POOL_BYTES (16u << 20)
#define MEMORY_TIMEOUT_US (INT64_C(60) * 1000000)

static int nodes(const struct train *t)
{
    return guard_leaders(t->run.node_of, t->run.world, NULL);
}

static bool leads_node(const struct train *t)
{
    return t->run.node_of[t->mesh->rank] == t->mesh->rank;
}

/* At most, of this rank's data file: tensors begin at pages there, groups of them at chunks, and an index follows. */
static uint64_t saved_bytes(const struct train *t)
{
    uint64_t bytes = FILE_PADDING_BYTES;

    for (size_t i = 0; i < t->save_n; i++)
        bytes += t->save_list[i].replica ? 0 : mck_buffer_bytes(&t->save_list[i]) + BUFFER_PADDING_BYTES;
    return bytes;
}

/* A snapshot of this node's ranks, were each as large as this one's, and parity of other nodes' with it. */
static uint64_t snapshot_bytes(const struct train *t)
{
    uint64_t bytes = saved_bytes(t) * (uint64_t)train_ranks_here(t);
    int first, group = 1;

    parity_group(nodes(t), 0, &first, &group);
    return bytes + (group > 1 ? bytes / (uint64_t)(group - 1) : 0);
}

/* Whether the snapshots fit: into the file system, and into what the agent's limit leaves beside other jobs, or
 * without one into half of the memory that is free. */
static int check_capacity(const struct train *t, struct merr *err)
{
    uint64_t one = snapshot_bytes(t), need = SNAPSHOTS * one;
    struct capacity room;
    struct statvfs fs;

    capacity_here(&room);
    if (statvfs(t->run.memory, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize < need ||
        (!t->run.memory_limit && room.free > 0 && need >= room.free / 2))
        return merr_set(err, -ENOSPC, "they want %llu MiB, and there is not enough of it free",
                        (unsigned long long)(need >> 20));
    return t->run.memory_limit && leads_node(t)
               ? memory_quota_reserve(t->run.memory, need, one, t->run.memory_limit, err)
               : 0;
}

/* The writer of this rank's snapshots, and over several nodes the guard that commits them. */
static int make_memory(struct train *t, const struct mck_cfg *disk, struct merr *err)
{
    struct mck_cfg cfg = *disk;

    if (!t->run.memory[0])
        return merr_set(err, t->run.no_memory[0] ? -EIO : -ENOENT, "%s", t->run.no_memory);
    TRY(check_capacity(t, err));
    cfg.dir = t->run.memory;
    cfg.codec = "none";
    cfg.keep = 2;
    cfg.keep_every = 0;
    cfg.pool_bytes = MEMORY_POOL_BYTES;
    cfg.timeout_us = MEMORY_TIMEOUT_US;
    cfg.parts = nodes(t) > 1;
    return mck_writer_new(&cfg, t->save_list, t->save_n, &t->saver[TIER_MEMORY].writer, err);
}

static int make_guard(struct train *t, struct merr *err)
{
    char rendezvous[RUN_PATH_MAX + 16];
    struct guard_cfg cfg = {.dir = t->run.memory,
                            .rendezvous = rendezvous,
                            .node_of = t->run.node_of,
                            .rank = t->mesh->rank,
                            .size = t->run.world,
                            .generation = t->run.generation,
                            .step = t->step};

    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", t->run.folder);
    return guard_open(&cfg, &t->guard, err);
}

/* All ranks or none: those that cannot have snapshots in memory leave them to the disk. */
static int open_memory(struct train *t, const struct mck_cfg *disk, struct merr *err)
{
    struct saver *s = &t->saver[TIER_MEMORY];
    struct merr why = {""};
    int code = make_memory(t, disk, &why);
    double without = code != 0;

    TRY(comm_all_reduce(t->all, &without, 1, COMM_F64, COMM_SUM, err));
    if (without == 0 && nodes(t) > 1) {
        code = leads_node(t) ? make_guard(t, &why) : 0;
        without = code != 0;
        TRY(comm_all_reduce(t->all, &without, 1, COMM_F64, COMM_SUM, err));
    }
    if (without == 0)
        return 0;
    if (code != 0 && code != -ENOENT) {
        (void)merr_prefix(&why, 0, "no snapshots in memory");
        log_warn("%s", why.text);
        TRY(report_note(t->report, t->step, why.text, err));
    }
    if (code == 0 && t->mesh->rank == 0)
        log_info("no snapshots in memory: another rank cannot have them");
    guard_free(t->guard);
    t->guard = NULL;
    mck_writer_free(s->writer);
    s->writer = NULL;
    return 0;
}

int train_savers_open(struct train *t, struct merr *err)
{
    struct state_view v;
    struct mck_cfg cfg = {
        .dir = t->run.checkpoints,
        .rank = t->mesh->rank,
        .size = t->run.world,
        .generation = t->run.generation,
        .codec = t->spec->compress.checkpoint[0] ? t->spec->compress.checkpoint : "none",
        .keep = t->spec->checkpoint.keep,
        .keep_every = (uint64_t)t->spec->checkpoint.keep_every,
        .device = t->k->device,
    };

    if (t->save_list)
        return 0;
    v = train_view(t, true);
    for (int i = 0; i < TIERS; i++) {
        t->saver[i].saved_step = UINT64_MAX;
        cadence_init(&t->saver[i].cadence, t->spec->checkpoint.mtbf_hours * 3600 / nodes(t), clock_mono_us());
    }
    t->saver[TIER_DISK].every = t->spec->checkpoint.every_steps;
    t->saver[TIER_MEMORY].every = t->spec->checkpoint.memory_every_steps;
    TRY(state_save_list(&v, &t->save_list, &t->save_n, err));
    TRY(mck_writer_new(&cfg, t->save_list, t->save_n, &t->saver[TIER_DISK].writer, err));
    if (cfg.rank == 0 && strcmp(t->spec->checkpoint.archive, "none") != 0)
        TRY(mck_archive_behind(t->saver[TIER_DISK].writer, t->spec->checkpoint.archive, err));
    return t->saver[TIER_MEMORY].every != 0 ? open_memory(t, &cfg, err) : 0;
}

void train_savers_close(struct train *t)
{
    guard_free(t->guard);
    for (int i = 0; i < TIERS; i++)
        mck_writer_free(t->saver[i].writer);
    free(t->save_list);
}

/* The job's cursor: the same on all ranks. left: of what the next generation goes on from, as durable_us then is. New;
 * NULL when memory is short. */
static json_t *cursor(const struct train *t, bool left)
{
    json_t *model = model_config(&t->model), *spec = spec_to_json(t->spec), *train = NULL, *kv;

    if (spec)
        train = json_incref(json_object_get(spec, "train"));
    json_decref(spec);
    kv = json_pack("{s:I, s:I, s:I, s:o, s:o, s:{s:i, s:i, s:i, s:i}, s:i, s:I}", "step", (json_int_t)t->step, "tokens",
                   (json_int_t)t->tokens, "seed", (json_int_t)t->spec->train.init.seed, "model", model, "train", train,
                   "layout", "tp", t->mesh->tp, "pp", t->mesh->pp, "cp", t->mesh->cp, "dp", t->mesh->dp,
                   "virtual_workers", t->spec->parallel.virtual_workers, "generation", (json_int_t)t->run.generation);
    if (kv && left)
        (void)json_object_set_new(kv, "written_by", json_pack("{s:I}", "durable_us", (json_int_t)t->durable_us));
    return kv;
}

static int tell(struct train *t, const struct mck_done *d, struct merr *err)
{
    static const char *const how[] = {
        [MCK_STAGED] = "copied first", [MCK_ZEROCOPY] = "from where it lay", [MCK_SYNC] = "between two steps"};
    json_t *e;

    if (d->code == 0)
        log_info("checkpoint %s: %.1f MiB in %.2f s, %s, training waited %.1f ms (%.1f expected)", d->path,
                 (double)d->stored_bytes / (1 << 20), (double)d->write_us * 1e-6, how[d->mode],
                 (double)d->stall_us * 1e-3, (double)d->expect_us * 1e-3);
    else
        log_warn("checkpoint of step %llu failed: %s", (unsigned long long)d->step, d->err.text);
    e = json_pack("{s:s, s:I, s:s, s:I, s:I, s:f}", "type", "checkpoint", "step", (json_int_t)d->step, "path", d->path,
                  "bytes", (json_int_t)d->bytes, "stored_bytes", (json_int_t)d->stored_bytes, "seconds",
                  (double)d->write_us * 1e-6);
    if (e && d->code != 0)
        (void)json_object_set_new(e, "error", json_string(d->err.text));
    return report_event_take(t->report, e, err);
}

/* Older checkpoints went for one: each rank may have found the disk full. An event the first time. */
static int tell_removed(struct train *t, const struct mck_done *d, struct merr *err)
{
    struct saver *s = &t->saver[TIER_DISK];
    bool first = s->removed == 0;
    char text[256];

    s->removed += d->removed;
    (void)snprintf(text, sizeof(text),
                   "the disk is full: %u old checkpoint%s went for that of step %llu, before there "
                   "were %d newer ones; the two newest stay",
                   d->removed, d->removed > 1 ? "s" : "", (unsigned long long)d->step, t->spec->checkpoint.keep);
    log_warn("%s", text);
    return first ? report_note(t->report, d->step, text, err) : 0;
}

/* Take what has been committed or given up. Of snapshots only failures are told: they come often. */
static int take_done(struct train *t, int tier, struct merr *err)
{
    struct saver *s = &t->saver[tier];
    struct mck_done d;
    struct merr why;

    if (s->writer && mck_next_archive_failure(s->writer, &why))
        log_warn("%s; the checkpoint stays as it was", why.text);
    while (s->writer && mck_next_done(s->writer, &d) == 1) {
        s->under_way--;
        s->failed = d.code;
        if (tier == TIER_DISK || !t->guard)
            cadence_committed(&s->cadence, (double)d.write_us * 1e-6);
        if (d.code == 0 && tier == TIER_DISK)
            t->durable_us = clock_wall_us();
        if (d.removed > 0 && tier == TIER_DISK)
            TRY(tell_removed(t, &d, err));
        if (t->mesh->rank == 0 && tier == TIER_DISK)
            TRY(tell(t, &d, err));
        else if (t->mesh->rank == 0 && d.code != 0)
            log_warn("no snapshot of step %llu in memory: %s", (unsigned long long)d.step, d.err.text);
    }
    return 0;
}

/* Snapshots over several nodes are committed by their guard. */
static void take_guarded(struct train *t)
{
    struct guard_done d;

    while (t->guard && guard_next_done(t->guard, &d) == 1) {
        cadence_committed(&t->saver[TIER_MEMORY].cadence, d.seconds);
        if (t->mesh->rank == 0 && d.code != 0)
            log_warn("no snapshot of step %llu in memory: %s", (unsigned long long)d.step, d.err.text);
        else if (t->mesh->rank == 0)
            log_debug("snapshot of step %llu in memory: %.1f MiB and %.1f of parity a node in %.2f s",
                      (unsigned long long)d.step, (double)d.bytes / (1 << 20), (double)d.parity_bytes / (1 << 20),
                      d.seconds);
    }
}

/* What is under way, at most of its two parts. */
static int under_way(const struct train *t, int tier)
{
    int own = t->saver[tier].under_way, guarded = tier == TIER_MEMORY && t->guard ? guard_under_way(t->guard) : 0;

    return own > guarded ? own : guarded;
}

/* A disk that does not finish in time is this node's fault, not a lost peer's. */
static int drain(struct train *t, struct merr *err)
{
    struct saver *s = &t->saver[TIER_DISK];
    int r = mck_drain(s->writer, clock_mono_us() + FINISH_US, err);

    if (r == -ETIMEDOUT)
        r = merr_prefix(err, -EIO, "the checkpoint of step %llu", (unsigned long long)s->saved_step);
    return r == 0 ? take_done(t, TIER_DISK, err) : r;
}

int train_settle(struct train *t, struct merr *err)
{
    if (optim_settled(t->optim))
        return 0;
    TRY(train_saves_gate(t, -1, err)); /* it changes weights, which what is being saved may still be read from */
    TRY(optim_settle(t->optim, err));
    return train_weights_changed(t, err);
}

/* sync: nothing changes until it is committed. */
static int begin(struct train *t, int tier, bool sync, struct merr *err)
{
    struct saver *s = &t->saver[tier];
    json_t *kv;
    int r;

    if (s->saved_step == t->step)
        return 0;
    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    TRY(train_settle(t, err));
    TRY(t->k->stream_sync(t->stream, err));
    kv = cursor(t, tier == TIER_MEMORY && sync);
    if (!kv)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint's cursor");
    r = (sync ? mck_begin_sync : mck_begin)(s->writer, t->step, kv, err);
    json_decref(kv);
    if (r != 0)
        return merr_prefix(err, r, "checkpoint of step %llu", (unsigned long long)t->step);
    if (tier == TIER_MEMORY && t->guard && !sync)
        TRY(guard_begin(t->guard, t->step, err));
    cadence_begun(&s->cadence, clock_mono_us());
    s->under_way++;
    s->saved_step = t->step;
    return 0;
}

void train_save_votes(const struct train *t, double votes[SAVE_VOTES])
{
    for (int i = 0; i < TIERS; i++) {
        const struct saver *s = &t->saver[i];
        bool decides = s->every == SPEC_EVERY_AUTO && t->mesh->rank == 0;

        votes[SAVE_WANTED + i] = decides && cadence_due(&s->cadence, clock_mono_us());
        votes[SAVE_BUSY + i] = under_way(t, i) >= SAVES_AT_ONCE;
    }
    if (flight_order_get(t->flight) == FLIGHT_SAVE || train_copy_due(t))
        votes[SAVE_WANTED + TIER_DISK] = 1;
}

/* Begin what ranks voted for, or what the spec's steps say. */
static int begin_wanted(struct train *t, int tier, struct merr *err)
{
    TRY(begin(t, tier, false, err));
    if (tier == TIER_DISK) {
        flight_saved(t->flight);
        t->copy_us = 0;
    }
    return 0;
}

/* Begin a checkpoint when one is due and there is room for it. */
static int begin_due(struct train *t, int tier, const double votes[SAVE_VOTES], struct merr *err)
{
    struct saver *s = &t->saver[tier];

    if (!s->writer || !(votes[SAVE_WANTED + tier] > 0 || (s->every > 0 && t->step % s->every == 0)))
        return 0;
    if (votes[SAVE_BUSY + tier] == 0)
        return begin_wanted(t, tier, err);
    if (t->mesh->rank == 0)
        log_warn("step %llu: no %s, two are still being written (%u left out so far)", (unsigned long long)t->step,
                 tier == TIER_DISK ? "checkpoint" : "snapshot in memory", ++s->dropped);
    return 0;
}

int train_saves_asked(struct train *t, const double votes[SAVE_VOTES], struct merr *err)
{
    for (int i = 0; i < TIERS; i++)
        TRY(take_done(t, i, err));
    take_guarded(t);
    for (int i = 0; i < TIERS; i++)
        if (t->saver[i].writer && votes[SAVE_WANTED + i] > 0 && votes[SAVE_BUSY + i] == 0)
            TRY(begin_wanted(t, i, err));
    return 0;
}

int train_saves(struct train *t, const double votes[SAVE_VOTES], double seconds, bool must, struct merr *err)
{
    for (int i = 0; i < TIERS; i++) {
        cadence_step(&t->saver[i].cadence, seconds, under_way(t, i) > 0);
        TRY(take_done(t, i, err));
    }
    take_guarded(t);
    if (must) {
        TRY(drain(t, err));
        return begin(t, TIER_DISK, true, err);
    }
    for (int i = 0; i < TIERS; i++)
        TRY(begin_due(t, i, votes, err));
    return 0;
}

/* Parity of it is not made: it would be as much to send as all that the next generation lacks. */
static int leave(struct train *t, struct merr *err)
{
    struct saver *s = &t->saver[TIER_MEMORY];
    int64_t deadline_us = clock_mono_us() + MEMORY_TIMEOUT_US;

    TRY(mck_drain(s->writer, deadline_us, err));
    TRY(take_done(t, TIER_MEMORY, err));
    TRY(begin(t, TIER_MEMORY, true, err));
    TRY(mck_drain(s->writer, deadline_us, err));
    TRY(take_done(t, TIER_MEMORY, err));
    return s->failed == 0 ? 0 : merr_set(err, s->failed, "it could not be written");
}

int train_saves_leave(struct train *t, bool *ret_left, struct merr *err)
{
    struct merr why = {""};
    double failed;
    int code;

    *ret_left = false;
    if (!t->saver[TIER_MEMORY].writer) /* so it is on all ranks */
        return 0;
    TRY(train_settle(t, err));
    TRY(comm_broadcast(t->all, &t->durable_us, sizeof(t->durable_us), 0, err));
    code = leave(t, &why);
    failed = code != 0;
    TRY(comm_all_reduce(t->all, &failed, 1, COMM_F64, COMM_SUM, err));
    *ret_left = failed == 0;
    if (code != 0)
        log_warn("step %llu is not left in memory but on disk: %s", (unsigned long long)t->step, why.text);
    return 0;
}

int train_saves_gate(struct train *t, int place, struct merr *err)
{
    for (int i = 0; i < TIERS; i++)
        if (t->saver[i].writer)
            TRY(mck_gate(t->saver[i].writer, place, err));
    return 0;
}

int64_t train_saves_stall_us(struct train *t)
{
    int64_t us = 0;

    for (int i = 0; i < TIERS; i++)
        us += t->saver[i].writer ? mck_stall_us(t->saver[i].writer) : 0;
    return us;
}

int train_saves_finish(struct train *t, struct merr *err)
{
    const struct saver *s = &t->saver[TIER_DISK];

    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    TRY(drain(t, err));
    if (s->failed != 0 && t->mesh->rank == 0)
        return merr_set(err, s->failed, "the checkpoint of step %llu could not be written; the events say why",
                        (unsigned long long)s->saved_step);
    return 0;
}
