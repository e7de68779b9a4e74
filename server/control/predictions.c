#include "server/control/predictions.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/records.h"
#include "server/control/state.h"

#define WORST 5
#define KIND_MAX 24
#define ROW_NAME_MAX (SPEC_NAME_MAX + KIND_MAX + 16)

struct past {
    uint64_t job;
    uint32_t generation;
    double planned_ms, took_ms;
};

struct kind {
    char class_[SPEC_NAME_MAX], what[KIND_MAX];
    bool measured, changed;
    uint64_t count;
    size_t n, next;
    struct past past[PREDICTIONS_KEPT]; /* a ring */
};

struct predictions {
    struct kind *v[PREDICTIONS_MAX];
    size_t n;
    bool told; /* that there are too many kinds */
};

struct predictions *predictions_new(void)
{
    return calloc(1, sizeof(struct predictions));
}

void predictions_free(struct predictions *s)
{
    for (size_t i = 0; s && i < s->n; i++)
        free(s->v[i]);
    free(s);
}

/* --- counting ---------------------------------------------------------------------------------------- */

static struct kind *kind_of(struct predictions *s, const char *class_, const char *what, bool measured)
{
    struct kind *k;

    for (size_t i = 0; i < s->n; i++)
        if (s->v[i]->measured == measured && strcmp(s->v[i]->class_, class_) == 0 && strcmp(s->v[i]->what, what) == 0)
            return s->v[i];
    if (s->n == PREDICTIONS_MAX) {
        if (!s->told)
            log_warn("the report of predictions has %d kinds of jobs and classes: no more are counted",
                     PREDICTIONS_MAX);
        s->told = true;
        return NULL;
    }
    k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    (void)snprintf(k->class_, sizeof(k->class_), "%s", class_);
    (void)snprintf(k->what, sizeof(k->what), "%s", what);
    k->measured = measured;
    s->v[s->n++] = k;
    return k;
}

static void add(struct kind *k, const struct past *p)
{
    k->past[k->next] = *p;
    k->next = (k->next + 1) % PREDICTIONS_KEPT;
    k->n += k->n < PREDICTIONS_KEPT;
}

struct prediction predictions_look(const struct job *j)
{
    struct prediction p = {.job = j->id,
                           .generation = j->generation,
                           .planned_ms = json_number_value(json_object_get(j->plan, "step_ms"))};
    const char *rates = json_string_value(json_object_get(j->plan, "rates"));

    if (!j->live || j->n_places == 0 || !(p.planned_ms > 0) || !(j->step_ms > 0))
        return p;
    for (size_t i = 1; i < j->n_places; i++)
        if (strcmp(j->places[i].class_, j->places[0].class_) != 0)
            return p; /* of a mix nobody can say whose error it is */
    p.took_ms = j->step_ms;
    p.measured = rates && strcmp(rates, "measured") == 0;
    (void)snprintf(p.class_, sizeof(p.class_), "%s", j->places[0].class_);
    return p;
}

void predictions_note(struct core *c, const struct entry *e, const struct prediction *was)
{
    struct past p = {was->job, was->generation, was->planned_ms, was->took_ms};
    struct job_spec *spec;
    char what[KIND_MAX];
    struct kind *k;

    if (!(was->took_ms > 0) || (e->job.live && e->job.generation == was->generation))
        return;
    spec = entry_spec(e);
    if (!spec)
        return;
    (void)snprintf(what, sizeof(what), "%s %s", spec->train.model.family == MODEL_LLAMA ? "llama" : "gpt2",
                   spec->train.precision == PRECISION_BF16 ? "bf16" : "f32");
    spec_free(spec);
    k = kind_of(c->predictions, was->class_, what, was->measured);
    if (!k)
        return;
    k->count++;
    k->changed = true;
    add(k, &p);
}

/* --- telling ----------------------------------------------------------------------------------------- */

static double percent_of(const struct past *p)
{
    return 100 * (p->planned_ms / p->took_ms - 1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static json_t *report_of(const struct kind *k)
{
    double error[PREDICTIONS_KEPT] = {0}, sum = 0, lean = 0;

    for (size_t i = 0; i < k->n; i++) {
        error[i] = fabs(percent_of(&k->past[i]));
        sum += error[i];
        lean += percent_of(&k->past[i]);
    }
    qsort(error, k->n, sizeof(*error), by_value);
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f}", "class", k->class_, "kind", k->what, "rates",
                     k->measured ? "measured" : "assumed", "count", (json_int_t)k->count, "mean_error_percent",
                     sum / (double)k->n, "p90_error_percent", error[(k->n * 9 + 9) / 10 - 1], "bias_percent",
                     lean / (double)k->n);
}

struct found {
    const struct kind *kind;
    const struct past *past;
};

/* Put one among the worst, the worst first. */
static void rank(struct found *worst, size_t *n, const struct kind *k, const struct past *p)
{
    size_t at = *n;

    while (at > 0 && fabs(percent_of(p)) > fabs(percent_of(worst[at - 1].past)))
        at--;
    if (at == WORST)
        return;
    *n += *n < WORST;
    memmove(&worst[at + 1], &worst[at], (*n - at - 1) * sizeof(*worst));
    worst[at] = (struct found){k, p};
}

void predictions_report(struct core *c, struct call *call)
{
    const struct predictions *s = c->predictions;
    json_t *all = json_array(), *list = json_array();
    struct found worst[WORST];
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        (void)json_array_append_new(all, report_of(s->v[i]));
        for (size_t k = 0; k < s->v[i]->n; k++)
            rank(worst, &n, s->v[i], &s->v[i]->past[k]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct past *p = worst[i].past;

        (void)json_array_append_new(list, json_pack("{s:o, s:i, s:s, s:s, s:f, s:f, s:f}", "job",
                                                    json_sprintf("j%llu", (unsigned long long)p->job), "attempt",
                                                    (int)p->generation, "class", worst[i].kind->class_, "kind",
                                                    worst[i].kind->what, "predicted_step_ms", p->planned_ms,
                                                    "measured_step_ms", p->took_ms, "error_percent", percent_of(p)));
    }
    call_answer_new(call, 200, json_pack("{s:o, s:o}", "predictions", all, "worst", list));
}

/* --- the store --------------------------------------------------------------------------------------- */

static json_t *record_of(const struct kind *k)
{
    json_t *past = json_array();

    for (size_t i = 0; i < k->n; i++) {
        const struct past *p = &k->past[(k->next + PREDICTIONS_KEPT - k->n + i) % PREDICTIONS_KEPT];

        (void)json_array_append_new(
            past, json_pack("[I, I, f, f]", (json_int_t)p->job, (json_int_t)p->generation, p->planned_ms, p->took_ms));
    }
    return json_pack("{s:s, s:s, s:b, s:I, s:o}", "class", k->class_, "kind", k->what, "measured", k->measured, "count",
                     (json_int_t)k->count, "past", past);
}

void predictions_put(struct core *c)
{
    for (size_t i = 0; i < c->predictions->n; i++) {
        struct kind *k = c->predictions->v[i];
        char name[ROW_NAME_MAX];

        if (!k->changed)
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s/%s", k->class_, k->what, k->measured ? "measured" : "assumed");
        k->changed = !records_put_row_new(c, STORE_PREDICTIONS, name, record_of(k));
    }
}

static bool read_past(const json_t *row, struct past *ret)
{
    json_int_t job = json_integer_value(json_array_get(row, 0)),
               generation = json_integer_value(json_array_get(row, 1));
    double planned = json_number_value(json_array_get(row, 2)), took = json_number_value(json_array_get(row, 3));

    if (job < 1 || generation < 0 || generation > UINT32_MAX || !(planned > 0) || !(took > 0))
        return false;
    *ret = (struct past){(uint64_t)job, (uint32_t)generation, planned, took};
    return true;
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    const char *class_ = json_string_value(json_object_get(o, "class"));
    const char *what = json_string_value(json_object_get(o, "kind"));
    json_int_t count = json_integer_value(json_object_get(o, "count"));
    const json_t *past = json_object_get(o, "past");
    struct kind *k;
    json_t *one;
    size_t i;

    if (!class_ || !what || count < 1 || json_array_size(past) < 1 || strlen(class_) >= SPEC_NAME_MAX ||
        strlen(what) >= KIND_MAX)
        return merr_set(err, -EINVAL, "the store's record of predictions cannot be read");
    json_array_foreach (past, i, one) {
        if (!read_past(one, &(struct past){.job = 0}))
            return merr_set(err, -EINVAL, "the store's record of predictions cannot be read");
    }
    k = kind_of(c->predictions, class_, what, json_is_true(json_object_get(o, "measured")));
    if (!k)
        return merr_set(err, -ENOMEM, "no memory for a record of predictions");
    k->count = (uint64_t)count;
    json_array_foreach (past, i, one) {
        struct past p;

        (void)read_past(one, &p);
        add(k, &p);
    }
    return 0;
}

int predictions_load(struct core *c, struct merr *err)
{
    return records_take_rows(c, STORE_PREDICTIONS, NULL, take_row, err);
}
