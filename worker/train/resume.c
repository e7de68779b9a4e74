/* Where training starts from and what it leaves behind: checkpoints read and written. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "worker/train/train_impl.h"
#include "worker/train/try.h"

#define FINISH_US (INT64_C(600) * 1000000)    /* for the last checkpoint to be committed */
#define CANDIDATES_MAX 16                     /* damaged checkpoints passed over before giving up */

static struct state_view view(struct train *t, bool moments)
{
    return (struct state_view){
        .params = &t->params, .mesh = t->mesh, .zero = t->spec->parallel.zero, .weights = t->weights,
        .range = moments ? optim_ranges(t->optim) : NULL, .m = optim_m(t->optim), .v = optim_v(t->optim),
    };
}

/* The newest committed step below limit. Returns 1 with *ret_step, 0, or an error. */
static int newest_below(const char *dir, uint64_t limit, uint64_t *ret_step, struct merr *err)
{
    json_t *list = NULL, *o;
    size_t i;
    int found = 0;

    if (limit == UINT64_MAX)
        return mck_latest(dir, ret_step, NULL, err);
    TRY(mck_list(dir, &list, err));
    json_array_foreach(list, i, o) {
        uint64_t step = (uint64_t)json_integer_value(json_object_get(o, "step"));

        if (step < limit) {
            *ret_step = step;
            found = 1;
        }
    }
    json_decref(list);
    return found;
}

static int load_step(struct train *t, uint64_t step, struct merr *err)
{
    struct state_view s = view(t, true);
    struct mck *c = NULL;
    int r;

    TRY(mck_open(t->run.checkpoints, step, &c, err));
    r = state_load(&s, c, err);
    mck_free(c);
    return r;
}

/* Whether every rank succeeded. Returns 0 with *ret_all, or the collective's error. */
static int everyone(struct train *t, int code, bool *ret_all, struct merr *err)
{
    double failed = code != 0;

    TRY(comm_all_reduce(t->all, &failed, 1, COMM_F64, COMM_SUM, err));
    *ret_all = failed == 0;
    return 0;
}

static int note(struct train *t, uint64_t step, const char *why, struct merr *err)
{
    log_warn("checkpoint %llu is passed over: %s", (unsigned long long)step, why);
    return report_event_take(t->report, json_pack("{s:s, s:I, s:s}", "type", "note", "step", (json_int_t)step,
                                                  "message", why), err);
}

/* Rank 0 chooses, all load; when one cannot, all go back to the next older. Returns 1 when resumed, 0 when there
 * is nothing to resume from. */
static int resume(struct train *t, struct merr *err)
{
    int64_t choice[2] = {0, 0}; /* found, step */
    uint64_t limit = UINT64_MAX, step = 0;
    struct merr why = {""};
    bool all;

    for (int i = 0; i < CANDIDATES_MAX; i++) {
        int code;

        if (t->mesh->rank == 0) {
            int found = newest_below(t->run.checkpoints, limit, &step, err);

            if (found < 0)
                return found;
            choice[0] = found;
            choice[1] = (int64_t)step;
        }
        TRY(comm_broadcast(t->all, choice, sizeof(choice), 0, err));
        if (!choice[0])
            return limit == UINT64_MAX ? 0 :
                merr_set(err, -EBADMSG, "no checkpoint in '%s' can be read: %s", t->run.checkpoints, why.text);
        step = (uint64_t)choice[1];
        code = load_step(t, step, &why);
        TRY(everyone(t, code, &all, err));
        if (all) {
            t->step = step;
            return 1;
        }
        if (code != 0)
            TRY(note(t, step, why.text, err));
        limit = step;
    }
    return merr_set(err, -EBADMSG, "the newest %d checkpoints in '%s' cannot be read: %s", CANDIDATES_MAX,
                    t->run.checkpoints, why.text);
}

static int load_from(struct train *t, const char *path, struct merr *err)
{
    struct state_view s = view(t, false);
    struct mck *c = NULL;
    int r;

    TRY(state_open(path, &c, err));
    r = state_load(&s, c, err);
    mck_free(c);
    return r == 0 ? 0 : merr_prefix(err, r, "init.from '%s'", path);
}

int train_source(const struct train *t, json_t **ret, struct merr *err)
{
    const char *from = t->spec->train.init.from;
    struct mck *c = NULL;
    uint64_t step;
    int r;

    *ret = NULL;
    if (!from)
        return 0;
    /* the job's own: what it began from may be gone by now */
    if (mck_latest(t->run.checkpoints, &step, NULL, NULL) != 1 || mck_open(t->run.checkpoints, step, &c, NULL) != 0) {
        r = state_open(from, &c, err);
        if (r != 0)
            return merr_prefix(err, r, "init.from '%s'", from);
    }
    *ret = json_incref(json_object_get(mck_kv(c), "model"));
    mck_free(c);
    return 0;
}

int train_restore(struct train *t, struct merr *err)
{
    int resumed;

    flight_phase_set(t->flight, FLIGHT_LOAD, 0);
    resumed = resume(t, err);
    if (resumed < 0)
        return resumed;
    if (!resumed && t->spec->train.init.from)
        TRY(load_from(t, t->spec->train.init.from, err));
    else if (!resumed)
        params_fill(&t->params, t->spec->train.init.seed, t->weights);
    t->k->weights_changed(t->stream, t->weights, t->params.weight_n * sizeof(float));
    if (!resumed || t->mesh->rank != 0)
        return 0;
    log_info("resumed from step %llu of '%s'", (unsigned long long)t->step, t->run.checkpoints);
    return report_event_take(t->report, json_pack("{s:s, s:I, s:s}", "type", "resumed", "step", (json_int_t)t->step,
                                                  "path", t->run.checkpoints), err);
}

int train_writer(struct train *t, struct merr *err)
{
    struct mck_cfg cfg = {
        .dir = t->run.checkpoints, .rank = t->mesh->rank, .size = t->run.world, .generation = t->run.generation,
        .codec = t->spec->compress.checkpoint[0] ? t->spec->compress.checkpoint : "none",
        .keep = t->spec->checkpoint.keep,
    };
    struct state_view s = view(t, true);

    t->saved_step = UINT64_MAX;
    TRY(state_save_list(&s, &t->save_list, &t->save_n, err));
    return mck_writer_new(&cfg, t->save_list, t->save_n, &t->writer, err);
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

int train_saves_poll(struct train *t, struct merr *err)
{
    struct mck_done d;
    json_t *e;

    while (mck_next_done(t->writer, &d) == 1) {
        t->saves_under_way--;
        t->save_failed = d.code;
        if (t->mesh->rank != 0)
            continue;
        if (d.code == 0)
            log_info("checkpoint %s: %.1f MiB in %.2f s", d.path, (double)d.stored_bytes / (1 << 20),
                     (double)(d.capture_us + d.write_us) * 1e-6);
        else
            log_warn("checkpoint of step %llu failed: %s", (unsigned long long)d.step, d.err.text);
        e = json_pack("{s:s, s:I, s:s, s:I, s:I, s:f}", "type", "checkpoint", "step", (json_int_t)d.step,
                      "path", d.path, "bytes", (json_int_t)d.bytes, "stored_bytes", (json_int_t)d.stored_bytes,
                      "seconds", (double)(d.capture_us + d.write_us) * 1e-6);
        if (e && d.code != 0)
            (void)json_object_set_new(e, "error", json_string(d.err.text));
        TRY(report_event_take(t->report, e, err));
    }
    return 0;
}

/* A disk that does not finish in time is this node's fault, not a lost peer's. */
static int drain(struct train *t, struct merr *err)
{
    int r = mck_drain(t->writer, clock_mono_us() + FINISH_US, err);

    if (r == -ETIMEDOUT)
        r = merr_prefix(err, -EIO, "the checkpoint of step %llu", (unsigned long long)t->saved_step);
    return r;
}

int train_save(struct train *t, bool must, struct merr *err)
{
    json_t *kv;
    int r;

    if (t->saved_step == t->step)
        return 0;
    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    if (must) {
        TRY(drain(t, err));
        TRY(train_saves_poll(t, err));
    }
    kv = cursor(t);
    if (!kv)
        return merr_set(err, -ENOMEM, "no memory for a checkpoint's cursor");
    r = mck_begin(t->writer, t->step, kv, err);
    json_decref(kv);
    if (r != 0)
        return merr_prefix(err, r, "checkpoint of step %llu", (unsigned long long)t->step);
    t->saves_under_way++;
    t->saved_step = t->step;
    return 0;
}

int train_saves_finish(struct train *t, struct merr *err)
{
    flight_phase_set(t->flight, FLIGHT_CHECKPOINT, t->step);
    TRY(drain(t, err));
    TRY(train_saves_poll(t, err));
    if (t->save_failed != 0 && t->mesh->rank == 0)
        return merr_set(err, t->save_failed, "the checkpoint of step %llu could not be written; the events say why",
                        (unsigned long long)t->saved_step);
    return 0;
}
