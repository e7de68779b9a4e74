#include "server/control/events.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/admission.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/http/http_stream.h"
#include "server/store/history.h"

struct follower { /* a stream */
    struct http_stream *stream;
    uint64_t job; /* 0: all */
    int rank;     /* logs: -1 all */
    bool logs, done;
    bool changes; /* what things look like after each change, too */
    struct http_identity who;
};

struct published { /* an event of this turn, sent once it is durable */
    uint64_t id;   /* 0: not kept */
    uint64_t job;
    char type[16];
    char user[SPEC_NAME_MAX];
    char *text; /* owned */
    int rank;   /* of a log piece */
    bool change;
    bool log, last; /* last: the job has ended, its streams end */
};

struct events {
    uint64_t next; /* id of the next one that is kept */
    struct follower *v;
    size_t n, cap;
    struct published *out;
    size_t n_out, out_cap;
};

struct events *events_new(void)
{
    return calloc(1, sizeof(struct events));
}

static struct published *out_add(struct events *all)
{
    if (all->n_out == all->out_cap) {
        size_t cap = all->out_cap ? all->out_cap * 2 : 256;
        struct published *out = realloc(all->out, cap * sizeof(*out));

        if (!out)
            return NULL; /* followers miss it and find it in the store */
        all->out = out;
        all->out_cap = cap;
    }
    all->out[all->n_out] = (struct published){.rank = -1};
    return &all->out[all->n_out++];
}

/* Know what the store keeps of a job's notes. False: no memory, or the store is away. */
static bool know_notes(struct core *c, struct entry *e)
{
    ssize_t n = 0;

    if (e->notes.v)
        return true;
    e->notes.v = calloc(HISTORY_NOTES, sizeof(*e->notes.v));
    if (e->notes.v && e->stored_version > 0)
        n = history_read_note_bytes(c->store, e->job.id, e->notes.v, HISTORY_NOTES);
    if (!e->notes.v || n < 0) {
        free(e->notes.v);
        e->notes.v = NULL;
        return false;
    }
    e->notes.n = (size_t)n;
    for (size_t i = 0; i < e->notes.n; i++)
        e->notes.bytes += e->notes.v[i];
    return true;
}

/* One more note of so many bytes. How many are kept with it: as many as there may be, and bytes. */
static size_t count_note(struct entry_notes *k, size_t bytes)
{
    while (k->n > 0 && (k->n == HISTORY_NOTES || k->bytes + bytes > EVENTS_JOB_BYTES)) {
        k->bytes -= k->v[k->first];
        k->first = (k->first + 1) % HISTORY_NOTES;
        k->n--;
    }
    k->v[(k->first + k->n++) % HISTORY_NOTES] = (uint16_t)(bytes < UINT16_MAX ? bytes : UINT16_MAX);
    k->bytes += bytes;
    return k->n;
}

static void keep_note(struct core *c, uint64_t job, const char *text)
{
    struct entry *e = table_find(&c->jobs, job);
    struct catalog_row *row = catalog_find(&c->jobs.catalog, job);

    if (e)
        history_add_note(c->store, job, text,
                         know_notes(c, e) ? count_note(&e->notes, strlen(text)) : EVENTS_JOB_BYTES / EVENTS_NOTE_BYTES);
    else if (row && row->late++ < EVENTS_LATE_NOTES)
        history_add_note(c->store, job, text, HISTORY_NOTES);
    else
        history_skip_note(c->store, job);
}

/* user: whose it is, for the list of all events, where the job may be gone from the working set. */
static void keep(struct core *c, uint64_t job, const char *user, const char *text, uint64_t id, bool note)
{
    const struct entry *e = table_find(&c->jobs, job);

    if (job != 0 && note)
        keep_note(c, job, text);
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
        id = c->events->next++;
        c->counters_changed = true;
        (void)snprintf(id_text, sizeof(id_text), "%llu", (unsigned long long)id);
        (void)json_object_set_new(event, "id", json_string(id_text));
    }
    text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    if (!text) {
        json_decref(event);
        if (kept)
            state_fatal(c, "out of memory for an event");
        return;
    }
    if (kept)
        keep(c, job, user, text, id, note);
    /* kept ones always: a follower may come later in this very turn, when the store does not have them yet */
    if ((kept || c->events->n > 0) && (p = out_add(c->events))) {
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

    clock_rfc3339(c->now.wall_us, at);
    (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)job);
    events_emit_new(c, job, user,
                    json_pack("{s:s, s:s?, s:s, s:n, s:n, s:I, s:s, s:{s:s, s:n, s:s}, s:o}", "at", at, "job",
                              job ? id : NULL, "type", type, "from", "to", "generation", (json_int_t)generation,
                              "actor", actor, "cause", "code", code, "class", "text", text, "data",
                              data_new ? data_new : json_object()),
                    true, true, false);
}

void events_change_new(struct core *c, uint64_t job, const char *user, const char *type, json_t *view)
{
    char *text = view ? json_dumps(view, JSON_COMPACT) : NULL;
    struct published *p = text ? out_add(c->events) : NULL;

    if (p) {
        p->job = job;
        p->change = true;
        p->text = text;
        text = NULL;
        (void)snprintf(p->type, sizeof(p->type), "%s", type);
        (void)snprintf(p->user, sizeof(p->user), "%s", user);
    }
    free(text);
    json_decref(view);
}

void events_log_new(struct core *c, uint64_t job, const char *user, int rank, json_t *piece)
{
    struct published *p = c->events->n > 0 ? out_add(c->events) : NULL;

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

/* project: of its job, or NULL. */
static bool wants(const struct follower *f, const struct published *p, const struct project *project)
{
    if (f->done || f->logs != p->log || (p->change && !f->changes) || (f->job != 0 && f->job != p->job))
        return false;
    return (!f->logs || f->rank < 0 || f->rank == p->rank) && rights_sees_event(&f->who, p->user, project);
}

/* Let go of the followers that are done. */
static void drop_done(struct core *c)
{
    size_t kept = 0;

    for (size_t k = 0; k < c->events->n; k++) {
        if (c->events->v[k].done)
            http_stream_end(c->events->v[k].stream);
        else
            c->events->v[kept++] = c->events->v[k];
    }
    c->events->n = kept;
}

void events_publish(struct core *c)
{
    for (size_t i = 0; i < c->events->n_out; i++) {
        struct published *p = &c->events->out[i];
        const struct project *project = c->events->n ? rights_project_of(c, p->job) : NULL;

        for (size_t k = 0; p->text && k < c->events->n; k++) {
            struct follower *f = &c->events->v[k];

            if (wants(f, p, project) && http_stream_event(f->stream, p->id, p->type, p->text) < 0)
                f->done = true;
        }
        if (p->last) /* logs may still come with later reports; the end of a job ends its followers all the same */
            for (size_t k = 0; k < c->events->n; k++)
                if (c->events->v[k].job == p->job && !c->events->v[k].done) {
                    (void)http_stream_event(c->events->v[k].stream, 0, "end", "{}");
                    c->events->v[k].done = true;
                }
        free(p->text);
    }
    if (c->events->n_out > 0)
        drop_done(c);
    c->events->n_out = 0;
}

void events_each(struct core *c, events_each_fn *fn, void *arg)
{
    for (size_t i = 0; i < c->events->n_out; i++)
        if (c->events->out[i].id > 0)
            fn(arg, c->events->out[i].id, c->events->out[i].job, c->events->out[i].type, c->events->out[i].text);
}

void events_tick(struct core *c)
{
    for (size_t k = 0; k < c->events->n; k++)
        if (http_stream_over(c->events->v[k].stream))
            c->events->v[k].done = true;
    drop_done(c);
}

void events_stop(struct core *c)
{
    for (size_t k = 0; k < c->events->n; k++)
        http_stream_end(c->events->v[k].stream);
    c->events->n = 0;
}

static bool has_room(struct core *c, struct call *call, const struct http_identity *who)
{
    size_t own = 0, others = 0;

    for (size_t k = 0; k < c->events->n; k++) {
        const struct follower *f = &c->events->v[k];

        if (f->who.role == ROLE_ADMIN ||
            http_stream_over(f->stream)) /* whose client has left goes with the next tick */
            continue;
        others++;
        own += strcmp(f->who.user, who->user) == 0;
    }
    if (!admission_stream(c, call, own, others, EVENTS_FOLLOWERS_MAX))
        return false;
    if (c->events->n >= EVENTS_FOLLOWERS_MAX)
        call_problem(call, 503, "busy", "%d followers are the most this server serves", EVENTS_FOLLOWERS_MAX);
    return c->events->n < EVENTS_FOLLOWERS_MAX;
}

struct follower *events_follow(struct core *c, struct call *call)
{
    struct follower *f;
    struct http_identity who = *http_identity(call->req);

    if (!has_room(c, call, &who))
        return NULL;
    if (c->events->n == c->events->cap) {
        size_t cap = c->events->cap ? c->events->cap * 2 : 64;

        f = realloc(c->events->v, cap * sizeof(*f));
        if (!f) {
            call_problem(call, 503, "no-memory", "out of memory");
            return NULL;
        }
        c->events->v = f;
        c->events->cap = cap;
    }
    f = &c->events->v[c->events->n];
    *f = (struct follower){.job = call->job, .rank = -1, .who = who};
    f->stream = http_stream_begin(call->req);
    call->req = NULL;
    c->handed = true;
    call_free(call);
    if (!f->stream)
        return NULL;
    c->events->n++;
    return f;
}

void events_end(struct core *c, struct follower *f)
{
    assert(f == &c->events->v[c->events->n - 1]);
    (void)http_stream_event(f->stream, 0, "end", "{}");
    http_stream_end(f->stream);
    c->events->n--;
}

void events_tell(struct core *c, const struct job *j, const char *actor, const struct notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) {
        const struct note *n = &notes->v[i];

        if (n->job == 0) {
            events_note(c, 0, "", "node", 0, actor, n->code, n->text, json_incref(n->data));
            continue;
        }
        log_info("job j%llu: %s", (unsigned long long)n->job, n->text);
        events_note(c, n->job, j->user, "note", j->generation, actor, n->code, n->text, json_incref(n->data));
    }
}

void events_drop_token(struct core *c, const char *token)
{
    for (size_t k = 0; k < c->events->n; k++)
        if (strcmp(c->events->v[k].who.token, token) == 0)
            c->events->v[k].done = true;
}

void events_free(struct events *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n_out; i++)
        free(all->out[i].text);
    free(all->v);
    free(all->out);
    free(all);
}

void events_set_next(struct core *c, uint64_t id)
{
    c->events->next = id;
}

uint64_t events_next(const struct core *c)
{
    return c->events->next;
}

size_t events_followers(const struct core *c)
{
    return c->events->n;
}

size_t events_change_followers(const struct core *c)
{
    size_t n = 0;

    for (size_t k = 0; k < c->events->n; k++)
        n += c->events->v[k].changes;
    return n;
}

void events_follow_changes(struct follower *f)
{
    f->changes = true;
}

void events_follow_logs(struct follower *f, int rank)
{
    f->rank = rank;
    f->logs = true;
}

void events_send(struct follower *f, uint64_t id, const char *type, const char *text)
{
    if (!text || http_stream_event(f->stream, id, type, text) < 0)
        f->done = true;
}

void events_lag(struct follower *f, uint64_t id)
{
    (void)http_stream_event(f->stream, id, "lagging", "{\"detail\":\"there is more; resume by Last-Event-ID\"}");
    f->done = true;
}
