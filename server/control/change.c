#include "server/control/change.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/events.h"
#include "server/control/kinds.h"
#include "server/control/ports.h"
#include "server/control/ledger.h"
#include "server/control/predictions.h"
#include "server/control/rendezvous.h"
#include "scheduler/diagnose/lag.h"
#include "server/cluster/step_parts.h"
#include "server/control/stalls.h"
#include "server/control/trace.h"
#include "server/control/state.h"
#include "server/control/usage.h"
#include "server/control/waiters.h"

void change_node(struct core *c, struct node *n)
{
    n->changed = true;
    c->nodes_changed = true;
}

void change_assignments(struct core *c, const char *node)
{
    struct node *n = cluster_node(&c->cluster, node);

    if (n)
        n->version++;
    waiters_wake(c->waiters, waiters_node(node));
}

void change_orders(struct core *c, const struct job *j)
{
    for (size_t i = 0; i < j->n_places; i++)
        if (i == 0 || strcmp(j->places[i].node, j->places[i - 1].node) != 0)
            change_assignments(c, j->places[i].node);
    for (size_t i = 0; j->live && i < j->n_holders; i++)
        change_assignments(c, j->holders[i].node);
}

void change_drain_by(struct core *c, struct entry *e, int64_t mono_us)
{
    e->run.drain_deadline_us = mono_us;
    e->job.drain_by_us = moment_wall_of(&c->now, mono_us);
    table_dirty(&c->jobs, e);
}

/* A run has begun or ended: what goes with it. */
static void follow_run(struct core *c, struct entry *e, bool was_live, uint32_t was_generation)
{
    struct entry_run *run = &e->run;

    if (!e->job.live || e->job.generation != was_generation) {
        stalls_free(run->stalls);
        run->stalls = NULL;
        lag_free(run->lag);
        run->lag = NULL;
        step_parts_free(run->parts);
        run->parts = NULL;
        json_decref(run->slow);
        run->slow = NULL;
        run->slow_told = 0;
        run->link_since_us = 0;
        run->links_judged = false;
    }
    if (e->job.live && e->job.generation != was_generation) {
        free(run->ranks);
        run->ranks = calloc(e->job.n_places, sizeof(*run->ranks));
        if (!run->ranks)
            state_fatal(c, "out of memory for the ranks of a job");
        run->fault_rank = -1;
        run->fault_message[0] = '\0';
        run->trouble = false;
    }
    if (was_live && !e->job.live) {
        rendezvous_drop(c, e);
        ports_leave(c, &e->job);
        free(run->ranks);
        run->ranks = NULL;
    }
    if (e->job.live ? e->job.intent != JOB_RESCALE : !job_waits(&e->job))
        entry_target_clear(e);
    if (!e->job.live || e->job.generation != was_generation) {
        run->evidence = run->save_by_us = 0;
        run->save = run->force_stop = run->hung = run->judged = run->gave_up = e->job.moves = false;
        change_drain_by(c, e, 0);
    } else if (strcmp(job_order(&e->job), "drain") == 0 && run->drain_deadline_us == 0) {
        change_drain_by(c, e, c->now.mono_us + entry_leave_us(e, CHANGE_DRAIN_S * INT64_C(1000000)));
    }
}

/* What becomes of a task counts in its array; what becomes of an array, its tasks are to follow (arrays.h). */
static void count_task(struct core *c, struct entry *e, enum job_state was, bool was_live)
{
    struct array *a = e->array;
    struct entry *parent = a ? table_find(&c->jobs, a->job) : NULL;

    if (!a)
        return;
    if (e->job.array) {
        a->live += (size_t)e->job.live - (size_t)was_live;
        array_moved(&c->arrays, a, e->position, was, e->job.state);
        if (parent) /* its numbers are others now */
            table_dirty(&c->jobs, parent);
    } else {
        a->max_running = (size_t)e->job.max_running;
        a->resumed = a->resumed || (was == JOB_SUSPENDED && e->job.state == JOB_QUEUED);
        a->reordered = true;
    }
    array_due(&c->arrays, a);
}

/* What the event says happens to the job, or nothing does: -EBADMSG when it cannot. */
static int apply(struct core *c, struct entry *e, const json_t *event, struct merr *err)
{
    bool over = e->job.live && json_is_false(json_object_get(json_object_get(event, "data"), "live"));
    struct job was = {.id = e->job.id, .n_places = e->job.n_places}; /* a run that is over holds its devices no more */
    int r;

    was.places = over ? malloc(was.n_places * sizeof(*was.places)) : NULL;
    if (over && !was.places)
        return merr_set(err, -ENOMEM, "out of memory for an event");
    if (over)
        memcpy(was.places, e->job.places, was.n_places * sizeof(*was.places));
    if (e->job.live)
        change_orders(c, &e->job);
    r = job_apply(&e->job, event);
    if (r == 0 && over)
        cluster_release(&c->cluster, &was, NULL);
    free(was.places);
    return r == 0 ? 0 : merr_set(err, r == -EINVAL ? -EBADMSG : r, "an event of the job does not apply to it");
}

static int change(struct core *c, struct entry *e, const struct job_cause *cause, struct merr *err)
{
    json_t *event = NULL;
    bool was_live = e->job.live;
    uint32_t was_generation = e->job.generation;
    enum job_state was = e->job.state;
    size_t had_places = e->job.n_places;
    int64_t had_us = e->job.device_us;
    struct prediction attempt = predictions_look(&e->job);
    struct energy_run run;
    struct trace_before before = trace_look(&e->job);
    int r;

    energy_look(&e->job, &run);
    r = job_transition(&e->job, cause, c->now.wall_us, &event, err);

    if (r < 0)
        return r;
    r = apply(c, e, event, err);
    if (r < 0) {
        json_decref(event);
        return r;
    }
    if (cause->kind == CAUSE_ASSIGNED)
        e->job.assigned = events_next(c);
    if (table_moved(&c->jobs, e, was) < 0)
        state_fatal(c, "out of memory for the catalog of jobs");
    count_task(c, e, was, was_live);
    follow_run(c, e, was_live, was_generation);
    predictions_note(c, e, &attempt);
    trace_note(c, &e->job, &before);
    ledger_note(c, e, &run);
    usage_add(c, &e->job, had_places, e->job.device_us - had_us);
    waiters_wake(c->waiters, e->job.id); /* its run may be over */
    if (e->job.live)
        change_orders(c, &e->job);
    events_emit_new(c, e->job.id, e->job.user, event, true, false, job_ended(e->job.state));
    table_dirty(&c->jobs, e);
    c->schedule_wanted = true;
    kinds_end(c, e);
    c->after_due = c->after_due || job_ended(e->job.state) || cause->kind == CAUSE_STARTED;
    if (e->job.time_s > 0 || e->job.queue_s > 0)
        c->limits_due_us = 0;
    return 0;
}

/* A job whose event does not apply can go no further: it fails, and all others go on. */
static void fail(struct core *c, struct entry *e)
{
    struct merr err = {""};
    struct job_cause cause = {.kind = CAUSE_REFUSED,
                              .actor = "server",
                              .code = "event-refused",
                              .class_ = JOB_CLASS_SYSTEM,
                              .text = "the server made an event of this job that does not apply to it, which is a "
                                      "fault of the server: report it, with the job's events"};

    log_error("job j%llu: an event does not apply; the job fails", (unsigned long long)e->job.id);
    if (change(c, e, &cause, &err) < 0)
        log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

int change_job(struct core *c, struct entry *e, const struct job_cause *cause, struct merr *err)
{
    int r = change(c, e, cause, err);

    if (r == -EBADMSG)
        fail(c, e);
    return r;
}
