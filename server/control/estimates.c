#include "server/control/estimates.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/records.h"
#include "server/control/state.h"

struct errors { /* of one basis */
    uint64_t count, in_time;
    int64_t late_s[ESTIMATES_KEPT]; /* the newest: how much later than told; a ring */
    size_t n, next;
    bool changed;
};

struct estimates {
    struct errors of[FORECAST_BASES];
};

struct estimates *estimates_new(void)
{
    return calloc(1, sizeof(struct estimates));
}

void estimates_free(struct estimates *s)
{
    free(s);
}

/* The first that is known stays with the job. */
static void keep(struct core *c, struct entry *e)
{
    struct job_estimate *kept = &e->job.estimate;

    if (kept->made_us > 0 || e->job.generation > 0 || e->forecast.start_us < 0)
        return;
    kept->made_us = c->now.wall_us;
    kept->start_us = e->forecast.start_us;
    kept->after = e->forecast.after;
    (void)snprintf(kept->basis, sizeof(kept->basis), "%s", forecast_basis_name(e->forecast.basis));
    table_dirty(&c->jobs, e);
}

void estimates_note(struct core *c, const struct round *r, const struct sched_plan *plan)
{
    struct forecast *all = calloc(r->in.n_jobs + 1, sizeof(*all));

    if (all && forecast_all(&r->in, plan, all) == 0)
        for (size_t i = 0; i < r->in.n_jobs; i++) {
            struct entry *e = r->entries[i];

            e->forecast = all[i];
            e->forecast.start_us = job_waits(&e->job) && plan->verdicts[i].n == 0 ? all[i].start_us : -1;
            keep(c, e);
        }
    free(all);
}

static void add(struct errors *s, int64_t late_s)
{
    s->late_s[s->next] = late_s;
    s->next = (s->next + 1) % ESTIMATES_KEPT;
    s->n += s->n < ESTIMATES_KEPT;
    s->changed = true;
}

void estimates_started(struct core *c, struct entry *e)
{
    struct job_estimate *kept = &e->job.estimate;
    struct errors *s = &c->estimates->of[forecast_basis_parse(kept->basis)];

    if (kept->made_us == 0 || e->job.generation != 1)
        return;
    kept->late_us = c->now.wall_us - kept->start_us;
    s->count++;
    s->in_time += kept->late_us <= ESTIMATES_SLACK_US;
    add(s, kept->late_us / 1000000);
}

/* --- telling ----------------------------------------------------------------------------------------- */

static json_t *job_name(uint64_t id)
{
    return id ? json_sprintf("j%llu", (unsigned long long)id) : json_null();
}

/* Whether devices are all that it waits for. */
static bool is_in_queue(enum explain_code code)
{
    return code != EXPLAIN_BACK_OFF && code != EXPLAIN_ARRAY && code != EXPLAIN_DEPENDENCY &&
           code != EXPLAIN_SINGLETON && code != EXPLAIN_MAX_RUNNING && code != EXPLAIN_MAX_DEVICES;
}

void estimates_view(const struct job *j, const struct entry *e, json_t *o)
{
    const struct job_estimate *kept = &j->estimate;
    const struct forecast *f = e ? &e->forecast : NULL;

    if (f && job_waits(j) && is_in_queue(e->wait.code) && e->wait.need > 0) {
        (void)json_object_set_new(o, "queue",
                                  json_pack("{s:i, s:i, s:i}", "ahead", f->ahead, "ahead_devices", f->ahead_devices,
                                            "of_project", f->of_project));
        (void)json_object_set_new(o, "starts",
                                  json_pack("{s:o, s:s, s:o, s:o}", "at",
                                            cluster_time(f->start_us > 0 ? f->start_us : 0), "basis",
                                            forecast_basis_name(f->start_us > 0 ? f->basis : FORECAST_UNKNOWN),
                                            "latest", cluster_time(f->latest_us), "after", job_name(f->after)));
    }
    if (kept->made_us > 0)
        (void)json_object_set_new(o, "estimate",
                                  json_pack("{s:o, s:o, s:s, s:o, s:o}", "made_at", cluster_time(kept->made_us), "at",
                                            cluster_time(kept->start_us), "basis", kept->basis, "after",
                                            job_name(kept->after), "late_s",
                                            j->generation > 0 ? json_real((double)kept->late_us / 1e6) : json_null()));
}

static int by_size(const void *a, const void *b)
{
    int64_t x = llabs(*(const int64_t *)a), y = llabs(*(const int64_t *)b);

    return (x > y) - (x < y);
}

static json_t *report_of(const struct errors *s, enum forecast_basis basis)
{
    int64_t sorted[ESTIMATES_KEPT];

    memcpy(sorted, s->late_s, s->n * sizeof(*sorted));
    qsort(sorted, s->n, sizeof(*sorted), by_size);
    return json_pack("{s:s, s:I, s:o, s:f}", "basis", forecast_basis_name(basis), "count", (json_int_t)s->count,
                     "median_error_s", s->n > 0 ? json_integer(llabs(sorted[s->n / 2])) : json_null(), "in_time",
                     (double)s->in_time / (double)s->count);
}

void estimates_report(struct core *c, struct call *call)
{
    json_t *all = json_array();

    for (int b = FORECAST_UNKNOWN + 1; b < FORECAST_BASES; b++)
        if (c->estimates->of[b].count > 0)
            (void)json_array_append_new(all, report_of(&c->estimates->of[b], (enum forecast_basis)b));
    call_answer_new(call, 200, json_pack("{s:o}", "estimates", all));
}

/* --- the store --------------------------------------------------------------------------------------- */

void estimates_put(struct core *c)
{
    for (int b = FORECAST_UNKNOWN + 1; b < FORECAST_BASES; b++) {
        struct errors *s = &c->estimates->of[b];
        json_t *late = s->changed ? json_array() : NULL;

        if (!s->changed)
            continue;
        for (size_t i = 0; i < s->n; i++)
            (void)json_array_append_new(
                late, json_integer(s->late_s[(s->next + ESTIMATES_KEPT - s->n + i) % ESTIMATES_KEPT]));
        s->changed = !records_put_row_new(c, STORE_ESTIMATES, forecast_basis_name((enum forecast_basis)b),
                                          json_pack("{s:I, s:I, s:o}", "count", (json_int_t)s->count, "in_time",
                                                    (json_int_t)s->in_time, "late_s", late));
    }
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    enum forecast_basis basis = forecast_basis_parse(row->name);
    json_int_t count = json_integer_value(json_object_get(o, "count"));
    json_int_t in_time = json_integer_value(json_object_get(o, "in_time"));
    struct errors *s = &c->estimates->of[basis];
    json_t *late;
    size_t i;

    if (basis == FORECAST_UNKNOWN || count < 1 || in_time < 0 || in_time > count)
        return merr_set(err, -EINVAL, "the store's record of estimates cannot be read");
    *s = (struct errors){.count = (uint64_t)count, .in_time = (uint64_t)in_time};
    json_array_foreach (json_object_get(o, "late_s"), i, late) {
        if (json_is_integer(late) && llabs(json_integer_value(late)) < INT32_MAX)
            add(s, json_integer_value(late));
    }
    s->changed = false;
    return 0;
}

int estimates_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_ESTIMATES, NULL, take_row, err);
}
