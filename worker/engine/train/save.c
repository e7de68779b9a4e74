#include "worker/engine/train/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/train/store.h"
#include "worker/snapshot/parity.h"
#include "worker/snapshot/memory_quota.h"
#include "worker/snapshot/capacity.h"

#define FINISH_US (INT64_C(600) * 1000000) /* for the last checkpoint to be committed */
#define SAVES_AT_ONCE 2                    /* the checkpoint writer takes no more */
#define STALL_US (INT64_C(10) * 1000000)   /* without any that ends, while others are left out */
#define SNAPSHOTS 3                        /* two are kept in memory while the next is made */
#define BUFFER_PADDING_BYTES 4096
#define FILE_PADDING_BYTES (4u << 20)
#define MEMORY_POOL_BYTES (16u << 20)
#define MEMORY_TIMEOUT_US (INT64_C(60) * 1000000)

/* At most, of this rank's data file: tensors begin at pages there, groups of them at chunks, and an index follows. */
static uint64_t saved_bytes(const struct save *save)
{
    uint64_t bytes = FILE_PADDING_BYTES;

    for (size_t i = 0; i < save->n; i++)
        bytes += save->list[i].replica ? 0 : mck_buffer_bytes(&save->list[i]) + BUFFER_PADDING_BYTES;
    return bytes;
}

/* A snapshot of this node's ranks, were each as large as this one's, and parity of other nodes' with it. */
static uint64_t snapshot_bytes(const struct save *save)
{
    uint64_t bytes = saved_bytes(save) * (uint64_t)rank_ranks_here(save->rank);
    int first, group = 1;

    parity_group(rank_nodes(save->rank), 0, &first, &group);
    return bytes + (group > 1 ? bytes / (uint64_t)(group - 1) : 0);
}

/* Whether the snapshots fit: into the file system, and into what the agent's limit leaves beside other jobs, or
 * without one into half of the memory that is free. */
static int check_capacity(const struct save *save, struct merr *err)
{
    const struct rank *rank = save->rank;
    uint64_t one = snapshot_bytes(save), need = SNAPSHOTS * one;
    struct capacity here;
    struct statvfs fs;

    capacity_here(&here);
    if (statvfs(rank->run.memory, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize < need ||
        (!rank->run.memory_limit && here.free > 0 && need >= here.free / 2))
        return merr_set(err, -ENOSPC, "they want %llu MiB, and there is not enough of it free",
                        (unsigned long long)(need >> 20));
    return rank->run.memory_limit && rank_leads_node(save->rank)
               ? memory_quota_reserve(rank->run.memory, need, one, rank->run.memory_limit, err)
               : 0;
}

/* The writer of this rank's snapshots, and over several nodes the guard that commits them. */
static int make_memory(struct save *save, const struct mck_cfg *disk, struct merr *err)
{
    const struct rank *rank = save->rank;
    struct mck_cfg cfg = *disk;

    if (!rank->run.memory[0])
        return merr_set(err, rank->run.no_memory[0] ? -EIO : -ENOENT, "%s", rank->run.no_memory);
    TRY(check_capacity(save, err));
    cfg.dir = rank->run.memory;
    cfg.codec = "none";
    cfg.keep = 2;
    cfg.keep_every = 0;
    cfg.pool_bytes = MEMORY_POOL_BYTES;
    cfg.timeout_us = MEMORY_TIMEOUT_US;
    cfg.parts = rank_nodes(save->rank) > 1;
    return mck_writer_new(&cfg, save->list, save->n, &save->saver[SAVE_MEMORY].writer, err);
}

static int make_guard(struct save *save, struct merr *err)
{
    const struct rank *rank = save->rank;
    char rendezvous[RUN_PATH_MAX + 16];
    struct guard_cfg cfg = {.dir = rank->run.memory,
                            .rendezvous = rendezvous,
                            .node_of = rank->run.node_of,
                            .rank = rank->mesh->rank,
                            .size = rank->run.world,
                            .generation = rank->run.generation,
                            .step = save->shard->step};

    (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", rank->run.folder);
    return guard_open(&cfg, &save->guard, err);
}

/* All ranks or none: those that cannot have snapshots in memory leave them to the disk. */
static int open_memory(struct save *save, const struct mck_cfg *disk, struct merr *err)
{
    const struct rank *rank = save->rank;
    struct saver *s = &save->saver[SAVE_MEMORY];
    struct merr why = {""};
    int code = make_memory(save, disk, &why);
    double without = code != 0;

    TRY(comm_all_reduce(rank->all, &without, 1, COMM_F64, COMM_SUM, err));
    if (without == 0 && rank_nodes(save->rank) > 1) {
        code = rank_leads_node(save->rank) ? make_guard(save, &why) : 0;
        without = code != 0;
        TRY(comm_all_reduce(rank->all, &without, 1, COMM_F64, COMM_SUM, err));
    }
    if (without == 0)
        return 0;
    if (code != 0 && code != -ENOENT) {
        (void)merr_prefix(&why, 0, "no snapshots in memory");
        log_warn("%s", why.text);
        TRY(report_note(rank->report, save->shard->step, why.text, err));
    }
    if (code == 0 && rank->mesh->rank == 0)
        log_info("no snapshots in memory: another rank cannot have them");
    guard_free(save->guard);
    save->guard = NULL;
    mck_writer_free(s->writer);
    s->writer = NULL;
    return 0;
}

int save_open(struct save *save, struct merr *err)
{
    const struct rank *rank = save->rank;
    struct state_view v;
    struct mck_cfg cfg = {
        .dir = rank->run.checkpoints,
        .rank = rank->mesh->rank,
        .size = rank->run.world,
        .generation = rank->run.generation,
        .codec = rank->spec->compress.checkpoint[0] ? rank->spec->compress.checkpoint : "none",
        .keep = rank->spec->checkpoint.keep,
        .keep_every = (uint64_t)rank->spec->checkpoint.keep_every,
        .device = rank->k->device,
    };

    if (save->list)
        return 0;
    v = shard_view(save->shard, true);
    for (int i = 0; i < SAVE_PLACES; i++) {
        save->saver[i].saved_step = UINT64_MAX;
        cadence_init(&save->saver[i].cadence, rank->spec->checkpoint.mtbf_hours * 3600 / rank_nodes(save->rank),
                     clock_mono_us());
    }
    save->saver[SAVE_DISK].every = rank->spec->checkpoint.every_steps;
    save->saver[SAVE_MEMORY].every = save->shard->store ? 0 : rank->spec->checkpoint.memory_every_steps;
    if (save->shard->store) /* its files are what is saved */
        save->list = calloc(1, sizeof(*save->list));
    else
        TRY(state_save_list(&v, &save->list, &save->n, err));
    if (!save->list)
        return merr_set(err, -ENOMEM, "no memory for the list of tensors");
    TRY(mck_writer_new(&cfg, save->list, save->n, &save->saver[SAVE_DISK].writer, err));
    if (cfg.rank == 0 && strcmp(rank->spec->checkpoint.archive, "none") != 0)
        TRY(mck_archive_behind(save->saver[SAVE_DISK].writer, rank->spec->checkpoint.archive, err));
    return save->saver[SAVE_MEMORY].every != 0 ? open_memory(save, &cfg, err) : 0;
}

void save_close(struct save *save)
{
    guard_free(save->guard);
    for (int i = 0; i < SAVE_PLACES; i++)
        mck_writer_free(save->saver[i].writer);
    free(save->list);
}

/* The job's cursor: the same on all ranks. left: of what the next generation goes on from, as durable_us then is. New;
 * NULL when memory is short. */
static json_t *cursor(const struct save *save, bool left)
{
    const struct rank *rank = save->rank;
    json_t *model = model_config(&rank->model), *spec = spec_to_json(rank->spec), *train = NULL, *kv;

    if (spec)
        train = json_incref(json_object_get(spec, "train"));
    json_decref(spec);
    kv = json_pack("{s:I, s:I, s:I, s:o, s:o, s:{s:i, s:i, s:i, s:i}, s:i, s:I}", "step", (json_int_t)save->shard->step,
                   "tokens", (json_int_t)save->shard->tokens, "seed", (json_int_t)rank->spec->train.init.seed, "model",
                   model, "train", train, "layout", "tp", rank->mesh->tp, "pp", rank->mesh->pp, "cp", rank->mesh->cp,
                   "dp", rank->mesh->dp, "virtual_workers", rank->spec->parallel.virtual_workers, "generation",
                   (json_int_t)rank->run.generation);
    if (kv && left)
        (void)json_object_set_new(kv, "written_by",
                                  json_pack("{s:I}", "durable_us", (json_int_t)save->handover->durable_us));
    return kv;
}

int save_seal(struct save *save, struct merr *err)
{
    json_t *kv;
    int r;

    if (!save->shard->store)
        return 0;
    kv = cursor(save, false);
    if (!kv)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint's cursor");
    r = store_seal(save->shard->store, save->shard->step, kv, err);
    json_decref(kv);
    return r;
}

static int tell(struct save *save, const struct mck_done *d, struct merr *err)
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
    e = json_pack("{s:s, s:I, s:s, s:I, s:I, s:f, s:s, s:{s:i, s:i, s:i, s:i}}", "type", "checkpoint", "step",
                  (json_int_t)d->step, "path", d->path, "bytes", (json_int_t)d->bytes, "stored_bytes",
                  (json_int_t)d->stored_bytes, "seconds", (double)d->write_us * 1e-6, "codec",
                  save->rank->spec->compress.checkpoint, "layout", "tp", save->rank->mesh->tp, "pp",
                  save->rank->mesh->pp, "cp", save->rank->mesh->cp, "dp", save->rank->mesh->dp);
    if (e && d->code != 0)
        (void)json_object_set_new(e, "error", json_string(d->err.text));
    return report_event_take(save->rank->report, e, err);
}

/* Older checkpoints went for one: each rank may have found the disk full. An event the first time. */
static int tell_removed(struct save *save, const struct mck_done *d, struct merr *err)
{
    struct saver *s = &save->saver[SAVE_DISK];
    bool first = s->removed == 0;
    char text[256];

    s->removed += d->removed;
    (void)snprintf(text, sizeof(text),
                   "the disk is full: %u old checkpoint%s went for that of step %llu, before there "
                   "were %d newer ones; the two newest stay",
                   d->removed, d->removed > 1 ? "s" : "", (unsigned long long)d->step,
                   save->rank->spec->checkpoint.keep);
    log_warn("%s", text);
    return first ? report_note(save->rank->report, d->step, text, err) : 0;
}

/* Take what has been committed or given up. Of snapshots only failures are told: they come often. */
static int take_done(struct save *save, int place, struct merr *err)
{
    struct saver *s = &save->saver[place];
    struct mck_done d;
    struct merr why;

    if (s->writer && mck_next_archive_failure(s->writer, &why))
        log_warn("%s; the checkpoint stays as it was", why.text);
    while (s->writer && mck_next_done(s->writer, &d) == 1) {
        s->under_way--;
        s->moved_us = clock_mono_us();
        s->failed = d.code;
        if (place == SAVE_DISK || !save->guard)
            cadence_committed(&s->cadence, (double)d.write_us * 1e-6);
        if (d.code == -ESTALE) /* the server took this node for lost, and nothing that it computes is wanted any more */
            return merr_set(err, -ESTALE, "a later attempt of the job saves where this one would: %s", d.err.text);
        if (d.code == 0 && place == SAVE_DISK)
            handover_note_durable(save->handover);
        if (d.removed > 0 && place == SAVE_DISK)
            TRY(tell_removed(save, &d, err));
        if (save->rank->mesh->rank == 0 && place == SAVE_DISK)
            TRY(tell(save, &d, err));
        else if (save->rank->mesh->rank == 0 && d.code != 0)
            log_warn("no snapshot of step %llu in memory: %s", (unsigned long long)d.step, d.err.text);
    }
    return 0;
}

/* Snapshots over several nodes are committed by their guard. */
static void take_guarded(struct save *save)
{
    struct guard_done d;

    while (save->guard && guard_next_done(save->guard, &d) == 1) {
        cadence_committed(&save->saver[SAVE_MEMORY].cadence, d.seconds);
        if (save->rank->mesh->rank == 0 && d.code != 0)
            log_warn("no snapshot of step %llu in memory: %s", (unsigned long long)d.step, d.err.text);
        else if (save->rank->mesh->rank == 0)
            log_debug("snapshot of step %llu in memory: %.1f MiB and %.1f of parity a node in %.2f s",
                      (unsigned long long)d.step, (double)d.bytes / (1 << 20), (double)d.parity_bytes / (1 << 20),
                      d.seconds);
    }
}

/* What is under way, at most of its two parts. */
static int under_way(const struct save *save, int place)
{
    int own = save->saver[place].under_way,
        guarded = place == SAVE_MEMORY && save->guard ? guard_under_way(save->guard) : 0;

    return own > guarded ? own : guarded;
}

/* A disk that does not finish in time is this node's fault, not a lost peer's. */
static int drain(struct save *save, struct merr *err)
{
    struct saver *s = &save->saver[SAVE_DISK];
    int r = mck_drain(s->writer, clock_mono_us() + FINISH_US, err);

    if (r == -ETIMEDOUT)
        r = merr_prefix(err, -EIO, "the checkpoint of step %llu", (unsigned long long)s->saved_step);
    return r == 0 ? take_done(save, SAVE_DISK, err) : r;
}

int save_settle(struct save *save, struct merr *err)
{
    if (optim_settled(save->shard->optim))
        return 0;
    TRY(save_gate(save, -1, err)); /* it changes weights, which what is being saved may still be read from */
    TRY(optim_settle(save->shard->optim, err));
    return shard_weights_changed(save->shard, err);
}

/* sync: nothing changes until it is committed. */
static int begin_buffers(struct save *save, int place, bool sync, struct merr *err)
{
    struct mck_writer *w = save->saver[place].writer;
    json_t *kv = cursor(save, place == SAVE_MEMORY && sync);
    int r;

    if (!kv)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint's cursor");
    r = (sync ? mck_begin_sync : mck_begin)(w, save->shard->step, kv, err);
    json_decref(kv);
    return r;
}

static int begin_file(struct save *save, struct merr *err)
{
    struct mck_file_of file;

    TRY(store_save(save->shard->store, &file, err));
    return mck_begin_file(save->saver[SAVE_DISK].writer, save->shard->step, &file, err);
}

static int begin(struct save *save, int place, bool sync, struct merr *err)
{
    struct shard *shard = save->shard;
    const struct rank *rank = save->rank;
    struct saver *s = &save->saver[place];
    int r;

    if (s->saved_step == shard->step)
        return 0;
    flight_phase_set(rank->flight, FLIGHT_CHECKPOINT, shard->step);
    TRY(save_settle(save, err));
    TRY(rank->k->stream_sync(rank->stream, err));
    r = shard->store ? begin_file(save, err) : begin_buffers(save, place, sync, err);
    if (r != 0)
        return merr_prefix(err, r, "checkpoint of step %llu", (unsigned long long)shard->step);
    if (place == SAVE_MEMORY && save->guard && !sync)
        TRY(guard_begin(save->guard, shard->step, err));
    cadence_begun(&s->cadence, clock_mono_us());
    s->under_way++;
    s->moved_us = clock_mono_us();
    s->stalled = false;
    s->saved_step = shard->step;
    return 0;
}

void save_vote(const struct save *save, double votes[SAVE_VOTES])
{
    for (int i = 0; i < SAVE_PLACES; i++) {
        const struct saver *s = &save->saver[i];
        bool decides = s->every == SPEC_EVERY_AUTO && save->rank->mesh->rank == 0;

        votes[VOTE_WANTED + i] = decides && cadence_due(&s->cadence, clock_mono_us());
        votes[VOTE_BUSY + i] = under_way(save, i) >= SAVES_AT_ONCE;
    }
    if (flight_order_get(save->rank->flight) == FLIGHT_SAVE || handover_copy_due(save->handover))
        votes[VOTE_WANTED + SAVE_DISK] = 1;
}

/* Begin what ranks voted for, or what the spec's steps say. */
static int begin_wanted(struct save *save, int place, struct merr *err)
{
    TRY(begin(save, place, false, err));
    if (place == SAVE_DISK) {
        flight_saved(save->rank->flight);
        handover_note_copy(save->handover);
    }
    return 0;
}

/* One is left out, and the disk has finished none for long: told once, until one is begun again. */
static int tell_stall(const struct save *save, struct saver *s, struct merr *err)
{
    int64_t us = clock_mono_us() - s->moved_us;
    char text[160];

    if (s->stalled || us < STALL_US || save->rank->mesh->rank != 0)
        return 0;
    s->stalled = true;
    (void)snprintf(
        text, sizeof(text),
        "step %llu: no checkpoint: two are still being written, and none has ended for %lld s: is the disk slow?",
        (unsigned long long)save->shard->step, (long long)(us / 1000000));
    return report_note(save->rank->report, save->shard->step, text, err);
}

/* Begin a checkpoint when one is due and there is room for it. */
static int begin_due(struct save *save, int place, const double votes[SAVE_VOTES], struct merr *err)
{
    struct saver *s = &save->saver[place];

    if (!s->writer || !(votes[VOTE_WANTED + place] > 0 || (s->every > 0 && save->shard->step % s->every == 0)))
        return 0;
    if (votes[VOTE_BUSY + place] == 0)
        return begin_wanted(save, place, err);
    if (save->rank->mesh->rank == 0)
        log_warn("step %llu: no %s, two are still being written (%u left out so far)",
                 (unsigned long long)save->shard->step, place == SAVE_DISK ? "checkpoint" : "snapshot in memory",
                 ++s->dropped);
    return place == SAVE_DISK ? tell_stall(save, s, err) : 0;
}

int save_asked(struct save *save, const double votes[SAVE_VOTES], struct merr *err)
{
    for (int i = 0; i < SAVE_PLACES; i++)
        TRY(take_done(save, i, err));
    take_guarded(save);
    for (int i = 0; i < SAVE_PLACES; i++)
        if (save->saver[i].writer && votes[VOTE_WANTED + i] > 0 && votes[VOTE_BUSY + i] == 0)
            TRY(begin_wanted(save, i, err));
    return 0;
}

int save_due(struct save *save, const double votes[SAVE_VOTES], double seconds, bool must, struct merr *err)
{
    for (int i = 0; i < SAVE_PLACES; i++) {
        cadence_step(&save->saver[i].cadence, seconds, under_way(save, i) > 0);
        TRY(take_done(save, i, err));
    }
    take_guarded(save);
    if (must) {
        TRY(drain(save, err));
        return begin(save, SAVE_DISK, true, err);
    }
    for (int i = 0; i < SAVE_PLACES; i++)
        TRY(begin_due(save, i, votes, err));
    return 0;
}

/* Parity of it is not made: it would be as much to send as all that the next generation lacks. */
static int leave(struct save *save, struct merr *err)
{
    struct saver *s = &save->saver[SAVE_MEMORY];
    int64_t deadline_us = clock_mono_us() + MEMORY_TIMEOUT_US;

    TRY(mck_drain(s->writer, deadline_us, err));
    TRY(take_done(save, SAVE_MEMORY, err));
    TRY(begin(save, SAVE_MEMORY, true, err));
    TRY(mck_drain(s->writer, deadline_us, err));
    TRY(take_done(save, SAVE_MEMORY, err));
    return s->failed == 0 ? 0 : merr_set(err, s->failed, "it could not be written");
}

int save_leave(struct save *save, bool *ret_left, struct merr *err)
{
    struct merr why = {""};
    double failed;
    int code;

    *ret_left = false;
    if (!save->saver[SAVE_MEMORY].writer) /* so it is on all ranks */
        return 0;
    TRY(save_settle(save, err));
    TRY(comm_broadcast(save->rank->all, &save->handover->durable_us, sizeof(save->handover->durable_us), 0, err));
    code = leave(save, &why);
    failed = code != 0;
    TRY(comm_all_reduce(save->rank->all, &failed, 1, COMM_F64, COMM_SUM, err));
    *ret_left = failed == 0;
    if (code != 0)
        log_warn("step %llu is not left in memory but on disk: %s", (unsigned long long)save->shard->step, why.text);
    return 0;
}

int save_gate(struct save *save, int place, struct merr *err)
{
    for (int i = 0; i < SAVE_PLACES; i++) {
        int64_t began_us = save->saver[i].under_way > 0 ? clock_mono_us() : 0;

        if (save->saver[i].writer)
            TRY(mck_gate(save->saver[i].writer, place, err));
        if (began_us)
            save->gate_us += clock_mono_us() - began_us;
    }
    return 0;
}

int64_t save_stall_us(struct save *save)
{
    int64_t us = 0;

    for (int i = 0; i < SAVE_PLACES; i++)
        us += save->saver[i].writer ? mck_stall_us(save->saver[i].writer) : 0;
    return us;
}

int save_finish(struct save *save, struct merr *err)
{
    const struct saver *s = &save->saver[SAVE_DISK];

    flight_phase_set(save->rank->flight, FLIGHT_CHECKPOINT, save->shard->step);
    TRY(drain(save, err));
    if (s->failed != 0 && save->rank->mesh->rank == 0)
        return merr_set(err, s->failed, "the checkpoint of step %llu could not be written; the events say why",
                        (unsigned long long)s->saved_step);
    return 0;
}
