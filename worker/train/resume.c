/* Where training starts from: checkpoints read. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "worker/train/train_impl.h"
#include "worker/train/try.h"

#define CANDIDATES_MAX 16 /* damaged checkpoints passed over before giving up */

struct state_view train_view(struct train *t, bool moments)
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

static int load_step(struct train *t, const char *dir, uint64_t step, struct merr *err)
{
    struct state_view s = train_view(t, true);
    struct mck *c = NULL;
    int r;

    train_keep_clear(t);
    TRY(mck_open(dir, step, &c, err));
    r = state_load(&s, c, err);
    if (r == 0)
        t->tokens = (uint64_t)json_integer_value(json_object_get(mck_kv(c), "tokens"));
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

/* What is tried next. */
struct candidate {
    int64_t found, tier, step;
};

static const char *folder_of(const struct train *t, int64_t tier)
{
    return tier == TIER_DISK ? t->run.checkpoints : t->run.memory;
}

/* The newest of all below what each has been tried down to; of equal steps the one that costs least. */
static int choose(const struct train *t, const uint64_t limit[SOURCES], struct candidate *ret, struct merr *err)
{
    uint64_t step;
    int found;

    *ret = (struct candidate){0};
    for (int tier = 0; tier < TIERS; tier++) {
        if (!folder_of(t, tier)[0])
            continue;
        found = newest_below(folder_of(t, tier), limit[tier], &step, err);
        if (found < 0)
            return found;
        if (found && (!ret->found || (int64_t)step >= ret->step))
            *ret = (struct candidate){1, tier, (int64_t)step};
    }
    if (limit[TIER_KEPT] == UINT64_MAX && train_kept(t, &step) && (!ret->found || (int64_t)step >= ret->step))
        *ret = (struct candidate){1, TIER_KEPT, (int64_t)step};
    return 0;
}

/* Rank 0 chooses, all load; when one cannot, all go back to the next older. Returns 1 when resumed, with where from,
 * 0 when there is nothing to resume from. */
static int resume(struct train *t, const char **ret_from, struct merr *err)
{
    uint64_t limit[SOURCES] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct candidate c = {0};
    struct merr why = {""};
    bool all;

    for (int i = 0; i < CANDIDATES_MAX; i++) {
        int code;

        if (t->mesh->rank == 0)
            TRY(choose(t, limit, &c, err));
        TRY(comm_broadcast(t->all, &c, sizeof(c), 0, err));
        if (!c.found)
            return limit[TIER_DISK] == UINT64_MAX ? 0 :
                merr_set(err, -EBADMSG, "no checkpoint in '%s' can be read: %s", t->run.checkpoints, why.text);
        code = c.tier == TIER_KEPT ? train_adopt_check(t, &why)
                                   : load_step(t, folder_of(t, c.tier), (uint64_t)c.step, &why);
        TRY(everyone(t, code, &all, err));
        if (all && c.tier == TIER_KEPT)
            TRY(train_adopt(t, err));
        if (all) {
            t->step = (uint64_t)c.step;
            *ret_from = folder_of(t, c.tier);
            return 1;
        }
        if (code != 0)
            TRY(note(t, (uint64_t)c.step, why.text, err));
        limit[c.tier] = (uint64_t)c.step;
    }
    return merr_set(err, -EBADMSG, "the newest %d checkpoints in '%s' cannot be read: %s", CANDIDATES_MAX,
                    t->run.checkpoints, why.text);
}

static int load_from(struct train *t, const char *path, struct merr *err)
{
    struct state_view s = train_view(t, false);
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
    const char *from = "";
    int resumed;

    flight_phase_set(t->flight, FLIGHT_LOAD, 0);
    resumed = resume(t, &from, err);
    if (resumed < 0)
        return resumed;
    if (!resumed)
        train_keep_clear(t);
    if (!resumed && t->spec->train.init.from)
        TRY(load_from(t, t->spec->train.init.from, err));
    else if (!resumed)
        params_fill(&t->params, t->spec->train.init.seed, t->run.threads, t->weights);
    TRY(train_weights_changed(t, err));
    if (!resumed || t->mesh->rank != 0)
        return 0;
    log_info("resumed from step %llu of '%s'", (unsigned long long)t->step, from);
    return report_event_take(t->report, json_pack("{s:s, s:I, s:s, s:s}", "type", "resumed", "step",
                                                  (json_int_t)t->step, "path", from, "tier",
                                                  from == t->run.memory ? "memory" : "disk"), err);
}
