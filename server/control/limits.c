#include "server/control/limits.h"

#include <stdio.h>

#include "base/log.h"
#include "server/cluster/job_time.h"
#include "server/control/change.h"
#include "server/control/saves.h"
#include "server/control/state.h"

#define AGAIN_US 1000000 /* after a change that failed */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool change(struct core *c, struct entry *e, enum job_cause_kind kind, const char *code, const char *text)
{
    struct merr err;

    if (change_job(c, e, &(struct job_cause){.kind = kind, .actor = "scheduler", .code = code, .text = text}, &err) ==
        0)
        return true;
    log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
    return false;
}

static void warn(struct core *c, struct entry *e, int64_t left_us)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "%lld s are left of its limit of %d s; it is told to save",
                   (long long)(left_us > 0 ? (left_us + 999999) / 1000000 : 0), e->job.time_s);
    if (change(c, e, CAUSE_WARN, NULL, text))
        saves_ask(c, e);
}

static void end(struct core *c, struct entry *e)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "it has run for its limit of %d s%s", e->job.time_s,
                   e->job.live ? "; it saves its state and ends" : "");
    if (change(c, e, CAUSE_TIME_UP, NULL, text) && e->job.live)
        change_drain_by(c, e, c->now.mono_us + c->cfg.sched.grace_us);
}

/* Returns after how many microseconds it is to be looked at again. */
static int64_t look(struct core *c, struct entry *e)
{
    const struct job *j = &e->job;
    int64_t left = job_time_left_us(j, c->now.wall_us), queue = job_time_queue_left_us(j, c->now.wall_us);
    int64_t warn_us = j->warn_s * INT64_C(1000000);
    bool goes = j->live && (j->intent == JOB_GO_ON || j->intent == JOB_REQUEUE || j->intent == JOB_RESCALE);
    char text[96];

    if (queue <= 0) {
        (void)snprintf(text, sizeof(text), "it has waited for its limit of %d s without being given devices",
                       j->queue_s);
        return change(c, e, CAUSE_CANCEL, "queue-limit", text) ? INT64_MAX : AGAIN_US;
    }
    if (!goes)
        return left <= 0 && job_waits(j) ? (end(c, e), AGAIN_US) : queue;
    if (left <= 0) {
        end(c, e);
        return AGAIN_US;
    }
    if (j->warn_s == 0 || j->warned_s == j->time_s)
        return left;
    if (left > warn_us)
        return left - warn_us;
    if (j->state == JOB_RUNNING && j->intent == JOB_GO_ON)
        warn(c, e, left);
    return sooner(left, AGAIN_US);
}

void limits_tick(struct core *c)
{
    int64_t next = INT64_MAX;

    if (c->now.mono_us < c->limits_due_us)
        return;
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && e->job.tasks == 0 && (e->job.time_s > 0 || e->job.queue_s > 0))
            next = sooner(next, look(c, e));
    }
    c->limits_due_us = next == INT64_MAX ? next : c->now.mono_us + next; /* changes meanwhile are those made here */
}
