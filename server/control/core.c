#include "server/control/core.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_plan.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#define TICK_US 250000
#define SPEEDS_US 10000000 /* between two writes of what runs teach about classes */
#define BUCKETS_FIRST 1024

/* --- the table --------------------------------------------------------------------------------------- */

struct entry *core_find(struct core *c, uint64_t job)
{
    struct entry *e = c->table[job & (c->n_buckets - 1)];

    while (e && e->job.id != job)
        e = e->hash_next;
    return e;
}

static void grow_table(struct core *c)
{
    size_t n = c->n_buckets * 2;
    struct entry **table = calloc(n, sizeof(struct entry *));

    if (!table)
        return; /* chains get longer, nothing else */
    for (size_t i = 0; i < c->n_buckets; i++)
        for (struct entry *e = c->table[i], *next; e; e = next) {
            next = e->hash_next;
            e->hash_next = table[e->job.id & (n - 1)];
            table[e->job.id & (n - 1)] = e;
        }
    free(c->table);
    c->table = table;
    c->n_buckets = n;
}

/* Forget numbers whose jobs have left, once they are as many as those that stay. */
static void order_add(struct core *c, uint64_t id)
{
    if (c->n_order == c->order_cap) {
        size_t n = 0, cap = c->order_cap ? c->order_cap * 2 : 1024;
        uint64_t *order;

        for (size_t i = 0; i < c->n_order; i++)
            if (core_find(c, c->order[i]))
                c->order[n++] = c->order[i];
        c->n_order = n;
        if (n >= c->order_cap / 2) {
            order = realloc(c->order, cap * sizeof(*order));
            if (!order) {
                c->cfg.fatal(c->cfg.arg, "out of memory for the list of jobs");
                return;
            }
            c->order = order;
            c->order_cap = cap;
        }
    }
    assert(c->n_order == 0 || c->order[c->n_order - 1] < id);
    c->order[c->n_order++] = id;
}

void core_entry_insert(struct core *c, struct entry *e)
{
    size_t at;

    assert(e->job.id != 0);
    if (c->n_jobs >= c->n_buckets)
        grow_table(c);
    at = e->job.id & (c->n_buckets - 1);
    e->hash_next = c->table[at];
    c->table[at] = e;
    c->n_jobs++;
    c->by_state[e->job.state]++;
    order_add(c, e->job.id);
}

static void table_remove(struct core *c, struct entry *e)
{
    struct entry **at = &c->table[e->job.id & (c->n_buckets - 1)];

    while (*at != e)
        at = &(*at)->hash_next;
    *at = e->hash_next;
    c->n_jobs--;
    c->by_state[e->job.state]--;
}

uint64_t core_classes_of(const struct core *c, const struct entry *e)
{
    return e->job.kind == JOB_TRAIN ? e->classes & ~c->command_classes : e->classes;
}

bool core_slot_usable(const struct slot *s)
{
    return !s->stale && !s->ill;
}

struct entry *core_entry_new(struct core *c, const struct job_spec *spec)
{
    struct entry *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->facts = spec_plan_facts(spec);
    if (spec->kind == JOB_TRAIN) {
        struct plan_wish wish = spec_plan_wish(spec);

        e->open = plan_wish_open(&wish);
    }
    e->fault_rank = -1;
    e->steps = spec->kind == JOB_TRAIN ? spec->train.steps : 0;
    e->grace_s = spec->kind == JOB_COMMAND ? spec->command.grace_s : 10;
    e->hetero_ok = spec->devices.hetero_ok;
    classes_of_spec(c, e, spec);
    return e;
}

struct job_spec *core_spec_of(const struct entry *e)
{
    struct job_spec *spec = NULL;
    struct faults f = {.n = 0};

    (void)spec_from_text(e->spec_text, strlen(e->spec_text), &spec, &f);
    faults_clear(&f);
    return spec;
}

void core_entry_free(struct core *c, struct entry *e)
{
    if (!e)
        return;
    agents_drop_keys(c, e);
    job_clear(&e->job);
    free(e->spec_text);
    free(e->refusal);
    free(e->ranks);
    free(e->offsets);
    free(e->target);
    free(e);
}

/* --- changing ---------------------------------------------------------------------------------------- */

void core_dirty(struct core *c, struct entry *e)
{
    if (e->dirty)
        return;
    e->dirty = true;
    e->dirty_next = c->dirty;
    c->dirty = e;
}

void core_target_clear(struct entry *e)
{
    e->hand_over = false;
    free(e->target);
    e->target = NULL;
    e->n_target = 0;
}

void core_touch(struct core *c, const struct job *j)
{
    for (size_t i = 0; i < j->n_places; i++)
        if (i == 0 || strcmp(j->places[i].node, j->places[i - 1].node) != 0)
            agents_touch(c, j->places[i].node);
    for (size_t i = 0; j->live && i < j->n_holders; i++)
        agents_touch(c, j->holders[i].node);
}

void core_drain_by(struct core *c, struct entry *e, int64_t mono_us)
{
    e->drain_deadline_us = mono_us;
    e->job.drain_by_us = core_wall_of(mono_us);
    core_dirty(c, e);
}

/* A run has begun or ended: what goes with it. */
static void follow_run(struct core *c, struct entry *e, bool was_live, uint32_t was_generation)
{
    if (e->job.live && e->job.generation != was_generation) {
        free(e->ranks);
        e->ranks = calloc(e->job.n_places, sizeof(*e->ranks));
        if (!e->ranks)
            c->cfg.fatal(c->cfg.arg, "out of memory for the ranks of a job");
        e->fault_rank = -1;
        e->fault_message[0] = '\0';
    }
    if (was_live && !e->job.live) {
        agents_drop_keys(c, e);
        free(e->ranks);
        e->ranks = NULL;
    }
    if (e->job.live ? e->job.intent != JOB_RESCALE : !job_waits(&e->job))
        core_target_clear(e);
    if (!e->job.live || e->job.generation != was_generation) {
        e->save = e->force_stop = e->job.moves = false;
        core_drain_by(c, e, 0);
    } else if (strcmp(job_order(&e->job), "drain") == 0 && e->drain_deadline_us == 0) {
        core_drain_by(c, e, clock_mono_us() + DRAIN_LIMIT_S * 1000000LL);
    }
}

int core_change(struct core *c, struct entry *e, const struct job_cause *cause, struct merr *err)
{
    json_t *event = NULL;
    bool was_live = e->job.live;
    uint32_t was_generation = e->job.generation;
    enum job_state was = e->job.state;
    int r = job_transition(&e->job, cause, clock_wall_us(), &event, err);

    if (r < 0)
        return r;
    if (was_live) {
        core_touch(c, &e->job);
        if (json_is_false(json_object_get(json_object_get(event, "data"), "live")))
            dispatch_release_node(c, e, NULL);
    }
    r = job_apply(&e->job, event);
    if (r < 0) { /* memory and store would part: only a restart makes them one again */
        json_decref(event);
        c->cfg.fatal(c->cfg.arg, "a job's event does not apply");
        return merr_set(err, r, "the event does not apply");
    }
    c->by_state[was]--;
    c->by_state[e->job.state]++;
    follow_run(c, e, was_live, was_generation);
    agents_wake_job(c, e->job.id); /* its run may be over */
    if (e->job.live)
        core_touch(c, &e->job);
    if (job_ended(e->job.state))
        c->ended[e->job.state - JOB_SUCCEEDED]++;
    c->ended_new += job_ended(e->job.state);
    events_emit_new(c, e->job.id, e->job.user, event, true, false, job_ended(e->job.state));
    core_dirty(c, e);
    c->schedule_wanted = true;
    return 0;
}

/* --- committing -------------------------------------------------------------------------------------- */

static bool write_job(struct core *c, struct entry *e)
{
    json_t *record = job_record(&e->job);
    char *text = record ? json_dumps(record, JSON_COMPACT) : NULL;

    json_decref(record);
    if (!text)
        return false;
    job_store_put(c->store, e->job.id, e->stored_version, e->job.version, text, e->is_new ? e->spec_text : NULL);
    if (job_ended(e->job.state)) {
        job_store_end(c->store, e->job.id, job_state_name(e->job.state));
        projects_job_ended(c, &e->job);
    }
    free(text);
    return true;
}

/* Write all that this turn changed. False: the process ends. */
static bool commit(struct core *c)
{
    struct merr err = {""};
    int64_t began = clock_mono_us();
    int r;

    for (struct entry *e = c->dirty; e; e = e->dirty_next)
        if (!write_job(c, e)) {
            c->cfg.fatal(c->cfg.arg, "out of memory for a job's record");
            return false;
        }
    if (c->counters_changed) {
        job_store_put_counters(c->store, c->next_job, c->next_event);
        c->counters_changed = false;
    }
    if (store_batch_empty(c->store))
        return true;
    r = store_commit(c->store, &c->stop, &err);
    if (r == -ECANCELED) {
        log_warn("%s: the last changes may or may not be kept", err.text);
        return false;
    }
    if (r < 0) {
        c->cfg.fatal(c->cfg.arg, err.text);
        return false;
    }
    stats_observe(c->stats, STATS_COMMIT, clock_mono_us() - began);
    for (struct entry *e = c->dirty, *next; e; e = next) {
        next = e->dirty_next;
        e->dirty = e->is_new = false;
        e->stored_version = e->job.version;
        if (job_ended(e->job.state)) {
            table_remove(c, e);
            core_entry_free(c, e);
        }
    }
    c->dirty = NULL;
    c->turn_bytes = 0;
    return true;
}

static void deliver(struct core *c, bool durable)
{
    uint64_t n = 0;
    int64_t now = clock_mono_us();

    while (c->done) {
        struct call *call = c->done;

        c->done = call->next;
        if (!durable) {
            json_decref(call->reply);
            call->reply = NULL;
            call->status = 0;
            free(call->page);
            call->page = NULL;
            call_problem(call, 503, "stopping", "the server is stopping; ask again");
        }
        stats_observe(c->stats, STATS_REQUEST, now - call->began_us);
        stats_answer(c->stats, call->status);
        call_deliver(call);
        n++;
    }
    c->done_tail = &c->done;
    stats_calls(c->stats, n);
}

/* --- the thread -------------------------------------------------------------------------------------- */

bool core_turn_has_room(const struct core *c)
{
    return store_batch_bytes(c->store) + c->turn_bytes < CORE_TURN_BYTES;
}

static void run_calls(struct core *c, struct call *list)
{
    while (list && core_turn_has_room(c)) {
        struct call *call = list;

        list = call->next;
        call->next = NULL;
        c->handed = false;
        call->run(c, call);
        if (c->handed)
            continue;
        if (call->status == 0)
            call_problem(call, 500, "internal", "the request was not answered");
        *c->done_tail = call;
        c->done_tail = &call->next;
    }
    c->later = list;
}

static int64_t next_deadline(const struct core *c, int64_t now)
{
    int64_t at = c->next_tick_us;

    if (c->schedule_wanted && c->next_round_us < at)
        at = c->next_round_us;
    return at > now ? at : now;
}

static void tick(struct core *c, int64_t now)
{
    c->next_tick_us = now + TICK_US;
    agents_tick(c, now);
    dispatch_tick(c, now);
    events_tick(c);
    if (now - c->renewed_us > store_renew_every_us(c->store)) {
        store_renew(c->store);
        c->renewed_us = now;
    }
    if (c->ended_new > (size_t)c->cfg.keep_ended / 100)
        retire_jobs(c);
    if (now - c->speeds_kept_us > SPEEDS_US) {
        classes_keep(c);
        c->speeds_kept_us = now;
    }
    waiters_wake_due(c->waiters, now);
}

static void refuse_all(struct call *list)
{
    for (struct call *call = list, *next; call; call = next) {
        next = call->next;
        call_problem(call, 503, "stopping", "the server is stopping; ask again");
        call_deliver(call);
    }
}

static void *serve(void *arg)
{
    struct core *c = arg;
    bool durable = true;

    while (durable) {
        int64_t now = clock_mono_us();
        struct call *list = c->later ? c->later : queue_take(&c->queue, CORE_TURN_MAX, next_deadline(c, now));

        if (!list && queue_closed(&c->queue)) {
            classes_keep(c);
            (void)commit(c);
            break;
        }
        core_follow_wall(c);
        run_calls(c, list);
        now = clock_mono_us();
        if (now >= c->next_tick_us)
            tick(c, now);
        if (c->schedule_wanted && now >= c->next_round_us)
            dispatch_round(c, now);
        durable = commit(c);
        deliver(c, durable);
        if (durable) {
            events_publish(c);
            agents_answer_waiters(c, false);
        }
    }
    queue_close(&c->queue);
    refuse_all(c->later);
    refuse_all(queue_take(&c->queue, SIZE_MAX, 0));
    agents_answer_waiters(c, true);
    events_stop(c);
    return NULL;
}

void core_post(struct core *c, struct call *call)
{
    if (queue_put(&c->queue, call))
        return;
    call_problem(call, 503, queue_closed(&c->queue) ? "stopping" : "busy",
                 queue_closed(&c->queue) ? "the server is stopping; ask again"
                                         : "more requests wait than this server queues; try again in a second");
    stats_answer(c->stats, call->status);
    call_deliver(call);
}

/* --- beginning and end -------------------------------------------------------------------------------- */

void core_free(struct core *c)
{
    if (!c)
        return;
    files_free(c->files);
    for (size_t i = 0; c->table && i < c->n_buckets; i++)
        for (struct entry *e = c->table[i], *next; e; e = next) {
            next = e->hash_next;
            core_entry_free(c, e);
        }
    for (size_t i = 0; i < c->n_nodes; i++) {
        json_decref(c->nodes[i]->gpus);
        free(c->nodes[i]->slots);
        free(c->nodes[i]->links);
        free(c->nodes[i]);
    }
    for (size_t i = 0; i < c->n_out; i++)
        free(c->out[i].text);
    queue_destroy(&c->queue);
    free(c->nodes);
    free(c->projects);
    free(c->table);
    free(c->order);
    free(c->held);
    waiters_free(c->waiters);
    free(c->followers);
    free(c->out);
    free(c);
}

int core_start(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret,
               struct merr *err)
{
    struct core *c = calloc(1, sizeof(*c));
    char spool[4096];
    int r;

    if (!c)
        return merr_set(err, -ENOMEM, "out of memory");
    *c = (struct core){.cfg = *cfg, .store = store, .stats = stats, .n_buckets = BUCKETS_FIRST};
    c->done_tail = &c->done;
    c->schedule_wanted = true;
    c->wall_ahead_us = clock_wall_us() - clock_mono_us();
    c->ended_new = SIZE_MAX; /* an earlier musterd may have kept more */
    queue_init(&c->queue, CORE_QUEUE_MAX);
    c->table = calloc(c->n_buckets, sizeof(struct entry *));
    c->nodes = calloc(CORE_NODES_MAX, sizeof(struct node *));
    c->waiters = polls_new();
    (void)snprintf(spool, sizeof(spool), "%s/spool", cfg->state_dir);
    r = c->table && c->nodes && c->waiters ? core_load(c, err) : merr_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = files_start(spool, c, &c->files, err);
    if (r == 0) {
        r = -pthread_create(&c->thread, NULL, serve, c);
        if (r < 0)
            (void)merr_errno(err, r, "cannot start the core's thread");
    }
    if (r < 0) {
        files_stop(c->files);
        core_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void core_stop(struct core *c)
{
    if (!c)
        return;
    files_stop(c->files); /* its calls go on to the core, which still takes them */
    atomic_store(&c->stop, 1);
    queue_close(&c->queue);
    (void)pthread_join(c->thread, NULL);
}
