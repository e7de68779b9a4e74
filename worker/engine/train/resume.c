#include "worker/engine/train/resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "worker/engine/recover/sources.h"
#include "worker/engine/train/store.h"

#define LOAD_LEAST_US INT64_C(60000000)
#define LOAD_BYTES_S (16u << 20) /* that each rank gets at least */
#define STATE_COPIES UINT64_C(3) /* weights and two moments */
#define CANDIDATES_MAX 16        /* damaged checkpoints passed over before giving up */

/* Where state may be: on disk, as a snapshot in the nodes' memories, in the files that training computes in. */
enum { FROM_DISK, FROM_MEMORY, FROM_HANDOFF, FROM_PLACES };

/* What is tried next. */
struct candidate {
    int64_t found, from, step;
};

/* What the search for a state to go on from goes through. */
struct search {
    const struct rank *rank;
    struct shard *shard;
    struct handover *handover;
    struct sources *sources;     /* with nodes that the job has left; NULL: none, or not any more */
    struct recover *memory;      /* of all nodes; with sources it is theirs */
    bool sources_lost;           /* this rank has seen that world fail */
    uint64_t limit[FROM_PLACES]; /* each has been tried down to here */
    struct candidate c;
    double load_s;
    bool touched;     /* something was read, whole or not */
    int64_t repaired; /* step that was repaired last */
};

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

/* Weights of a GPU come from memory of the host, which may be all that the host can reach. */
static int fill_range(const struct rank *rank, size_t begin, size_t end, float *to, struct merr *err)
{
    uint64_t seed = rank->spec->train.init.seed;
    size_t n = end - begin;
    float *weights;
    int r;

    if (!rank->k->device || n == 0) {
        params_fill_part(&rank->params, seed, rank->run.threads, begin, end, to);
        return 0;
    }
    weights = calloc(n, sizeof(*weights));
    if (!weights)
        return merr_set(err, -ENOMEM, "no memory for %zu MiB of weights on their way to the GPU",
                        n * sizeof(*weights) >> 20);
    params_fill_part(&rank->params, seed, rank->run.threads, begin, end, weights);
    r = rank->k->copy(rank->stream, to, weights, n * sizeof(*weights), err);
    free(weights);
    return r;
}

struct filling { /* of a store's tiles, from a checkpoint or as a run begins */
    const struct rank *rank;
    struct shard *shard;
    struct mck *c; /* NULL: masters as a run begins */
    bool moments;
};

static int fill_tile(void *arg, const struct optim_range *r, float *master, float *m, float *v, struct merr *err)
{
    const struct filling *f = arg;
    const struct optim_range range[2] = {{r->begin, r->end, 0}, {r->end, r->end, 0}};
    struct state_view view = shard_view(f->shard, false);
    const float *weights = f->shard->weights;

    view.range = range;
    view.master = master;
    view.m = f->moments ? m : NULL;
    view.v = f->moments ? v : NULL;
    if (f->c)
        TRY(state_load(&view, f->c, err));
    if (weights) /* they are there */
        return f->rank->k->copy(f->rank->stream, master, weights + r->begin, (r->end - r->begin) * sizeof(float), err);
    return f->c ? 0 : fill_range(f->rank, r->begin, r->end, master, err);
}

/* What is loaded into memory is; now the rest. */
static int fill_store(const struct rank *rank, struct shard *shard, struct mck *c, bool moments, struct merr *err)
{
    struct filling f = {.rank = rank, .shard = shard, .c = c, .moments = moments};

    return shard->store ? optim_store_fill(shard->optim, fill_tile, &f, err) : 0;
}

/* Weights that all replicas hold rounded, from the masters; of a store's they are rounded already. */
static int publish(struct shard *shard, struct merr *err)
{
    return shard->store ? optim_share(shard->optim, err) : optim_publish(shard->optim, err);
}

/* With a store the masters of bf16 come with it alone. */
static int load_memory_of(const struct shard *shard, const struct state_view *v, struct mck *c, struct merr *err)
{
    return shard->store && !shard->weights ? 0 : state_load(v, c, err);
}

/* own: only what this rank is the one to read of all that keep the same; optim_share() does the rest. */
static int load(struct search *s, struct mck *c, bool own, struct merr *err)
{
    struct state_view v = shard_view(s->shard, !s->shard->store);
    int r;

    v.own = own;
    if (own)
        v.range = optim_load_ranges(s->shard->optim);
    handover_clear(s->handover);
    r = load_memory_of(s->shard, &v, c, err);
    if (r == 0)
        r = fill_store(s->rank, s->shard, c, true, err);
    if (r == 0)
        s->shard->tokens = (uint64_t)json_integer_value(json_object_get(mck_kv(c), "tokens"));
    return r;
}

static int load_disk(struct search *s, uint64_t step, struct merr *err)
{
    struct mck *c = NULL;
    int r;

    TRY(mck_open(s->rank->run.checkpoints, step, &c, err));
    r = load(s, c, true, err); /* the disk sees each byte once, less what ranks of tp both hold */
    mck_free(c);
    return r;
}

/* Whether every rank succeeded. Returns 0 with *ret_all, or the collective's error. */
static int everyone(struct search *s, int code, bool *ret_all, struct merr *err)
{
    double failed = code != 0;

    TRY(comm_all_reduce(s->rank->all, &failed, 1, COMM_F64, COMM_SUM, err));
    *ret_all = failed == 0;
    return 0;
}

/* The newest of all; of equal steps the one that costs least. On rank 0. */
static int choose(struct search *s, struct merr *err)
{
    struct candidate *c = &s->c;
    uint64_t step;
    int found = newest_below(s->rank->run.checkpoints, s->limit[FROM_DISK], &step, err);

    if (found < 0)
        return found;
    *c = (struct candidate){found, FROM_DISK, found ? (int64_t)step : 0};
    found = recover_newest(s->memory, s->limit[FROM_MEMORY], &step, NULL, err);
    if (found < 0)
        return found;
    if (found && (!c->found || (int64_t)step >= c->step))
        *c = (struct candidate){1, FROM_MEMORY, (int64_t)step};
    if (s->limit[FROM_HANDOFF] == UINT64_MAX && handover_left(s->handover, &step) &&
        (!c->found || (int64_t)step >= c->step))
        *c = (struct candidate){1, FROM_HANDOFF, (int64_t)step};
    return 0;
}

static int needed(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk), void *take_arg,
                  struct merr *err)
{
    struct state_view s = shard_view(arg, true);

    return state_needed(&s, c, take, take_arg, err);
}

/* Of the source nodes' world a failure is no more than this rank's own. */
static int gather(struct search *s, const char **ret_path, int *ret_own, struct merr *why, struct merr *err)
{
    int code;

    if (!s->sources)
        return recover_gather(s->memory, (uint64_t)s->c.step + 1, needed, s->shard, ret_path, ret_own, why, err);
    code = sources_gather(s->sources, (uint64_t)s->c.step + 1, needed, s->shard, ret_path, ret_own, why, err);
    s->sources_lost = code != 0;
    if (code != 0) {
        *ret_own = code;
        *why = *err;
    }
    return 0;
}

static int load_memory(struct search *s, int *ret_own, struct merr *why, struct merr *err)
{
    const char *path;
    struct mck *c = NULL;
    int64_t began;
    bool all;

    TRY(gather(s, &path, ret_own, why, err));
    TRY(everyone(s, *ret_own, &all, err));
    if (!all) {
        *ret_own = *ret_own ? *ret_own : -ECOMM;
        return 0;
    }
    began = clock_mono_us();
    *ret_own = mck_open_path(path, &c, why);
    if (*ret_own == 0)
        *ret_own = load(s, c, false, why);
    if (*ret_own == 0)
        handover_follow_snapshot(s->handover, mck_kv(c));
    mck_free(c);
    s->load_s = (double)(clock_mono_us() - began) * 1e-6;
    return 0;
}

/* The candidate's state into this rank. Returns the world's failure; *ret_own is this rank's, with words in why. */
static int load_candidate(struct search *s, int *ret_own, struct merr *why, struct merr *err)
{
    int64_t began = clock_mono_us();

    if (s->c.from == FROM_MEMORY)
        return load_memory(s, ret_own, why, err);
    *ret_own = s->c.from == FROM_HANDOFF ? handover_check(s->handover, why) : load_disk(s, (uint64_t)s->c.step, why);
    s->load_s = (double)(clock_mono_us() - began) * 1e-6;
    return 0;
}

/* A snapshot in memory could not be read: once, what is damaged of it is made again from parity. *ret_again: another
 * try is worth it. */
static int repair(struct search *s, bool *ret_again, struct merr *err)
{
    struct merr why = {""};
    uint64_t chunks;
    char text[128];
    int own;

    *ret_again = false;
    if (s->c.from != FROM_MEMORY || s->repaired == s->c.step)
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
    return s->rank->mesh->rank == 0 ? report_note(s->rank->report, (uint64_t)s->c.step, text, err) : 0;
}

/* --- nodes that the job has left --------------------------------------------------------------------------- */

static struct recover_cfg own_nodes(const struct search *s)
{
    const struct rank *rank = s->rank;

    return (struct recover_cfg){.dir = rank->run.memory,
                                .world = rank->world,
                                .all = rank->all,
                                .node_of = rank->run.node_of,
                                .rank = rank->mesh->rank,
                                .size = rank->run.world};
}

/* Look into the memories of all nodes: those of this run, and those that the job has left, where they answer. */
static int open_memories(struct search *s, struct merr *err)
{
    const struct rank *rank = s->rank;
    char rendezvous[RUN_PATH_MAX + 16], text[MERR_TEXT_MAX];
    struct sources_cfg cfg = {.dir = rank->run.memory,
                              .rendezvous = rendezvous,
                              .disk = rank->run.checkpoints,
                              .node_of = rank->run.node_of,
                              .size = rank->run.world,
                              .source_nodes = rank->run.source_nodes,
                              .rank = rank->mesh->rank,
                              .generation = rank->run.generation,
                              .flight = rank->flight};
    struct recover_cfg own = own_nodes(s);
    struct merr why = {"another rank does not reach them"};
    bool all = false;

    if (rank->run.source_nodes > 0) {
        (void)snprintf(rendezvous, sizeof(rendezvous), "%s/rendezvous", rank->run.folder);
        TRY(everyone(s, sources_open(&cfg, &s->sources, &why), &all, err));
    }
    if (all) {
        s->memory = sources_recover(s->sources);
        return 0;
    }
    sources_free(s->sources);
    s->sources = NULL;
    if (rank->run.source_nodes > 0 && rank->mesh->rank == 0) {
        (void)snprintf(text, sizeof(text), "nodes that the job has left do not give what their memory has: %.900s",
                       why.text);
        log_warn("%s", text);
        TRY(report_note(rank->report, 0, text, err));
    }
    return recover_open(&own, &s->memory, err);
}

/* A snapshot of all nodes could not be loaded. Where they still answer it is written to disk; then on without those
 * that the job has left. */
static int do_without(struct search *s, struct merr *err)
{
    struct recover_cfg own = own_nodes(s);
    struct merr why = {""};
    bool all;
    int code = 0;

    TRY(everyone(s, s->sources_lost, &all, err));
    if (all && sources_flush(s->sources, (uint64_t)s->c.step + 1, &code, &why, err) != 0) {
        s->sources_lost = true;
        code = -ECOMM;
        why = *err;
    }
    if (code != 0)
        log_warn("step %lld cannot be written from memory to disk: %s", (long long)s->c.step, why.text);
    TRY(everyone(s, code, &all, err));
    if (!s->sources_lost)
        sources_end(s->sources, all);
    sources_free(s->sources);
    s->sources = NULL;
    return recover_open(&own, &s->memory, err);
}

/* --- all together ------------------------------------------------------------------------------------------ */

/* Say what was newer in memory than what training goes on from, and why it is not used. */
static int tell_lost(const struct search *s, struct merr *err)
{
    const struct rank *rank = s->rank;
    const char *none = "no snapshot is left in the nodes' memory";
    struct merr lost = {""};
    char text[MERR_TEXT_MAX];
    uint64_t step;
    int found = recover_newest(s->memory, UINT64_MAX, &step, &lost, err);

    if (found < 0)
        return found;
    if (!lost.text[0] && (found || s->c.from == FROM_HANDOFF || rank->run.generation == 1 || !rank->run.memory[0]))
        return 0;
    (void)snprintf(text, sizeof(text), "%.800s; going on from step %lld %s", lost.text[0] ? lost.text : none,
                   (long long)s->c.step, s->c.from == FROM_DISK ? "on disk" : "in memory");
    log_warn("%s", text);
    return report_note(rank->report, (uint64_t)s->c.step, text, err);
}

static int tell_resumed(const struct search *s, double seconds, struct merr *err)
{
    const struct rank *rank = s->rank;
    const struct recover_stats *m = recover_stats(s->memory);
    bool disk = s->c.from == FROM_DISK;
    const char *from = disk ? "disk" : s->c.from == FROM_HANDOFF ? "kept" : m->source;

    log_info("resumed from step %lld: %s, %.3f s: look %.3f, rebuild %.3f, gather %.3f, load %.3f",
             (long long)s->c.step, disk ? rank->run.checkpoints : from, seconds, m->survey_s, m->rebuild_s, m->gather_s,
             s->load_s);
    TRY(tell_lost(s, err));
    return report_event_take(
        rank->report,
        json_pack("{s:s, s:I, s:s, s:s, s:s, s:f, s:{s:f, s:f, s:f, s:f}, s:I, s:I}", "type", "resumed", "step",
                  (json_int_t)s->c.step, "path", disk ? rank->run.checkpoints : rank->run.memory, "tier",
                  disk ? "disk" : "memory", "source", from, "seconds", seconds, "phases", "look_s", m->survey_s,
                  "rebuild_s", m->rebuild_s, "gather_s", m->gather_s, "load_s", s->load_s, "rebuilt_bytes",
                  (json_int_t)m->rebuilt_bytes, "fetched_bytes", (json_int_t)m->fetched_bytes),
        err);
}

/* An attempt that has no step to go on from says so, and why: to whoever waits it looks like lost work. */
static int tell_anew(const struct search *s, struct merr *err)
{
    const struct rank *rank = s->rank;
    struct merr lost = {""};
    char text[MERR_TEXT_MAX];
    uint64_t step;
    int found;

    if (rank->run.generation == 1)
        return 0;
    found = recover_newest(s->memory, UINT64_MAX, &step, &lost, err);
    if (found < 0)
        return found;
    (void)snprintf(text, sizeof(text), "%.800s; training begins anew",
                   lost.text[0] ? lost.text : "no checkpoint is on disk and no snapshot in memory");
    log_warn("%s", text);
    return report_note(rank->report, 0, text, err);
}

/* Rank 0 chooses, all load; when one cannot, all go back to the next older. Returns 1 when resumed, 0 when there is
 * nothing to resume from. */
static int try_sources(struct search *s, struct merr *err)
{
    const struct rank *rank = s->rank;
    struct merr why = {""};
    bool all, again;

    for (int i = 0; i < CANDIDATES_MAX; i++) {
        int code = 0;

        if (rank->mesh->rank == 0)
            TRY(choose(s, err));
        TRY(comm_broadcast(rank->all, &s->c, sizeof(s->c), 0, err));
        if (!s->c.found)
            return s->limit[FROM_DISK] == UINT64_MAX || !s->touched
                       ? 0
                       : merr_set(err, -EBADMSG, "no checkpoint in '%s' can be read: %s", rank->run.checkpoints,
                                  why.text);
        TRY(load_candidate(s, &code, &why, err));
        s->touched = true;
        TRY(everyone(s, code, &all, err));
        if (all && s->c.from == FROM_HANDOFF)
            TRY(handover_take(s->handover, err));
        if (all && s->c.from == FROM_DISK)
            TRY(optim_share(s->shard->optim, err));
        if (all && s->c.from == FROM_MEMORY && !s->shard->weights)
            TRY(publish(s->shard, err));
        if (all) {
            s->shard->step = (uint64_t)s->c.step;
            return 1;
        }
        if (code != 0 && code != -ECOMM) {
            log_warn("checkpoint %llu is passed over: %s", (unsigned long long)s->c.step, why.text);
            TRY(report_note(rank->report, (uint64_t)s->c.step, why.text, err));
        }
        if (s->sources && s->c.from == FROM_MEMORY) {
            TRY(do_without(s, err));
            continue;
        }
        TRY(repair(s, &again, err));
        if (!again)
            s->limit[s->c.from] = (uint64_t)s->c.step;
    }
    return merr_set(err, -EBADMSG, "the newest %d checkpoints in '%s' cannot be read: %s", CANDIDATES_MAX,
                    rank->run.checkpoints, why.text);
}

/* Numbers that went bad may have been so in the newest checkpoints already, and in all snapshots of them. */
static int pass_over(struct search *s, struct merr *err)
{
    for (int i = s->rank->run.pass_over; i > 0; i--) {
        int found = newest_below(s->rank->run.checkpoints, s->limit[FROM_DISK], &s->limit[FROM_DISK], err);

        if (found < 0)
            return found;
        if (!found) /* there are fewer: it begins anew */
            s->limit[FROM_DISK] = 0;
    }
    if (s->rank->run.pass_over > 0)
        s->limit[FROM_MEMORY] = s->limit[FROM_HANDOFF] = 0;
    return 0;
}

static int resume(const struct rank *rank, struct shard *shard, struct handover *handover, struct merr *err)
{
    struct search s = {.rank = rank,
                       .shard = shard,
                       .handover = handover,
                       .limit = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                       .repaired = -1};
    int64_t began = clock_mono_us();
    int r;

    TRY(pass_over(&s, err));
    TRY(open_memories(&s, err));
    r = try_sources(&s, err);
    if (s.sources && r >= 0)
        sources_end(s.sources, r == 1);
    if (r >= 0 && rank->mesh->rank == 0) {
        int told = r == 1 ? tell_resumed(&s, (double)(clock_mono_us() - began) * 1e-6, err) : tell_anew(&s, err);

        r = told < 0 ? told : r;
    }
    if (r == 0 && s.touched)
        shard_zero(shard); /* of what could not be read to its end */
    if (s.sources)
        sources_free(s.sources);
    else
        recover_free(s.memory);
    return r;
}

static int tell_begun(const struct rank *rank, uint64_t step, const char *path, struct merr *err)
{
    log_info("going on from step %llu of %s", (unsigned long long)step, path);
    return report_event_take(rank->report,
                             json_pack("{s:s, s:I, s:s, s:s, s:s}", "type", "resumed", "step", (json_int_t)step, "path",
                                       path, "tier", "disk", "source", "init"),
                             err);
}

/* Of a checkpoint with init.resume all of its state, else the weights. */
static int load_from(const struct rank *rank, struct shard *shard, struct merr *err)
{
    const char *path = rank->spec->train.init.from;
    bool whole = rank->spec->train.init.resume;
    struct state_view v = shard_view(shard, whole && !shard->store);
    struct mck *c = NULL;
    int r;

    TRY(state_open(path, &c, err));
    r = load_memory_of(shard, &v, c, err);
    if (r == 0)
        r = fill_store(rank, shard, c, whole, err);
    if (r == 0 && whole) {
        shard->step = mck_step(c);
        shard->tokens = (uint64_t)json_integer_value(json_object_get(mck_kv(c), "tokens"));
        r = rank->mesh->rank == 0 ? tell_begun(rank, shard->step, path, err) : 0;
    }
    mck_free(c);
    return r == 0 ? 0 : merr_prefix(err, r, "init.from '%s'", path);
}

static int fill(const struct rank *rank, struct shard *shard, struct merr *err)
{
    const struct optim_range *r = optim_ranges(shard->optim);

    if (shard->weights)
        TRY(fill_range(rank, 0, rank->params.weight_n, shard->weights, err));
    if (shard->store || shard->weights)
        return fill_store(rank, shard, NULL, false, err);
    for (int i = 0; i < 2; i++)
        TRY(fill_range(rank, r[i].begin, r[i].end, optim_master(shard->optim) + r[i].state, err));
    return 0;
}

int64_t resume_allowed_us(uint64_t bytes)
{
    return LOAD_LEAST_US + (int64_t)(bytes / LOAD_BYTES_S) * 1000000;
}

/* What is whole in the files of an earlier generation becomes a checkpoint; then they are this one's. */
static int open_store(const struct rank *rank, struct shard *shard, struct merr *err)
{
    if (!shard->store)
        return 0;
    if (rank->mesh->rank == 0) {
        TRY(store_commit(rank, err));
        store_forget(rank);
    }
    TRY(comm_barrier(rank->all, err));
    return store_open(shard->store, shard->optim, err);
}

int resume_state(const struct rank *rank, struct shard *shard, struct handover *handover, struct merr *err)
{
    const char *from = rank->spec->train.init.from;
    int resumed;

    flight_phase_set(rank->flight, FLIGHT_LOAD, 0);
    flight_allow(rank->flight, resume_allowed_us(STATE_COPIES * rank->params.weight_n * sizeof(float)));
    TRY(open_store(rank, shard, err));
    resumed = resume(rank, shard, handover, err);
    if (resumed < 0)
        return resumed;
    if (!resumed) {
        handover_clear(handover);
        TRY(from ? load_from(rank, shard, err) : fill(rank, shard, err));
        if (!shard->weights)
            TRY(publish(shard, err));
    }
    return shard_weights_changed(shard, err);
}
