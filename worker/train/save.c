/* What training leaves behind: checkpoints, begun between two steps and written beside the next ones. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/train/train_impl.h"
#include "worker/train/try.h"

#define FINISH_US (INT64_C(600) * 1000000) /* for the last checkpoint to be committed */
#define SAVES_AT_ONCE 2                    /* the checkpoint writer takes no more */

/* Nodes of the world: ranks with equal numbers share one. */
static int nodes(const struct train *t)
{
    int n = 0;

    for (int i = 0; i < t->run.world; i++)
        n += t->run.node_of[i] == i;
    return n;
}

int train_savers_open(struct train *t, struct merr *err)
{
    struct saver *s = &t->saver;
    struct state_view v = train_view(t, true);
    struct mck_cfg cfg = {
        .dir = t->run.checkpoints, .rank = t->mesh->rank, .size = t->run.world, .generation = t->run.generation,
        .codec = t->spec->compress.checkpoint[0] ? t->spec->compress.checkpoint : "none",
        .keep = t->spec->checkpoint.keep, .keep_every = (uint64_t)t->spec->checkpoint.keep_every,
    };

    s->saved_step = UINT64_MAX;
    cadence_init(&s->cadence, t->spec->checkpoint.mtbf_hours * 3600 / nodes(t), clock_mono_us());
    TRY(state_save_list(&v, &s->list, &s->n, err));
    return mck_writer_new(&cfg, s->list, s->n, &s->writer, err);
}

void train_savers_close(struct train *t)
{
    mck_writer_free(t->saver.writer);
    free(t->saver.list);
}

/* The job's cursor: the same on all ranks. New; NULL when memory is short. */
static json_t *cursor(const struct train *t)
{
    json_t *model = model_config(&t->model), *spec = spec_to_json(t->spec), *train = NULL, *kv;

    if (spec)
        train = json_incref(json_object_get(spec, "train"));
    json_decref(spec);
    kv = json_pack("{s:I, s:I, s:I, s:o, s:o, s:{s:i, s:i, s:i, s:i}, s:i, s:I}", "step", (json_int_t)t->step, "tokens",
                   (json_int_t)(t->step * t->info.batch * t->info.length), "seed",
                   (json_int_t)t->spec->train.init.seed, "model", model, "train", train, "layout", "tp", t->mesh->tp,
                   "pp", t->mesh->pp, "cp", 1, "dp", t->mesh->dp, "virtual_workers", t->spec->parallel.virtual_workers,
                   "generation", (json_int_t)t->run.generation);
    return kv;
}

static int tell(struct train *t, const struct mck_done *d, struct merr *err)
{
    json_t *e;

    if (d->code == 0)
        log_info("checkpoint %s: %.1f MiB in %.2f s", d->path, (double)d->stored_bytes / (1 << 20),
                 (double)d->write_us * 1e-6);
    else
        log_warn("checkpoint of step %llu failed: %s", (unsigned long long)d->step, d->err.text);
    e = json_pack("{s:s, s:I, s:s, s:I, s:I, s:f}", "type", "checkpoint", "step", (json_int_t)d->step, "path", d->path,
                  "bytes", (json_int_t)d->bytes, "stored_bytes", (json_int_t)d->stored_bytes, "seconds",
                  (double)d->write_us * 1e-6);
    if (e && d->code != 0)
        (void)json_object_set_new(e, "error", json_string(d->err.text));
    return report_event_take(t->report, e, err);
}

/* Take what has been committed or given up. */
static int take_done(struct train *t, struct merr *err)
{
    struct saver *s = &t->saver;
    struct mck_done d;

    while (mck_next_done(s->writer, &d) == 1) {
        s->under_way--;
        s->failed = d.code;
        cadence_committed(&s->cadence, (double)d.write_us * 1e-6);
        if (t->mesh->rank == 0)
            TRY(tell(t, &d, err));
    }
    return 0;
}

/* A disk that does not finish in time is this node's fault, not a lost peer's. */
static int drain(struct train *t, struct merr *err)
{
    int r = mck_drain(t->saver.writer, clock_mono_us() + FINISH_US, err);

    if (r == -ETIMEDOUT)
        r = merr_prefix(err, -EIO, "the checkpoint of step %llu", (unsigned long long)t->saver.saved_step);
    return r == 0 ? take_done(t, err) : r;
}

static int begin(struct train *t, struct merr *err)
{
    struct saver *s = &t->saver;
    json_t *kv;
    int r;

    if (s->saved_step == t->step)
        return 0;
    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    kv = cursor(t);
    if (!kv)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint's cursor");
    r = mck_begin(s->writer, t->step, kv, err);
    json_decref(kv);
    if (r != 0)
        return merr_prefix(err, r, "checkpoint of step %llu", (unsigned long long)t->step);
    cadence_begun(&s->cadence, clock_mono_us());
    s->under_way++;
    s->saved_step = t->step;
    return 0;
}

void train_save_votes(const struct train *t, double votes[SAVE_VOTES])
{
    bool automatic = t->spec->checkpoint.every_steps == SPEC_EVERY_AUTO && t->mesh->rank == 0;

    votes[SAVE_WANTED] = flight_order_get(t->flight) == FLIGHT_SAVE ||
                         (automatic && cadence_due(&t->saver.cadence, clock_mono_us()));
    votes[SAVE_BUSY] = t->saver.under_way >= SAVES_AT_ONCE;
}

int train_saves(struct train *t, const double votes[SAVE_VOTES], double seconds, bool must, struct merr *err)
{
    int every = t->spec->checkpoint.every_steps;
    bool wanted = votes[SAVE_WANTED] > 0 || (every > 0 && t->step % every == 0);

    cadence_step(&t->saver.cadence, seconds, t->saver.under_way > 0);
    TRY(take_done(t, err));
    if (must) {
        TRY(drain(t, err));
        return begin(t, err);
    }
    if (!wanted)
        return 0;
    if (votes[SAVE_BUSY] > 0) {
        if (t->mesh->rank == 0)
            log_warn("step %llu: no checkpoint, two are still being written", (unsigned long long)t->step);
        return 0;
    }
    TRY(begin(t, err));
    flight_saved(t->flight);
    return 0;
}

int train_saves_gate(struct train *t, struct merr *err)
{
    return mck_gate(t->saver.writer, -1, err);
}

int64_t train_saves_stall_us(struct train *t)
{
    return mck_stall_us(t->saver.writer);
}

int train_saves_finish(struct train *t, struct merr *err)
{
    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    TRY(drain(t, err));
    if (t->saver.failed != 0 && t->mesh->rank == 0)
        return merr_set(err, t->saver.failed, "the checkpoint of step %llu could not be written; the events say why",
                        (unsigned long long)t->saver.saved_step);
    return 0;
}
