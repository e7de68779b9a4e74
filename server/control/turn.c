#include "server/control/turn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/thread.h"
#include "scheduler/cluster/learned.h"
#include "server/cluster/profiles.h"
#include "server/control/auth_load.h"
#include "server/control/arrays.h"
#include "server/control/after.h"
#include "server/control/audit.h"
#include "server/control/booking.h"
#include "server/control/bundles.h"
#include "server/control/care.h"
#include "server/control/contact.h"
#include "server/control/deltas.h"
#include "server/control/dispatch.h"
#include "server/control/enroll.h"
#include "server/control/estimates.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/source_nodes.h"
#include "server/control/leaving.h"
#include "server/control/limits.h"
#include "server/control/load.h"
#include "server/control/log_quota.h"
#include "server/control/ledger.h"
#include "server/control/looks.h"
#include "server/control/measures.h"
#include "server/control/places.h"
#include "server/control/polls.h"
#include "server/control/predictions.h"
#include "server/control/quarantine.h"
#include "server/control/readers.h"
#include "server/control/records.h"
#include "server/control/reports.h"
#include "server/control/retire.h"
#include "server/control/schedules.h"
#include "server/control/scrapes.h"
#include "server/control/secrets.h"
#include "server/control/storing.h"
#include "server/control/supply.h"
#include "server/control/usage.h"
#include "server/control/waiters.h"
#include "server/control/wall.h"
#include "server/control/trace.h"
#include "server/control/webhook.h"
#include "server/control/webhook_send.h"
#include "server/http/call.h"
#include "server/http/http_page.h"
#include "server/store/job_store.h"
#include "server/store/watermark.h"

#define QUEUE_MAX 16384
#define TURN_CALLS_MAX 1024
#define TICK_US 250000
#define SPEEDS_US 10000000  /* between two writes of what runs teach about classes */
#define ROUND_LEAST_US 2000 /* between rounds; and ten times what planning the last one took */

static int64_t mono_us(const struct core *c)
{
    return clock_read_mono_us(c->cfg.clock);
}

static void read_clock(struct core *c)
{
    c->now = (struct moment){.mono_us = mono_us(c), .wall_us = clock_read_wall_us(c->cfg.clock)};
}

/* --- committing -------------------------------------------------------------------------------------- */

/* Put all that this turn changed into the batch. False: the process ends. */
static bool put_changes(struct core *c)
{
    for (struct entry *e = c->jobs.dirty; e; e = e->dirty_next) {
        if (e->run.folders == ENTRY_FOLDERS_WANTED && c->turn.marked)
            places_ask(c, e);
        if (!records_put_job(c, e)) {
            state_fatal(c, "out of memory for a job's record");
            return false;
        }
    }
    if (!records_put_arrays(c)) {
        state_fatal(c, "out of memory for an array");
        return false;
    }
    if (!records_put_nodes(c)) {
        state_fatal(c, "out of memory for a node");
        return false;
    }
    if (c->cfg.auth && auth_keep(c->cfg.auth, c->store) < 0) {
        state_fatal(c, "out of memory for a token");
        return false;
    }
    audit_put(c);
    if (c->counters_changed)
        job_store_put_counters(c->store, c->jobs.next, events_next(c));
    c->counters_changed = false;
    return true;
}

/* What the turn changed is durable: jobs that have ended leave. */
static void settle(struct core *c)
{
    for (struct entry *e = c->jobs.dirty, *next; e; e = next) {
        next = e->dirty_next;
        e->dirty = e->is_new = false;
        e->stored_version = e->job.version;
        if (job_ended(e->job.state)) {
            table_remove(&c->jobs, e);
            entry_free(e);
        }
    }
    c->jobs.dirty = NULL;
    c->turn.bytes = 0;
}

/* What was committed is about to be acknowledged. */
static void raise_mark(struct core *c)
{
    struct store_mark mark = *store_mark(c->store);

    mark.next_job = c->jobs.next;
    mark.next_event = events_next(c);
    watermark_note(c->cfg.watermark, &mark);
}

/* Write all that this turn changed. False: the process ends. */
static bool commit(struct core *c)
{
    struct merr err = {""};
    int64_t began = mono_us(c);
    int r;

    deltas_jobs(c);
    if (!put_changes(c))
        return false;
    if (store_batch_empty(c->store))
        return true;
    r = store_commit(c->store, &c->turn.stop, &err);
    if (r == -ECANCELED) {
        log_warn("%s: the last changes may or may not be kept", err.text);
        return false;
    }
    if (r < 0) {
        state_fatal(c, err.text);
        return false;
    }
    stats_observe(c->stats, STATS_COMMIT, mono_us(c) - began);
    if (store_take_notes(c->store))
        (void)quarantine_load(c, &err);
    raise_mark(c);
    c->turn.marked = true;
    for (struct entry *e = c->jobs.dirty; e; e = e->dirty_next)
        if (e->run.folders == ENTRY_FOLDERS_WANTED)
            places_ask(c, e); /* of the first turn: else such a folder alone would look like a store that is lost */
    settle(c);
    return true;
}

static void deliver(struct core *c, bool durable)
{
    uint64_t n = 0;
    int64_t now = mono_us(c);

    while (c->turn.done) {
        struct call *call = c->turn.done;

        c->turn.done = call->next;
        if (!durable) {
            json_decref(call->reply);
            call->reply = NULL;
            call->status = 0;
            free(call->page);
            call->page = NULL;
            http_page_unref(call->shared);
            call->shared = NULL;
            call_problem(call, 503, "stopping", "the server is stopping; ask again");
        }
        stats_observe(c->stats, STATS_REQUEST, now - call->began_us);
        stats_answer(c->stats, call->status);
        call_deliver(call);
        n++;
    }
    c->turn.done_tail = &c->turn.done;
    stats_calls(c->stats, n);
}

/* --- a turn ------------------------------------------------------------------------------------------ */

static void run_calls(struct core *c, struct call *list)
{
    while (list && state_has_room(c)) {
        struct call *call = list;

        list = call->next;
        call->next = NULL;
        c->handed = false;
        call->run(c, call);
        if (c->handed)
            continue;
        audit_call(c, call);
        state_answered(c, call);
    }
    c->turn.later = list;
}

int64_t turn_due_us(const struct core *c)
{
    int64_t tick = c->turn.next_tick_us, round = c->turn.next_round_us;

    if (scrapes_printing(c->scrapes))
        return 0;
    return c->schedule_wanted && round < tick ? round : tick;
}

static void tick(struct core *c)
{
    int64_t now = c->now.mono_us;

    contact_tick(c, c->turn.next_tick_us > 0 ? now - c->turn.next_tick_us : 0);
    c->turn.next_tick_us = now + TICK_US;
    care_tick(c);
    supply_tick(c);
    leaving_tick(c);
    booking_tick(c);
    dispatch_tick(c);
    limits_tick(c);
    events_tick(c);
    deltas_tick(c);
    audit_tick(c);
    if (now - c->turn.renewed_us > store_renew_every_us(c->store)) {
        store_renew(c->store);
        c->turn.renewed_us = now;
    }
    retire_jobs(c);
    arrays_tick(c);
    log_quota_tick(c);
    bundles_tick(c);
    measures_tick(c);
    if (now - c->turn.speeds_kept_us > SPEEDS_US) {
        records_put_speeds(c);
        records_put_kinds(c);
        estimates_put(c);
        predictions_put(c);
        if (c->cfg.auth)
            auth_keep_used(c->cfg.auth);
        c->turn.speeds_kept_us = now;
    }
    storing_tick(c);
    looks_tick(c);
    waiters_wake_due(c->waiters, now);
}

/* What a reservation's jobs get of its devices is decided apart from all others. */
static bool schedule_reserved(struct core *c, bool full)
{
    bool more = false;

    for (size_t i = 0; i < c->bookings.n; i++) {
        const struct booking *b = &c->bookings.v[i];
        struct dispatch_planned planned;

        if (!b->reserved || b->span.from_us > c->now.wall_us)
            continue;
        dispatch_plan(c, full, b->id, &planned);
        more = dispatch_follow(c, &planned) || more;
    }
    return more;
}

static void schedule(struct core *c)
{
    size_t starting = c->jobs.by_state[JOB_STARTING];
    struct dispatch_planned planned;
    bool full = dispatch_full_due(c), wanted;
    int64_t took;
    bool more;

    trace_round(c);
    dispatch_plan(c, full, 0, &planned);
    took = mono_us(c) - c->now.mono_us; /* what starts is work that is done; only planning must not take all the time */
    more = dispatch_follow(c, &planned);
    wanted = c->schedule_wanted;
    more = schedule_reserved(c, full) || more;
    c->schedule_wanted = c->schedule_wanted || wanted;
    if (c->jobs.by_state[JOB_STARTING] <= starting) /* nothing did */
        took = mono_us(c) - c->now.mono_us;
    stats_observe(c->stats, STATS_ROUND, mono_us(c) - c->now.mono_us);
    c->turn.next_round_us = c->now.mono_us;
    if (!more)
        c->turn.next_round_us += took + (took * 10 > ROUND_LEAST_US ? took * 10 : ROUND_LEAST_US);
}

bool turn_take(struct core *c, struct call *list)
{
    bool durable;

    read_clock(c);
    wall_follow(c);
    run_calls(c, list);
    read_clock(c); /* calls may have taken long; what follows has a time of its own */
    if (c->now.mono_us >= c->turn.next_tick_us)
        tick(c);
    schedules_turn(c);
    arrays_turn(c);
    after_follow(c);
    if (c->schedule_wanted && c->now.mono_us >= c->turn.next_round_us)
        schedule(c);
    scrapes_turn(c);
    arrays_turn(c); /* what has started makes room for others that wait */
    webhook_send_collect(c);
    durable = commit(c);
    deliver(c, durable);
    if (durable) {
        webhook_send_due(c);
        trace_due(c);
        supply_send(c);
        events_publish(c);
        audit_publish(c);
        places_note(c, mono_us(c) + PLACES_WAIT_US);
        polls_answer(c, false);
    }
    return durable;
}

static void refuse_all(struct call *list)
{
    for (struct call *call = list, *next; call; call = next) {
        next = call->next;
        call_problem(call, 503, "stopping", "the server is stopping; ask again");
        call_deliver(call);
    }
}

void turn_close(struct core *c)
{
    queue_close(&c->turn.queue);
    refuse_all(c->turn.later);
    refuse_all(queue_take(&c->turn.queue, SIZE_MAX, 0));
    c->turn.later = NULL;
    polls_answer(c, true);
    storing_stop(c);
    looks_stop(c);
    scrapes_stop(c);
    events_stop(c);
}

static void *serve(void *arg)
{
    struct core *c = arg;
    struct queue *q = &c->turn.queue;
    bool durable = true;

    thread_begin("core", 0);
    while (durable) {
        struct call *list = c->turn.later ? c->turn.later : queue_take(q, TURN_CALLS_MAX, turn_due_us(c));

        if (!list && queue_closed(q)) {
            records_put_speeds(c);
            records_put_kinds(c);
            estimates_put(c);
            predictions_put(c);
            (void)commit(c);
            break;
        }
        durable = turn_take(c, list);
    }
    turn_close(c);
    return NULL;
}

void turn_post(struct core *c, struct call *call)
{
    struct queue *q = &c->turn.queue;

    if (queue_put(q, call))
        return;
    call_problem(call, 503, queue_closed(q) ? "stopping" : "busy",
                 queue_closed(q) ? "the server is stopping; ask again"
                                 : "more requests wait than this server queues; try again in a second");
    stats_answer(c->stats, call->status);
    call_deliver(call);
}

/* --- beginning and end -------------------------------------------------------------------------------- */

void turn_free(struct core *c)
{
    if (!c)
        return;
    files_free(c->files);
    supply_free(c->supply);
    readers_free(c->readers);
    readers_stop(c->intake);
    readers_free(c->intake);
    places_free(c->places);
    table_clear(&c->jobs);
    array_set_clear(&c->arrays);
    profiles_clear(&c->cluster);
    bookings_clear(&c->bookings);
    cluster_clear(&c->cluster);
    queue_destroy(&c->turn.queue);
    audit_free(c->audit);
    events_free(c->events);
    source_nodes_free(c->source_nodes);
    waiters_free(c->waiters);
    quarantine_free(c->quarantine);
    storing_free(c->storing);
    deltas_free(c->deltas);
    enroll_free(c->enroll);
    estimates_free(c->estimates);
    predictions_free(c->predictions);
    secrets_free(c->secrets);
    webhook_free(c->webhooks);
    trace_free(c->traces);
    schedules_free(c->schedules);
    usage_free(c->usage);
    ledger_free(c->ledger);
    looks_free(c->looks);
    learned_free(c->learned);
    scrapes_free(c->scrapes);
    free(c);
}

static int make_room(struct core *c)
{
    c->first_version = store_epoch(c->store) << 20;
    c->turn.done_tail = &c->turn.done;
    queue_init(&c->turn.queue, QUEUE_MAX);
    c->audit = audit_new();
    c->events = events_new();
    c->source_nodes = source_nodes_new();
    c->waiters = polls_new();
    c->quarantine = quarantine_new();
    c->storing = reports_storing_new();
    c->deltas = deltas_new();
    c->enroll = enroll_new();
    c->estimates = estimates_new();
    c->predictions = predictions_new();
    c->secrets = secrets_new();
    c->webhooks = webhook_new();
    c->traces = trace_new();
    c->schedules = schedules_new();
    c->usage = usage_new();
    c->ledger = ledger_new();
    c->looks = looks_new();
    c->learned = learned_new();
    c->scrapes = scrapes_new();
    return cluster_init(&c->cluster) == 0 && table_init(&c->jobs) == 0 && c->audit && c->events && c->source_nodes &&
                   c->waiters && c->quarantine && c->storing && c->deltas && c->enroll && c->estimates &&
                   c->predictions && c->secrets && c->webhooks && c->traces && c->schedules && c->usage && c->ledger &&
                   c->looks && c->scrapes && c->learned
               ? 0
               : -ENOMEM;
}

/* The state, loaded; files on a thread of their own or on the caller's. */
static int make(const struct core_cfg *cfg, struct store *store, struct stats *stats, bool threads, struct core **ret,
                struct merr *err)
{
    struct core *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return merr_set(err, -ENOMEM, "out of memory");
    *c = (struct core){.cfg = *cfg, .store = store, .stats = stats};
    r = make_room(c);
    if (r < 0)
        (void)merr_set(err, r, "out of memory");
    c->schedule_wanted = c->after_due = true;
    c->turn.marked = cfg->marked;
    read_clock(c);
    c->turn.wall_ahead_us = c->now.wall_us - c->now.mono_us;
    r = r == 0 ? supply_start(c, threads, &c->supply, err) : r;
    r = r == 0 ? load_all(c, err) : r;
    r = r == 0 ? supply_load(c, err) : r;
    r = r == 0 ? schedules_load(c, err) : r;
    if (r == 0)
        r = files_start(&c->cfg.spool, threads, c, &c->files, err);
    r = r == 0 ? places_start(c, threads, &c->places, err) : r;
    r = r == 0 ? readers_start(threads ? READERS_THREADS : 0, c, &c->readers, err) : r;
    r = r == 0 ? readers_start(threads ? 1 : 0, c, &c->intake, err) : r;
    if (r < 0) {
        files_stop(c->files);
        turn_free(c);
    } else {
        *ret = c;
    }
    return r;
}

int turn_new(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret, struct merr *err)
{
    return make(cfg, store, stats, false, ret, err);
}

int turn_start(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret,
               struct merr *err)
{
    struct core *c;
    int r = make(cfg, store, stats, true, &c, err);

    if (r < 0)
        return r;
    *ret = c; /* before its first turn: what that sends is told of by other threads */
    r = -pthread_create(&c->turn.thread, NULL, serve, c);
    if (r < 0) {
        *ret = NULL;
        files_stop(c->files);
        readers_stop(c->readers);
        readers_stop(c->intake);
        turn_free(c);
        return merr_errno(err, r, "cannot start the core's thread");
    }
    return 0;
}

void turn_stop(struct core *c)
{
    if (!c)
        return;
    readers_stop(c->readers);
    readers_stop(c->intake);
    files_stop(c->files); /* its calls go on to the core, which still takes them */
    atomic_store(&c->turn.stop, 1);
    queue_close(&c->turn.queue);
    (void)pthread_join(c->turn.thread, NULL);
}
