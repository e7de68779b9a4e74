#include "server/control/audit.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bucket.h"
#include "base/clock.h"
#include "base/hash.h"
#include "server/control/audit_entry.h"
#include "server/control/audit_file.h"
#include "server/control/files.h"
#include "server/control/state.h"
#include "server/http/call.h"
#include "server/store/audit_log.h"

#define ENTRY_MAX (16 << 10)    /* bytes; what is longer goes without what was before and after */
#define RECORD_BYTES (64 << 10) /* a record that has come to them takes no further entry */
#define PENDING_MAX (16 << 20)  /* bytes of a turn's lines */
#define ADDRESSES 1024          /* that share their buckets by chance */
#define TRIM_ROWS 64            /* records looked at at once, and */
#define TRIM_TIMES 16           /* in a tick, if all of them go */
#define TRIM_EVERY_US 10000000  /* where nothing is too much */
#define PAGE_DEFAULT 200
#define PAGE_LOOKS 4000

static const struct bucket_rule refusals = {.per_s = 1, .burst = 60};

struct audit {
    uint64_t newest, bytes;
    bool changed;                /* these, in this turn */
    struct bucket of[ADDRESSES]; /* refusals by address */
    uint64_t left_out, untold;   /* refusals that were only counted: ever, and since the last that was noted */
    struct buf lines;            /* of this turn: the record that is next */
    struct buf begin;            /* of the entry at hand */
    struct buf pending;          /* of this turn, for the file */
    int64_t next_trim_us;        /* monotonic */
};

struct audit *audit_new(void)
{
    struct audit *a = calloc(1, sizeof(*a));

    if (a) {
        buf_init(&a->pending, PENDING_MAX);
        buf_init(&a->lines, PENDING_MAX);
        buf_init(&a->begin, PENDING_MAX);
    }
    return a;
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    buf_clear(&a->pending);
    buf_clear(&a->lines);
    buf_clear(&a->begin);
    free(a);
}

int audit_load(struct core *c, struct merr *err)
{
    return audit_log_size(c->store, &c->audit->newest, &c->audit->bytes, err);
}

/* --- entries ----------------------------------------------------------------------------------------- */

/* The lines of the turn up to now become a record. */
static void put_lines(struct core *c)
{
    struct audit *a = c->audit;

    if (a->lines.len == 0)
        return;
    audit_log_add(c->store, a->newest, buf_text(&a->lines));
    a->bytes += a->lines.len;
    a->changed = true;
    buf_reset(&a->lines);
}

/* Keep an entry that begins like this. */
static void keep(struct core *c, const char *user, const struct buf *begin, struct audit_entry_end e)
{
    struct audit *a = c->audit;
    uint64_t id = (uint64_t)c->now.wall_us;
    size_t front;

    if (a->lines.len > RECORD_BYTES)
        put_lines(c);
    a->newest = id > a->newest ? id : a->newest + 1;
    e.id = a->newest;
    e.wall_us = c->now.wall_us;
    (void)buf_printf(&a->lines, "%s %llu ", user, (unsigned long long)e.id);
    front = a->lines.len;
    (void)buf_add(&a->lines, begin->data, begin->len);
    audit_entry_end(&a->lines, &e);
    if (a->lines.len - front > ENTRY_MAX) {
        a->lines.len = front + begin->len;
        e.before = e.after = NULL;
        e.cut = true;
        audit_entry_end(&a->lines, &e);
    }
    if (c->cfg.audit_file && buf_addstr(&a->pending, a->lines.data + front) == 0)
        (void)buf_addstr(&a->pending, "\n");
    (void)buf_addstr(&a->lines, "\n");
    if (buf_failed(begin) || buf_failed(&a->lines))
        state_fatal(c, "out of memory for the audit log");
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

static void keep_refusal(struct core *c, const char *user, const char *address, const struct buf *begin,
                         struct audit_entry_end e)
{
    if (!takes_refusal(c, address))
        return;
    e.left_out = c->audit->untold; /* before this one */
    c->audit->untold = 0;
    keep(c, user, begin, e);
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
    struct audit_entry_end end = {.before = call->before, .after = call->after};

    if (!r || (!refused && (call->unchanged || call->status >= 300 || strcmp(http_method(r), "GET") == 0 ||
                            strcmp(http_method(r), "HEAD") == 0 || is_routine(r))))
        return;
    buf_reset(&c->audit->begin);
    audit_entry_begin(&c->audit->begin, r, call->status,
                      refused ? json_string_value(json_object_get(call->reply, "code")) : NULL);
    if (refused)
        keep_refusal(c, http_identity(r)->user, http_address(r), &c->audit->begin, end);
    else
        keep(c, http_identity(r)->user, &c->audit->begin, end);
}

void audit_note(struct core *c, const char *user, const json_t *note)
{
    buf_reset(&c->audit->begin);
    audit_entry_begin_of(&c->audit->begin, user, json_string_value(json_object_get(note, "what")));
    keep(c, user, &c->audit->begin, (struct audit_entry_end){.after = note});
}

/* On the core's thread. */
static void take_refusal(void *core, struct call *call)
{
    const char *user = json_string_value(json_object_get(call->body, "user"));
    const char *address = json_string_value(json_object_get(call->body, "address"));
    struct core *c = core;

    c->handed = true;
    keep_refusal(c, user, address, &(struct buf){.data = call->text, .len = strlen(call->text)},
                 (struct audit_entry_end){0});
    call_free(call);
}

struct call *audit_refusal(const struct http_req *r, int status, const char *code)
{
    struct call *call = call_new(NULL, take_refusal);
    BUF_CLEAR_AUTO struct buf begin;

    buf_init(&begin, PENDING_MAX);
    if (!call)
        return NULL;
    audit_entry_begin(&begin, r, status, code);
    call->body = json_pack("{s:s, s:s}", "user", http_identity(r)->user, "address", http_address(r));
    call->text = buf_detach(&begin);
    if (call->body && call->text)
        return call;
    call_free(call);
    return NULL;
}

void audit_put(struct core *c)
{
    put_lines(c);
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

/* How many of the oldest records go: all that are too old, and of what is too much some more, so that there is a rest.
 * *ret_first: what the log begins with then. */
static size_t trim_rows(struct core *c, const struct store_rows *rows, bool much, uint64_t *ret_first)
{
    int64_t oldest = c->now.wall_us - (int64_t)c->cfg.audit_keep_s * 1000000;
    uint64_t limit = c->cfg.audit_bytes;
    size_t i = 0;

    for (; i < rows->n; i++) {
        uint64_t bytes = strlen(rows->v[i].text);

        if ((int64_t)rows->v[i].id >= oldest && !(much && c->audit->bytes > limit - limit / 20))
            break;
        c->audit->bytes -= bytes < c->audit->bytes ? bytes : c->audit->bytes;
        *ret_first = rows->v[i].id + 1;
    }
    return i;
}

void audit_tick(struct core *c)
{
    uint64_t first = 0, end = 0;
    bool more = true, much = c->audit->bytes > c->cfg.audit_bytes;

    if (c->audit->bytes == 0 || (!much && c->now.mono_us < c->audit->next_trim_us) || !store_up(c->store))
        return;
    c->audit->next_trim_us = c->now.mono_us + TRIM_EVERY_US;
    for (int i = 0; more && i < TRIM_TIMES; i++) {
        struct store_rows rows = {0};

        more = audit_log_read_records(c->store, first, TRIM_ROWS, &rows, &end, NULL) == 0 &&
               trim_rows(c, &rows, much, &first) == TRIM_ROWS;
        store_rows_clear(&rows);
    }
    if (first == 0)
        return;
    audit_log_trim(c->store, first);
    c->audit->changed = true;
    c->audit->next_trim_us = more ? c->now.mono_us : c->audit->next_trim_us;
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
    for (size_t looks = 0; looks < PAGE_LOOKS;) {
        struct store_rows rows = {0};
        int r = audit_log_read(c->store, after, &rows, ret_end, err);

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
        looks += rows.n + 1;
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
