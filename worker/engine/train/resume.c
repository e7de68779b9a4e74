/* Where training starts from: checkpoints read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/recover/sources.h"
#include "worker/engine/train/train_impl.h"

#define CANDIDATES_MAX 16 /* damaged checkpoints passed over before giving up */

struct state_view train_view(struct train *t, bool moments)
{
    return (struct state_view){
        .params = &t->params,
        .mesh = t->mesh,
        .zero = t->spec->parallel.zero,
        .weights = t->weights,
        .range = moments ? optim_ranges(t->optim) : NULL,
        .m = optim_m(t->optim),
        .v = optim_v(t->optim),
        .device = t->k->device,
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
    json_array_foreach (list, i, o) {
        uint64_t step = (uint64_t)json_integer_value(json_object_get(o, "step"));

        if (step < limit) {
            *ret_step = step;
            found = 1;
        }
    }
    json_decref(list);
    return found;
}

/* own: only what this rank is the one to read of all that keep the same; optim_share() does the rest. */
static int load(struct train *t, struct mck *c, bool own, struct merr *err)
{
    struct state_view s = train_view(t, true);
    int r;

    s.own = own;
    if (own)
        s.range = optim_load_ranges(t->optim);
    train_keep_clear(t);
    r = state_load(&s, c, err);
    if (r == 0)
        t->tokens = (uint64_t)json_integer_value(json_object_get(mck_kv(c), "tokens"));
    return r;
}

static int load_disk(struct train *t, uint64_t step, struct merr *err)
{
    struct mck *c = NULL;
    int r;

    TRY(mck_open(t->run.checkpoints, step, &c, err));
    r = load(t, c, true, err); /* the disk sees each byte once, less what ranks of tp both hold */
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

/* What is tried next. */
struct candidate {
    int64_t found, tier, step;
};

/* What the search for a state to go on from goes through. */
struct search {
    struct sources *sources; /* with nodes that the job has left; NULL: none, or not any more */
    struct recover *memory;  /* of all nodes; with sources it is theirs */
    bool sources_lost;       /* this rank has seen that world fail */
    uint64_t limit[SOURCES]; /* each has been tried down to here */
    struct candidate c;
    double load_s;
    bool touched;     /* something was read, whole or not */
    int64_t repaired; /* step that was repaired last */
};

/* The newest of all; of equal steps the one that costs least. On rank 0. */
static int choose(const struct train *t, struct search *s, struct merr *err)
{
    struct candidate *c = &s->c;
    uint64_t step;
    int found = newest_below(t->run.checkpoints, s->limit[TIER_DISK], &step, err);

    if (found < 0)
        return found;
    *c = (struct candidate){found, TIER_DISK, found ? (int64_t)step : 0};
    found = recover_newest(s->memory, s->limit[TIER_MEMORY], &step, NULL, err);
    if (found < 0)
        return found;
    if (found && (!c->found || (int64_t)step >= c->step))
        *c = (struct candidate){1, TIER_MEMORY, (int64_t)step};
    if (s->limit[TIER_KEPT] == UINT64_MAX && train_kept(t, &step) && (!c->found || (int64_t)step >= c->step))
        *c = (struct candidate){1, TIER_KEPT, (int64_t)step};
    return 0;
}

static int needed(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk), void *take_arg,
                  struct merr *err)
{
    struct state_view s = train_view(arg, true);

    return state_needed(&s, c, take, take_arg, err);
}

/* Of the source nodes' world a failure is no more than this rank's own. */
static int gather(struct train *t, struct search *s, const char **ret_path, int *ret_own, struct merr *why,
                  struct merr *err)
{
    int code;

    if (!s->sources)
        return recover_gather(s->memory, (uint64_t)s->c.step + 1, needed, t, ret_path, ret_own, why, err);
    code = sources_gather(s->sources, (uint64_t)s->c.step + 1, needed, t, ret_path, ret_own, why, err);
    s->sources_lost = code != 0;
    if (code != 0) {
        *ret_own = code;
        *why = *err;
    }
    return 0;
}

static int load_memory(struct train *t, struct search *s, int *ret_own, struct merr *why, struct merr *err)
{
    const char *path;
    struct mck *c = NULL;
    int64_t began;
    bool all;

    TRY(gather(t, s, &path, ret_own, why, err));
    TRY(everyone(t, *ret_own, &all, err));
    if (!all) {
        *ret_own = *ret_own ? *ret_own : -ECOMM;
        return 0;
    }
    began = clock_mono_us();
    *ret_own = mck_open_path(path, &c, why);
    if (*ret_own == 0)
        *ret_own = load(t, c, false, why);
    if (*ret_own == 0)
        train_follow_memory(t, mck_kv(c));
    mck_free(c);
    s->load_s = (double)(clock_mono_us() - began) * 1e-6;
    return 0;
}

/* The candidate's state into this rank. Returns the world's failure; *ret_own is this rank's, with words in why. */
static int load_candidate(struct train *t, struct search *s, int *ret_own, struct merr *why, struct merr *err)
{
    int64_t began = clock_mono_us();

    if (s->c.tier == TIER_MEMORY)
        return load_memory(t, s, ret_own, why, err);
    *ret_own = s->c.tier == TIER_KEPT ? train_adopt_check(t, why) : load_disk(t, (uint64_t)s->c.step, why);
    s->load_s = (double)(clock_mono_us() - began) * 1e-6;
    return 0;
}

/* A snapshot in memory could not be read: once, what is damaged of it is made again from parity. *ret_again: another
 * try is worth it. */
static int repair(struct train *t, struct search *s, bool *ret_again, struct merr *err)
{
    struct merr why = {""};
    uint64_t chunks;
    char text[128];
    int own;

    *ret_again = false;
    if (s->c.tier != TIER_MEMORY || s->repaired == s->c.step)
        return 0;
    s->repaired = s->c.step;
    TRY(recover_repair(s->memory, (uint64_t)s->c.step + 1, &chunks, &own, &why, err));
    if (own != 0)
        log_warn("damaged chunks of step %lld are not repaired: %s", (long long)s->c.step, why.text);
    if (!chunks)
        return 0;
    *ret_again = true;
    (void)snprintf(text, sizeof(text), "%llu damaged chunks of step %lld in memory were made again from parity",
                   (unsigned long long)chunks, (long long)s->c.step);
    log_info("%s", text);
    return t->mesh->rank == 0 ? report_note(t->report, (uint64_t)s->c.step, text, err) : 0;
}

/* --- nodes that the job has left --------------------------------------------------------------------------- */

static struct recover_cfg own_nodes(const struct train *t)
{
    return (struct recover_cfg){.dir = t->run.memory,
                                .world = t->world,
                                .all = t->all,
                                .node_of = t->run.node_of,
                                .rank = t->mesh->rank,
                                .size = t->run.world};
}

/* Look into the memories of all nodes: those of this run, and those that the job has left, where they answer. */
static int open_memories(struct train *t, struct search *s, struct merr *err)
{
    char rendezvous[RUN_PATH_MAX + 16], text[MERR_TEXT_MAX];
    struct sources_cfg give = {.dir = t->run.memory,
                               .rendezvous = rendezvous,
                               .disk = t->run.checkpoints,
                               .node_of = t->run.node_of,
                               .size = t->run.world,
                               .source_nodes = t->run.source_nodes,
                               .rank = t->mesh->rank,
                               .generation = t->run.generation,
                               .flight = t->flight};
    struct recover_cfg own = own_nodes(t);
    struct merr why = {"another rank does not reach them"};
    bool all = false;

    if (t->run.source_nodes > 0) {
        (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", t->run.folder);
        TRY(everyone(t, sources_open(&give, &s->sources, &why), &all, err));
    }
    if (all) {
        s->memory = sources_recover(s->sources);
        return 0;
    }
    sources_free(s->sources);
    s->sources = NULL;
    if (t->run.source_nodes > 0 && t->mesh->rank == 0) {
        (void)snprintf(text, sizeof(text), "nodes that the job has left do not give what their memory has: %.900s",
                       why.text);
        log_warn("%s", text);
        TRY(report_note(t->report, 0, text, err));
    }
    return recover_open(&own, &s->memory, err);
}

/* A snapshot of all nodes could not be loaded. Where they still answer it is written to disk; then on without those
 * that the job has left. */
static int do_without(struct train *t, struct search *s, struct merr *err)
{
    struct recover_cfg own = own_nodes(t);
    struct merr why = {""};
    bool all;
    int code = 0;

    TRY(everyone(t, s->sources_lost, &all, err));
    if (all && sources_flush(s->sources, (uint64_t)s->c.step + 1, &code, &why, err) != 0) {
        s->sources_lost = true;
        code = -ECOMM;
        why = *err;
    }
    if (code != 0)
        log_warn("step %lld cannot be written from memory to disk: %s", (long long)s->c.step, why.text);
    TRY(everyone(t, code, &all, err));
    if (!s->sources_lost)
        sources_end(s->sources, all);
    sources_free(s->sources);
    s->sources = NULL;
    return recover_open(&own, &s->memory, err);
}

/* --- all together ------------------------------------------------------------------------------------------ */

/* Say what was newer in memory than what training goes on from, and why it is not used. */
static int tell_lost(struct train *t, const struct search *s, struct merr *err)
{
    const char *none = "no snapshot is left in the nodes' memory";
    struct merr lost = {""};
    char text[MERR_TEXT_MAX];
    uint64_t step;
    int found = recover_newest(s->memory, UINT64_MAX, &step, &lost, err);

    if (found < 0)
        return found;
    if (!lost.text[0] && (found || s->c.tier == TIER_KEPT || t->run.generation == 1 || !t->run.memory[0]))
        return 0;
    (void)snprintf(text, sizeof(text), "%.800s; going on from step %lld %s", lost.text[0] ? lost.text : none,
                   (long long)s->c.step, s->c.tier == TIER_DISK ? "on disk" : "in memory");
    log_warn("%s", text);
    return report_note(t->report, (uint64_t)s->c.step, text, err);
}

static int tell_resumed(struct train *t, const struct search *s, double seconds, struct merr *err)
{
    const struct recover_stats *m = recover_stats(s->memory);
    bool disk = s->c.tier == TIER_DISK;
    const char *from = disk ? "disk" : s->c.tier == TIER_KEPT ? "kept" : m->source;

    log_info("resumed from step %lld: %s, %.3f s: look %.3f, rebuild %.3f, gather %.3f, load %.3f",
             (long long)s->c.step, disk ? t->run.checkpoints : from, seconds, m->survey_s, m->rebuild_s, m->gather_s,
             s->load_s);
    TRY(tell_lost(t, s, err));
    return report_event_take(t->report,
                             json_pack("{s:s, s:I, s:s, s:s, s:s, s:f, s:{s:f, s:f, s:f, s:f}, s:I, s:I}", "type",
                                       "resumed", "step", (json_int_t)s->c.step, "path",
                                       disk ? t->run.checkpoints : t->run.memory, "tier", disk ? "disk" : "memory",
                                       "source", from, "seconds", seconds, "phases", "look_s", m->survey_s, "rebuild_s",
                                       m->rebuild_s, "gather_s", m->gather_s, "load_s", s->load_s, "rebuilt_bytes",
                                       (json_int_t)m->rebuilt_bytes, "fetched_bytes", (json_int_t)m->fetched_bytes),
                             err);
}

/* Rank 0 chooses, all load; when one cannot, all go back to the next older. Returns 1 when resumed, 0 when there is
 * nothing to resume from. */
static int try_sources(struct train *t, struct search *s, struct merr *err)
{
    struct merr why = {""};
    bool all, again;

    for (int i = 0; i < CANDIDATES_MAX; i++) {
        int code = 0;

        if (t->mesh->rank == 0)
            TRY(choose(t, s, err));
        TRY(comm_broadcast(t->all, &s->c, sizeof(s->c), 0, err));
        if (!s->c.found)
            return s->limit[TIER_DISK] == UINT64_MAX
                       ? 0
                       : merr_set(err, -EBADMSG, "no checkpoint in '%s' can be read: %s", t->run.checkpoints, why.text);
        TRY(load_candidate(t, s, &code, &why, err));
        s->touched = true;
        TRY(everyone(t, code, &all, err));
        if (all && s->c.tier == TIER_KEPT)
            TRY(train_adopt(t, err));
        if (all && s->c.tier == TIER_DISK)
            TRY(optim_share(t->optim, err));
        if (all) {
            t->step = (uint64_t)s->c.step;
            return 1;
        }
        if (code != 0 && code != -ECOMM) {
            log_warn("checkpoint %llu is passed over: %s", (unsigned long long)s->c.step, why.text);
            TRY(report_note(t->report, (uint64_t)s->c.step, why.text, err));
        }
        if (s->sources && s->c.tier == TIER_MEMORY) {
            TRY(do_without(t, s, err));
            continue;
        }
        TRY(repair(t, s, &again, err));
        if (!again)
            s->limit[s->c.tier] = (uint64_t)s->c.step;
    }
    return merr_set(err, -EBADMSG, "the newest %d checkpoints in '%s' cannot be read: %s", CANDIDATES_MAX,
                    t->run.checkpoints, why.text);
}

static int resume(struct train *t, struct merr *err)
{
    struct search s = {.limit = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, .repaired = -1};
    int64_t began = clock_mono_us();
    int r;

    TRY(open_memories(t, &s, err));
    r = try_sources(t, &s, err);
    if (s.sources && r >= 0)
        sources_end(s.sources, r == 1);
    if (r == 1 && t->mesh->rank == 0) {
        int told = tell_resumed(t, &s, (double)(clock_mono_us() - began) * 1e-6, err);

        r = told < 0 ? told : r;
    }
    if (r == 0 && s.touched)
        train_state_clear(t); /* of what could not be read to its end */
    if (s.sources)
        sources_free(s.sources);
    else
        recover_free(s.memory);
    return r;
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

/* Weights of a GPU come from memory of the host, which may be all that the host can reach. */
static int fill(struct train *t, struct merr *err)
{
    uint64_t seed = t->spec->train.init.seed;
    size_t n = t->params.weight_n;
    float *weights;
    int r;

    if (!t->k->device) {
        params_fill(&t->params, seed, t->run.threads, t->weights);
        return 0;
    }
    weights = calloc(n, sizeof(*weights));
    if (!weights)
        return merr_set(err, -ENOMEM, "no memory for %zu MiB of weights on their way to the GPU",
                        n * sizeof(*weights) >> 20);
    params_fill(&t->params, seed, t->run.threads, weights);
    r = t->k->copy(t->stream, t->weights, weights, n * sizeof(*weights), err);
    free(weights);
    return r;
}

int train_restore(struct train *t, struct merr *err)
{
    int resumed;

    flight_phase_set(t->flight, FLIGHT_LOAD, 0);
    resumed = resume(t, err);
    if (resumed < 0)
        return resumed;
    if (!resumed)
        train_keep_clear(t);
    if (!resumed && t->spec->train.init.from)
        TRY(load_from(t, t->spec->train.init.from, err));
    else if (!resumed)
        TRY(fill(t, err));
    return train_weights_changed(t, err);
}
