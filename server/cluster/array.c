#include "server/cluster/array.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define SHOWN_BYTES 200  /* of the list of tasks that wait */
#define TASK_TEXT_MAX 24 /* of a task in a chunk */
#define INDICES_TEXT_MAX (2 << 20)

static const char letters[ARRAY_STATES] = {'-', 'o', 's', 'f', 'c'};

static struct array **bucket_of(const struct array_set *all, uint64_t job)
{
    return (struct array **)&all->buckets[job % ARRAY_BUCKETS];
}

struct array *array_find(const struct array_set *all, uint64_t job)
{
    struct array *a = *bucket_of(all, job);

    while (a && a->job != job)
        a = a->next;
    return a;
}

static void array_free(struct array *a)
{
    spec_indices_clear(&a->indices);
    free(a->tasks);
    free(a->changed);
    free(a->trials);
    free(a);
}

struct array *array_add_take(struct array_set *all, uint64_t job, struct spec_indices *indices, size_t fail_limit)
{
    struct array *a = array_find(all, job) ? NULL : calloc(1, sizeof(*a));

    if (!a) {
        spec_indices_clear(indices);
        return NULL;
    }
    *a = (struct array){.job = job, .indices = *indices, .fail_limit = fail_limit};
    *indices = (struct spec_indices){.n = 0};
    a->tasks = calloc(array_size(a), sizeof(*a->tasks)); /* pages of it come as tasks do */
    a->changed = calloc(array_chunks(a), 1);
    if (!a->tasks || !a->changed) {
        array_free(a);
        return NULL;
    }
    a->n_of[ARRAY_WAITS] = array_size(a);
    a->next = *bucket_of(all, job);
    *bucket_of(all, job) = a;
    return a;
}

void array_drop(struct array_set *all, struct array *a)
{
    struct array **at = bucket_of(all, a->job);

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    for (at = &all->due; *at && *at != a;)
        at = &(*at)->due_next;
    if (*at)
        *at = a->due_next;
    for (at = &all->dirty; *at && *at != a;)
        at = &(*at)->dirty_next;
    if (*at)
        *at = a->dirty_next;
    array_free(a);
}

void array_set_clear(struct array_set *all)
{
    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (struct array *a = all->buckets[b], *next; a; a = next) {
            next = a->next;
            array_free(a);
        }
    *all = (struct array_set){.due = NULL};
}

void array_due(struct array_set *all, struct array *a)
{
    if (a->due)
        return;
    a->due = true;
    a->due_next = all->due;
    all->due = a;
}

void array_dirty(struct array_set *all, struct array *a)
{
    if (a->dirty)
        return;
    a->dirty = true;
    a->dirty_next = all->dirty;
    all->dirty = a;
}

struct array *array_take_due(struct array_set *all)
{
    struct array *a = all->due;

    if (a) {
        all->due = a->due_next;
        a->due = false;
    }
    return a;
}

struct array *array_take_dirty(struct array_set *all)
{
    struct array *a = all->dirty;

    if (a) {
        all->dirty = a->dirty_next;
        a->dirty = false;
    }
    return a;
}

void array_set_task(struct array_set *all, struct array *a, size_t position, uint64_t job, enum array_state state)
{
    struct array_task *t = &a->tasks[position];

    a->n_of[t->state]--;
    a->n_of[state]++;
    t->job = job ? job : t->job;
    t->state = state;
    a->changed[position / ARRAY_CHUNK] = 1;
    array_dirty(all, a);
}

void array_moved(struct array_set *all, struct array *a, size_t position, enum job_state from, enum job_state to)
{
    if (from < JOB_SUCCEEDED)
        a->open[from]--;
    if (!job_ended(to))
        a->open[to]++;
    else
        array_set_task(all, a, position, 0,
                       to == JOB_SUCCEEDED ? ARRAY_SUCCEEDED
                       : to == JOB_FAILED  ? ARRAY_FAILED
                                           : ARRAY_CANCELLED);
    array_due(all, a);
}

size_t array_first_waiting(struct array *a)
{
    if (a->n_of[ARRAY_WAITS] == 0)
        return array_size(a);
    while (a->tasks[a->cursor].state != ARRAY_WAITS)
        a->cursor++;
    return a->cursor;
}

enum job_state array_job_state(enum array_state state)
{
    static const enum job_state of[ARRAY_STATES] = {
        [ARRAY_WAITS] = JOB_QUEUED,  [ARRAY_OPEN] = JOB_STARTING,       [ARRAY_SUCCEEDED] = JOB_SUCCEEDED,
        [ARRAY_FAILED] = JOB_FAILED, [ARRAY_CANCELLED] = JOB_CANCELLED,
    };

    return of[state];
}

/* --- as it is kept ----------------------------------------------------------------------------------- */

size_t array_chunks(const struct array *a)
{
    return (array_size(a) + ARRAY_CHUNK - 1) / ARRAY_CHUNK;
}

static size_t chunk_size(const struct array *a, size_t chunk)
{
    size_t left = array_size(a) - chunk * ARRAY_CHUNK;

    return left < ARRAY_CHUNK ? left : ARRAY_CHUNK;
}

/* "25s,26o,-,0c": of each task the number of its job and a letter; '-': it waits. */
char *array_print_chunk(const struct array *a, size_t chunk)
{
    struct buf b;

    buf_init(&b, ARRAY_CHUNK * TASK_TEXT_MAX);
    for (size_t i = 0; i < chunk_size(a, chunk); i++) {
        const struct array_task *t = &a->tasks[chunk * ARRAY_CHUNK + i];

        if (t->state == ARRAY_WAITS)
            (void)buf_addstr(&b, i ? ",-" : "-");
        else
            (void)buf_printf(&b, "%s%llu%c", i ? "," : "", (unsigned long long)t->job, letters[t->state]);
    }
    if (!buf_failed(&b))
        return buf_detach(&b);
    buf_clear(&b);
    return NULL;
}

int array_read_chunk(struct array *a, size_t chunk, const char *text, size_t len)
{
    struct array_task of[ARRAY_CHUNK];
    size_t n = 0;

    if (chunk >= array_chunks(a) || strlen(text) != len)
        return -EINVAL;
    for (const char *p = text; n < chunk_size(a, chunk); n++) {
        char *end = (char *)p;
        unsigned long long job = *p == '-' ? 0 : strtoull(p, &end, 10);
        const char *letter = *end ? memchr(letters, *end, sizeof(letters)) : NULL;

        if (!letter || job >> 60 || (letter == letters) != (end == p))
            return -EINVAL;
        of[n] = (struct array_task){.job = job, .state = (uint64_t)(letter - letters)};
        p = end + 1;
        if (*p != (n + 1 < chunk_size(a, chunk) ? ',' : '\0'))
            return -EINVAL;
        p++;
    }
    for (size_t i = 0; i < n; i++) {
        a->n_of[a->tasks[chunk * ARRAY_CHUNK + i].state]--;
        a->n_of[of[i].state]++;
        a->tasks[chunk * ARRAY_CHUNK + i] = of[i];
    }
    return 0;
}

int array_set_search(struct array *a, const struct asha_rules *rules, const char *metric)
{
    _Static_assert(SPEC_TRIALS_MAX == ASHA_TRIALS_MAX, "as the spec says");

    a->trials = calloc(array_size(a), sizeof(*a->trials));
    if (!a->trials)
        return -ENOMEM;
    a->rules = *rules;
    (void)snprintf(a->metric, sizeof(a->metric), "%s", metric);
    return 0;
}

/* [[position, paused, what it measured at each rung...], ...] of those that have come to one. */
json_t *array_trials_json(const struct array *a, size_t chunk)
{
    json_t *list = json_array();

    for (size_t i = chunk * ARRAY_CHUNK; i < chunk * ARRAY_CHUNK + chunk_size(a, chunk); i++) {
        const struct asha_trial *t = &a->trials[i];
        json_t *one = t->rungs > 0 ? json_pack("[I, b]", (json_int_t)i, t->paused) : NULL;

        for (int k = 0; k < t->rungs; k++)
            (void)json_array_append_new(one, isnan(t->at[k]) ? json_null() : json_real(t->at[k]));
        if (one)
            (void)json_array_append_new(list, one);
    }
    return list;
}

int array_read_trials(struct array *a, size_t chunk, const json_t *list)
{
    const json_t *one;
    size_t i;

    if (!a->trials || chunk >= array_chunks(a) || !json_is_array(list))
        return -EINVAL;
    json_array_foreach (list, i, one) {
        size_t at = (size_t)json_integer_value(json_array_get(one, 0)), n = json_array_size(one);

        if (at / ARRAY_CHUNK != chunk || at >= array_size(a) || n < 3 || n - 2 > ASHA_RUNGS_MAX)
            return -EINVAL;
        a->trials[at] = (struct asha_trial){.rungs = (int)n - 2, .paused = json_is_true(json_array_get(one, 1))};
        for (size_t k = 2; k < n; k++)
            a->trials[at].at[k - 2] =
                json_is_number(json_array_get(one, k)) ? json_number_value(json_array_get(one, k)) : NAN;
    }
    return 0;
}

static json_t *search_json(const struct array *a)
{
    if (!a->trials)
        return NULL;
    return json_pack("{s:I, s:i, s:i, s:b, s:s}", "first_steps", (json_int_t)a->rules.first_steps, "reduction",
                     a->rules.reduction, "rungs", a->rules.rungs, "max", a->rules.max, "metric", a->metric);
}

static int read_search(struct array *a, const json_t *o)
{
    struct asha_rules rules = {.first_steps = json_integer_value(json_object_get(o, "first_steps")),
                               .reduction = (int)json_integer_value(json_object_get(o, "reduction")),
                               .rungs = (int)json_integer_value(json_object_get(o, "rungs")),
                               .max = json_is_true(json_object_get(o, "max"))};
    const char *metric = json_string_value(json_object_get(o, "metric"));

    if (!o)
        return 0;
    if (rules.first_steps < 1 || rules.reduction < 2 || rules.rungs < 1 || rules.rungs > ASHA_RUNGS_MAX || !metric ||
        array_size(a) > ASHA_TRIALS_MAX)
        return -EINVAL;
    return array_set_search(a, &rules, metric);
}

json_t *array_record(const struct array *a)
{
    struct buf b;
    json_t *o;

    buf_init(&b, INDICES_TEXT_MAX);
    for (size_t i = 0; i < a->indices.n; i++) {
        const struct spec_range *r = &a->indices.v[i];

        (void)buf_printf(&b, "%s%d-%d:%d", i ? "," : "", r->first, r->last, r->step);
    }
    o = json_pack("{s:s, s:I, s:o*}", "index", buf_text(&b), "fail_limit", (json_int_t)a->fail_limit, "search",
                  search_json(a));
    buf_clear(&b);
    return o;
}

int array_read_record(struct array_set *all, uint64_t job, const json_t *record)
{
    const char *text = json_string_value(json_object_get(record, "index"));
    json_int_t limit = json_integer_value(json_object_get(record, "fail_limit"));
    struct spec_indices indices;
    struct array *a;
    int r = text && limit >= 0 && job ? spec_indices_read(text, &indices, NULL) : -EINVAL;

    if (r < 0)
        return r;
    if (indices.tasks > SPEC_TASKS_MAX) {
        spec_indices_clear(&indices);
        return -EINVAL;
    }
    a = array_add_take(all, job, &indices, (size_t)limit);
    if (!a)
        return array_find(all, job) ? -EINVAL : -ENOMEM;
    r = read_search(a, json_object_get(record, "search"));
    if (r < 0)
        array_drop(all, a);
    return r;
}

/* --- as it is shown ---------------------------------------------------------------------------------- */

static void print_run(struct buf *b, int first, int last)
{
    (void)buf_printf(b, first == last ? "%s%d" : "%s%d-%d", b->len ? "," : "", first, last);
}

char *array_indices(const struct array *a, enum array_state state, size_t most)
{
    struct buf b;
    int first = -1, last = -1;
    size_t left = a->n_of[state];

    buf_init(&b, most + TASK_TEXT_MAX);
    for (size_t i = state == ARRAY_WAITS ? a->cursor : 0; left > 0 && b.len < most; i++) {
        int index = spec_index_at(&a->indices, i);

        if (a->tasks[i].state != state)
            continue;
        left--;
        if (first >= 0 && index != last + 1) {
            print_run(&b, first, last);
            first = -1;
        }
        first = first < 0 ? index : first;
        last = index;
    }
    if (first >= 0)
        print_run(&b, first, last);
    if (left > 0)
        (void)buf_addstr(&b, ",...");
    return buf_detach(&b);
}

json_t *array_view(const struct array *a, int max_running)
{
    json_t *tasks = json_object();
    char *waiting = array_indices(a, ARRAY_WAITS, SHOWN_BYTES);

    for (int s = 0; s < JOB_STATES; s++) {
        size_t n = s == JOB_SUCCEEDED   ? a->n_of[ARRAY_SUCCEEDED]
                   : s == JOB_FAILED    ? a->n_of[ARRAY_FAILED]
                   : s == JOB_CANCELLED ? a->n_of[ARRAY_CANCELLED]
                                        : a->open[s] + (s == JOB_QUEUED ? a->n_of[ARRAY_WAITS] : 0);

        (void)json_object_set_new(tasks, job_state_name((enum job_state)s), json_integer((json_int_t)n));
    }
    json_t *o = json_pack("{s:I, s:i, s:o, s:s}", "count", (json_int_t)array_size(a), "max_running", max_running,
                          "tasks", tasks, "waiting", waiting ? waiting : "");

    free(waiting);
    return o;
}
