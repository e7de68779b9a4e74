/* Arrays: their tasks listed, named by ranges, tried again, and compared by what they measured. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/spec_array.h"
#include "base/buf.h"
#include "base/try.h"

#define NAMED_MAX 10000 /* tasks that one argument names */

int arrays_add(const struct cli *c, json_t *doc)
{
    const char *text = cli_option(c, "array"), *most = text ? strchr(text, '%') : NULL;
    json_t *array = json_object_get(doc, "array");
    struct spec_indices indices;
    struct merr err;
    char list[1024], *end = NULL;
    long n = most ? strtol(most + 1, &end, 10) : 0;
    size_t len = text ? (most ? (size_t)(most - text) : strlen(text)) : 0;

    if (!text)
        return 0;
    if (len >= sizeof(list) || (most && (end == most + 1 || *end || n < 1 || n > SPEC_TASKS_MAX)))
        return cli_fail(CLI_USAGE, "--array '%.64s': want indices, and after '%%' how many may run, as in 0-99%%8",
                        text);
    memcpy(list, text, len);
    list[len] = '\0';
    if (spec_indices_read(list, &indices, &err) < 0)
        return cli_fail(CLI_USAGE, "--array: %s", err.text);
    spec_indices_clear(&indices);
    if (!json_is_object(array) && json_object_set_new(doc, "array", array = json_object()) < 0)
        return cli_fail(CLI_FAILED, "no memory for the spec");
    (void)json_object_del(array, "count");
    (void)json_object_set_new(array, "index", json_string(list));
    if (most)
        (void)json_object_set_new(array, "max_running", json_integer(n));
    return 0;
}

int arrays_name_tasks(const char *id, json_t *ids)
{
    const char *dot = strchr(id, '.');
    struct spec_indices indices;
    struct merr err;

    if (!dot || strspn(dot + 1, "0123456789") == strlen(dot + 1)) {
        (void)json_array_append_new(ids, json_string(id));
        return 0;
    }
    if (spec_indices_read(dot + 1, &indices, &err) < 0)
        return cli_fail(CLI_USAGE, "'%.64s' is no job and names no tasks: %s", id, err.text);
    if (indices.tasks > NAMED_MAX) {
        spec_indices_clear(&indices);
        return cli_fail(CLI_USAGE, "'%.64s' names more than %d tasks; name their array, or fewer", id, NAMED_MAX);
    }
    for (size_t i = 0; i < indices.tasks; i++)
        (void)json_array_append_new(ids, json_sprintf("%.*s.%d", (int)(dot - id), id, spec_index_at(&indices, i)));
    spec_indices_clear(&indices);
    return 0;
}

void arrays_id(const json_t *job, char ret[320])
{
    const json_t *array = json_object_get(job, "array"), *task = json_object_get(job, "task");
    const char *waiting = cli_str(array, "waiting");

    if (task)
        (void)snprintf(ret, 320, "%s", cli_str(task, "id"));
    else
        (void)snprintf(ret, 320, *waiting ? "%s[%s]" : "%s", cli_str(job, "id"), waiting);
}

/* How many of an array's tasks have ended, and how many there are. */
void arrays_progress(const json_t *job, char *ret, size_t size)
{
    const json_t *array = json_object_get(job, "array"), *tasks = json_object_get(array, "tasks");

    (void)snprintf(ret, size, "%lld/%lld",
                   cli_int(tasks, "succeeded") + cli_int(tasks, "failed") + cli_int(tasks, "cancelled"),
                   cli_int(array, "count"));
}

int arrays_retry(struct cli *c)
{
    const char *state = cli_option(c, "state");
    json_auto_t *job = NULL;
    char path[256], tail[64];

    (void)snprintf(tail, sizeof(tail), "/retry?state=%s", state);
    TRY(cli_job_path(c->arg[0], tail, path));
    TRY(cli_call(c, "POST", path, NULL, NULL, &job));
    if (c->json)
        return cli_print_json(job);
    (void)printf("submitted %s, %lld tasks of %s\n", cli_str(job, "id"),
                 cli_int(json_object_get(job, "array"), "count"), c->arg[0]);
    return 0;
}

/* --- the best tasks ---------------------------------------------------------------------------------- */

struct measured {
    const json_t *task; /* borrowed */
    double value;
};

static int by_value(const void *a, const void *b)
{
    const struct measured *x = a, *y = b;

    return (x->value > y->value) - (x->value < y->value);
}

static void print_measured(const struct measured *v, size_t n, const char *metric)
{
    const struct cli_table table = {
        .head = {"TASK", "JOB", "STATE", metric, "VALUES"}, .n = 5, .right = 1 << 3, .state = 2};
    json_t *rows = json_array();

    for (size_t i = 0; i < n; i++) {
        const json_t *task = json_object_get(v[i].task, "task"), *params = json_object_get(task, "params");
        char *values = json_is_object(params) ? json_dumps(params, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
        char value[32];

        (void)snprintf(value, sizeof(value), "%.6g", v[i].value);
        (void)cli_row(rows,
                      (const char *[]){cli_str(task, "id"), cli_str(v[i].task, "id"), cli_str(v[i].task, "state"),
                                       value, values ? values : ""},
                      5);
        free(values);
    }
    cli_print_table_new(&table, rows);
}

static int show_best(struct cli *c, const json_t *tasks, const char *metric)
{
    size_t n = 0, most = (size_t)cli_number(c, "limit", 10), i;
    struct measured *v = calloc(json_array_size(tasks) + 1, sizeof(*v));
    json_t *task, *list = json_array();

    if (!v)
        return cli_fail(CLI_FAILED, "no memory for %zu tasks", json_array_size(tasks));
    json_array_foreach (tasks, i, task) {
        double value = cli_real(task, "measured");

        if (json_is_number(json_object_get(task, "measured")))
            v[n++] = (struct measured){.task = task, .value = cli_option(c, "max") ? -value : value};
    }
    qsort(v, n, sizeof(*v), by_value);
    n = n < most ? n : most;
    for (i = 0; i < n; i++) {
        v[i].value = cli_option(c, "max") ? -v[i].value : v[i].value;
        (void)json_array_append_new(list, json_pack("{s:O, s:O, s:f}", "task", json_object_get(v[i].task, "task"),
                                                    "job", json_object_get(v[i].task, "id"), "value", v[i].value));
    }
    if (n == 0)
        (void)fprintf(stderr, "no task of '%s' has measured '%s'\n", c->arg[0], metric);
    else if (!c->json)
        print_measured(v, n, metric);
    free(v);
    if (c->json)
        return cli_print_json_new(json_pack("{s:o}", "tasks", list));
    json_decref(list);
    return 0;
}

int arrays_best(struct cli *c)
{
    const char *metric = cli_option(c, "metric");
    json_auto_t *answer = NULL;
    char filters[160];

    if (cli_option(c, "min") && cli_option(c, "max"))
        return cli_fail(CLI_USAGE, "want --min or --max, not both");
    if (strlen(metric) > 63 ||
        strspn(metric, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") != strlen(metric))
        return cli_fail(CLI_USAGE, "--metric '%.64s': want a name such as loss", metric);
    if (strlen(c->arg[0]) > 32 || strspn(c->arg[0], "j0123456789") != strlen(c->arg[0]))
        return cli_fail(CLI_NOT_FOUND, "'%.64s' is no array", c->arg[0]);
    (void)snprintf(filters, sizeof(filters), "&array=%s&fields=id,state,task&metric=%s", c->arg[0], metric);
    TRY(cli_pages(c, "/v1/jobs", filters, "jobs", SPEC_TASKS_MAX, &answer));
    return show_best(c, json_object_get(answer, "jobs"), metric);
}
