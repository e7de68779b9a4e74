#include "server/control/admission.h"

#include <string.h>

#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/http/call.h"

/* It would be taken later: 429, and when to come back. */
#define REFUSE_NOW(call, after_s, code, ...)                                                                           \
    do {                                                                                                               \
        if ((call)->req)                                                                                               \
            http_set_header((call)->req, "Retry-After", after_s);                                                      \
        call_problem(call, 429, code, __VA_ARGS__);                                                                    \
    } while (0)

static bool is_admin(const struct call *call)
{
    return call_who(call)->role == ROLE_ADMIN;
}

/* What this server holds, all users together. */
static void check_server(struct core *c, struct call *call, size_t bytes)
{
    size_t jobs = TABLE_JOBS_MAX, reserve = is_admin(call) ? 0 : ADMISSION_RESERVE;
    uint64_t most = ADMISSION_BYTES_MAX;

    if (reserve > 0) {
        jobs -= jobs / reserve;
        most -= most / reserve;
    }
    if (c->jobs.n + c->ahead.jobs >= jobs)
        REFUSE_NOW(call, "60", "too-many-jobs",
                   "%zu jobs are in the queue or running, the most that this server takes%s; try again when some have "
                   "ended",
                   c->jobs.n, is_admin(call) ? "" : " of users");
    else if (c->jobs.catalog.active_bytes + c->ahead.bytes + bytes > most)
        REFUSE_NOW(call, "60", "too-many-bytes",
                   "the specs of all jobs in the queue or running have %llu bytes, the most that this server takes%s; "
                   "try again when some have ended",
                   (unsigned long long)c->jobs.catalog.active_bytes, is_admin(call) ? "" : " of users");
}

static void check_user(struct core *c, struct call *call, const struct job *j, size_t bytes)
{
    const struct catalog_name *user = catalog_user(&c->jobs.catalog, j->user);
    size_t n = (user ? user->active.n : 0) + c->ahead.jobs;
    uint64_t has = (user ? user->active_bytes : 0) + c->ahead.bytes;

    if (n >= (size_t)c->cfg.user.jobs)
        REFUSE_NOW(call, "60", "too-many-jobs",
                   "user '%s' has %zu jobs in the queue or running, and may have %d; try again when some have ended",
                   j->user, n, c->cfg.user.jobs);
    else if (has + bytes > c->cfg.user.spec_bytes)
        REFUSE_NOW(
            call, "60", "too-many-bytes",
            "the specs of the jobs of user '%s' that have not ended have %llu bytes, and may have %llu; this one "
            "has %zu",
            j->user, (unsigned long long)has, (unsigned long long)c->cfg.user.spec_bytes, bytes);
}

static void check_ceilings(const struct project *p, struct call *call, int priority, int min, int time_s)
{
    if (p->max_priority >= 0 && priority > p->max_priority)
        call_problem(call, 422, "over-ceiling", "priority %d is over %d, the highest that project '%s' takes", priority,
                     p->max_priority, p->name);
    else if (p->max_devices_per_user >= 0 && min > p->max_devices_per_user)
        call_problem(call, 422, "over-ceiling", "%d devices are over %d, the most that a user of project '%s' may hold",
                     min, p->max_devices_per_user, p->name);
    else if (p->max_time_s > 0 && time_s > p->max_time_s)
        call_problem(call, 422, "over-ceiling",
                     "a time limit of %d s is over %d s, the longest that project '%s' takes", time_s, p->max_time_s,
                     p->name);
}

/* Tasks of a project's arrays that are no jobs yet. */
static size_t waiting_tasks(const struct core *c, const char *project)
{
    size_t n = 0;

    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (const struct array *a = c->arrays.buckets[b]; a; a = a->next) {
            const struct entry *e = a->n_of[ARRAY_WAITS] > 0 ? table_find(&c->jobs, a->job) : NULL;

            n += e && strcmp(e->job.project, project) == 0 ? a->n_of[ARRAY_WAITS] : 0;
        }
    return n;
}

static void check_queue(struct core *c, struct call *call, const struct project *p, const struct job *j)
{
    const struct catalog_name *all = catalog_project(&c->jobs.catalog, p->name);
    size_t more = j->tasks > 0 ? (size_t)j->tasks : 1, n = all ? all->n_of[JOB_QUEUED] : 0;

    if (p->max_queued < 0)
        return;
    n += waiting_tasks(c, p->name) + c->ahead.jobs;
    if (more > 1 && n + more > (size_t)p->max_queued)
        REFUSE_NOW(call, "30", "over-ceiling",
                   "%zu jobs and tasks of project '%s' are queued, and %d may be; %zu tasks more are too many now", n,
                   p->name, p->max_queued, more);
    else if (n >= (size_t)p->max_queued)
        REFUSE_NOW(call, "30", "over-ceiling", "%zu jobs of project '%s' are queued, and %d may be; try again later", n,
                   p->name, p->max_queued);
}

bool admission_submit(struct core *c, struct call *call, const struct job *j, size_t bytes)
{
    const struct project *p = project_find(&c->cluster.projects, j->project);

    if ((size_t)j->tasks > c->cfg.max_array) {
        call_problem(call, 422, "array-too-large", "%d tasks are more than the %zu that an array may have here (%s)",
                     j->tasks, c->cfg.max_array, "musterd --max-array");
        return false;
    }
    bytes += (size_t)j->tasks * ARRAY_TASK_BYTES;
    if (!rights_submits(c, call_who(call), j->project))
        call_problem(call, 403, "not-a-member", "user '%s' is no member of project '%s'; its managers can change that",
                     j->user, j->project);
    if (call->status == 0 && p && !is_admin(call))
        check_ceilings(p, call, j->priority, j->min, j->time_s);
    if (call->status == 0 && p && !is_admin(call))
        check_queue(c, call, p, j);
    if (call->status == 0 && !is_admin(call))
        check_user(c, call, j, bytes);
    if (call->status == 0)
        check_server(c, call, bytes);
    return call->status == 0;
}

/* 0, which is none, is the longest. */
static bool is_longer(int time_s, int than_s)
{
    return than_s > 0 && (time_s == 0 || time_s > than_s);
}

bool admission_change(struct core *c, struct call *call, const struct job *j, const struct job_cause *to)
{
    const struct project *p = project_find(&c->cluster.projects, j->project);
    int priority = to->priority, min = to->min;

    if (is_longer(to->time_s, j->time_s) && !is_admin(call) && !rights_manages(c, call_who(call), j->project))
        call_problem(call, 403, "not-a-manager",
                     "the time limit of a job is made longer by managers of its project and admins; its owner makes it "
                     "shorter, or gives it more time by resuming it when it has ended by its limit");

    if (call->status == 0 && p &&
        !is_admin(call)) /* what stays as it is, or gets less, may be over a ceiling that has come down */
        check_ceilings(p, call, priority > j->priority ? priority : -1, min > j->min ? min : 0,
                       !is_longer(to->time_s, j->time_s) ? 0
                       : to->time_s > 0                  ? to->time_s
                                                         : SPEC_TIME_S_MAX + 1);
    return call->status == 0;
}

bool admission_stream(struct core *c, struct call *call, size_t own, size_t others, size_t most)
{
    if (is_admin(call))
        return true;
    if (own >= (size_t)c->cfg.user.streams)
        REFUSE_NOW(call, "5", "too-many-streams", "user '%s' follows %zu streams, and may follow %d",
                   call_who(call)->user, own, c->cfg.user.streams);
    else if (others >= most - most / ADMISSION_RESERVE)
        REFUSE_NOW(call, "5", "too-many-streams", "%zu streams of users are the most that this server serves", others);
    return call->status == 0;
}
