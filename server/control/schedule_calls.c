#include "server/control/schedule_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/batch.h"
#include "server/control/schedules.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define INVALID "schedule-invalid"
#define TEXT_MAX 255

/* --- what is told -------------------------------------------------------------------------------------- */

static json_t *time_or_null(int64_t wall_us)
{
    return wall_us > 0 ? cluster_time(wall_us) : json_null();
}

static json_t *view(const struct recurring *s)
{
    json_t *job = s->last_job ? json_sprintf("j%llu", (unsigned long long)s->last_job) : json_null();

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "id", s->id, "name",
                     s->name, "user", s->user, "cron", s->cron, "timezone", s->zone, "overlap",
                     s->queue ? "queue" : "skip", "missed", s->run_once ? "run-once" : "skip", "enabled", !s->off,
                     "created_at", time_or_null(s->made_us), "next_at", time_or_null(s->off ? 0 : s->next_us),
                     "last_at", time_or_null(s->last_us), "last_job", job, "runs", (json_int_t)s->runs, "skipped",
                     (json_int_t)s->skipped, "why", *s->why ? json_string(s->why) : json_null());
}

static json_t *view_whole(const struct recurring *s)
{
    json_t *o = view(s);

    (void)json_object_set_new(o, "spec", json_loads(s->spec, 0, NULL));
    return o;
}

/* The caller's own by its name, or by its id, by which admins have all. NULL: the call is answered. */
static struct recurring *asked(const struct core *c, struct call *call)
{
    const struct http_identity *who = http_identity(call->req);
    const char *name = http_param(call->req, 0);
    struct recurring *s = schedules_find(c, who->user, name);

    s = s ? s : schedules_find_id(c, name);
    if (s && (who->role == ROLE_ADMIN || strcmp(s->user, who->user) == 0))
        return s;
    call_problem(call, 404, "unknown-schedule",
                 "you have no schedule '%.63s'; `muster schedule list` shows those there are", name);
    return NULL;
}

void schedule_calls_list(struct core *c, struct call *call)
{
    const struct http_identity *who = http_identity(call->req);
    json_t *all = json_array();

    for (size_t i = 0; i < c->schedules->n; i++)
        if (who->role == ROLE_ADMIN || strcmp(c->schedules->v[i]->user, who->user) == 0)
            (void)json_array_append_new(all, view(c->schedules->v[i]));
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "schedules", all, "next_cursor"));
}

void schedule_calls_get(struct core *c, struct call *call)
{
    const struct recurring *s = asked(c, call);

    if (s)
        call_answer_new(call, 200, view_whole(s));
}

/* --- what is asked for --------------------------------------------------------------------------------- */

static bool refuse(struct call *call, const char *field, const char *wants)
{
    return call_refuse(call, INVALID, field, wants);
}

/* A text of the body; usual where there is none. NULL: the call is answered. */
static const char *text_of(struct call *call, const char *field, const char *usual)
{
    return call_text(call, INVALID, field, usual, TEXT_MAX);
}

/* One of two words into *ret; where there is none it stays. False: the call is answered. */
static bool read_choice(struct call *call, const char *field, const char *no, const char *yes, bool *ret)
{
    const char *text = text_of(call, field, *ret ? yes : no);
    char wants[64];

    if (!text)
        return false;
    *ret = strcmp(text, yes) == 0;
    (void)snprintf(wants, sizeof(wants), "is %s or %s", no, yes);
    return *ret || strcmp(text, no) == 0 || refuse(call, field, wants);
}

/* When it comes and what becomes of those that cannot be; s is unchanged when the call is answered. */
static bool read_times(struct call *call, struct recurring *s)
{
    const char *cron = text_of(call, "cron", s->cron),
               *zone = cron ? text_of(call, "timezone", *s->zone ? s->zone : "UTC") : NULL;
    bool queue = s->queue, run_once = s->run_once;
    struct merr err;

    if (!zone || !read_choice(call, "overlap", "skip", "queue", &queue) ||
        !read_choice(call, "missed", "skip", "run-once", &run_once))
        return false;
    if (schedules_set_times(s, cron, zone, &err) < 0) {
        call_problem(call, 422, "schedule-invalid", "%s", err.text);
        return false;
    }
    s->queue = queue;
    s->run_once = run_once;
    return true;
}

/* The spec, if a job of it would be taken now. */
static bool read_spec(struct core *c, struct call *call, struct recurring *s)
{
    const json_t *given = json_object_get(call->body, "spec");
    json_auto_t *doc = json_deep_copy(given);
    struct entry *e;

    if (!json_is_object(given))
        return refuse(call, "spec", "is the spec of a job");
    s->spec = json_dumps(given, JSON_COMPACT);
    if (!s->spec || strlen(s->spec) > SCHEDULES_SPEC_MAX)
        return refuse(call, "spec", "is longer than 64 KiB");
    e = batch_read(c, call, doc, c->jobs.next);
    entry_free(e);
    return e;
}

static bool has_room(const struct core *c, struct call *call, const struct recurring *s)
{
    size_t own = 0;

    if (schedules_find(c, s->user, s->name)) {
        call_problem(call, 409, "schedule-exists", "you have a schedule '%s': delete it, or take another name",
                     s->name);
        return false;
    }
    for (size_t i = 0; i < c->schedules->n; i++)
        own += strcmp(c->schedules->v[i]->user, s->user) == 0;
    if (own < SCHEDULES_USER_MAX && c->schedules->n < SCHEDULES_MAX)
        return true;
    call_problem(call, 409, "too-many-schedules", "a user has at most %d schedules, and all together %d; delete some",
                 SCHEDULES_USER_MAX, SCHEDULES_MAX);
    return false;
}

static bool read_new(struct core *c, struct call *call, struct recurring *s)
{
    const char *name = text_of(call, "name", "");
    unsigned char bytes[8];

    if (!call_only_known(call, INVALID, "a schedule", " name cron timezone spec overlap missed ") || !name)
        return false;
    if (!spec_secret_name_ok(name))
        return refuse(call, "name", "is 1 to 63 letters, digits, '.', '_', '-'");
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    (void)snprintf(s->user, sizeof(s->user), "%s", http_identity(call->req)->user);
    if (!read_times(call, s) || !has_room(c, call, s) || !read_spec(c, call, s))
        return false;
    if (!chance_draw(c->cfg.chance, bytes, sizeof(bytes))) {
        call_problem(call, 503, "no-memory", "there is no chance for an id");
        return false;
    }
    (void)snprintf(s->id, sizeof(s->id), "sc_");
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(s->id + 3 + 2 * i, 3, "%02x", bytes[i]);
    s->made_us = c->now.wall_us;
    return true;
}

void schedule_calls_add(struct core *c, struct call *call)
{
    struct recurring *s = calloc(1, sizeof(*s));

    if (!s)
        call_problem(call, 503, "no-memory", "out of memory");
    if (!s || !read_new(c, call, s)) {
        schedules_discard(s);
        return;
    }
    schedules_plan(c, s);
    call_changed_new(call, NULL, view(s));
    call_answer_new(call, 201, view_whole(s));
    if (!schedules_put(c, s) || schedules_insert(c->schedules, s) < 0)
        state_fatal(c, "out of memory for a schedule");
}

void schedule_calls_patch(struct core *c, struct call *call)
{
    const json_t *enabled = json_object_get(call->body, "enabled");
    struct recurring *s = asked(c, call);
    json_t *before;

    if (!s || !call_only_known(call, INVALID, "a schedule", " enabled cron timezone overlap missed "))
        return;
    if (enabled && !json_is_boolean(enabled)) {
        (void)refuse(call, "enabled", "is true or false");
        return;
    }
    before = view(s);
    if (!read_times(call, s)) {
        json_decref(before);
        return;
    }
    if (enabled)
        s->off = json_is_false(enabled);
    schedules_plan(c, s);
    if (!schedules_put(c, s))
        state_fatal(c, "out of memory for a schedule");
    call_changed_new(call, before, view(s));
    call_answer_new(call, 200, view_whole(s));
}

void schedule_calls_drop(struct core *c, struct call *call)
{
    struct recurring *s = asked(c, call);

    if (!s)
        return;
    call_changed_new(call, view(s), NULL);
    call_answer_new(call, 200, view(s));
    schedules_remove(c, s);
}

void schedule_calls_run(struct core *c, struct call *call)
{
    struct recurring *s = asked(c, call);
    uint64_t job;

    if (!s)
        return;
    job = schedules_run(c, s);
    if (!schedules_put(c, s))
        state_fatal(c, "out of memory for a schedule");
    if (!job) {
        call_problem(call, 409, "schedule-refused", "schedule '%s' makes no job now: %s", s->name, s->why);
        return;
    }
    call_changed_new(call, NULL, view(s));
    call_answer_new(call, 201, view_whole(s));
}
