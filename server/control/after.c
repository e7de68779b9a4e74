#include "server/control/after.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/control/change.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/http/call.h"

bool after_check(struct core *c, struct call *call, const struct job *j)
{
    for (size_t i = 0; i < j->n_after; i++) {
        const struct catalog_row *row = catalog_find(&c->jobs.catalog, j->after[i].job);
        char pointer[32], message[80];

        if (j->after[i].job >= c->jobs.next && j->after[i].job < j->id)
            continue; /* of the same batch */
        if (row && rights_sees(c, call_who(call), row->user->name, row->project->name))
            continue;
        (void)snprintf(pointer, sizeof(pointer), "/after/%zu/job", i);
        (void)snprintf(message, sizeof(message), "no job 'j%llu'; it is not known, or not any more",
                       (unsigned long long)j->after[i].job);
        call_answer_new(call, 422,
                        json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "code", "spec-invalid", "detail",
                                  "the job comes after one that there is not", "errors", "pointer", pointer, "message",
                                  message));
        return false;
    }
    return true;
}

/* How far a job is for one that comes after it. Who has left the working set has ended; it was looked at in the turn in
 * which it did, so only of one that ended before the other was submitted is it not known whether it had started. */
static enum job_is look_at(const struct core *c, const struct job_after *a)
{
    const struct entry *e = table_find(&c->jobs, a->job);
    const struct catalog_row *row = e ? NULL : catalog_find(&c->jobs.catalog, a->job);
    enum job_state state = e ? e->job.state : row ? row->state : JOB_CANCELLED;
    bool started = e ? e->job.started_us > 0 : state != JOB_CANCELLED;

    if (a->when == JOB_AFTER_STARTED)
        return started ? JOB_IS_MET : job_ended(state) ? JOB_IS_BROKEN : JOB_IS_OPEN;
    if (!job_ended(state))
        return JOB_IS_OPEN;
    if (a->when == JOB_AFTER_ENDED)
        return JOB_IS_MET;
    return (state == JOB_SUCCEEDED) == (a->when == JOB_AFTER_OK) ? JOB_IS_MET : JOB_IS_BROKEN;
}

static void change(struct core *c, struct entry *e, enum job_cause_kind kind, const enum job_is *is, const char *code)
{
    char text[512];
    struct merr err;

    job_after_text(&e->job, is, text, sizeof(text));
    if (change_job(c, e,
                   &(struct job_cause){.kind = kind, .actor = "scheduler", .code = code, .text = text, .after_is = is},
                   &err) < 0)
        log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

static void follow(struct core *c, struct entry *e)
{
    enum job_is is[SPEC_AFTER_MAX] = {JOB_IS_OPEN};
    bool changed = false, broken = false;

    for (size_t i = 0; i < e->job.n_after; i++) {
        const struct job_after *a = &e->job.after[i];

        is[i] = a->is == JOB_IS_OPEN ? look_at(c, a) : a->is;
        changed = changed || is[i] != a->is;
        broken = broken || is[i] == JOB_IS_BROKEN;
    }
    if (changed)
        change(c, e, CAUSE_AFTER, is, NULL);
    if (broken && !e->job.after_hold)
        change(c, e, CAUSE_CANCEL, NULL, "dependency-failed");
}

void after_follow(struct core *c)
{
    if (!c->after_due)
        return;
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && !job_ended(e->job.state) && job_comes_after(&e->job))
            follow(c, e);
    }
    c->after_due = false; /* what was changed here are jobs after which only later ones came */
}
