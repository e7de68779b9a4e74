#include "server/control/audit.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bucket.h"
#include "base/clock.h"
#include "base/hash.h"
#include "server/control/audit_file.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/audit_log.h"

#define ENTRY_MAX (16 << 10)   /* bytes; what is longer goes without what was before and after */
#define PENDING_MAX (16 << 20) /* bytes of a turn's lines for the file */
#define ADDRESSES 1024         /* that share their buckets by chance */
#define TRIM_ROWS 256          /* looked at in a tick */
#define TRIM_EVERY_US 10000000 /* where nothing is too much */
#define PAGE_DEFAULT 200
#define PAGE_LOOKS 4000

static const struct bucket_rule refusals = {.per_s = 1, .burst = 60};

struct audit {
    uint64_t newest, bytes;
    bool changed;                /* these, in this turn */
    struct bucket of[ADDRESSES]; /* refusals by address */
    uint64_t left_out, untold;   /* refusals that were only counted: ever, and since the last that was noted */
    struct buf pending;          /* lines of this turn */
    int64_t next_trim_us;        /* monotonic */
};

struct audit *audit_new(void)
{
    struct audit *a = calloc(1, sizeof(*a));

    if (a)
        buf_init(&a->pending, PENDING_MAX);
    return a;
}

void audit_free(struct audit *a)
{
    if (a)
        buf_clear(&a->pending);
    free(a);
}

int audit_load(struct core *c, struct merr *err)
{
    return audit_log_size(c->store, &c->audit->newest, &c->audit->bytes, err);
}

/* --- entries ----------------------------------------------------------------------------------------- */

/* Keep an entry, which is taken over. */
static void keep_new(struct core *c, const char *user, json_t *entry)
{
    struct audit *a = c->audit;
    uint64_t id = (uint64_t)c->now.wall_us;
    char id_text[24], at[CLOCK_RFC3339_MAX], *text;

    a->newest = id > a->newest ? id : a->newest + 1;
    (void)snprintf(id_text, sizeof(id_text), "%llu", (unsigned long long)a->newest);
    clock_rfc3339(c->now.wall_us, at);
    (void)json_object_set_new(entry, "id", json_string(id_text));
    (void)json_object_set_new(entry, "at", json_string(at));
    text = json_dumps(entry, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text && strlen(text) > ENTRY_MAX) {
        (void)json_object_set_new(entry, "before", json_null());
        (void)json_object_set_new(entry, "after", json_null());
        (void)json_object_set_new(entry, "cut", json_true());
        free(text);
        text = json_dumps(entry, JSON_COMPACT | JSON_ENSURE_ASCII);
    }
    json_decref(entry);
    if (!text) {
        state_fatal(c, "out of memory for the audit log");
        return;
    }
    audit_log_add(c->store, a->newest, user, text);
    a->changed = true;
    a->bytes += strlen(text);
    if (c->cfg.audit_file && buf_addstr(&a->pending, text) == 0)
        (void)buf_addstr(&a->pending, "\n");
    free(text);
}

static json_t *entry_of(const struct http_req *r, int status, const char *code)
{
    const struct http_identity *who = http_identity(r);
    char actor[80];

    (void)snprintf(actor, sizeof(actor), "%s:%s", who->role == ROLE_AGENT ? "agent" : "user", who->user);
    return json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:s, s:s+, s:i, s:s?}", "type", "audit", "actor",
                     *who->user ? actor : NULL, "token", *who->token ? who->token : NULL, "address", http_address(r),
                     "request_id", http_request_id(r), "method", http_method(r), "path", http_path(r), "", "status",
                     status, "code", code);
}

/* Whether one more refusal of this address is noted; else it is counted. */
static bool takes_refusal(struct core *c, const char *address)
{
    struct audit *a = c->audit;

    if (bucket_take(&a->of[hash_xxh3(address, strlen(address)) % ADDRESSES], &refusals, 1, c->now.mono_us) == 0)
        return true;
    a->left_out++;
    a->untold++;
    return false;
}

static void keep_refusal_new(struct core *c, const char *user, json_t *entry)
{
    const char *address = json_string_value(json_object_get(entry, "address"));

    if (!takes_refusal(c, address ? address : "")) {
        json_decref(entry);
        return;
    }
    if (c->audit->untold > 0) /* before this one */
        (void)json_object_set_new(entry, "left_out", json_integer((json_int_t)c->audit->untold));
    c->audit->untold = 0;
    keep_new(c, user, entry);
}

/* Agents tell how their runs go many times a second: that is no change of anybody's. */
static bool is_routine(const struct http_req *r)
{
    return http_identity(r)->role == ROLE_AGENT && strncmp(http_path(r), "/v1/agents/register", 19) != 0;
}

void audit_call(struct core *c, struct call *call)
{
    const struct http_req *r = call->req;
    bool refused = call->hidden || call->status == 401 || call->status == 403;
    json_t *entry;

    if (!r || (!refused && (call->unchanged || call->status >= 300 || strcmp(http_method(r), "GET") == 0 ||
                            strcmp(http_method(r), "HEAD") == 0 || is_routine(r))))
        return;
    entry = entry_of(r, call->status, refused ? json_string_value(json_object_get(call->reply, "code")) : NULL);
    if (!entry) {
        state_fatal(c, "out of memory for the audit log");
        return;
    }
    (void)json_object_set(entry, "before", call->before ? call->before : json_null());
    (void)json_object_set(entry, "after", call->after ? call->after : json_null());
    if (refused)
        keep_refusal_new(c, http_identity(r)->user, entry);
    else
        keep_new(c, http_identity(r)->user, entry);
}

/* On the core's thread. */
static void take_refusal(void *core, struct call *call)
{
    struct core *c = core;
    json_t *entry = call->body;

    call->body = NULL;
    c->handed = true;
    keep_refusal_new(c, call->text, entry);
    call_free(call);
}

struct call *audit_refusal(const struct http_req *r, int status, const char *code)
{
    struct call *call = call_new(NULL, take_refusal);

    if (!call)
        return NULL;
    call->body = entry_of(r, status, code);
    call->text = strdup(http_identity(r)->user);
    if (call->body && call->text)
        return call;
    call_free(call);
    return NULL;
}

void audit_put(struct core *c)
{
    if (c->audit->changed)
        audit_log_put_size(c->store, c->audit->newest, c->audit->bytes);
    c->audit->changed = false;
}

/* --- the file ---------------------------------------------------------------------------------------- */

/* On the files' thread. */
static void write_lines(void *core, struct call *call)
{
    const struct core *c = core;

    audit_file_write(c->cfg.audit_file, call->text, strlen(call->text));
    call_free(call);
}

void audit_publish(struct core *c)
{
    struct call *call = c->audit->pending.len > 0 ? call_new(NULL, write_lines) : NULL;

    if (call) {
        call->text = buf_detach(&c->audit->pending);
        files_post(c->files, call);
    }
}

/* --- how much there is ------------------------------------------------------------------------------- */

/* What of the oldest rows goes: all that is too old, and of what is too much some more, so that there is a rest. */
static void trim_rows(struct core *c, const struct store_rows *rows)
{
    uint64_t limit = c->cfg.audit_bytes, gone = 0, first = 0;
    int64_t oldest = c->now.wall_us - (int64_t)c->cfg.audit_keep_s * 1000000;
    bool much = c->audit->bytes > limit;

    for (size_t i = 0; i < rows->n; i++) {
        bool old = (int64_t)rows->v[i].id < oldest;

        if (!old && !(much && c->audit->bytes - gone > limit - limit / 20))
            break;
        gone += strlen(rows->v[i].text);
        first = rows->v[i].id + 1;
    }
    if (first == 0)
        return;
    gone = gone < c->audit->bytes ? gone : c->audit->bytes;
    audit_log_trim(c->store, first);
    c->audit->changed = true;
    c->audit->bytes -= gone;
    c->audit->next_trim_us = c->now.mono_us; /* there may be more */
}

void audit_tick(struct core *c)
{
    struct store_rows rows = {0};
    uint64_t end;

    if (c->audit->bytes == 0 || (c->audit->bytes <= c->cfg.audit_bytes && c->now.mono_us < c->audit->next_trim_us) ||
        !store_up(c->store))
        return;
    c->audit->next_trim_us = c->now.mono_us + TRIM_EVERY_US;
    if (audit_log_read(c->store, 0, TRIM_ROWS, &rows, &end, NULL) == 0)
        trim_rows(c, &rows);
    store_rows_clear(&rows);
}

void audit_metrics(const struct core *c, struct buf *b)
{
    (void)buf_printf(b,
                     "# HELP muster_audit_bytes Bytes of the audit log in the store\n"
                     "# TYPE muster_audit_bytes gauge\nmuster_audit_bytes %llu\n"
                     "# HELP muster_audit_left_out_total Refusals of busy addresses that were only counted\n"
                     "# TYPE muster_audit_left_out_total counter\nmuster_audit_left_out_total %llu\n"
                     "# HELP muster_audit_file_lost_total Lines that could not be written to --audit-file\n"
                     "# TYPE muster_audit_file_lost_total counter\nmuster_audit_file_lost_total %llu\n",
                     (unsigned long long)c->audit->bytes, (unsigned long long)c->audit->left_out,
                     (unsigned long long)audit_file_lost(c->cfg.audit_file));
}

/* --- GET /v1/audit ----------------------------------------------------------------------------------- */

/* "from" or "to". False: the call is answered. */
static bool read_time(struct call *call, const char *name, int64_t *ret_us)
{
    const char *text = http_query(call->req, name);

    if (!text || clock_read_rfc3339(text, ret_us) == 0)
        return true;
    call_problem(call, 422, "query-invalid", "'%s' is a time such as 2026-11-21T06:05:17Z, not '%s'", name, text);
    return false;
}

/* Entries after an id and before a time, of the user (NULL: of all), up to limit. *ret_end: where to go on, or 0. */
static int collect(struct core *c, uint64_t after, int64_t to_us, const char *user, size_t limit, json_t *list,
                   uint64_t *ret_end, struct merr *err)
{
    for (size_t looks = 0; looks < PAGE_LOOKS; looks += limit) {
        struct store_rows rows = {0};
        int r = audit_log_read(c->store, after, limit, &rows, ret_end, err);

        for (size_t i = 0; r == 0 && i < rows.n; i++) {
            if ((int64_t)rows.v[i].id > to_us) {
                *ret_end = 0;
                break;
            }
            if (user && strcmp(rows.v[i].name, user) != 0)
                continue;
            (void)json_array_append_new(list, json_loads(rows.v[i].text, 0, NULL));
            if (json_array_size(list) == limit) {
                *ret_end = rows.v[i].id;
                break;
            }
        }
        store_rows_clear(&rows);
        if (r < 0 || *ret_end == 0 || json_array_size(list) == limit)
            return r;
        after = *ret_end;
    }
    return 0;
}

void audit_list(struct core *c, struct call *call)
{
    int64_t from_us = 0, to_us = INT64_MAX, cursor = call_number(call, "cursor", 0);
    json_t *list = json_array();
    struct merr err = {""};
    uint64_t end = 0;
    char next[24];

    if (!read_time(call, "from", &from_us) || !read_time(call, "to", &to_us)) {
        json_decref(list);
        return;
    }
    from_us = from_us > 0 ? from_us - 1 : 0;
    if (collect(c, (uint64_t)(cursor > from_us ? cursor : from_us), to_us, http_query(call->req, "user"),
                (size_t)call_number(call, "limit", PAGE_DEFAULT), list, &end, &err) < 0) {
        json_decref(list);
        call_problem(call, 503, "store", "%s", err.text);
        return;
    }
    (void)snprintf(next, sizeof(next), "%llu", (unsigned long long)end);
    call_answer_new(call, 200, json_pack("{s:o, s:s?}", "audit", list, "next_cursor", end ? next : NULL));
}
