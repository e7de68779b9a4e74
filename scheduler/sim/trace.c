#include "scheduler/sim/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

#define COLUMNS 12 /* the last may be left out */
#define FIELD_MAX 256

enum column { ID, SUBMIT, TYPE, MIN, MAX, WORKERS, STEPS, WEIGHT, TENANT, CLASSES, HETERO, SPEC };

static const char *const columns[COLUMNS] = {
    "id",          "submit_s", "job_type", "min_devices", "max_devices", "virtual_workers",
    "total_steps", "weight",   "tenant",   "classes",     "hetero_ok",   "spec",
};

struct line { /* one line's fields; a field longer than its room fails the line */
    char field[COLUMNS][FIELD_MAX];
    size_t number;
    size_t columns; /* that the first line names */
};

void sim_setup_init(struct sim_setup *s)
{
    *s = (struct sim_setup){
        .restart_us = 30000000,
        .grace_us = 30000000,
        .checkpoint_us = INT64_C(600000000),
        .repair_us = INT64_C(3600000000),
        .round_us = 60000000,
        .starve_us = INT64_C(12) * 3600 * 1000000,
        .las_us = INT64_C(4) * 3600 * 1000000,
        .seed = 1,
    };
}

void sim_setup_clear(struct sim_setup *s)
{
    free(s->nodes);
    free(s->tenant_names);
    free(s->tenants);
    free(s->tenant_class);
    free(s->profile_names);
    free(s->profiles);
    planned_free(s->planned);
    *s = (struct sim_setup){.n_types = 0};
}

void sim_trace_clear(struct sim_trace *t)
{
    free(t->jobs);
    *t = (struct sim_trace){.n = 0};
}

int sim_spec_of(const struct sim_setup *s, uint32_t profile)
{
    return s->planned && profile >= s->n_rated ? (int)(profile - s->n_rated) : -1;
}

int sim_add_profile(struct sim_setup *s, const char *name, const struct rates_profile *profile)
{
    char(*names)[SIM_NAME_MAX];
    struct rates_profile *profiles;

    if (s->n_profiles >= SIM_PROFILES_MAX)
        return -E2BIG;
    names = realloc(s->profile_names, (s->n_profiles + 1) * sizeof(*names));
    if (!names)
        return -ENOMEM;
    s->profile_names = names;
    profiles = realloc(s->profiles, (s->n_profiles + 1) * sizeof(*profiles));
    if (!profiles)
        return -ENOMEM;
    s->profiles = profiles;
    (void)snprintf(s->profile_names[s->n_profiles], SIM_NAME_MAX, "%.63s", name);
    s->profiles[s->n_profiles++] = *profile;
    return 0;
}

int sim_find_type(const struct sim_setup *s, const char *name)
{
    for (size_t i = 0; i < s->n_types; i++)
        if (strcmp(s->types[i], name) == 0)
            return (int)i;
    return -1;
}

static int find(char (*names)[SIM_NAME_MAX], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

static int split(const char *text, size_t len, struct line *ret, struct merr *err)
{
    size_t column = 0, n = 0;

    for (size_t i = 0; i <= len; i++) {
        char c = i < len ? text[i] : ',';

        if (c == ',') {
            ret->field[column][n] = '\0';
            n = 0;
            if (++column == COLUMNS && i < len)
                return merr_set(err, -EINVAL, "line %zu: more than %d columns", ret->number, COLUMNS);
        } else if (n + 1 == FIELD_MAX || c == '\0') {
            return merr_set(err, -EINVAL, "line %zu: '%s' is longer than %d bytes or holds a NUL", ret->number,
                            columns[column], FIELD_MAX - 1);
        } else if (!(n == 0 && c == ' ')) {
            ret->field[column][n++] = c;
        }
    }
    if (column == SPEC) /* the file has none, or this is the line that says so */
        ret->field[SPEC][0] = '\0';
    if (column != ret->columns && (ret->columns > 0 || column < SPEC))
        return merr_set(err, -EINVAL, "line %zu: %zu columns, want %zu", ret->number, column,
                        ret->columns > 0 ? ret->columns : SPEC);
    ret->columns = column;
    return 0;
}

static int bad(const struct line *l, enum column c, const char *want, struct merr *err)
{
    return merr_set(err, -EINVAL, "line %zu: %s '%s': want %s", l->number, columns[c], l->field[c], want);
}

/* A decimal number with up to six places, in millionths: exact, whatever the locale. */
static int micros(const char *text, int64_t most, int64_t *ret)
{
    int64_t whole = 0, part = 0, unit = 100000;
    const char *p = text;

    if (*p < '0' || *p > '9')
        return -EINVAL;
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (*p - '0');
        if (whole > most / 1000000)
            return -EINVAL;
    }
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++) {
            part += (*p - '0') * unit;
            unit /= 10;
        }
    if (*p)
        return -EINVAL;
    *ret = whole * 1000000 + part;
    return 0;
}

static int whole(const struct line *l, enum column c, int64_t lo, int64_t hi, int64_t *ret, struct merr *err)
{
    char want[96];
    int64_t n = 0;
    const char *p = l->field[c];

    for (; *p >= '0' && *p <= '9' && n <= hi; p++)
        n = n * 10 + (*p - '0');
    if (*p || p == l->field[c] || n < lo || n > hi) {
        (void)snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)lo, (long long)hi);
        return bad(l, c, want, err);
    }
    *ret = n;
    return 0;
}

static int read_classes(const struct sim_setup *s, const struct line *l, uint32_t *ret, struct merr *err)
{
    char name[FIELD_MAX];
    const char *p = l->field[CLASSES];
    uint32_t mask = 0;

    if (!*p || strcmp(p, "*") == 0) {
        *ret = (uint32_t)((UINT64_C(1) << s->n_types) - 1);
        return 0;
    }
    for (;;) {
        size_t n = strcspn(p, "|");
        int type;

        memcpy(name, p, n);
        name[n] = '\0';
        type = sim_find_type(s, name);
        if (type < 0)
            return bad(l, CLASSES, "classes of the cluster, with '|' between them, or '*'", err);
        mask |= UINT32_C(1) << type;
        if (!p[n])
            break;
        p += n + 1;
    }
    *ret = mask;
    return 0;
}

/* The least whole number of replicas, and the classes that have the memory for it. */
static int fit_spec(const struct sim_setup *s, const struct line *l, int spec, struct sim_job *j, struct merr *err)
{
    const struct rates_profile *p = &s->profiles[j->profile];
    int32_t replica = planned_replica(s->planned, spec), workers = planned_workers(s->planned, spec), least = INT32_MAX;
    uint32_t types = 0;

    if (j->workers > 0 && j->workers != workers)
        return merr_set(err, -EINVAL, "line %zu: %s '%s': want 0, or %d as its spec has", l->number, columns[WORKERS],
                        l->field[WORKERS], workers);
    j->workers = workers;
    j->replica = replica;
    for (size_t t = 0; t < s->n_types; t++)
        if ((j->types >> t & 1) && p->n[t] > 0 && p->points[t][0].count < least)
            least = p->points[t][0].count;
    if (least == INT32_MAX)
        return bad(l, CLASSES, "a class that has the memory for its spec", err);
    j->min = (j->min + replica - 1) / replica * replica;
    j->min = j->min > least ? j->min : least;
    if (j->min > j->max - j->max % replica || j->min > workers * replica)
        return merr_set(err, -EINVAL,
                        "line %zu: no whole number of replicas of %d devices, at most %d of them, lies between "
                        "min_devices and max_devices, and has the memory",
                        l->number, replica, workers);
    for (size_t t = 0; t < s->n_types; t++)
        if (p->n[t] > 0 && p->points[t][0].count <= j->min)
            types |= UINT32_C(1) << t;
    j->types &= types;
    return 0;
}

/* Which profile it has. */
static int read_kind(struct sim_setup *s, const struct line *l, struct sim_job *j, struct merr *err)
{
    const char *spec = l->field[SPEC];
    struct merr why = {""};
    int at, r;

    if (!*spec) {
        at = find(s->profile_names, s->planned ? s->n_rated : s->n_profiles, l->field[TYPE]);
        if (at < 0)
            return bad(l, TYPE, "a kind of job that the throughputs name", err);
        j->profile = (uint32_t)at;
        return 0;
    }
    if (l->field[TYPE][0])
        return bad(l, TYPE, "nothing, since the job has a spec", err);
    if (strlen(spec) >= SIM_NAME_MAX || !s->add_spec)
        return bad(l, SPEC, s->add_spec ? "a path of at most 63 bytes" : "nothing: specs are not read here", err);
    for (size_t i = s->n_rated; s->planned && i < s->n_profiles; i++)
        if (strcmp(s->profile_names[i], spec) == 0) {
            j->profile = (uint32_t)i;
            return 0;
        }
    r = s->add_spec(s, spec, &why);
    j->profile = (uint32_t)s->n_profiles - 1;
    return r < 0 ? merr_set(err, r, "line %zu: spec '%s': %s", l->number, spec, why.text) : 0;
}

static int read_job(struct sim_setup *s, const struct line *l, struct sim_job *j, struct merr *err)
{
    int64_t min, max, workers, steps;
    int at;

    if (!l->field[ID][0] || strlen(l->field[ID]) >= SIM_NAME_MAX)
        return bad(l, ID, "a name of 1 to 63 bytes", err);
    (void)snprintf(j->name, sizeof(j->name), "%.63s", l->field[ID]);
    if (micros(l->field[SUBMIT], SIM_TIME_MAX_US, &j->submit_us) < 0)
        return bad(l, SUBMIT, "seconds from 0 to ten years", err);
    TRY(read_kind(s, l, j, err));
    if (whole(l, MIN, 1, RATES_COUNT_MAX, &min, err) < 0 || whole(l, MAX, min, RATES_COUNT_MAX, &max, err) < 0 ||
        whole(l, WORKERS, 0, RATES_COUNT_MAX, &workers, err) < 0 || whole(l, STEPS, 1, SIM_STEPS_MAX, &steps, err) < 0)
        return -EINVAL;
    if (workers > 0 && workers < min && sim_spec_of(s, j->profile) < 0)
        return bad(l, WORKERS, "0, or at least min_devices", err);
    j->min = (int32_t)min;
    j->max = (int32_t)max;
    j->workers = (int32_t)workers;
    j->steps = steps;
    if (micros(l->field[WEIGHT], INT64_C(1000000000), &j->weight_milli) < 0 || j->weight_milli < 1000)
        return bad(l, WEIGHT, "a number from 0.001 to 1000", err);
    j->weight_milli /= 1000;
    at = l->field[TENANT][0] ? find(s->tenant_names, s->n_tenants, l->field[TENANT]) : 0;
    if (at < 0)
        return bad(l, TENANT, "a tenant of the cluster, or nothing", err);
    j->tenant = (uint32_t)at;
    if (read_classes(s, l, &j->types, err) < 0)
        return -EINVAL;
    if (strcmp(l->field[HETERO], "0") != 0 && strcmp(l->field[HETERO], "1") != 0)
        return bad(l, HETERO, "0 or 1", err);
    j->hetero_ok = l->field[HETERO][0] == '1';
    j->replica = 1;
    at = sim_spec_of(s, j->profile);
    return at >= 0 ? fit_spec(s, l, at, j, err) : 0;
}

struct sortable {
    struct sim_job job;
    size_t line;
};

static int by_submit(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;

    if (x->job.submit_us != y->job.submit_us)
        return x->job.submit_us < y->job.submit_us ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

static int add(struct sortable **jobs, size_t *n, size_t *cap, const struct sortable *job, struct merr *err)
{
    if (*n == SIM_TRACE_JOBS_MAX)
        return merr_set(err, -EINVAL, "line %zu: more than %d jobs", job->line, SIM_TRACE_JOBS_MAX);
    if (*n == *cap) {
        struct sortable *v = realloc(*jobs, (*cap ? 2 * *cap : 64) * sizeof(*v));

        if (!v)
            return merr_set(err, -ENOMEM, "no memory for %zu jobs", *n);
        *jobs = v;
        *cap = *cap ? 2 * *cap : 64;
    }
    (*jobs)[(*n)++] = *job;
    return 0;
}

static int check_head(const struct line *l, struct merr *err)
{
    for (size_t c = 0; c < l->columns; c++)
        if (strcmp(l->field[c], columns[c]) != 0)
            return merr_set(err, -EINVAL, "line %zu: column %zu is '%s': want '%s'", l->number, c + 1, l->field[c],
                            columns[c]);
    return 0;
}

static int finish(struct sortable *jobs, size_t n, struct sim_trace *ret, struct merr *err)
{
    struct sim_job *v = calloc(n + 1, sizeof(*v));

    if (!v)
        return merr_set(err, -ENOMEM, "no memory for %zu jobs", n);
    if (n > 0)
        qsort(jobs, n, sizeof(*jobs), by_submit);
    for (size_t i = 0; i < n; i++)
        v[i] = jobs[i].job;
    *ret = (struct sim_trace){.jobs = v, .n = n};
    return 0;
}

struct taken { /* so far */
    struct sortable *jobs;
    size_t n, cap;
    struct line line;
    bool head; /* the line that names the columns */
};

static int take_line(struct sim_setup *s, const char *text, size_t len, struct taken *t, struct merr *err)
{
    struct sortable job = {.line = t->line.number};

    TRY(split(text, len, &t->line, err));
    if (!t->head) {
        TRY(check_head(&t->line, err));
        t->head = true;
        return 0;
    }
    TRY(read_job(s, &t->line, &job.job, err));
    return add(&t->jobs, &t->n, &t->cap, &job, err);
}

int sim_trace_parse(struct sim_setup *s, const char *text, size_t len, struct sim_trace *ret, struct merr *err)
{
    struct taken t = {.n = 0};
    int r;

    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t span = end ? (size_t)(end - text) - at : len - at, used = span;

        t.line.number++;
        while (used > 0 && (text[at + used - 1] == '\r' || text[at + used - 1] == ' '))
            used--;
        if (used > 0 && text[at] != '#') {
            r = take_line(s, text + at, used, &t, err);
            if (r < 0)
                goto done;
        }
        at += span + 1;
    }
    r = t.head ? finish(t.jobs, t.n, ret, err)
               : merr_set(err, -EINVAL, "the trace is empty: want a first line that names its columns");
done:
    free(t.jobs);
    return r;
}
