#include "server/control/arrays.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_array.h"
#include "base/log.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/plans.h"
#include "server/control/records.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"

#define TRIALS_WINDOW 1 /* trials that wait as jobs: those that are paused may go before a new one */

/* --- tasks become jobs ------------------------------------------------------------------------------- */

/* One whose spec is not taken fails at once, as what it says. */
static struct job_spec *stand_in_spec(void)
{
    static const char text[] = "{\"command\": {\"argv\": [\"true\"]}}";
    struct faults faults = {.n = 0};
    struct job_spec *spec = NULL;

    (void)spec_from_text(text, strlen(text), &spec, &faults);
    faults_clear(&faults);
    return spec;
}

/* The spec of a task; *ret_refusal is new where it is not taken. NULL: no memory. */
static struct job_spec *task_spec(const struct array *a, const json_t *doc, const struct job_spec *spec,
                                  size_t position, json_t **ret_params, char **ret_refusal)
{
    struct faults faults = {.n = 0};
    struct job_spec *task = NULL;
    char id[24];
    int r, n = 0;

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)a->job);
    r = spec_task(doc, spec, position, id, &task, ret_params, &faults);
    if (r == -EINVAL)
        n = asprintf(ret_refusal, "its spec is not valid: %s: %s", faults.n ? faults.v[0].pointer : "",
                     faults.n ? faults.v[0].message : "");
    faults_clear(&faults);
    if (n < 0)
        *ret_refusal = NULL;
    return r == -EINVAL && n > 0 ? stand_in_spec() : task;
}

/* What a task has of its array; its number is the next one. */
static void adopt(const struct core *c, struct entry *e, const struct entry *parent, size_t position, json_t *params)
{
    e->job.array = parent->job.id;
    e->job.task_index = spec_index_at(&parent->array->indices, position);
    e->job.params = json_object_size(params) > 0 ? json_incref(params) : NULL;
    e->job.submitted_us = parent->job.submitted_us;
    e->job.waiting_us = c->now.wall_us;
    e->job.priority = parent->job.priority;
    memcpy(e->job.unix_user, parent->job.unix_user, sizeof(e->job.unix_user));
    memcpy(e->job.project, parent->job.project, sizeof(e->job.project));
    e->array = parent->array;
    e->position = position;
    e->is_new = true;
}

static struct entry *task_entry(struct core *c, const struct entry *parent, const struct job_spec *spec,
                                size_t position, json_t *params)
{
    struct entry *e = entry_new(&c->cluster.classes, spec);
    json_t *full = spec_to_json(spec);

    if (e && full) {
        job_init(&e->job, c->jobs.next, spec, parent->job.user, c->now.wall_us);
        memcpy(e->job.trace, parent->job.trace, sizeof(e->job.trace));
        adopt(c, e, parent, position, params);
        e->job.time_s = parent->job.time_s;
        e->job.n_after = 0; /* its array has come after them */
        e->spec_text = json_dumps(full, JSON_COMPACT);
    }
    json_decref(full);
    if (e && e->spec_text)
        return e;
    entry_free(e);
    return NULL;
}

static void refuse(struct core *c, struct entry *e)
{
    struct job_cause cause = {
        .kind = CAUSE_REFUSED, .actor = "server", .code = "spec-refused", .class_ = JOB_CLASS_USER, .text = e->refusal};
    struct merr err = {""};

    if (change_job(c, e, &cause, &err) < 0)
        log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

/* A task is a job from now on. False: no memory. */
static bool start_task(struct core *c, struct entry *parent, const json_t *doc, const struct job_spec *spec,
                       size_t position)
{
    struct array *a = parent->array;
    json_auto_t *params = NULL;
    char *refusal = NULL;
    struct job_spec *task = task_spec(a, doc, spec, position, &params, &refusal);
    struct entry *e = task ? task_entry(c, parent, task, position, params) : NULL;

    if (!e) {
        free(refusal);
        spec_free(task);
        return false;
    }
    e->refusal = refusal;
    if (e->plan.open)
        (void)plans_prepare(c, e, task, NULL); /* the array was admitted by its first task's */
    spec_free(task);
    c->jobs.next++;
    c->counters_changed = c->schedule_wanted = true;
    c->turn.bytes += strlen(e->spec_text);
    if (table_insert(&c->jobs, e) < 0)
        state_fatal(c, "out of memory for the list of jobs");
    table_dirty(&c->jobs, e);
    table_dirty(&c->jobs, parent);
    array_set_task(&c->arrays, a, position, e->job.id, ARRAY_OPEN);
    array_moved(&c->arrays, a, position, JOB_STATES, e->job.state);
    events_emit_new(c, e->job.id, e->job.user, job_submitted_event(&e->job), true, false, false);
    if (e->refusal)
        refuse(c, e);
    return true;
}

/* How many more tasks may become jobs now. */
static size_t room_of(const struct core *c, const struct array *a)
{
    size_t busy = a->n_of[ARRAY_OPEN] - a->open[JOB_SUSPENDED], n = a->n_of[ARRAY_WAITS];
    size_t most = a->trials ? TRIALS_WINDOW : ARRAYS_WINDOW;
    size_t window = a->open[JOB_QUEUED] <= most / 2 ? most - a->open[JOB_QUEUED] : 0;
    size_t table = c->jobs.n < TABLE_JOBS_MAX ? TABLE_JOBS_MAX - c->jobs.n : 0;

    n = n < window ? n : window;
    n = n < table ? n : table;
    if (busy >= a->max_running)
        return 0;
    return n < a->max_running - busy ? n : a->max_running - busy;
}

/* Let tasks become jobs. An array whose turn has no more room for them stays due. */
static void fill(struct core *c, struct entry *parent)
{
    struct array *a = parent->array;
    size_t n = job_is_held_back(&parent->job) ? 0 : room_of(c, a);
    json_auto_t *doc = n > 0 ? json_loads(parent->spec_text, 0, NULL) : NULL;
    struct faults faults = {.n = 0};
    struct job_spec *spec = NULL;
    bool good = doc && spec_from_json(doc, &spec, &faults) == 0 && spec->array.tasks == array_size(a);

    for (size_t i = 0; good && i < n && state_has_room(c); i++)
        good = start_task(c, parent, doc, spec, array_first_waiting(a));
    faults_clear(&faults);
    spec_free(spec);
    if (n > 0 && !good)
        log_error("job j%llu: its tasks cannot be started now", (unsigned long long)parent->job.id);
}

/* --- tasks follow their array ------------------------------------------------------------------------ */

/* The next task from *position on that is a job which has not ended; NULL: there is none. */
static struct entry *next_open(const struct core *c, const struct array *a, size_t *position)
{
    for (; *position < array_size(a); ++*position) {
        struct entry *e =
            a->tasks[*position].state == ARRAY_OPEN ? table_find(&c->jobs, a->tasks[*position].job) : NULL;

        if (e) {
            ++*position;
            return e;
        }
    }
    return NULL;
}

static void tell_all(struct core *c, struct array *a, const struct job_cause *cause)
{
    size_t at = 0;
    struct entry *e;

    while ((e = next_open(c, a, &at))) {
        struct job_cause own = *cause;
        struct merr err;

        own.min = e->job.min;
        own.max = e->job.max;
        own.time_s = own.kind == CAUSE_CHANGE ? e->job.time_s : 0;
        if (own.kind == CAUSE_RESUME && (e->job.state != JOB_SUSPENDED || (a->trials && a->trials[e->position].paused)))
            continue;
        if (own.kind == CAUSE_CHANGE && e->job.priority == own.priority)
            continue;
        (void)change_job(c, e, &own, &err); /* one that is on its way out already need not be told */
    }
}

/* The array has ended before its tasks: none of them goes on. */
static void end_tasks(struct core *c, struct array *a, const char *actor)
{
    for (size_t i = array_first_waiting(a); i < array_size(a); i = array_first_waiting(a))
        array_set_task(&c->arrays, a, i, 0, ARRAY_CANCELLED);
    if (a->n_of[ARRAY_OPEN] > 0)
        tell_all(c, a, &(struct job_cause){.kind = CAUSE_CANCEL, .actor = actor, .text = "its array has ended"});
}

static bool being_suspended(const struct core *c, const struct array *a)
{
    const struct entry *e;
    size_t at = 0;

    while ((e = next_open(c, a, &at)))
        if (e->job.intent == JOB_SUSPEND)
            return true;
    return false;
}

static void follow(struct core *c, struct entry *parent, const char *actor)
{
    struct array *a = parent->array;
    struct job_cause cause = {.actor = actor, .text = "as its array"};

    if (parent->job.state == JOB_SUSPENDED) {
        cause.kind = CAUSE_SUSPEND;
        a->resumed = false;
        if (a->reordered)
            tell_all(c, a, &cause);
    } else if (a->resumed) { /* those that are still being suspended once they are */
        cause.kind = CAUSE_RESUME;
        tell_all(c, a, &cause);
        a->resumed = being_suspended(c, a);
    }
    if (a->reordered) {
        cause.kind = CAUSE_CHANGE;
        cause.priority = parent->job.priority;
        tell_all(c, a, &cause);
    }
    a->reordered = false;
}

/* --- searches that pause their trials ---------------------------------------------------------------- */

static bool may_run_more(const struct array *a)
{
    return a->n_of[ARRAY_OPEN] - a->open[JOB_SUSPENDED] < a->max_running && a->open[JOB_QUEUED] < TRIALS_WINDOW;
}

/* Let the trials go on that may, while there is room for them. */
static void promote(struct core *c, struct array *a, const char *actor)
{
    struct job_cause cause = {.kind = CAUSE_RESUME, .actor = actor, .text = "goes on to the next rung of its search"};
    size_t next;
    struct merr err;

    while (may_run_more(a) && (next = asha_promote(&a->rules, a->trials, array_size(a))) < array_size(a)) {
        struct entry *e = a->tasks[next].state == ARRAY_OPEN ? table_find(&c->jobs, a->tasks[next].job) : NULL;

        if (e && e->job.live) /* it is still being suspended: due again when it is */
            return;
        a->trials[next].paused = false;
        array_set_task(&c->arrays, a, next, 0, (enum array_state)a->tasks[next].state);
        if (e && e->job.state == JOB_SUSPENDED)
            (void)change_job(c, e, &cause, &err);
    }
}

/* Whether all trials that have not ended are paused, and none may go on: then they end, too. */
static void end_search(struct core *c, struct array *a, const char *actor)
{
    size_t paused = 0, at = 0;
    const struct entry *e;

    while ((e = next_open(c, a, &at)))
        paused += a->trials[e->position].paused && e->job.state == JOB_SUSPENDED;
    if (a->n_of[ARRAY_WAITS] == 0 && paused == a->n_of[ARRAY_OPEN] &&
        asha_promote(&a->rules, a->trials, array_size(a)) == array_size(a))
        tell_all(c, a, &(struct job_cause){.kind = CAUSE_CANCEL, .actor = actor, .text = "other trials were better"});
}

void arrays_measured(struct core *c, struct entry *e, const json_t *line)
{
    struct array *a = e->job.array ? e->array : NULL;
    struct asha_trial *t = a && a->trials ? &a->trials[e->position] : NULL;
    const json_t *value = t ? json_object_get(line, a->metric) : NULL;
    json_int_t step = json_integer_value(json_object_get(e->job.progress, "step"));
    struct job_cause cause = {.kind = CAUSE_SUSPEND, .actor = "server", .text = "has come to a rung of its search"};
    struct merr err;

    if (!value || t->paused || t->rungs >= ASHA_RUNGS_MAX || step < asha_steps(&a->rules, t) || !e->job.live ||
        e->job.intent != JOB_GO_ON)
        return;
    t->at[t->rungs++] = json_is_number(value) ? json_number_value(value) : NAN;
    t->paused = true;
    if (asha_promote(&a->rules, a->trials, array_size(a)) == e->position)
        t->paused = false; /* it goes on as it is */
    array_set_task(&c->arrays, a, e->position, 0, ARRAY_OPEN);
    array_due(&c->arrays, a);
    if (t->paused)
        (void)change_job(c, e, &cause, &err);
}

/* --- an array's own end ------------------------------------------------------------------------------ */

static void end(struct core *c, struct entry *parent)
{
    const struct array *a = parent->array;
    bool stops = a->fail_limit > 0 && a->n_of[ARRAY_FAILED] >= a->fail_limit;
    bool over = a->n_of[ARRAY_WAITS] + a->n_of[ARRAY_OPEN] == 0;
    char text[160];
    struct job_cause cause = {.kind = CAUSE_TASKS,
                              .actor = "server",
                              .all_done = a->n_of[ARRAY_SUCCEEDED] == array_size(a),
                              .code = "tasks-failed",
                              .class_ = JOB_CLASS_USER,
                              .text = text};
    struct merr err;

    if (!over && !stops)
        return;
    if (a->trials) /* those that others were better than are cancelled */
        cause.all_done = a->n_of[ARRAY_SUCCEEDED] > 0 && a->n_of[ARRAY_FAILED] == 0;
    if (cause.all_done)
        cause.code = "succeeded";
    (void)snprintf(text, sizeof(text), "of %zu tasks %zu succeeded, %zu failed and %zu were cancelled%s", array_size(a),
                   a->n_of[ARRAY_SUCCEEDED], a->n_of[ARRAY_FAILED], a->n_of[ARRAY_CANCELLED],
                   over ? "" : "; the others end, because so many failed");
    (void)change_job(c, parent, &cause, &err);
}

static void serve(struct core *c, struct array *a)
{
    struct entry *parent = table_find(&c->jobs, a->job);
    struct job_cause begun = {.kind = CAUSE_STARTED, .actor = "scheduler", .text = "its first tasks have begun"};
    char actor[32];
    struct merr err;

    (void)snprintf(actor, sizeof(actor), "array:j%llu", (unsigned long long)a->job);
    if (parent && !job_ended(parent->job.state))
        end(c, parent);
    if (!parent || job_ended(parent->job.state)) {
        end_tasks(c, a, actor);
        return;
    }
    follow(c, parent, actor);
    if (parent->job.state == JOB_SUSPENDED)
        return;
    if (parent->job.state == JOB_QUEUED && (a->live > 0 || a->n_of[ARRAY_OPEN] < array_size(a) - a->n_of[ARRAY_WAITS]))
        (void)change_job(c, parent, &begun, &err);
    if (a->trials)
        promote(c, a, actor);
    fill(c, parent);
    if (a->trials)
        end_search(c, a, actor);
}

void arrays_turn(struct core *c)
{
    struct array *a;

    while (state_has_room(c) && (a = array_take_due(&c->arrays))) /* what is done for it makes it due once more */
        serve(c, a);
}

void arrays_tick(struct core *c)
{
    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (struct array *a = c->arrays.buckets[b]; a; a = a->next)
            if (a->n_of[ARRAY_WAITS] > 0)
                array_due(&c->arrays, a);
}

/* --- beginning and loading --------------------------------------------------------------------------- */

bool arrays_begin(struct core *c, struct entry *e, const struct job_spec *spec)
{
    struct spec_indices indices;

    if (spec_indices_of(spec, &indices) < 0)
        return false;
    e->array = array_add_take(&c->arrays, e->job.id, &indices,
                              spec->array.on_fail == ON_FAIL_STOP ? (size_t)spec->array.fail_limit : 0);
    if (!e->array)
        return false;
    if (spec->array.search.method == SEARCH_ASHA &&
        array_set_search(e->array,
                         &(struct asha_rules){.first_steps = spec->array.search.first_steps,
                                              .reduction = spec->array.search.reduction,
                                              .rungs = spec->array.search.rungs,
                                              .max = spec->array.search.goal == GOAL_MAX},
                         spec->array.search.metric ? spec->array.search.metric : "loss") < 0)
        return false;
    e->array->is_new = true;
    e->array->max_running = (size_t)e->job.max_running;
    array_dirty(&c->arrays, e->array);
    array_due(&c->arrays, e->array);
    return true;
}

void arrays_link(struct core *c, struct entry *e)
{
    struct array *a = array_find(&c->arrays, e->job.array ? e->job.array : e->job.id);
    ssize_t position = a && e->job.array ? spec_position_of(&a->indices, e->job.task_index) : 0;

    if (e->job.tasks > 0) {
        if (a && array_size(a) == (size_t)e->job.tasks) {
            a->max_running = (size_t)e->job.max_running;
            e->array = a;
            array_due(&c->arrays, a);
        } else if (!e->refusal) {
            e->refusal = strdup("the store has lost what its tasks were; submit it anew");
        }
        return;
    }
    if (!a || position < 0 || a->tasks[position].job != e->job.id)
        return;
    e->array = a;
    e->position = (size_t)position;
    if (a->tasks[position].state != ARRAY_OPEN) /* it was in quarantine */
        array_set_task(&c->arrays, a, e->position, 0, ARRAY_OPEN);
    a->live += e->job.live;
    array_moved(&c->arrays, a, e->position, JOB_STATES, e->job.state);
}

void arrays_loaded(struct core *c)
{
    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (struct array *a = c->arrays.buckets[b], *next; a; a = next) {
            size_t open = 0;

            next = a->next;
            for (int s = 0; s < JOB_STATES; s++)
                open += a->open[s];
            for (size_t i = 0; open < a->n_of[ARRAY_OPEN] && i < array_size(a); i++)
                if (a->tasks[i].state == ARRAY_OPEN && !table_find(&c->jobs, a->tasks[i].job))
                    array_set_task(&c->arrays, a, i, 0, ARRAY_FAILED);
            if (!catalog_find(&c->jobs.catalog, a->job))
                records_drop_array(c, a);
        }
}

/* --- calls of tasks ---------------------------------------------------------------------------------- */

void arrays_stand_in(const struct core *c, const struct array *a, const struct job *parent, size_t position,
                     struct job *ret)
{
    (void)c;
    *ret = (struct job){.id = a->job,
                        .kind = parent->kind,
                        .priority = parent->priority,
                        .min = parent->min,
                        .max = parent->max,
                        .array = a->job,
                        .task_index = spec_index_at(&a->indices, position),
                        .state = array_job_state(a->tasks[position].state),
                        .submitted_us = parent->submitted_us};
    memcpy(ret->name, parent->name, sizeof(ret->name));
    memcpy(ret->project, parent->project, sizeof(ret->project));
    memcpy(ret->user, parent->user, sizeof(ret->user));
    (void)snprintf(ret->reason_code, sizeof(ret->reason_code), "%s",
                   ret->state == JOB_QUEUED ? "array" : job_state_name(ret->state));
    ret->reason_text = strdup(ret->state == JOB_QUEUED ? "tasks before it have their turn first" : "");
}

static void refuse_unknown(struct call *call)
{
    call_problem(call, 404, "unknown-job", "no job '%s'; `muster list --tasks` shows the tasks of an array",
                 http_param(call->req, 0));
}

/* Whether the caller may see jobs of the array. */
static bool sees(const struct core *c, struct call *call, const struct array *a)
{
    const struct catalog_row *row = catalog_find(&c->jobs.catalog, a->job);

    return row && rights_sees(c, http_identity(call->req), row->user->name, row->project->name);
}

/* One that has no job: it is cancelled, or looked at. */
static void answer_waiting(struct core *c, struct call *call, struct array *a, size_t position)
{
    const char *method = http_method(call->req), *path = http_path(call->req), *verb = path ? strrchr(path, '/') : NULL;
    struct entry *parent = table_find(&c->jobs, a->job);
    struct job job;

    if (strcmp(method, "POST") == 0 && verb && strcmp(verb, "/cancel") == 0 && parent &&
        a->tasks[position].state == ARRAY_WAITS) {
        array_set_task(&c->arrays, a, position, 0, ARRAY_CANCELLED);
        array_due(&c->arrays, a);
        table_dirty(&c->jobs, parent);
        call_changed_new(call, NULL, json_pack("{s:s, s:s}", "job", http_param(call->req, 0), "state", "cancelled"));
    } else if (strcmp(method, "GET") != 0 || !verb || strcmp(verb + 1, http_param(call->req, 0)) != 0 || !parent) {
        call_problem(call, 409, "wrong-state", "task '%s' %s: there is nothing of it yet", http_param(call->req, 0),
                     a->tasks[position].state == ARRAY_WAITS ? "waits for its turn" : "was cancelled before its turn");
        return;
    }
    arrays_stand_in(c, a, &parent->job, position, &job);
    call_answer_new(call, strcmp(method, "GET") == 0 ? 200 : 202, view_job(c, &job, NULL, NULL));
    job_clear(&job);
}

bool arrays_resolve(struct core *c, struct call *call)
{
    const char *text = call->job == 0 && http_param(call->req, 0) ? http_param(call->req, 0) : "";
    const char *dot = strchr(text, '.');
    char id[24], *rest;
    struct array *a;
    ssize_t position;
    long index;

    if (*text != 'j' || !dot || (size_t)(dot - text) >= sizeof(id) || strlen(dot) > 8 ||
        strspn(dot + 1, "0123456789") != strlen(dot + 1) || !dot[1])
        return true;
    memcpy(id, text, (size_t)(dot - text));
    id[dot - text] = '\0';
    a = array_find(&c->arrays, job_id_parse(id));
    index = strtol(dot + 1, &rest, 10);
    position = a ? spec_position_of(&a->indices, (int)index) : -1;
    if (position < 0 || !sees(c, call, a)) {
        call->hidden = position >= 0;
        refuse_unknown(call);
        return false;
    }
    call->job = a->tasks[position].job;
    if (call->job)
        return true;
    answer_waiting(c, call, a, (size_t)position);
    return false;
}
