#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/control/core.h"
#include "server/store/history.h"

#define REPLAY_MAX 5000 /* events sent at once to a follower that comes back */
#define PAGE_DEFAULT 200
#define PAGE_MAX 1000

static struct published *out_add(struct core *c)
{
    if (c->n_out == c->out_cap) {
        size_t cap = c->out_cap ? c->out_cap * 2 : 256;
        struct published *out = realloc(c->out, cap * sizeof(*out));

        if (!out)
            return NULL; /* followers miss it and find it in the store */
        c->out = out;
        c->out_cap = cap;
    }
    c->out[c->n_out] = (struct published){.rank = -1};
    return &c->out[c->n_out++];
}

/* user: whose it is, for the list of all events, where the job may be gone from the working set. */
static void keep(struct core *c, uint64_t job, const char *user, const char *text, uint64_t id, bool note)
{
    const struct entry *e = core_find(c, job);

    if (job != 0 && note)
        history_add_note(c->store, job, text);
    else if (e)
        history_add_state(c->store, job, e->job.version, text);
    history_add_all(c->store, id, text, user);
}

void events_emit_new(struct core *c, uint64_t job, const char *user, json_t *event, bool kept, bool note, bool last)
{
    struct published *p;
    uint64_t id = 0;
    char *text, id_text[24];

    if (kept) {
        id = c->next_event++;
        c->counters_changed = true;
        (void)snprintf(id_text, sizeof(id_text), "%llu", (unsigned long long)id);
        (void)json_object_set_new(event, "id", json_string(id_text));
    }
    text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    if (!text) {
        json_decref(event);
        if (kept)
            c->cfg.fatal(c->cfg.arg, "out of memory for an event");
        return;
    }
    if (kept)
        keep(c, job, user, text, id, note);
    /* kept ones always: a follower may come later in this very turn, when the store does not have them yet */
    if ((kept || c->n_followers > 0) && (p = out_add(c))) {
        p->id = id;
        p->job = job;
        p->last = last;
        p->text = text;
        text = NULL;
        (void)snprintf(p->type, sizeof(p->type), "%s", json_string_value(json_object_get(event, "type")));
        (void)snprintf(p->user, sizeof(p->user), "%s", user);
    }
    free(text);
    json_decref(event);
}

void events_note(struct core *c, uint64_t job, const char *user, const char *type, uint32_t generation,
                 const char *actor, const char *code, const char *text, json_t *data_new)
{
    char at[CLOCK_RFC3339_MAX], id[24];

    clock_rfc3339(clock_wall_us(), at);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    events_emit_new(c, job, user,
                    json_pack("{s:s, s:s?, s:s, s:n, s:n, s:I, s:s, s:{s:s, s:n, s:s}, s:o}", "at", at, "job",
                              job ? id : NULL, "type", type, "from", "to", "generation", (json_int_t)generation,
                              "actor", actor, "cause", "code", code, "class", "text", text, "data",
                              data_new ? data_new : json_object()),
                    true, true, false);
}

void events_log_new(struct core *c, uint64_t job, const char *user, int rank, json_t *piece)
{
    struct published *p = c->n_followers > 0 ? out_add(c) : NULL;

    if (p) {
        p->job = job;
        p->log = true;
        p->rank = rank;
        p->text = json_dumps(piece, JSON_COMPACT);
        (void)snprintf(p->type, sizeof(p->type), "log");
        (void)snprintf(p->user, sizeof(p->user), "%s", user);
    }
    json_decref(piece);
}

bool jobs_visible(const struct http_identity *who, const char *user)
{
    return who->role == ROLE_ADMIN || who->role == ROLE_VIEWER || strcmp(who->user, user) == 0;
}

static bool wants(const struct follower *f, const struct published *p)
{
    if (f->done || f->logs != p->log || (f->job != 0 && f->job != p->job))
        return false;
    return (!f->logs || f->rank < 0 || f->rank == p->rank) && jobs_visible(&f->who, p->user);
}

/* Let go of the followers that are done. */
static void drop_done(struct core *c)
{
    size_t kept = 0;

    for (size_t k = 0; k < c->n_followers; k++) {
        if (c->followers[k].done)
            http_stream_end(c->followers[k].stream);
        else
            c->followers[kept++] = c->followers[k];
    }
    c->n_followers = kept;
}

void events_publish(struct core *c)
{
    for (size_t i = 0; i < c->n_out; i++) {
        struct published *p = &c->out[i];

        for (size_t k = 0; p->text && k < c->n_followers; k++) {
            struct follower *f = &c->followers[k];

            if (wants(f, p) && http_stream_event(f->stream, p->id, p->type, p->text) < 0)
                f->done = true;
        }
        if (p->last) /* logs may still come with later reports; the end of a job ends its followers all the same */
            for (size_t k = 0; k < c->n_followers; k++)
                if (c->followers[k].job == p->job && !c->followers[k].done) {
                    (void)http_stream_event(c->followers[k].stream, 0, "end", "{}");
                    c->followers[k].done = true;
                }
        free(p->text);
    }
    if (c->n_out > 0)
        drop_done(c);
    c->n_out = 0;
}

void events_tick(struct core *c)
{
    for (size_t k = 0; k < c->n_followers; k++)
        if (http_stream_over(c->followers[k].stream))
            c->followers[k].done = true;
    drop_done(c);
}

void events_stop(struct core *c)
{
    for (size_t k = 0; k < c->n_followers; k++)
        http_stream_end(c->followers[k].stream);
    c->n_followers = 0;
}

/* Turn the call into a follower. The caller has answered nothing yet; the call is used up. NULL: it is answered. */
static struct follower *follow(struct core *c, struct call *call)
{
    struct follower *f;
    struct http_identity who = *http_identity(call->req);

    if (c->n_followers == CORE_FOLLOWERS_MAX) {
        call_problem(call, 503, "busy", "%d followers are the most this server serves", CORE_FOLLOWERS_MAX);
        return NULL;
    }
    if (c->n_followers == c->followers_cap) {
        size_t cap = c->followers_cap ? c->followers_cap * 2 : 64;

        f = realloc(c->followers, cap * sizeof(*f));
        if (!f) {
            call_problem(call, 503, "no-memory", "out of memory");
            return NULL;
        }
        c->followers = f;
        c->followers_cap = cap;
    }
    f = &c->followers[c->n_followers];
    *f = (struct follower){.job = call->job, .rank = -1, .who = who};
    f->stream = http_stream_begin(call->req);
    call->req = NULL;
    c->handed = true;
    call_free(call);
    if (!f->stream)
        return NULL;
    c->n_followers++;
    return f;
}

/* Nothing more will come: say so and end the newest follower. */
static void end_stream(struct core *c, struct follower *f)
{
    assert(f == &c->followers[c->n_followers - 1]);
    (void)http_stream_event(f->stream, 0, "end", "{}");
    http_stream_end(f->stream);
    c->n_followers--;
}

void events_follow_logs(struct core *c, struct call *call, int rank, bool ended)
{
    struct follower *f = follow(c, call);

    if (!f)
        return;
    f->rank = rank;
    f->logs = true;
    if (ended)
        end_stream(c, f);
}

/* --- reading ----------------------------------------------------------------------------------------- */

/* A submitted event stands for the spec, which is kept once, with the job. */
static void fill_spec(struct core *c, json_t *event)
{
    uint64_t job = job_id_parse(json_string_value(json_object_get(event, "job")));
    struct entry *e = core_find(c, job);
    char *stored = NULL;
    const char *text = e ? e->spec_text : NULL;

    if (strcmp(json_string_value(json_object_get(event, "type")), "submitted") != 0)
        return;
    if (!text)
        text = stored = job_store_read_spec(c->store, job);
    if (text)
        (void)json_object_set_new(event, "data", json_loads(text, 0, NULL));
    free(stored);
}

static uint64_t event_id(const json_t *event)
{
    const char *id = json_string_value(json_object_get(event, "id"));

    return id ? strtoull(id, NULL, 10) : 0;
}

/* Events of a job after an id, oldest first, at most `most`. New; NULL: the store does not give them. */
static json_t *job_events(struct core *c, uint64_t job, uint64_t after, size_t most, struct history_gap *ret_gap)
{
    json_t *all = NULL, *event;
    size_t i;

    if (history_read(c->store, job, after, most, false, &all, ret_gap, NULL) < 0)
        return NULL;
    json_array_foreach (all, i, event) {
        fill_spec(c, event);
    }
    return all;
}

static uint64_t number(const char *text)
{
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Events after an id that who may see, of at most `most` looked at. New. *ret_end: the id of the last one looked at
 * when there may be more, else 0. */
static json_t *all_events(struct core *c, const struct http_identity *who, uint64_t after, size_t most,
                          uint64_t *ret_end)
{
    struct store_rows rows = {0};
    json_t *all = json_array();

    *ret_end = 0;
    (void)history_read_all(c->store, after, most, &rows, ret_end, NULL);
    for (size_t i = 0; i < rows.n; i++) {
        json_t *event = jobs_visible(who, rows.v[i].name) ? json_loads(rows.v[i].text, 0, NULL) : NULL;

        if (!event)
            continue;
        fill_spec(c, event);
        (void)json_array_append_new(all, event);
    }
    store_rows_clear(&rows);
    return all;
}

static void send_all(struct follower *f, json_t *events)
{
    json_t *event;
    size_t i;

    json_array_foreach (events, i, event) {
        char *text = json_dumps(event, JSON_COMPACT);

        if (!text ||
            http_stream_event(f->stream, event_id(event), json_string_value(json_object_get(event, "type")), text) < 0)
            f->done = true;
        free(text);
    }
}

/* The id after which the next page begins, 0 when this one, as it was read, is the last. */
static uint64_t page_end(const json_t *events, size_t limit)
{
    size_t n = json_array_size(events);

    return n > 0 && n == limit ? event_id(json_array_get(events, n - 1)) : 0;
}

static void print_id(uint64_t id, char ret[24])
{
    (void)snprintf(ret, 24, "%llu", (unsigned long long)id);
}

/* {"events", "before"}: what is left out of a job's events; null where nothing is. New. */
static json_t *gap_json(const struct history_gap *gap)
{
    char before[24];

    if (gap->events == 0)
        return json_null();
    print_id(gap->before, before);
    return json_pack("{s:I, s:s?}", "events", (json_int_t)gap->events, "before", gap->before ? before : NULL);
}

/* gap: of one job's events; NULL: these are of all. */
static void answer_page(struct call *call, json_t *events, uint64_t end, const struct history_gap *gap)
{
    char cursor[24];

    print_id(end, cursor);
    call_answer_new(call, 200,
                    json_pack("{s:o, s:s?, s:o*}", "events", events, "next_cursor", end ? cursor : NULL, "left_out",
                              gap ? gap_json(gap) : NULL));
}

/* Whose job it is and whether it has ended. Answers 404 when there is none that the caller may see. */
static bool find_owner(struct core *c, struct call *call, char user[SPEC_NAME_MAX], bool *ret_ended)
{
    struct entry *e = core_find(c, call->job);
    struct job job;
    struct merr err = {""};
    int r = e || call->job == 0 ? 0 : core_load_job(c, call->job, &job, NULL, &err);

    if (r == -EIO || r == -EINVAL) {
        call_problem(call, 503, "store", "%s", err.text);
        return false;
    }
    if (e || (r == 0 && call->job != 0)) {
        (void)snprintf(user, SPEC_NAME_MAX, "%s", e ? e->job.user : job.user);
        *ret_ended = !e;
        if (!e)
            job_clear(&job);
        if (jobs_visible(http_identity(call->req), user))
            return true;
    }
    call_problem(call, 404, "unknown-job", "no job '%s'; `muster list` shows those there are",
                 http_param(call->req, 0));
    return false;
}

/* To a follower from the beginning: that some events are left out. */
static void send_gap(struct follower *f, const struct history_gap *gap)
{
    json_t *o = gap->events ? gap_json(gap) : NULL;
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    if (text && http_stream_event(f->stream, 0, "left-out", text) < 0)
        f->done = true;
    free(text);
    json_decref(o);
}

void events_of_job(struct core *c, struct call *call)
{
    const char *last = http_header(call->req, "Last-Event-ID");
    bool stream = http_wants_stream(call->req), ended;
    size_t limit = REPLAY_MAX;
    uint64_t job = call->job;
    struct history_gap gap;
    char user[SPEC_NAME_MAX];
    struct follower *f;
    json_t *events;

    if ((!stream && !call_page_limit(call, PAGE_DEFAULT, PAGE_MAX, &limit)) || !find_owner(c, call, user, &ended))
        return;
    events = job_events(c, job, number(stream ? last : http_query(call->req, "cursor")), limit, &gap);
    if (!events) {
        call_problem(call, 503, "store", "the store does not give the job's events; try again");
        return;
    }
    if (!stream) {
        answer_page(call, events, page_end(events, limit), &gap);
        return;
    }
    f = follow(c, call);
    if (f && !last)
        send_gap(f, &gap);
    if (f) {
        send_all(f, events);
        if (ended)
            end_stream(c, f);
    }
    json_decref(events);
}

void events_of_all(struct core *c, struct call *call)
{
    const char *last = http_header(call->req, "Last-Event-ID");
    bool stream = http_wants_stream(call->req);
    size_t limit = REPLAY_MAX;
    uint64_t after = number(stream ? last : http_query(call->req, "cursor")), end = 0;
    struct follower *f;
    json_t *events;

    if (!stream && !call_page_limit(call, PAGE_DEFAULT, PAGE_MAX, &limit))
        return;
    events = stream && !last ? json_array() : all_events(c, http_identity(call->req), after, limit, &end);
    if (!stream) {
        answer_page(call, events, end, NULL);
        return;
    }
    f = follow(c, call);
    if (f)
        send_all(f, events);
    json_decref(events);
}

void events_checkpoints(struct core *c, struct call *call)
{
    char user[SPEC_NAME_MAX];
    json_t *events, *event, *list;
    struct merr err = {""};
    bool ended;
    size_t i;

    if (!find_owner(c, call, user, &ended))
        return;
    if (history_read(c->store, call->job, 0, HISTORY_NOTES, true, &events, NULL, &err) < 0) {
        call_problem(call, 503, "store", "%s", err.text);
        return;
    }
    list = json_array();
    json_array_foreach (events, i, event) {
        json_t *data = json_object_get(event, "data");

        if (strcmp(json_string_value(json_object_get(event, "type")), "checkpoint") != 0)
            continue;
        (void)json_object_set(data, "at", json_object_get(event, "at"));
        (void)json_object_set(data, "generation", json_object_get(event, "generation"));
        (void)json_array_append(list, data);
    }
    json_decref(events);
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "checkpoints", list, "next_cursor"));
}
