#include "server/control/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/auth.h"
#include "server/control/events.h"
#include "server/control/records.h"
#include "server/control/rights.h"
#include "server/control/secrets.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/http/http_stream.h"
#include "server/store/history.h"
#include "server/store/history_read.h"
#include "server/store/job_store.h"

#define REPLAY_MAX 5000      /* events sent at once to a follower that comes back */
#define PAGE_BYTES (1 << 20) /* of all jobs' events on a page, with the specs of those that were submitted */
#define CHUNK 64             /* of them read at once */
#define PAGE_DEFAULT 200

void timeline_follow_logs(struct core *c, struct call *call, int rank, bool ended)
{
    struct follower *f = events_follow(c, call);

    if (!f)
        return;
    events_follow_logs(f, rank);
    if (ended)
        events_end(c, f);
}

/* A submitted event stands for the spec, which is kept once, with the job. own: the caller is its user, or an admin.
 * Returns the bytes that it adds. */
static size_t fill_spec(struct core *c, json_t *event, bool own)
{
    uint64_t job = job_id_parse(json_string_value(json_object_get(event, "job")));
    struct entry *e = table_find(&c->jobs, job);
    char *stored = NULL;
    const char *text = e ? e->spec_text : NULL;
    size_t len;

    if (strcmp(json_string_value(json_object_get(event, "type")), "submitted") != 0 || job == 0)
        return 0;
    if (!text)
        text = stored = job_store_read_spec(c->store, job);
    if (text)
        (void)json_object_set_new(event, "data", json_loads(text, 0, NULL));
    if (!own)
        secrets_mask(json_object_get(event, "data"));
    len = text ? strlen(text) : 0;
    free(stored);
    return len;
}

static uint64_t event_id(const json_t *event)
{
    const char *id = json_string_value(json_object_get(event, "id"));

    return id ? strtoull(id, NULL, 10) : 0;
}

/* Events of a job after an id, oldest first, at most `most`. New; NULL: the store does not give them. */
static json_t *job_events(struct core *c, bool own, uint64_t job, uint64_t after, size_t most, uint64_t *ret_end,
                          struct history_gap *ret_gap)
{
    json_t *all = NULL, *event;
    size_t i;

    if (history_read_job(c->store, job, after, most, false, &all, ret_end, ret_gap, NULL) < 0)
        return NULL;
    json_array_foreach (all, i, event) {
        fill_spec(c, event, own);
    }
    return all;
}

/* The event after which an answer begins; 0: with the first. last (may be NULL): a stream's Last-Event-ID. */
static uint64_t begin_of(const struct call *call, bool stream, const char *last)
{
    if (stream)
        return last ? strtoull(last, NULL, 10) : 0;
    return (uint64_t)call_number(call, "cursor", 0);
}

/* The job's number is in the event, which is read for those alone who may see it by their project. */
static bool may_see(const struct core *c, const struct http_identity *who, const struct store_row *row)
{
    json_auto_t *event = NULL;
    const char *job;

    if (auth_sees(who, row->name))
        return true;
    event = history_parse(row->text, row->id);
    job = json_string_value(json_object_get(event, "job"));
    return job && rights_sees_event(who, row->name, rights_project_of(c, job_id_parse(job)));
}

/* Events after an id that who may see, of at most `most` looked at, and some PAGE_BYTES, but one at least. New.
 * *ret_end: the id of the last one looked at when there may be more, else 0. */
static json_t *all_events(struct core *c, const struct http_identity *who, uint64_t after, size_t most,
                          uint64_t *ret_end)
{
    json_t *all = json_array();
    size_t bytes = 0, looked = 0;

    do {
        struct store_rows rows = {0};
        size_t some = most - looked < CHUNK ? most - looked : CHUNK;

        *ret_end = 0;
        (void)history_read_all(c->store, after, some, &rows, ret_end, NULL);
        for (size_t i = 0; i < rows.n && bytes < PAGE_BYTES; i++) {
            json_t *event = may_see(c, who, &rows.v[i]) ? history_parse(rows.v[i].text, rows.v[i].id) : NULL;

            if (!event)
                continue;
            bytes += strlen(rows.v[i].text) + fill_spec(c, event, rights_owns(who, rows.v[i].name));
            (void)json_array_append_new(all, event);
            if (bytes >= PAGE_BYTES)
                *ret_end = rows.v[i].id;
        }
        store_rows_clear(&rows);
        looked += some;
        after = *ret_end;
    } while (after != 0 && looked < most && bytes < PAGE_BYTES);
    return all;
}

static void send_all(struct follower *f, json_t *events)
{
    json_t *event;
    size_t i;

    json_array_foreach (events, i, event) {
        char *text = json_dumps(event, JSON_COMPACT);

        events_send(f, event_id(event), json_string_value(json_object_get(event, "type")), text);
        free(text);
    }
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
    struct entry *e = table_find(&c->jobs, call->job);
    struct job job;
    struct merr err = {""};
    int r = e || call->job == 0 ? 0 : records_read_job(c, call->job, &job, NULL, &err);

    if (r == -EIO || r == -EINVAL) {
        call_problem(call, r == -EIO ? 503 : 409, r == -EIO ? "store" : "quarantined", "%s", err.text);
        return false;
    }
    if (e || (r == 0 && call->job != 0)) {
        bool sees =
            rights_sees(c, http_identity(call->req), e ? e->job.user : job.user, e ? e->job.project : job.project);

        (void)snprintf(user, SPEC_NAME_MAX, "%s", e ? e->job.user : job.user);
        *ret_ended = !e;
        if (!e)
            job_clear(&job);
        if (sees)
            return true;
        call->hidden = true;
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

    if (text)
        events_send(f, 0, "left-out", text);
    free(text);
    json_decref(o);
}

void timeline_of_job(struct core *c, struct call *call)
{
    const char *last = http_header(call->req, "Last-Event-ID");
    bool stream = http_wants_stream(call->req), ended;
    size_t limit = stream ? REPLAY_MAX : (size_t)call_number(call, "limit", PAGE_DEFAULT);
    uint64_t job = call->job, end = 0;
    struct history_gap gap;
    char user[SPEC_NAME_MAX];
    struct follower *f;
    json_t *events;

    if (!find_owner(c, call, user, &ended))
        return;
    events = job_events(c, rights_owns(http_identity(call->req), user), job, begin_of(call, stream, last), limit, &end,
                        &gap);
    if (!events) {
        call_problem(call, 503, "store", "the store does not give the job's events; try again");
        return;
    }
    if (!stream) {
        answer_page(call, events, end, &gap);
        return;
    }
    f = events_follow(c, call);
    if (f && !last)
        send_gap(f, &gap);
    if (f) {
        send_all(f, events);
        if (end != 0)
            events_lag(f, end);
        else if (ended)
            events_end(c, f);
    }
    json_decref(events);
}

void timeline_of_all(struct core *c, struct call *call)
{
    const char *last = http_header(call->req, "Last-Event-ID");
    bool stream = http_wants_stream(call->req);
    size_t limit = stream ? REPLAY_MAX : (size_t)call_number(call, "limit", PAGE_DEFAULT);
    uint64_t after = begin_of(call, stream, last), end = 0;
    struct follower *f;
    json_t *events;
    bool changes;

    events = stream && !last ? json_array() : all_events(c, http_identity(call->req), after, limit, &end);
    if (!stream) {
        answer_page(call, events, end, NULL);
        return;
    }
    changes = call_number(call, "changes", 0) != 0;
    f = events_follow(c, call);
    if (f && changes)
        events_follow_changes(f);
    if (f) {
        send_all(f, events);
        if (end != 0)
            events_lag(f, end);
    }
    json_decref(events);
}

static void add_checkpoint(json_t *list, json_t *event)
{
    json_t *data = json_object_get(event, "data");

    if (strcmp(json_string_value(json_object_get(event, "type")), "checkpoint") != 0)
        return;
    (void)json_object_set(data, "at", json_object_get(event, "at"));
    (void)json_object_set(data, "generation", json_object_get(event, "generation"));
    (void)json_array_append(list, data);
}

json_t *timeline_checkpoints(struct core *c, struct call *call)
{
    char user[SPEC_NAME_MAX];
    json_t *list;
    struct merr err = {""};
    uint64_t end = 0;
    bool ended;

    if (!find_owner(c, call, user, &ended))
        return NULL;
    list = json_array();
    do {
        json_auto_t *events = NULL;
        json_t *event;
        size_t i;

        if (history_read_job(c->store, call->job, end, HISTORY_NOTES, true, &events, &end, NULL, &err) < 0) {
            json_decref(list);
            call_problem(call, 503, "store", "%s", err.text);
            return NULL;
        }
        json_array_foreach (events, i, event) {
            add_checkpoint(list, event);
        }
    } while (end != 0 && json_array_size(list) < HISTORY_NOTES);
    return list;
}
