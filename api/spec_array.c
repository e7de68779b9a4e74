#include "api/spec_array.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_read.h"
#include "api/template.h"
#include "base/philox.h"
#include "base/try.h"

#define DRAW_SITE 0x5eedU /* of Philox: the values of tasks */

/* --- indices ----------------------------------------------------------------------------------------- */

void spec_indices_clear(struct spec_indices *all)
{
    free(all->v);
    *all = (struct spec_indices){.n = 0};
}

static int add_range(struct spec_indices *all, struct spec_range r)
{
    if ((all->n & (all->n - 1)) == 0) { /* full at each power of two */
        struct spec_range *v = realloc(all->v, (all->n ? 2 * all->n : 1) * sizeof(*v));

        if (!v)
            return -ENOMEM;
        all->v = v;
    }
    r.before = all->tasks;
    all->v[all->n++] = r;
    all->tasks += (size_t)((r.last - r.first) / r.step) + 1;
    return 0;
}

static const char *read_digits(const char *p, int *ret)
{
    long n = 0;

    if (!isdigit((unsigned char)*p))
        return NULL;
    for (; isdigit((unsigned char)*p); p++)
        if ((n = n * 10 + (*p - '0')) > SPEC_INDEX_MAX)
            return NULL;
    *ret = (int)n;
    return p;
}

/* "7", "0-99" or "0-99:2" at p; what follows it, NULL: it is none. */
static const char *read_range(const char *p, struct spec_range *ret)
{
    *ret = (struct spec_range){.step = 1};
    p = read_digits(p, &ret->first);
    ret->last = ret->first;
    if (p && *p == '-') {
        p = read_digits(p + 1, &ret->last);
        if (p && *p == ':')
            p = read_digits(p + 1, &ret->step);
    }
    return p && ret->last >= ret->first && ret->step >= 1 && (!*p || *p == ',') ? p : NULL;
}

int spec_indices_read(const char *text, struct spec_indices *ret, struct merr *err)
{
    struct spec_indices all = {.n = 0};
    const char *p = text;
    int r = 0;

    while (p && r == 0) {
        struct spec_range one;

        p = read_range(p, &one);
        if (!p || (all.n > 0 && one.first <= all.v[all.n - 1].last)) {
            spec_indices_clear(&all);
            return merr_set(err, -EINVAL,
                            "want numbers and ranges from 0 to %d that grow, such as \"0-99:2,120\", got '%.60s'",
                            SPEC_INDEX_MAX, text);
        }
        one.last -= (one.last - one.first) % one.step;
        r = add_range(&all, one);
        p = *p ? p + 1 : NULL;
    }
    if (r < 0) {
        spec_indices_clear(&all);
        return merr_set(err, r, "out of memory");
    }
    *ret = all;
    return 0;
}

int spec_index_at(const struct spec_indices *all, size_t position)
{
    size_t lo = 0, hi = all->n;

    assert(position < all->tasks);
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;

        if (all->v[mid].before <= position)
            lo = mid;
        else
            hi = mid;
    }
    return all->v[lo].first + (int)(position - all->v[lo].before) * all->v[lo].step;
}

ssize_t spec_position_of(const struct spec_indices *all, int index)
{
    size_t lo = 0, hi = all->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct spec_range *r = &all->v[mid];

        if (index < r->first)
            hi = mid;
        else if (index > r->last)
            lo = mid + 1;
        else
            return (index - r->first) % r->step == 0 ? (ssize_t)r->before + (index - r->first) / r->step : -1;
    }
    return -1;
}

int spec_indices_of(const struct job_spec *spec, struct spec_indices *ret)
{
    struct spec_indices all = {.n = 0};

    if (spec->array.index)
        return spec_indices_read(spec->array.index, ret, NULL);
    TRY(add_range(&all, (struct spec_range){.last = (int)spec->array.tasks - 1, .step = 1}));
    *ret = all;
    return 0;
}

/* --- values ------------------------------------------------------------------------------------------ */

/* How many combinations a matrix has; SPEC_TASKS_MAX + 1: more than there may be. */
size_t spec_combinations(const json_t *matrix)
{
    size_t n = 1;
    const char *name;
    json_t *list;

    json_object_foreach ((json_t *)matrix, name, list) {
        n *= json_array_size(list);
        if (n > SPEC_TASKS_MAX)
            return SPEC_TASKS_MAX + 1;
    }
    return n;
}

/* A number in [0, 1) of a task's k-th name. */
static double draw(const struct job_spec *spec, int index, uint32_t k)
{
    uint32_t key[2], out[4], counter[4] = {(uint32_t)index, k, 0, 0};

    philox_key(spec->array.search.seed, DRAW_SITE, 0, 0, key);
    philox4x32(counter, key, out);
    return (double)((uint64_t)(out[0] >> 5) << 26 | out[1] >> 6) * 0x1p-53;
}

static json_t *draw_range(const json_t *range, double u)
{
    double lo = json_number_value(json_object_get(range, "min")), hi = json_number_value(json_object_get(range, "max"));
    double whole = json_is_true(json_object_get(range, "whole")) ? 1 : 0, x;

    if (json_is_true(json_object_get(range, "log")))
        x = exp(log(lo) + u * (log(hi + whole) - log(lo)));
    else
        x = lo + u * (hi + whole - lo);
    x = x < lo ? lo : x > hi ? hi : x; /* rounding up to hi + whole, too */
    return whole > 0 ? json_integer((json_int_t)floor(x)) : json_real(x);
}

json_t *spec_task_params(const struct job_spec *spec, int index, size_t position)
{
    const typeof(spec->array) *a = &spec->array;
    json_t *params = json_object(), *v;
    const char *name;
    size_t stride = spec_combinations(a->matrix), at = a->index ? (size_t)index : position;
    uint32_t k = 0;

    json_object_foreach (a->matrix, name, v) {
        size_t n = json_array_size(v), i;

        stride /= n;
        i = a->search.method == SEARCH_GRID ? at / stride % n : (size_t)(draw(spec, index, k++) * (double)n);
        (void)json_object_set(params, name, json_array_get(v, i));
    }
    json_object_foreach (a->ranges, name, v) {
        (void)json_object_set_new(params, name, draw_range(v, draw(spec, index, k++)));
    }
    return params;
}

/* --- the spec of a task ------------------------------------------------------------------------------ */

/* Where places are filled in; a path that ends with '/' stands for all below it. */
static const char *const filled_paths[] = {"/name",        "/command/argv/", "/command/env/",
                                           "/train/data/", "/train/init/",   "/train/optimizer/"};

bool spec_is_filled(const char *path)
{
    for (size_t i = 0; i < sizeof(filled_paths) / sizeof(filled_paths[0]); i++) {
        size_t n = strlen(filled_paths[i]);

        if (filled_paths[i][n - 1] == '/' ? strncmp(path, filled_paths[i], n) == 0 : strcmp(path, filled_paths[i]) == 0)
            return true;
    }
    return false;
}

struct filling {
    const json_t *names;
    struct faults *f;
};

/* The text at path, filled in where it has places: new. NULL: there are none, or a fault was added. */
static json_t *fill_text(const struct filling *w, const char *path, const json_t *v)
{
    struct merr err = {""};
    json_t *new;

    if (!json_is_string(v) || !template_is(json_string_value(v)))
        return NULL;
    if (!spec_is_filled(path)) {
        faults_add(w->f, path,
                   "nothing is filled in here: ${{...}} stands in name, command.argv, command.env, train.data, "
                   "train.init and train.optimizer");
        return NULL;
    }
    new = template_fill(json_string_value(v), w->names, &err);
    if (!new)
        faults_add(w->f, path, "%s", err.text);
    if (new && !json_is_string(new) && strncmp(path, "/command/", 9) == 0) { /* of texts alone */
        char text[64];

        (void)template_print(new, text, sizeof(text));
        json_decref(new);
        new = json_string(text);
    }
    return new;
}

static void fill_all(const struct filling *w, const char *path, json_t *o)
{
    char below[256];
    const char *key;
    json_t *v, *new;
    void *next;
    size_t i;

    json_object_foreach_safe(o, next, key, v)
    {
        (void)snprintf(below, sizeof(below), "%s/%s", path, key);
        if ((new = fill_text(w, below, v)))
            (void)json_object_set_new(o, key, new);
        else
            fill_all(w, below, v);
    }
    json_array_foreach (o, i, v) {
        (void)snprintf(below, sizeof(below), "%s/%zu", path, i);
        if ((new = fill_text(w, below, v)))
            (void)json_array_set_new(o, i, new);
        else
            fill_all(w, below, v);
    }
}

/* What programs read of their task (docs/arrays.md). */
static void add_variables(json_t *command, const char *job, int index, size_t tasks, const json_t *params)
{
    json_t *env = json_object_get(command, "env"), *v;
    const char *key;

    if (!env)
        (void)json_object_set_new(command, "env", env = json_object());
    (void)json_object_set_new(env, "MUSTER_ARRAY_JOB", json_string(job));
    (void)json_object_set_new(env, "MUSTER_ARRAY_INDEX", json_sprintf("%d", index));
    (void)json_object_set_new(env, "MUSTER_ARRAY_COUNT", json_sprintf("%zu", tasks));
    json_object_foreach ((json_t *)params, key, v) {
        char name[TEMPLATE_NAME_MAX + 16], text[4096];
        size_t n = (size_t)snprintf(name, sizeof(name), "MUSTER_PARAM_%s", key);

        for (size_t i = 0; i < n; i++)
            name[i] = (char)toupper((unsigned char)name[i]);
        if (template_print(v, text, sizeof(text)))
            (void)json_object_set_new(env, name, json_string(text));
    }
}

json_t *spec_fill_task(const json_t *full, const struct job_spec *spec, size_t position, const char *job,
                       json_t **ret_params, struct faults *f)
{
    json_auto_t *names = json_object(), *top = json_copy((json_t *)full), *params = NULL;
    struct spec_indices indices;
    struct filling w = {.names = names, .f = f};
    size_t before = f->n + f->more;
    json_t *doc, *v;
    const char *key;
    int index;

    if (!names || !top || spec_indices_of(spec, &indices) < 0)
        return NULL;
    index = spec_index_at(&indices, position);
    spec_indices_clear(&indices);
    params = spec_task_params(spec, index, position);
    (void)json_object_set_new(names, "index", json_integer(index));
    json_object_foreach (params, key, v) {
        char name[TEMPLATE_NAME_MAX + 8];

        (void)snprintf(name, sizeof(name), "param.%s", key);
        (void)json_object_set(names, name, v);
    }
    (void)json_object_del(top, "array");
    doc = json_deep_copy(top);
    fill_all(&w, "", doc);
    if (json_is_object(json_object_get(doc, "command")))
        add_variables(json_object_get(doc, "command"), job, index, spec->array.tasks, params);
    if (f->n + f->more > before) {
        json_decref(doc);
        return NULL;
    }
    if (ret_params)
        *ret_params = json_incref(params);
    return doc;
}

/* --- reading ----------------------------------------------------------------------------------------- */

static bool param_name_is_good(const char *name)
{
    size_t n = strlen(name);

    return n >= 1 && n <= 32 && isalpha((unsigned char)*name) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

static void check_matrix(const struct job_spec *s, struct faults *f)
{
    const char *name;
    char text[4096];
    json_t *list, *v;
    size_t i;

    json_object_foreach (s->array.matrix, name, list) {
        bool good = param_name_is_good(name) && json_array_size(list) > 0;

        json_array_foreach (list, i, v) {
            good = good && template_print(v, text, sizeof(text));
        }
        if (!good)
            faults_add(f, "/array/matrix",
                       "'%.40s': want a name of at most 32 letters, digits and '_', the first a letter, and an array "
                       "of at least one text, number or boolean",
                       name);
    }
}

static void check_range(const char *name, const json_t *range, const struct job_spec *s, struct faults *f)
{
    const json_t *min = json_object_get(range, "min"), *max = json_object_get(range, "max");
    bool whole = json_is_true(json_object_get(range, "whole")), ratio = json_is_true(json_object_get(range, "log"));
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)range, key, v) {
        if (strcmp(key, "min") != 0 && strcmp(key, "max") != 0 && strcmp(key, "log") != 0 && strcmp(key, "whole") != 0)
            faults_add(f, "/array/ranges", "'%.40s' of '%.40s' is none of min, max, log, whole", key, name);
    }
    if (!param_name_is_good(name) || json_object_get(s->array.matrix, name))
        faults_add(f, "/array/ranges", "'%.40s' is no name, or one of the matrix, too", name);
    if (!json_is_number(min) || !json_is_number(max) || !(json_number_value(min) < json_number_value(max)) ||
        fabs(json_number_value(min)) > 1e15 || fabs(json_number_value(max)) > 1e15)
        faults_add(f, "/array/ranges", "'%.40s': want numbers min and max, min the smaller", name);
    else if (whole && (!json_is_integer(min) || !json_is_integer(max)))
        faults_add(f, "/array/ranges", "'%.40s': whole wants whole numbers min and max", name);
    else if (ratio && json_number_value(min) <= 0)
        faults_add(f, "/array/ranges", "'%.40s': log wants a min above 0", name);
}

/* How many tasks there are; 0: that was not said in a way that fits. */
static size_t count_tasks(const struct reading *r, const struct spec_indices *indices)
{
    const typeof(r->spec->array) *a = &r->spec->array;
    bool grid = a->search.method == SEARCH_GRID && json_object_size(a->matrix) > 0;
    size_t all = grid ? spec_combinations(a->matrix) : 0;

    if (a->index && a->count > 0)
        faults_add(r->f, "/array/count", "an array has index or count, not both");
    else if (a->count > 0 && grid)
        faults_add(r->f, "/array/count",
                   "a matrix has as many tasks as combinations; search.method random draws a number of them");
    else if (!a->index && a->count == 0 && !grid)
        faults_add(r->f, "/array", "want index, count or a matrix that says how many tasks there are");
    else if (a->index && grid && spec_index_at(indices, indices->tasks - 1) >= (int)all)
        faults_add(r->f, "/array/index", "%d is no combination of the matrix, which has %zu, from 0",
                   spec_index_at(indices, indices->tasks - 1), all);
    else
        return a->index ? indices->tasks : a->count > 0 ? (size_t)a->count : all;
    return 0;
}

void spec_check_array(struct reading *r)
{
    struct job_spec *s = r->spec;
    struct spec_indices indices = {.n = 0};
    struct merr err = {""};
    size_t before = r->f->n + r->f->more;
    const char *name;
    json_t *v;

    if (s->array.index && spec_indices_read(s->array.index, &indices, &err) < 0)
        faults_add(r->f, "/array/index", "%s", err.text);
    if (json_object_size(s->array.matrix) + json_object_size(s->array.ranges) > SPEC_PARAMS_MAX)
        faults_add(r->f, "/array/matrix", "at most %d names have values", SPEC_PARAMS_MAX);
    check_matrix(s, r->f);
    json_object_foreach (s->array.ranges, name, v) {
        check_range(name, v, s, r->f);
    }
    if (json_object_size(s->array.ranges) > 0 && s->array.search.method == SEARCH_GRID)
        faults_add(r->f, "/array/ranges", "a grid has no ranges; set search.method to random");
    if (r->f->n + r->f->more == before)
        s->array.tasks = count_tasks(r, &indices);
    spec_indices_clear(&indices);
    if (s->array.tasks > SPEC_TASKS_MAX)
        faults_add(r->f, "/array", "%s%zu tasks are more than the %d that an array may have",
                   s->array.tasks > SPEC_TASKS_MAX && !s->array.index ? "at least " : "", s->array.tasks,
                   SPEC_TASKS_MAX);
    if (s->array.search.method == SEARCH_ASHA && s->array.tasks > SPEC_TRIALS_MAX)
        faults_add(r->f, "/array", "%zu tasks are more than the %d that a search by asha may have", s->array.tasks,
                   SPEC_TRIALS_MAX);
    if (s->array.search.method == SEARCH_ASHA && s->array.search.first_steps == 0)
        faults_add(r->f, "/array/search/first_steps", "is needed for asha: the steps of its first pause");
    if (s->array.max_running == 0)
        s->array.max_running = SPEC_TASKS_MAX;
}
