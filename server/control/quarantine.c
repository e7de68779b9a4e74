#include "server/control/quarantine.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/state.h"
#include "server/store/aside.h"

#define ID_MAX 512

struct quarantine {
    json_t *all; /* by id */
    _Atomic size_t n;
};

struct quarantine *quarantine_new(void)
{
    struct quarantine *q = calloc(1, sizeof(*q));

    if (q && !(q->all = json_object())) {
        free(q);
        return NULL;
    }
    return q;
}

void quarantine_free(struct quarantine *q)
{
    if (!q)
        return;
    json_decref(q->all);
    free(q);
}

static bool is_note(const json_t *note)
{
    static const char *const key[] = {"id", "kind", "name", "why", "at"};

    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
        if (!json_is_string(json_object_get(note, key[i])))
            return false;
    return true;
}

int quarantine_load(struct core *c, struct merr *err)
{
    struct store_rows rows;
    int r = aside_read(c->store, &rows, err);

    for (size_t i = 0; r == 0 && i < rows.n; i++) {
        json_t *note = json_loads(rows.v[i].text, 0, NULL);

        if (!is_note(note)) { /* of a damaged note the name is left */
            json_decref(note);
            note =
                json_pack("{s:s%, s:s, s:s, s:s, s:s}", "id", rows.v[i].name, strlen(rows.v[i].name), "kind", "unknown",
                          "name", "", "why", "what was noted of it cannot be read", "at", "1970-01-01T00:00:00Z");
        }
        log_warn("in quarantine: %s: %s", rows.v[i].name, json_string_value(json_object_get(note, "why")));
        (void)json_object_set_new(c->quarantine->all, rows.v[i].name, note);
    }
    if (r == 0)
        store_rows_clear(&rows);
    atomic_store(&c->quarantine->n, json_object_size(c->quarantine->all));
    return r;
}

/* The text of damaged bytes that people see: what cannot stand in a path is '_'. */
static void print_name(const char *name, char ret[ID_MAX - 32])
{
    size_t n = 0;

    for (; n < ID_MAX - 33 && name[n]; n++)
        ret[n] = name[n] > ' ' && name[n] < 127 && !strchr("/%?#", name[n]) ? name[n] : '_';
    ret[n] = '\0';
}

static void put(struct core *c, const char *kind, const char *name, const struct store_row *row, const char *why)
{
    char at[CLOCK_RFC3339_MAX], id[ID_MAX], shown[ID_MAX - 32];
    json_t *note;
    char *text;

    print_name(name, shown);
    (void)snprintf(id, sizeof(id), "%s:%s", kind, shown);
    for (int again = 2; json_object_get(c->quarantine->all, id) && row; again++)
        (void)snprintf(id, sizeof(id), "%s:%s:%d", kind, shown, again); /* another one of that name is kept */
    clock_rfc3339(c->now.wall_us, at);
    note = json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", id, "kind", kind, "name", shown, "why", why, "at", at);
    text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    if (!text) {
        json_decref(note);
        return; /* out of memory: it is met again */
    }
    log_error("%s '%s' goes into quarantine: %s; see `muster quarantine list`", kind, shown, why);
    aside_put(c->store, id, text, row ? row->text : NULL, row ? row->len : 0);
    free(text);
    (void)json_object_set_new(c->quarantine->all, id, note);
    atomic_store(&c->quarantine->n, json_object_size(c->quarantine->all));
}

void quarantine_job(struct core *c, uint64_t job, const char *why)
{
    char name[24];

    if (quarantine_find_job(c, job)) /* lists meet it again and again */
        return;
    (void)snprintf(name, sizeof(name), "j%llu", (unsigned long long)job);
    put(c, "job", name, NULL, why);
    aside_hide_job(c->store, job);
}

void quarantine_row(struct core *c, const char *kind, const struct store_row *row, const char *why)
{
    put(c, kind, row->name, row, why);
}

void quarantine_forget(struct core *c, const char *id)
{
    aside_drop(c->store, id);
    (void)json_object_del(c->quarantine->all, id);
    atomic_store(&c->quarantine->n, json_object_size(c->quarantine->all));
}

const json_t *quarantine_find(const struct core *c, const char *id)
{
    return json_object_get(c->quarantine->all, id);
}

const json_t *quarantine_find_job(const struct core *c, uint64_t job)
{
    char id[40];

    (void)snprintf(id, sizeof(id), "job:j%llu", (unsigned long long)job);
    return quarantine_find(c, id);
}

size_t quarantine_count(const struct core *c)
{
    return atomic_load(&c->quarantine->n);
}

json_t *quarantine_list(const struct core *c)
{
    json_t *all = json_array(), *note;
    const char *id;

    json_object_foreach (c->quarantine->all, id, note)
        (void)json_array_append(all, note);
    return all;
}

json_t *quarantine_summary(const struct core *c)
{
    json_t *jobs, *note;
    const char *id;

    if (quarantine_count(c) == 0)
        return json_null();
    jobs = json_array();
    json_object_foreach (c->quarantine->all, id, note) {
        if (strcmp(json_string_value(json_object_get(note, "kind")), "job") == 0)
            (void)json_array_append(jobs, json_object_get(note, "name"));
    }
    return json_pack("{s:I, s:o}", "records", (json_int_t)quarantine_count(c), "jobs", jobs);
}
