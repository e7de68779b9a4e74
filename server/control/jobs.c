#include "server/control/jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_array.h"
#include "base/hash.h"
#include "server/cluster/job_time.h"
#include "server/cluster/slots.h"
#include "server/control/admission.h"
#include "server/control/arrays.h"
#include "server/control/after.h"
#include "server/control/bundles.h"
#include "server/control/change.h"
#include "server/control/dispatch.h"
#include "server/control/events.h"
#include "server/control/files.h"
#include "server/control/finishes.h"
#include "server/control/incidents.h"
#include "server/control/load.h"
#include "server/control/looks.h"
#include "server/control/plans.h"
#include "server/control/quarantine.h"
#include "server/control/rank_steps.h"
#include "server/control/readers.h"
#include "server/control/records.h"
#include "server/control/reports.h"
#include "server/control/rights.h"
#include "server/control/secrets.h"
#include "server/control/webhook.h"
#include "server/control/saves.h"
#include "server/control/state.h"
#include "server/control/timeline.h"
#include "server/control/trace.h"
#include "server/control/view.h"
#include "server/http/call.h"
#include "server/store/job_store.h"
#include "server/store/spool_read.h"

#define IDEMPOTENCY_MAX 200

/* --- submitting -------------------------------------------------------------------------------------- */

bool jobs_key_was_used(struct core *c, struct call *call, struct wanted_key *w)
{
    const char *key = http_header(call->req, "Idempotency-Key");
    uint64_t id, hash;
    struct merr err = {""};
    struct entry *e;
    bool again = false;

    w->given = key && *key;
    if (!w->given)
        return false;
    if (strlen(key) > IDEMPOTENCY_MAX) {
        call_problem(call, 422, "key-invalid", "an Idempotency-Key has at most %d bytes", IDEMPOTENCY_MAX);
        return true;
    }
    (void)snprintf(w->key, sizeof(w->key), "%s:%s", http_identity(call->req)->user, key);
    for (e = c->jobs.dirty; e && !again; e = e->dirty_next) /* this very turn: not in the store yet */
        if (e->is_new && e->key_hash == hash_xxh3(w->key, strlen(w->key))) {
            id = e->job.id;
            hash = e->body_hash;
            again = true;
        }
    if (!again) {
        int r = records_find_submit(c, w->key, &id, &hash, &err);

        again = r == 0;
        if (r < 0 && r != -ENOENT) {
            call_problem(call, 503, "store", "%s", err.text);
            return true;
        }
    }
    if (!again)
        return false;
    if (hash != call->hash) {
        call_problem(call, 409, "key-reused", "Idempotency-Key '%s' was used for another job, 'j%llu'", key,
                     (unsigned long long)id);
        return true;
    }
    call->job = id;
    return true;
}

/* Answer a submit whose key was used before. False: it was not. */
static bool answer_again(struct core *c, struct call *call, struct wanted_key *w)
{
    if (!jobs_key_was_used(c, call, w))
        return false;
    if (call->status == 0) {
        call->unchanged = true;
        jobs_get(c, call);
    }
    return true;
}

void jobs_remember_key(struct core *c, struct entry *e, const struct wanted_key *w, uint64_t hash)
{
    if (!w->given)
        return;
    e->key_hash = hash_xxh3(w->key, strlen(w->key));
    e->body_hash = hash;
    records_put_submit(c, w->key, e->job.id, hash);
}

static void answer_fault(struct call *call, const char *pointer, const char *text)
{
    char detail[400];

    (void)snprintf(detail, sizeof(detail), "the job %s", text);
    call_answer_new(call, 422,
                    json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "code", "spec-invalid", "detail", detail, "errors",
                              "pointer", pointer, "message", text));
}

/* Whether the secrets that it names are there; else the call is answered. */
static bool check_secrets(const struct core *c, struct call *call, const struct entry *e)
{
    char variable[64], pointer[96];
    struct merr why;

    if (secrets_are_there(c, e->job.user, call->spec, variable, &why))
        return true;
    (void)snprintf(pointer, sizeof(pointer), "/command/env/%s", variable);
    answer_fault(call, pointer, why.text);
    return false;
}

/* Whether the webhook that it names is there; else the call is answered. */
static bool check_webhook(const struct core *c, struct call *call, const struct entry *e)
{
    const char *name = call->spec->notify.webhook;
    char why[200];

    if (!name || webhook_is_there(c, e->job.user, name))
        return true;
    (void)snprintf(why, sizeof(why), "names webhook '%s', which you have not, or which is off: `muster webhook list`",
                   name);
    answer_fault(call, "/notify/webhook", why);
    return false;
}

/* Whether the job could ever run; else the call is answered. */
static bool check(struct core *c, struct call *call, struct entry *e)
{
    struct layout layout;
    struct merr err = {""};
    char why[480];

    if (!check_secrets(c, call, e) || !check_webhook(c, call, e))
        return false;
    if (!bundles_are_there(c, e, &err)) {
        answer_fault(call, "/command/bundle", err.text);
        return false;
    }
    if (e->job.kind == JOB_TRAIN && plan_layout(&e->plan.facts, e->job.max, &layout, NULL, &err) < 0) {
        answer_fault(call, "/parallel", err.text);
        return false;
    }
    if (e->plan.open) {
        int r = plans_prepare(c, e, call->spec, &err);

        if (r == -E2BIG || r == -EINVAL) {
            answer_fault(call, "/parallel", err.text);
            return false;
        }
    }
    if (!dispatch_can_run(c, e, why, sizeof(why))) {
        answer_fault(call, "/devices/min", why);
        return false;
    }
    return true;
}

static void answer_plan(struct core *c, struct call *call, const struct entry *e)
{
    json_t *plan = plans_dry(c, e, call->spec);
    int free_now = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; k < c->cluster.nodes[i]->n_slots; k++)
            free_now += c->cluster.nodes[i]->contact == NODE_READY && !c->cluster.nodes[i]->drain &&
                        c->cluster.nodes[i]->slots[k].job == 0 && slots_usable(&c->cluster.nodes[i]->slots[k]) &&
                        (entry_classes(e, &c->cluster.classes) >> c->cluster.nodes[i]->slots[k].class_ & 1);
    (void)json_object_set_new(plan, "free_devices", json_integer(free_now));
    (void)json_object_set_new(plan, "starts_now", json_boolean(free_now >= e->job.min));
    call_answer_new(call, 200,
                    json_pack("{s:b, s:o, s:o?}", "dry_run", 1, "plan", plan, "spec", json_loads(call->text, 0, NULL)));
}

/* What the audit log says of a job: nothing of its spec's environment. New. */
static json_t *summary(const struct job *j)
{
    char id[24];

    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)j->id);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i}", "job", id, "name", j->name, "user", j->user, "project",
                     j->project, "state", job_state_name(j->state), "priority", j->priority, "min", j->min, "max",
                     j->max);
}

struct entry *jobs_prepare(struct core *c, struct call *call, uint64_t id)
{
    struct entry *e = entry_new(&c->cluster.classes, call->spec);

    if (!e) {
        call_problem(call, 503, "no-memory", "out of memory");
        return NULL;
    }
    job_init(&e->job, id, call->spec, call_who(call)->user, c->now.wall_us);
    if (e->job.time_s == 0)
        e->job.time_s = project_time_s(project_find(&c->cluster.projects, e->job.project));
    (void)snprintf(e->job.unix_user, sizeof(e->job.unix_user), "%s", call_who(call)->unix_user);
    if (admission_submit(c, call, &e->job, strlen(call->text)) && after_check(c, call, &e->job) && check(c, call, e))
        return e;
    entry_free(e);
    return NULL;
}

void jobs_queue(struct core *c, struct call *call, struct entry *e)
{
    c->jobs.next = e->job.id + 1;
    c->counters_changed = true;
    e->is_new = true;
    trace_submit(c, call, &e->job);
    e->spec_text = call->text;
    c->turn.bytes += strlen(call->text);
    call->text = NULL;
    if (table_insert(&c->jobs, e) < 0)
        state_fatal(c, "out of memory for the list of jobs");
    if (e->job.tasks > 0 && !arrays_begin(c, e, call->spec))
        state_fatal(c, "out of memory for an array");
    table_dirty(&c->jobs, e);
    events_emit_new(c, e->job.id, e->job.user, job_submitted_event(&e->job), true, false, false);
    c->schedule_wanted = true;
    c->limits_due_us = 0;
    c->after_due = c->after_due || e->job.n_after > 0;
}

void jobs_answer_new(struct core *c, struct call *call, const struct entry *e)
{
    char location[40];

    call_changed_new(call, NULL, summary(&e->job));
    (void)snprintf(location, sizeof(location), "/v1/jobs/j%llu", (unsigned long long)e->job.id);
    http_set_header(call->req, "Location", location);
    (void)snprintf(call->etag, sizeof(call->etag), "\"%llu\"", (unsigned long long)e->job.version);
    call_answer_new(call, 201, view_job(c, &e->job, e, NULL));
}

void jobs_submit(struct core *c, struct call *call)
{
    struct wanted_key key;
    struct entry *e;

    if (!call->flag && answer_again(c, call, &key))
        return;
    e = jobs_prepare(c, call, c->jobs.next);
    if (!e || call->flag) {
        if (e)
            answer_plan(c, call, e);
        call->unchanged = true;
        entry_free(e);
        return;
    }
    jobs_queue(c, call, e);
    jobs_remember_key(c, e, &key, call->hash);
    finishes_ask(c, e);
    jobs_answer_new(c, call, e);
}

/* --- finding ----------------------------------------------------------------------------------------- */

/* A job for one call: of the working set, or loaded. */
struct found {
    struct job *job;
    struct entry *entry; /* NULL: it has ended */
    struct job loaded;
    char *spec; /* owned; NULL: the entry's */
};

static void found_clear(struct found *f)
{
    if (!f->entry && f->job)
        job_clear(&f->loaded);
    free(f->spec);
}

/* Find the call's job. False: the call is answered. */
static bool find(struct core *c, struct call *call, struct found *f)
{
    struct merr err = {""};
    int r = call->job ? 0 : -ENOENT;

    *f = (struct found){.entry = table_find(&c->jobs, call->job)};
    if (f->entry)
        f->job = &f->entry->job;
    else if (r == 0 && (r = records_read_job(c, call->job, &f->loaded, &f->spec, &err)) == 0)
        f->job = &f->loaded;
    if (f->job && rights_sees(c, http_identity(call->req), f->job->user, f->job->project)) {
        call_changed_new(call, strcmp(http_method(call->req), "GET") == 0 ? NULL : summary(f->job), NULL);
        return true;
    }
    call->hidden = f->job;
    if (!f->job && r == -EINVAL)
        call_problem(call, 409, "quarantined", "%s; it is in quarantine, where an admin looks after it", err.text);
    else if (!f->job && r != -ENOENT)
        call_problem(call, 503, "store", "%s", err.text);
    else
        call_problem(call, 404, "unknown-job", "no job '%s'; `muster list` shows those there are",
                     http_param(call->req, 0) ? http_param(call->req, 0) : "");
    found_clear(f);
    return false;
}

bool jobs_find_origin(struct core *c, struct call *call, struct jobs_origin *ret)
{
    const json_t *step;
    struct found f;

    if (!find(c, call, &f))
        return false;
    step = json_object_get(f.job->checkpoint, "step");
    *ret = (struct jobs_origin){.priority = f.job->priority,
                                .train = f.job->kind == JOB_TRAIN,
                                .ended = !f.entry,
                                .newest = step ? json_integer_value(step) : INT64_MAX,
                                .spec = json_loads(f.entry ? f.entry->spec_text : f.spec, 0, NULL)};
    (void)snprintf(ret->user, sizeof(ret->user), "%s", f.job->user);
    (void)snprintf(ret->unix_user, sizeof(ret->unix_user), "%s", f.job->unix_user);
    (void)snprintf(ret->project, sizeof(ret->project), "%s", f.job->project);
    call_changed_new(call, NULL, NULL);
    found_clear(&f);
    return true;
}

struct entry *jobs_live(struct core *c, struct call *call)
{
    struct found f;
    struct entry *e;

    if (!find(c, call, &f))
        return NULL;
    e = f.entry && f.job->live ? f.entry : NULL;
    if (!e)
        call_problem(call, 409, "wrong-state", "job '%s' is %s: no rank of it runs", http_param(call->req, 0),
                     job_state_name(f.job->state));
    found_clear(&f);
    return e;
}

/* It has changed; what it was before find() has noted. */
static void note_after(struct call *call, const struct job *j)
{
    call_changed_new(call, json_incref(call->before), summary(j));
}

static void set_etag(struct call *call, const struct job *j)
{
    (void)snprintf(call->etag, sizeof(call->etag), "\"%llu\"", (unsigned long long)j->version);
}

/* What it asks lies on the disk: a reader's thread answers it. */
static void read_it(struct core *c, struct call *call, void (*run)(void *core, struct call *call))
{
    call->run = run;
    c->handed = true;
    readers_post(c->readers, call);
}

/* Of a job that has ended: its last lines may have come after its end. On a reader's thread. */
static void run_last(void *core, struct call *call)
{
    const struct core *c = core;
    json_int_t steps = json_integer_value(json_object_get(json_object_get(call->body, "progress"), "steps"));
    json_t *line = steps > 0 ? spool_read_last_metrics(&c->cfg.spool, call->job) : NULL;

    if (line)
        (void)json_object_set_new(call->body, "progress", view_progress(line, (int)steps));
    json_decref(line);
    call_answer_new(call, 200, json_incref(call->body));
    call_deliver(call);
}

/* With its spec, whose variables are for its user and admins alone. */
static json_t *view_whole(const struct core *c, const struct call *call, const struct found *f)
{
    json_t *view = view_job(c, f->job, f->entry, f->entry ? f->entry->spec_text : f->spec);

    if (!rights_owns(http_identity(call->req), f->job->user))
        secrets_mask(json_object_get(view, "spec"));
    return view;
}

void jobs_get(struct core *c, struct call *call)
{
    struct found f;
    json_t *view;

    if (!find(c, call, &f))
        return;
    set_etag(call, f.job);
    if (f.entry && !f.entry->refusal && rights_owns(http_identity(call->req), f.job->user)) {
        view = view_job(c, f.job, f.entry, NULL);
        view_add_whole(f.job, f.entry->spec_text, view);
        call->whole_spec = strdup(f.entry->spec_text);
    } else {
        view = view_whole(c, call, &f);
    }
    if (!f.entry && f.job->kind == JOB_TRAIN && view) {
        call->body = view;
        read_it(c, call, run_last);
    } else {
        call_answer_new(call, 200, view);
    }
    found_clear(&f);
}

void jobs_explain(struct core *c, struct call *call)
{
    struct found f;

    if (!find(c, call, &f))
        return;
    call_answer_new(call, 200, view_explain(c, f.job, f.entry));
    found_clear(&f);
}

static void run_logs(void *core, struct call *call)
{
    const struct core *c = core;

    files_answer_logs(c->files, call);
}

static void run_metrics(void *core, struct call *call)
{
    const struct core *c = core;

    files_answer_metrics(c->files, call);
}

/* Whether it is a job that runs itself; else the call is answered, and the job cleared. */
static bool check_has_run(struct call *call, struct found *f)
{
    if (f->job->tasks == 0)
        return true;
    call_problem(call, 409, "is-array", "job '%s' is an array, whose tasks each run: name one, such as '%s.0'",
                 http_param(call->req, 0), http_param(call->req, 0));
    found_clear(f);
    return false;
}

void jobs_logs(struct core *c, struct call *call)
{
    struct found f;
    bool ended;

    if (!find(c, call, &f) || !check_has_run(call, &f))
        return;
    ended = !f.entry;
    found_clear(&f);
    if (http_wants_stream(call->req) && http_query(call->req, "grep")) {
        call_problem(call, 422, "query-invalid", "a stream has all lines; leave out 'grep', and choose from them");
        return;
    }
    if (http_wants_stream(call->req)) {
        timeline_follow_logs(c, call, (int)call_number(call, "rank", -1), ended);
        return;
    }
    call->flag = !reports_more_come(c, call->job);
    read_it(c, call, run_logs);
}

static void run_series(void *core, struct call *call)
{
    const struct core *c = core;

    files_answer_series(c->files, call);
}

static void answer_measured(struct core *c, struct call *call, void (*run)(void *core, struct call *call))
{
    struct found f;

    if (!find(c, call, &f) || !check_has_run(call, &f))
        return;
    found_clear(&f);
    read_it(c, call, run);
}

void jobs_metrics(struct core *c, struct call *call)
{
    answer_measured(c, call, run_metrics);
}

void jobs_series(struct core *c, struct call *call)
{
    answer_measured(c, call, run_series);
}

void jobs_incidents(struct core *c, struct call *call)
{
    struct found f;

    if (!find(c, call, &f))
        return;
    found_clear(&f);
    read_it(c, call, http_param(call->req, 1) ? incidents_answer_one : incidents_answer_list);
}

void jobs_diagnosis(struct core *c, struct call *call)
{
    struct entry *e = jobs_live(c, call);

    if (e)
        looks_begin(c, call, e);
}

void jobs_ranks(struct core *c, struct call *call)
{
    struct entry *e = jobs_live(c, call);

    if (e)
        rank_steps_answer(c, call, e);
}

/* --- changing ---------------------------------------------------------------------------------------- */

static void refuse(struct call *call, int r, const struct merr *err)
{
    if (r == -ENOMEM)
        call_problem(call, 503, "no-memory", "out of memory");
    else
        call_problem(call, 409, "wrong-state", "%s", err->text);
}

static bool read_whole(struct call *call, const json_t *v, const char *pointer, int least, int most, int *ret)
{
    char text[80];

    if (!v)
        return true;
    if (json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most) {
        *ret = (int)json_integer_value(v);
        return true;
    }
    (void)snprintf(text, sizeof(text), "wants a whole number from %d to %d", least, most);
    call_answer_new(call, 422,
                    json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "code", "spec-invalid", "detail", "the change is not valid",
                              "errors", "pointer", pointer, "message", text));
    return false;
}

static bool only_known(struct call *call, const json_t *o, const char *const *known, const char *where)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)o, key, value) {
        bool ok = false;
        char pointer[200];

        for (int i = 0; known[i]; i++)
            ok = ok || strcmp(known[i], key) == 0;
        if (ok)
            continue;
        (void)snprintf(pointer, sizeof(pointer), "%s/%.100s", where, key);
        call_answer_new(
            call, 422,
            json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "code", "spec-invalid", "detail",
                      "only priority, devices.min, devices.max and limits.time_s of a job can be changed, of an array "
                      "priority and array.max_running",
                      "errors", "pointer", pointer, "message", "cannot be changed"));
        return false;
    }
    return true;
}

static bool read_patch(struct call *call, const struct job *j, struct job_cause *cause)
{
    static const char *const top[] = {"priority", "devices", "limits", NULL}, *const inner[] = {"min", "max", NULL};
    static const char *const of_array[] = {"priority", "array", NULL}, *const in_array[] = {"max_running", NULL},
                             *const times[] = {"time_s", NULL};
    json_t *devices = json_object_get(call->body, "devices"), *array = json_object_get(call->body, "array"),
           *limits = json_object_get(call->body, "limits");

    cause->priority = j->priority;
    cause->min = j->min;
    cause->max = j->max;
    cause->time_s = j->time_s;
    cause->max_running = j->max_running;
    if (!only_known(call, call->body, j->tasks > 0 ? of_array : top, "") ||
        !only_known(call, devices, inner, "/devices") || !only_known(call, limits, times, "/limits") ||
        !only_known(call, array, in_array, "/array"))
        return false;
    if (array && !json_is_object(array)) {
        answer_fault(call, "/array", "wants array as an object with max_running");
        return false;
    }
    if (!read_whole(call, json_object_get(array, "max_running"), "/array/max_running", 1, SPEC_TASKS_MAX,
                    &cause->max_running))
        return false;
    if (limits && !json_is_object(limits)) {
        answer_fault(call, "/limits", "wants limits as an object of time_s");
        return false;
    }
    if (devices && !json_is_object(devices)) {
        answer_fault(call, "/devices", "wants devices as an object of min and max");
        return false;
    }
    if (!read_whole(call, json_object_get(call->body, "priority"), "/priority", 0, 100, &cause->priority) ||
        !read_whole(call, json_object_get(devices, "min"), "/devices/min", 1, PLAN_RANKS_MAX, &cause->min) ||
        !read_whole(call, json_object_get(devices, "max"), "/devices/max", 1, PLAN_RANKS_MAX, &cause->max) ||
        !read_whole(call, json_object_get(limits, "time_s"), "/limits/time_s", 0, SPEC_TIME_S_MAX, &cause->time_s))
        return false;
    if (cause->max < cause->min) {
        answer_fault(call, "/devices/max", "would have a larger devices.min than devices.max");
        return false;
    }
    return true;
}

/* Whether If-Match names this version: by "7", or by the tag of an answer that showed it, "7-1f3a". */
static bool is_version(const char *match, const char *etag)
{
    size_t n = strlen(etag) - 1;

    return strncmp(match, etag, n) == 0 && (match[n] == '"' || match[n] == '-');
}

void jobs_patch(struct core *c, struct call *call)
{
    const char *match = http_header(call->req, "If-Match");
    char actor[80], etag[32];
    struct job_cause cause = {.kind = CAUSE_CHANGE, .actor = actor};
    struct merr err = {""};
    struct found f;
    int r;

    if (!find(c, call, &f))
        return;
    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    (void)snprintf(etag, sizeof(etag), "\"%llu\"", (unsigned long long)f.job->version);
    if (match && strcmp(match, "*") != 0 && !is_version(match, etag)) {
        call_problem(call, 412, "changed-meanwhile", "the job is at version %s, not at %s; read it again", etag, match);
    } else if (!f.entry) {
        call_problem(call, 409, "wrong-state", "job 'j%llu' has ended and cannot be changed",
                     (unsigned long long)f.job->id);
    } else if (read_patch(call, f.job, &cause) && admission_change(c, call, f.job, &cause)) {
        char text[160], limit[48] = "";
        struct job before = *f.job;
        char why[480];

        f.job->min = cause.min;
        f.job->max = cause.max;
        bool fits = dispatch_can_run(c, f.entry, why, sizeof(why));
        f.job->min = before.min;
        f.job->max = before.max;
        if (cause.time_s != f.job->time_s)
            (void)snprintf(limit, sizeof(limit), ", time limit %d s", cause.time_s);
        if (f.job->tasks > 0)
            (void)snprintf(text, sizeof(text), "priority %d, at most %d tasks running", cause.priority,
                           cause.max_running);
        else
            (void)snprintf(text, sizeof(text), "priority %d, devices %d to %d%s%s", cause.priority, cause.min,
                           cause.max, limit, f.job->live ? "; a run that has others moves" : "");
        cause.text = text;
        if (!fits)
            answer_fault(call, "/devices/min", why);
        else if ((r = change_job(c, f.entry, &cause, &err)) < 0)
            refuse(call, r, &err);
        else {
            set_etag(call, f.job);
            note_after(call, f.job);
            call_answer_new(call, 200, view_whole(c, call, &f));
        }
    }
    found_clear(&f);
}

static void checkpoint(struct core *c, struct call *call, struct entry *e)
{
    if (e->job.state != JOB_RUNNING || e->job.intent != JOB_GO_ON)
        call_problem(call, 409, "wrong-state", "job 'j%llu' does not run, so there is nothing to save",
                     (unsigned long long)e->job.id);
    else
        saves_ask(c, e);
}

/* The tasks of an array that ended so, as an array of their own: their indices and values are as they were. */
void jobs_retry(struct core *c, struct call *call)
{
    const char *wanted = http_query(call->req, "state");
    enum job_state state = JOB_FAILED;
    struct faults faults = {.n = 0};
    json_auto_t *doc = NULL;
    const struct array *a;
    struct found f;
    char *indices;

    if (!find(c, call, &f))
        return;
    a = f.job->tasks > 0 ? array_find(&c->arrays, f.job->id) : NULL;
    if (!a)
        call_problem(call, 409, "wrong-state", "job '%s' is no array: submit it anew", http_param(call->req, 0));
    else if (wanted && (job_state_parse(wanted, &state) < 0 || (state != JOB_FAILED && state != JOB_CANCELLED)))
        call_problem(call, 422, "query-invalid", "tasks that failed or were cancelled can be tried again, not '%s'",
                     wanted);
    else if (a->n_of[state == JOB_FAILED ? ARRAY_FAILED : ARRAY_CANCELLED] == 0)
        call_problem(call, 409, "wrong-state", "no task of array '%s' is %s", http_param(call->req, 0),
                     job_state_name(state));
    if (call->status == 0) {
        indices = array_indices(a, state == JOB_FAILED ? ARRAY_FAILED : ARRAY_CANCELLED, 2 * SPEC_INDEX_BYTES);
        doc = json_loads(f.entry ? f.entry->spec_text : f.spec, 0, NULL);
        (void)json_object_del(json_object_get(doc, "array"), "count");
        (void)json_object_set_new(json_object_get(doc, "array"), "index", json_string(indices ? indices : ""));
        free(indices);
        if (spec_from_json(doc, &call->spec, &faults) < 0)
            call_problem(call, 422, "spec-invalid", "its tasks cannot be tried again: %s: %s",
                         faults.n ? faults.v[0].pointer : "", faults.n ? faults.v[0].message : "");
        faults_clear(&faults);
    }
    found_clear(&f);
    if (call->status != 0)
        return;
    call->text = json_dumps(doc, JSON_COMPACT);
    if (call->text)
        call->hash = hash_xxh3(call->text, strlen(call->text));
    call_changed_new(call, NULL, NULL);
    if (call->text)
        jobs_submit(c, call);
    else
        call_problem(call, 503, "no-memory", "out of memory");
}

/* What a resume says of time: how much more the job is given, 0: nothing. False: the call is answered. */
static bool read_more(struct call *call, int *ret)
{
    static const char *const top[] = {"limits", NULL}, *const inner[] = {"more_s", NULL};
    json_t *limits = json_object_get(call->body, "limits");

    *ret = 0;
    return only_known(call, call->body, top, "") && only_known(call, limits, inner, "/limits") &&
           read_whole(call, json_object_get(limits, "more_s"), "/limits/more_s", 1, SPEC_TIME_S_MAX, ret);
}

/* Let a job that has ended by its time limit go on with more time: it comes back into the working set. */
static void go_on(struct core *c, struct call *call, struct found *f, int more_s, const char *actor)
{
    int64_t ran_s = (f->job->ran_us + 999999) / 1000000;
    int64_t time_s = (ran_s > f->job->time_s ? ran_s : f->job->time_s) + more_s;
    struct job_cause cause = {.kind = CAUSE_RESUME, .actor = actor, .text = "resumed by its user, with more time"};
    struct merr err = {""};
    int r;

    if (!job_time_is_out(f->job) || f->job->array > 0) {
        call_problem(call, 409, "wrong-state",
                     f->job->array > 0 ? "job 'j%llu' is %s, and its array has taken that in; retry it there"
                                       : "job 'j%llu' is %s, and was not ended by its time limit; that of a job which "
                                         "has not ended is changed by PATCH",
                     (unsigned long long)f->job->id, job_state_name(f->job->state));
        return;
    }
    cause.time_s = time_s < SPEC_TIME_S_MAX ? (int)time_s : SPEC_TIME_S_MAX;
    if (!f->entry && !admission_submit(c, call, f->job, f->spec ? strlen(f->spec) : 0))
        return;
    if (!f->entry && (r = load_ended(c, f->job->id, &f->entry, &err)) < 0) {
        call_problem(call, 503, "store", "%s", err.text);
        return;
    }
    if (f->job == &f->loaded)
        job_clear(&f->loaded);
    f->job = &f->entry->job;
    r = change_job(c, f->entry, &cause, &err);
    if (r < 0)
        refuse(call, r, &err);
}

void jobs_action(struct core *c, struct call *call)
{
    static const struct {
        const char *name, *text;
        enum job_cause_kind kind;
    } known[] = {{"cancel", "cancelled by its user", CAUSE_CANCEL},
                 {"suspend", "suspended by its user", CAUSE_SUSPEND},
                 {"resume", "resumed by its user", CAUSE_RESUME}};
    const char *path = strrchr(http_path(call->req), '/'), *action = path ? path + 1 : "";
    char actor[80];
    struct merr err = {""};
    struct found f;
    int r = 0, more_s;

    if (!find(c, call, &f))
        return;
    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    if (strcmp(action, "resume") == 0 && !read_more(call, &more_s)) {
        found_clear(&f);
        return;
    }
    if (strcmp(action, "resume") == 0 && more_s > 0) {
        go_on(c, call, &f, more_s, actor);
        action = "";
    } else if (!f.entry && strcmp(action, "resume") == 0 && job_time_is_out(f.job))
        call_problem(call, 409, "wrong-state",
                     "job 'j%llu' has used up its time; give it more: limits.more_s, `muster "
                     "resume j%llu --time +1h`",
                     (unsigned long long)f.job->id, (unsigned long long)f.job->id);
    else if (!f.entry)
        call_problem(call, 409, "wrong-state", "job 'j%llu' is %s and cannot be changed any more",
                     (unsigned long long)f.job->id, job_state_name(f.job->state));
    else if (strcmp(action, "checkpoint") == 0)
        checkpoint(c, call, f.entry);
    for (size_t i = 0; f.entry && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(action, known[i].name) == 0)
            r = change_job(c, f.entry,
                           &(struct job_cause){.kind = known[i].kind, .actor = actor, .text = known[i].text}, &err);
    if (r < 0 && r != -EALREADY)
        refuse(call, r, &err);
    if (call->status == 0) {
        set_etag(call, f.job);
        note_after(call, f.job);
        call_answer_new(call, 202, view_job(c, f.job, f.entry, NULL));
    }
    found_clear(&f);
}
