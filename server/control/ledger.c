#include "server/control/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "server/control/records.h"
#include "server/control/rights.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define HOUR_US INT64_C(3600000000)
#define DAY 24 /* hours */
#define ROW_NAME_MAX (3 * SPEC_NAME_MAX + 48)

/* How a run, or a job, came to its end. */
enum end { END_SUCCEEDED, END_CANCELLED, END_PAUSED, END_USER, END_SYSTEM, END_NODE, END_RUNNING, ENDS };
static const char *const end_names[ENDS] = {"succeeded",     "cancelled",   "paused", "failed_user",
                                            "failed_system", "failed_node", "running"};

struct sums {
    double device_us[ENDS];
    double wait_us, energy_j, measured_us; /* measured: device time of which the energy was */
    uint64_t jobs[ENDS];
};

struct row { /* of an hour, or of a day */
    char project[SPEC_NAME_MAX], user[SPEC_NAME_MAX], class_[SPEC_NAME_MAX];
    uint32_t hour; /* since 1970; of a day its first */
    bool day, changed;
    struct sums s;
};

struct rows {
    struct row *v; /* n of them, with room for cap */
    size_t n, cap;
    uint32_t *at; /* a hash table of index + 1 in v; its size is a power of two */
    size_t size;
};

struct ledger {
    struct rows rows;
    uint32_t *changed; /* indexes of rows that the store lacks, with room for rows.cap */
    size_t n_changed;
    uint32_t folded; /* the day up to which hours are days */
    bool full;
};

struct ledger *ledger_new(void)
{
    return calloc(1, sizeof(struct ledger));
}

static void rows_clear(struct rows *t)
{
    free(t->v);
    free(t->at);
    *t = (struct rows){.n = 0};
}

void ledger_free(struct ledger *l)
{
    if (l) {
        rows_clear(&l->rows);
        free(l->changed);
    }
    free(l);
}

/* --- rows -------------------------------------------------------------------------------------------- */

static bool is_row(const struct row *a, const struct row *b)
{
    return a->hour == b->hour && a->day == b->day && strcmp(a->user, b->user) == 0 &&
           strcmp(a->project, b->project) == 0 && strcmp(a->class_, b->class_) == 0;
}

/* Where a row of the key is, or would be. */
static uint32_t *place_of(const struct rows *t, const struct row *key)
{
    uint64_t h = hash_xxh3(key->user, strlen(key->user)) * 31 + hash_xxh3(key->project, strlen(key->project));
    size_t at =
        (size_t)(h * 31 + hash_xxh3(key->class_, strlen(key->class_)) + key->hour * 2654435761u) & (t->size - 1);

    while (t->at[at] && !is_row(&t->v[t->at[at] - 1], key))
        at = (at + 1) & (t->size - 1);
    return &t->at[at];
}

/* Room for one more. 0 or -ENOMEM. */
static int rows_grow(struct rows *t)
{
    size_t cap = t->cap ? 2 * t->cap : 64;
    struct row *v = realloc(t->v, cap * sizeof(*v));
    uint32_t *at;

    if (!v)
        return -ENOMEM;
    t->v = v;
    at = calloc(2 * cap, sizeof(*at));
    if (!at)
        return -ENOMEM;
    free(t->at);
    t->at = at;
    t->cap = cap;
    t->size = 2 * cap;
    for (size_t i = 0; i < t->n; i++)
        *place_of(t, &t->v[i]) = (uint32_t)i + 1;
    return 0;
}

/* The row of a key, made empty where it is new; NULL: no memory. */
static struct row *rows_get(struct rows *t, const struct row *key)
{
    uint32_t *at;

    if (t->n == t->cap && rows_grow(t) < 0)
        return NULL;
    at = place_of(t, key);
    if (*at == 0) {
        t->v[t->n++] = *key;
        *at = (uint32_t)t->n;
    }
    return &t->v[*at - 1];
}

static void name_of(const struct row *r, char ret[ROW_NAME_MAX])
{
    (void)snprintf(ret, ROW_NAME_MAX, "%u%s %zu:%s %zu:%s %s", r->hour, r->day ? "d" : "", strlen(r->project),
                   r->project, strlen(r->user), r->user, r->class_);
}

static void add(struct sums *to, const struct sums *from)
{
    for (int e = 0; e < ENDS; e++) {
        to->device_us[e] += from->device_us[e];
        to->jobs[e] += from->jobs[e];
    }
    to->wait_us += from->wait_us;
    to->energy_j += from->energy_j;
    to->measured_us += from->measured_us;
}

static uint32_t hour_of(int64_t us)
{
    return us > 0 ? (uint32_t)(us / HOUR_US) : 0;
}

/* The store is to have the row. 0 or -ENOMEM. */
static int note_change(struct ledger *l, struct row *r, size_t room)
{
    uint32_t *v = realloc(l->changed, room * sizeof(*v));

    if (!v)
        return -ENOMEM;
    l->changed = v;
    if (!r->changed)
        l->changed[l->n_changed++] = (uint32_t)(r - l->rows.v);
    r->changed = true;
    return 0;
}

static void enter(struct core *c, const struct job *j, const char *class_, uint32_t hour, const struct sums *s)
{
    struct ledger *l = c->ledger;
    struct row key = {.hour = hour}, *r;

    if (l->rows.n >= LEDGER_ROWS_MAX) {
        if (!l->full)
            log_warn("the report of usage has %d rows: no more are entered", LEDGER_ROWS_MAX);
        l->full = true;
        return;
    }
    (void)snprintf(key.project, sizeof(key.project), "%s", j->project);
    (void)snprintf(key.user, sizeof(key.user), "%s", *j->user ? j->user : "-");
    (void)snprintf(key.class_, sizeof(key.class_), "%s", class_);
    key.day = hour / DAY < l->folded;
    key.hour = key.day ? hour / DAY * DAY : hour;
    r = rows_get(&l->rows, &key);
    if (!r || note_change(l, r, l->rows.cap) < 0) {
        state_fatal(c, "out of memory for what jobs used");
        return;
    }
    add(&r->s, s);
}

/* Hours of days that are old become one row, and days that are too old go. */
static void fold(struct core *c)
{
    struct ledger *l = c->ledger;
    uint32_t today = hour_of(c->now.wall_us) / DAY, day = today > LEDGER_HOURS_DAYS ? today - LEDGER_HOURS_DAYS : 0;
    struct rows old = l->rows;
    char name[ROW_NAME_MAX];
    bool short_of_memory = false;

    if (day <= l->folded || old.n == 0)
        return;
    l->rows = (struct rows){.n = 0};
    l->n_changed = 0;
    l->full = false;
    l->folded = day;
    for (size_t i = 0; i < old.n && !short_of_memory; i++) {
        uint32_t its = old.v[i].hour / DAY;
        bool folds = !old.v[i].day && its < day, late = its + LEDGER_DAYS < today;
        struct row key = old.v[i], *r;

        if (folds || late) {
            name_of(&old.v[i], name);
            records_drop_row(c, STORE_LEDGER, name);
        }
        if (late)
            continue;
        key.day = key.day || folds;
        key.hour = key.day ? its * DAY : key.hour;
        key.changed = false;
        key.s = (struct sums){.wait_us = 0};
        r = rows_get(&l->rows, &key);
        if (r)
            add(&r->s, &old.v[i].s);
        short_of_memory = !r || ((old.v[i].changed || folds) && note_change(l, r, l->rows.cap) < 0);
    }
    rows_clear(&old);
    if (short_of_memory)
        state_fatal(c, "out of memory for what jobs used");
}

static json_t *record_of(const struct row *r)
{
    json_t *device = json_array(), *jobs = json_array();

    for (int e = 0; e < ENDS - 1; e++) {
        (void)json_array_append_new(device, json_integer((json_int_t)r->s.device_us[e]));
        (void)json_array_append_new(jobs, json_integer((json_int_t)r->s.jobs[e]));
    }
    return json_pack("{s:I, s:b, s:s, s:s, s:s, s:o, s:o, s:I, s:f, s:I}", "hour", (json_int_t)r->hour, "day", r->day,
                     "project", r->project, "user", r->user, "class", r->class_, "device_us", device, "jobs", jobs,
                     "wait_us", (json_int_t)r->s.wait_us, "energy_j", r->s.energy_j, "measured_us",
                     (json_int_t)r->s.measured_us);
}

static void put_changed(struct core *c)
{
    struct ledger *l = c->ledger;
    char name[ROW_NAME_MAX];

    if (l->n_changed == 0)
        return;
    fold(c);
    for (size_t i = 0; i < l->n_changed; i++) {
        struct row *r = &l->rows.v[l->changed[i]];

        name_of(r, name);
        if (!records_put_row_new(c, STORE_LEDGER, name, record_of(r)))
            state_fatal(c, "out of memory for what jobs used");
        r->changed = false;
    }
    l->n_changed = 0;
}

/* --- what jobs do ------------------------------------------------------------------------------------ */

static enum end end_of(const struct job *j)
{
    const char *class_ = json_string_value(json_object_get(j->outcome, "class"));

    if (j->state == JOB_SUCCEEDED)
        return END_SUCCEEDED;
    if (j->state == JOB_CANCELLED)
        return END_CANCELLED;
    if (j->state != JOB_FAILED && j->state != JOB_RECOVERING)
        return END_PAUSED;
    return class_ && strcmp(class_, job_class_name(JOB_CLASS_USER)) == 0   ? END_USER
           : class_ && strcmp(class_, job_class_name(JOB_CLASS_NODE)) == 0 ? END_NODE
                                                                           : END_SYSTEM;
}

/* A run of so many devices from then to now, into each hour its part. */
static void enter_run(struct core *c, const struct entry *e, const char *class_, int n, int64_t from_us, enum end end,
                      const struct energy_sum *energy, int all)
{
    int64_t to_us = c->now.wall_us, oldest = to_us - LEDGER_DAYS * DAY * HOUR_US;
    double whole = (double)(to_us - from_us);

    for (int64_t at = from_us > oldest ? from_us : oldest; at < to_us;) {
        int64_t next = (at / HOUR_US + 1) * HOUR_US, until = next < to_us ? next : to_us;
        double share = (double)(until - at) / whole * n / all;
        struct sums s = {.energy_j = energy->j * share, .measured_us = (double)energy->measured_us * share};

        s.device_us[end] = (double)(until - at) * n;
        enter(c, &e->job, class_, hour_of(at), &s);
        at = until;
    }
}

void ledger_note(struct core *c, struct entry *e, const struct energy_run *was)
{
    const struct job *j = &e->job;
    enum end end = end_of(j);
    struct sums s = {.wait_us = 0};
    int all = 0;

    if (j->tasks > 0) /* an array has no devices, and its tasks are jobs */
        return;
    for (size_t k = 0; k < was->n; k++)
        all += was->of[k].n;
    if (was->live && (!j->live || j->generation != was->generation) && all > 0) {
        struct energy_sum energy = energy_end_run(c, e, was);

        for (size_t k = 0; k < was->n; k++)
            enter_run(c, e, was->of[k].class_, was->of[k].n, was->from_us, end, &energy, all);
    }
    if (was->waits && !job_waits(j) && c->now.wall_us > was->waiting_us)
        s.wait_us = (double)(c->now.wall_us - was->waiting_us);
    if (job_ended(j->state) && !job_ended(was->state))
        s.jobs[end] = 1;
    if (s.wait_us > 0 || s.jobs[end] > 0)
        enter(c, j, j->live && j->n_places > 0 ? j->places[0].class_ : j->home, hour_of(c->now.wall_us), &s);
    put_changed(c);
}

/* --- telling ----------------------------------------------------------------------------------------- */

enum by { BY_USER = 1, BY_PROJECT = 2, BY_CLASS = 4, BY_DAY = 8, BY_HOUR = 16 };
static const char *const by_names[] = {"user", "project", "class", "day", "hour"};

struct query {
    int64_t from_us, to_us;
    unsigned by;
};

struct answer {
    struct rows rows; /* what is told together */
    bool no_memory;
};

/* "user,class"; 0: it is none. */
static unsigned parse_by(const char *text)
{
    unsigned by = 0;

    while (*text) {
        size_t n = strcspn(text, ","), k = 0;

        while (k < sizeof(by_names) / sizeof(by_names[0]) &&
               (strlen(by_names[k]) != n || strncmp(by_names[k], text, n) != 0))
            k++;
        if (k == sizeof(by_names) / sizeof(by_names[0]) || (by >> k & 1))
            return 0;
        by |= 1u << k;
        text += n + (text[n] == ',');
    }
    return by;
}

static bool read_time(struct call *call, const char *name, int64_t none, int64_t *ret)
{
    const char *text = http_query(call->req, name);

    *ret = none;
    if (!text || clock_read_rfc3339(text, ret) == 0)
        return true;
    call_problem(call, 422, "time-invalid", "'%s' of a report is a time as 2026-11-22T09:00:00Z, not '%.40s'", name,
                 text);
    return false;
}

static bool read_query(struct core *c, struct call *call, struct query *ret)
{
    const char *by = http_query(call->req, "by");

    if (!read_time(call, "to", c->now.wall_us, &ret->to_us) ||
        !read_time(call, "from", ret->to_us - 30 * DAY * HOUR_US, &ret->from_us))
        return false;
    ret->by = parse_by(by ? by : "user,project,class");
    if (ret->from_us >= ret->to_us)
        call_problem(call, 422, "time-invalid", "'from' of a report comes before 'to'");
    else if (ret->by == 0)
        call_problem(call, 422, "by-invalid", "'by' names some of user, project, class, day, hour, with commas");
    else
        return true;
    return false;
}

/* The share of a row's hours that the query asks for; those of a day are taken to be even. */
static double share_of(const struct row *r, const struct query *q)
{
    int64_t from = r->hour * HOUR_US, to = from + (r->day ? DAY : 1) * HOUR_US;
    int64_t a = from > q->from_us ? from : q->from_us, b = to < q->to_us ? to : q->to_us;

    return b <= a ? 0 : r->day ? (double)(b - a) / (double)(to - from) : 1;
}

static void tell(struct answer *a, const struct query *q, const struct row *r, double share)
{
    struct row key = {.hour = 0}, *at;

    (void)snprintf(key.user, sizeof(key.user), "%s", q->by & BY_USER ? r->user : "*");
    (void)snprintf(key.project, sizeof(key.project), "%s", q->by & BY_PROJECT ? r->project : "");
    (void)snprintf(key.class_, sizeof(key.class_), "%s", q->by & BY_CLASS ? r->class_ : "");
    key.hour = q->by & BY_HOUR ? r->hour : q->by & BY_DAY ? r->hour / DAY * DAY : 0;
    at = rows_get(&a->rows, &key);
    if (!at) {
        a->no_memory = true;
        return;
    }
    if (share >= 1) {
        add(&at->s, &r->s);
    } else {
        struct sums part = r->s;

        for (int e = 0; e < ENDS; e++)
            part.device_us[e] *= share;
        part.wait_us *= share;
        part.energy_j *= share;
        part.measured_us *= share;
        add(&at->s, &part);
    }
}

/* Runs that go on, up to now. */
static void tell_running(struct core *c, struct call *call, const struct query *q, struct answer *a)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);
        struct energy_run run;
        int64_t from, to = c->now.wall_us < q->to_us ? c->now.wall_us : q->to_us;

        if (!e || !e->job.live || e->job.tasks > 0 ||
            !rights_sees(c, http_identity(call->req), e->job.user, e->job.project))
            continue;
        energy_look(&e->job, &run);
        from = run.from_us > q->from_us ? run.from_us : q->from_us;
        for (size_t k = 0; k < run.n && from < to; k++) {
            struct row r = {.hour = hour_of(from)};

            (void)snprintf(r.user, sizeof(r.user), "%s", *e->job.user ? e->job.user : "-");
            (void)snprintf(r.project, sizeof(r.project), "%s", e->job.project);
            (void)snprintf(r.class_, sizeof(r.class_), "%s", run.of[k].class_);
            r.s.device_us[END_RUNNING] = (double)(to - from) * run.of[k].n;
            r.s.jobs[END_RUNNING] = k == 0;
            tell(a, q, &r, 1);
        }
    }
}

static double all_us(const struct row *r)
{
    double us = 0;

    for (int e = 0; e < ENDS; e++)
        us += r->s.device_us[e];
    return us;
}

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int names = strcmp(x->project, y->project);

    if (x->hour != y->hour)
        return x->hour < y->hour ? -1 : 1;
    if (all_us(x) != all_us(y))
        return all_us(x) > all_us(y) ? -1 : 1;
    names = names ? names : strcmp(x->user, y->user);
    return names ? names : strcmp(x->class_, y->class_);
}

static json_t *view_of(const struct row *r, unsigned by)
{
    json_t *o = json_object(), *device = json_object(), *jobs = json_object();
    double all = all_us(r);

    if (by & (BY_DAY | BY_HOUR))
        (void)json_object_set_new(o, "from", cluster_time(r->hour * HOUR_US));
    if (by & BY_USER)
        (void)json_object_set_new(o, "user", json_string(r->user));
    if (by & BY_PROJECT)
        (void)json_object_set_new(o, "project", json_string(r->project));
    if (by & BY_CLASS)
        (void)json_object_set_new(o, "class", *r->class_ ? json_string(r->class_) : json_null());
    for (int e = 0; e < ENDS; e++) {
        (void)json_object_set_new(device, end_names[e], json_real(r->s.device_us[e] / 3.6e9));
        (void)json_object_set_new(jobs, end_names[e], json_integer((json_int_t)r->s.jobs[e]));
    }
    (void)json_object_set_new(o, "device_hours", json_real(all / 3.6e9));
    (void)json_object_set_new(o, "device_hours_by_end", device);
    (void)json_object_set_new(o, "jobs_by_end", jobs);
    (void)json_object_set_new(o, "wait_hours", json_real(r->s.wait_us / 3.6e9));
    (void)json_object_set_new(o, "energy_kwh", json_real(r->s.energy_j / 3.6e6));
    (void)json_object_set_new(o, "energy_measured",
                              json_real(all > 0 && r->s.measured_us < all ? r->s.measured_us / all : all > 0));
    return o;
}

void ledger_report(struct core *c, struct call *call)
{
    struct ledger *l = c->ledger;
    struct answer a = {.no_memory = false};
    struct query q;
    size_t n;
    json_t *rows;

    if (!read_query(c, call, &q))
        return;
    for (size_t i = 0; i < l->rows.n; i++) {
        const struct row *r = &l->rows.v[i];
        double share = share_of(r, &q);

        if (share > 0 && rights_sees(c, http_identity(call->req), r->user, r->project))
            tell(&a, &q, r, share);
    }
    tell_running(c, call, &q, &a);
    if (a.no_memory) {
        rows_clear(&a.rows);
        call_problem(call, 503, "no-memory", "out of memory for a report of usage");
        return;
    }
    n = a.rows.n;
    if (n > 1)
        qsort(a.rows.v, n, sizeof(*a.rows.v), by_time);
    rows = json_array();
    for (size_t i = 0; i < n && i < LEDGER_ANSWER_MAX; i++)
        (void)json_array_append_new(rows, view_of(&a.rows.v[i], q.by));
    rows_clear(&a.rows);
    call_answer_new(call, 200,
                    json_pack("{s:o, s:o, s:o, s:I, s:b}", "from", cluster_time(q.from_us), "to", cluster_time(q.to_us),
                              "usage", rows, "left_out",
                              (json_int_t)(n > LEDGER_ANSWER_MAX ? n - LEDGER_ANSWER_MAX : 0), "incomplete", l->full));
}

/* --- the store --------------------------------------------------------------------------------------- */

static bool take_text(const json_t *o, const char *name, char ret[SPEC_NAME_MAX])
{
    const char *text = json_string_value(json_object_get(o, name));

    if (!text || strlen(text) >= SPEC_NAME_MAX)
        return false;
    (void)snprintf(ret, SPEC_NAME_MAX, "%s", text);
    return true;
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    const json_t *device = json_object_get(o, "device_us"), *jobs = json_object_get(o, "jobs");
    json_int_t hour = json_integer_value(json_object_get(o, "hour"));
    struct row key = {.day = json_is_true(json_object_get(o, "day"))}, *r;
    struct sums s = {.wait_us = json_number_value(json_object_get(o, "wait_us")),
                     .energy_j = json_number_value(json_object_get(o, "energy_j")),
                     .measured_us = json_number_value(json_object_get(o, "measured_us"))};
    bool ok = take_text(o, "project", key.project) && take_text(o, "user", key.user) && key.user[0] &&
              take_text(o, "class", key.class_) && hour > 0 && hour < UINT32_MAX &&
              json_array_size(device) == ENDS - 1 && json_array_size(jobs) == ENDS - 1 && s.wait_us >= 0 &&
              s.energy_j >= 0 && s.measured_us >= 0;

    for (size_t e = 0; ok && e < ENDS - 1; e++) {
        s.device_us[e] = json_number_value(json_array_get(device, e));
        s.jobs[e] = (uint64_t)json_integer_value(json_array_get(jobs, e));
        ok = s.device_us[e] >= 0 && json_integer_value(json_array_get(jobs, e)) >= 0;
    }
    if (!ok)
        return merr_set(err, -EINVAL, "the store's record of what jobs used cannot be read");
    key.hour = (uint32_t)hour;
    if (key.day && key.hour / DAY + 1 > c->ledger->folded)
        c->ledger->folded = key.hour / DAY + 1;
    r = c->ledger->rows.n < LEDGER_ROWS_MAX ? rows_get(&c->ledger->rows, &key) : NULL;
    if (r)
        add(&r->s, &s);
    return 0;
}

int ledger_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_LEDGER, NULL, take_row, err);
}
