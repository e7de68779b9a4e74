#include "server/control/schedules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "server/control/auth.h"
#include "server/control/batch.h"
#include "server/control/events.h"
#include "server/control/finishes.h"
#include "server/control/jobs.h"
#include "server/control/records.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define SECOND_US INT64_C(1000000)
#define LATE_US (90 * SECOND_US) /* a time that is longer ago was missed */

struct schedule_set *schedules_new(void)
{
    return calloc(1, sizeof(struct schedule_set));
}

void schedules_discard(struct recurring *s)
{
    if (!s)
        return;
    zone_free(s->clock);
    free(s->spec);
    free(s);
}

void schedules_free(struct schedule_set *all)
{
    for (size_t i = 0; all && i < all->n; i++)
        schedules_discard(all->v[i]);
    if (all)
        free(all->v);
    free(all);
}

struct recurring *schedules_find(const struct core *c, const char *user, const char *name)
{
    for (size_t i = 0; i < c->schedules->n; i++)
        if (strcmp(c->schedules->v[i]->user, user) == 0 && strcmp(c->schedules->v[i]->name, name) == 0)
            return c->schedules->v[i];
    return NULL;
}

struct recurring *schedules_find_id(const struct core *c, const char *id)
{
    for (size_t i = 0; i < c->schedules->n; i++)
        if (strcmp(c->schedules->v[i]->id, id) == 0)
            return c->schedules->v[i];
    return NULL;
}

int schedules_insert(struct schedule_set *all, struct recurring *s)
{
    if (all->n == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 8;
        struct recurring **v = realloc(all->v, cap * sizeof(struct recurring *));

        if (!v) {
            schedules_discard(s);
            return -ENOMEM;
        }
        all->v = v;
        all->cap = cap;
    }
    all->v[all->n++] = s;
    all->due_us = 0;
    return 0;
}

void schedules_remove(struct core *c, struct recurring *s)
{
    struct schedule_set *all = c->schedules;
    size_t i = 0;

    while (all->v[i] != s)
        i++;
    all->v[i] = all->v[--all->n];
    records_drop_row(c, STORE_SCHEDULES, s->id);
    schedules_discard(s);
}

int schedules_set_times(struct recurring *s, const char *cron, const char *zone, struct merr *err)
{
    struct zone *clock = NULL;
    struct cron times;

    TRY(cron_parse(cron, &times, err));
    TRY(zone_open(ZONE_FOLDER, zone, &clock, err));
    zone_free(s->clock);
    s->clock = clock;
    s->times = times;
    if (cron != s->cron)
        (void)snprintf(s->cron, sizeof(s->cron), "%s", cron);
    if (zone != s->zone)
        (void)snprintf(s->zone, sizeof(s->zone), "%s", zone);
    return 0;
}

void schedules_plan(struct core *c, struct recurring *s)
{
    int64_t next_s = cron_next_s(&s->times, s->clock, c->now.wall_us / SECOND_US);

    s->next_us = next_s < 0 ? 0 : next_s * SECOND_US;
    c->schedules->due_us = 0;
}

/* --- the store ----------------------------------------------------------------------------------------- */

bool schedules_put(struct core *c, const struct recurring *s)
{
    return records_put_row_new(c, STORE_SCHEDULES, s->id,
                               json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
                                         "name", s->name, "user", s->user, "zone", s->zone, "cron", s->cron, "spec",
                                         s->spec, "queue", s->queue, "run_once", s->run_once, "off", s->off, "made_us",
                                         (json_int_t)s->made_us, "next_us", (json_int_t)s->next_us, "last_us",
                                         (json_int_t)s->last_us, "last_job", (json_int_t)s->last_job, "runs",
                                         (json_int_t)s->runs, "skipped", (json_int_t)s->skipped, "why", s->why));
}

static void keep(struct core *c, const struct recurring *s)
{
    if (!schedules_put(c, s))
        state_fatal(c, "out of memory for a schedule");
}

static int take(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = row->text ? json_loads(row->text, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(o, "name")),
               *user = json_string_value(json_object_get(o, "user")),
               *cron = json_string_value(json_object_get(o, "cron")),
               *zone = json_string_value(json_object_get(o, "zone")),
               *spec = json_string_value(json_object_get(o, "spec")),
               *why = json_string_value(json_object_get(o, "why"));
    struct recurring *s;
    struct merr fault;

    if (!name || !user || !cron || !zone || !spec || strlen(row->name) >= SCHEDULES_ID_MAX ||
        c->schedules->n >= SCHEDULES_MAX)
        return merr_set(err, -EINVAL, "a schedule that lacks something");
    s = calloc(1, sizeof(*s));
    if (!s || !(s->spec = strdup(spec))) {
        free(s);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    (void)snprintf(s->id, sizeof(s->id), "%s", row->name);
    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    (void)snprintf(s->user, sizeof(s->user), "%s", user);
    (void)snprintf(s->why, sizeof(s->why), "%s", why ? why : "");
    s->queue = json_is_true(json_object_get(o, "queue"));
    s->run_once = json_is_true(json_object_get(o, "run_once"));
    s->off = json_is_true(json_object_get(o, "off"));
    s->made_us = json_integer_value(json_object_get(o, "made_us"));
    s->next_us = json_integer_value(json_object_get(o, "next_us"));
    s->last_us = json_integer_value(json_object_get(o, "last_us"));
    s->last_job = (uint64_t)json_integer_value(json_object_get(o, "last_job"));
    s->runs = (uint64_t)json_integer_value(json_object_get(o, "runs"));
    s->skipped = (uint64_t)json_integer_value(json_object_get(o, "skipped"));
    if (schedules_set_times(s, cron, zone, &fault) < 0) { /* this machine may lack the zone */
        (void)snprintf(s->cron, sizeof(s->cron), "%s", cron);
        (void)snprintf(s->zone, sizeof(s->zone), "%s", zone);
        (void)snprintf(s->why, sizeof(s->why), "%.250s", fault.text);
        s->off = true;
    }
    return schedules_insert(c->schedules, s) < 0 ? merr_set(err, -ENOMEM, "out of memory") : 0;
}

int schedules_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_SCHEDULES, NULL, take, err);
}

/* --- what is due --------------------------------------------------------------------------------------- */

/* Why a time made no job, told as an event where the last one was no such. */
static void left_out(struct core *c, struct recurring *s, const char *code, const char *why)
{
    bool news = strcmp(s->why, why) != 0;

    s->skipped++;
    (void)snprintf(s->why, sizeof(s->why), "%s", why);
    if (news)
        events_note(c, 0, s->user, "schedule", 0, "server", code, s->why,
                    json_pack("{s:s, s:s, s:s}", "schedule", s->name, "id", s->id, "user", s->user));
}

/* Its user's rights as they are now. False: they have none. */
static bool find_user(const struct core *c, const struct recurring *s, struct http_identity *ret)
{
    return c->cfg.auth && auth_user(c->cfg.auth, s->user, c->now.wall_us, ret) && ret->role >= ROLE_USER;
}

uint64_t schedules_run(struct core *c, struct recurring *s)
{
    json_auto_t *doc = json_loads(s->spec, 0, NULL);
    struct call *call = call_new(NULL, NULL);
    struct http_identity who;
    struct entry *e = NULL;
    char why[SCHEDULES_WHY_MAX] = "out of memory";
    uint64_t job = 0;

    if (call && doc && !find_user(c, s, &who)) {
        s->off = true;
        left_out(c, s, "schedule-off", "its user has no token any more with which jobs may be submitted");
        call_free(call);
        return 0;
    }
    if (call && doc) {
        call->who = &who;
        if (s->queue)
            (void)json_object_set_new(doc, "singleton", json_true());
        e = batch_read(c, call, doc, c->jobs.next);
    }
    if (e) {
        job = e->job.id;
        jobs_queue(c, call, e);
        finishes_ask(c, e);
        s->runs++;
        s->last_us = c->now.wall_us;
        s->last_job = job;
        s->why[0] = '\0';
    } else {
        const char *detail = call ? json_string_value(json_object_get(call->reply, "detail")) : NULL;

        (void)snprintf(why, sizeof(why), "%.290s", detail ? detail : "out of memory");
        left_out(c, s, "schedule-refused", why);
    }
    call_free(call);
    return job;
}

static void fire(struct core *c, struct recurring *s)
{
    bool missed = c->now.wall_us - s->next_us > LATE_US;
    char why[SCHEDULES_WHY_MAX];

    if (missed && !s->run_once) {
        left_out(c, s, "schedule-missed", "no server ran at its time");
    } else if (!s->queue && s->last_job && table_find(&c->jobs, s->last_job)) {
        (void)snprintf(why, sizeof(why), "its last job, j%llu, has not ended yet", (unsigned long long)s->last_job);
        left_out(c, s, "schedule-skipped", why);
    } else {
        (void)schedules_run(c, s);
    }
    schedules_plan(c, s);
    keep(c, s);
}

void schedules_turn(struct core *c)
{
    struct schedule_set *all = c->schedules;
    int64_t now = c->now.wall_us;

    if (all->n == 0 || now < all->due_us)
        return;
    all->due_us = INT64_MAX;
    for (size_t i = 0; i < all->n; i++) {
        struct recurring *s = all->v[i];

        if (s->off || s->next_us == 0)
            continue;
        if (s->next_us <= now && state_has_room(c)) {
            int64_t due_us = all->due_us;

            fire(c, s);
            all->due_us = due_us;
        }
        if (s->next_us > 0 && s->next_us < all->due_us)
            all->due_us = s->next_us;
    }
}
