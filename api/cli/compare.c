/* What several jobs measured, how they ended, and the fields in which their specs differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/plot.h"
#include "api/cli/print.h"
#include "base/try.h"

#define JOBS_MAX 12
#define BUCKETS 144 /* a dot of a plot each */

struct compared {
    json_t *job, *series, *fields; /* new; fields: of its spec, and of what its program was given, by their paths */
    double x[BUCKETS], y[BUCKETS];
    char name[160];
    struct plot_line line;
    double last, least;
};

static void flatten(const json_t *value, const char *path, json_t *to)
{
    const char *key;
    json_t *v;

    if (!json_is_object(value) || json_object_size(value) == 0) {
        (void)json_object_set(to, path, (json_t *)value);
        return;
    }
    json_object_foreach ((json_t *)value, key, v) {
        char *deeper = NULL;

        if (asprintf(&deeper, "%s%s%s", path, *path ? "." : "", key) < 0)
            return;
        flatten(v, deeper, to);
        free(deeper);
    }
}

static void take_points(struct compared *j, const char *metric)
{
    const json_t *steps = json_object_get(j->series, "step");
    const json_t *column = json_object_get(json_object_get(j->series, "series"), metric);
    const json_t *mean = json_object_get(column, "mean"), *least = json_object_get(column, "least");

    j->last = j->least = NAN;
    for (size_t i = 0; i < json_array_size(mean) && i < BUCKETS; i++) {
        const json_t *v = json_array_get(mean, i), *low = json_array_get(least ? least : mean, i);

        j->x[i] = json_number_value(json_array_get(steps, i));
        j->y[i] = json_is_number(v) ? json_number_value(v) : NAN;
        j->last = json_is_number(v) ? j->y[i] : j->last;
        j->least = json_is_number(low) ? fmin(j->least, json_number_value(low)) : j->least;
        j->line.n = i + 1;
    }
    (void)snprintf(j->name, sizeof(j->name), "%s %s", cli_str(j->job, "id"), cli_str(j->job, "name"));
    j->line.name = j->name;
    j->line.x = j->x;
    j->line.y = j->y;
}

static int read_job(struct cli *c, const char *id, const char *metric, struct compared *j)
{
    char path[256], tail[160];

    TRY(cli_job_path(id, "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &j->job));
    (void)snprintf(tail, sizeof(tail), "/series?names=%s&buckets=%d", metric, BUCKETS);
    TRY(cli_job_path(id, tail, path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &j->series));
    j->fields = json_object();
    flatten(json_object_get(j->job, "spec"), "", j->fields);
    if (json_is_object(json_object_get(j->job, "config")))
        flatten(json_object_get(j->job, "config"), "config", j->fields);
    (void)json_object_del(j->fields, "name");
    take_points(j, metric);
    return 0;
}

/* {path: [value of each job, null without it]} of those that are not all equal. */
static json_t *differing_new(const struct compared *v, size_t n)
{
    json_t *all = json_object(), *value, *list;
    const char *path;

    for (size_t k = 0; k < n; k++)
        json_object_foreach (v[k].fields, path, value) {
            bool same = true;

            list = json_array();
            for (size_t i = 0; i < n; i++) {
                json_t *of = json_object_get(v[i].fields, path);

                same = same && of && json_equal(of, value);
                (void)json_array_append(list, of ? of : json_null());
            }
            if (!same)
                (void)json_object_set(all, path, list);
            json_decref(list);
        }
    return all;
}

static void number(double v, char out[32])
{
    (void)snprintf(out, 32, isnan(v) ? "-" : "%.5g", v);
}

static void print_results(const struct compared *v, size_t n, const char *metric)
{
    const struct cli_table table = {
        .head = {"JOB", "NAME", "STATE", "STEP", metric, "LEAST", "TIME"}, .n = 7, .right = 7 << 3, .state = 2};
    json_t *rows = json_array();

    for (size_t k = 0; k < n; k++) {
        char step[32], last[32], least[32], took[CLI_DURATION_MAX];
        bool some = v[k].line.n > 0;

        (void)snprintf(step, sizeof(step), some ? "%lld" : "-", cli_int(v[k].series, "last"));
        number(v[k].last, last);
        number(v[k].least, least);
        cli_job_time(v[k].job, took);
        (void)cli_row(rows,
                      (const char *[]){cli_str(v[k].job, "id"), cli_str(v[k].job, "name"), cli_str(v[k].job, "state"),
                                       step, last, least, took},
                      7);
    }
    cli_print_table_new(&table, rows);
}

static void print_differing(const struct compared *v, size_t n, const json_t *differs)
{
    struct cli_table table = {.head = {"DIFFERS"}, .n = 1 + n, .state = -1};
    json_t *rows = json_array(), *values;
    const char *path;

    for (size_t k = 0; k < n; k++)
        table.head[1 + k] = cli_str(v[k].job, "id");
    json_object_foreach ((json_t *)differs, path, values) {
        const char *cells[1 + JOBS_MAX] = {path};
        char *text[JOBS_MAX];

        for (size_t k = 0; k < n; k++) {
            text[k] = json_dumps(json_array_get(values, k), JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
            cells[1 + k] = !text[k] || json_is_null(json_array_get(values, k)) ? "-" : text[k];
        }
        (void)cli_row(rows, cells, 1 + n);
        for (size_t k = 0; k < n; k++)
            free(text[k]);
    }
    (void)putchar('\n');
    if (json_object_size(differs) > 0) {
        cli_print_table_new(&table, rows);
    } else {
        (void)printf("their specifications are equal\n");
        json_decref(rows);
    }
}

static json_t *document_new(const struct compared *v, size_t n, const char *metric, const json_t *differs)
{
    json_t *jobs = json_array();

    for (size_t k = 0; k < n; k++)
        (void)json_array_append_new(
            jobs, json_pack("{s:O, s:O, s:O, s:o, s:o, s:O}", "id", json_object_get(v[k].job, "id"), "name",
                            json_object_get(v[k].job, "name"), "state", json_object_get(v[k].job, "state"), "last",
                            isnan(v[k].last) ? json_null() : json_real(v[k].last), "least",
                            isnan(v[k].least) ? json_null() : json_real(v[k].least), "series", v[k].series));
    return json_pack("{s:s, s:o, s:O}", "metric", metric, "jobs", jobs, "differs", differs);
}

int compare_run(struct cli *c)
{
    const char *metric = cli_option(c, "metric");
    struct compared *v;
    json_t *differs = NULL;
    size_t n = (size_t)c->n;
    int r = 0;

    if (n > JOBS_MAX)
        return cli_fail(CLI_USAGE, "%zu jobs are more than the %d that are compared at once", n, JOBS_MAX);
    if (!*metric || strlen(metric) > 100 || strpbrk(metric, "&#?%,+ "))
        return cli_fail(CLI_USAGE, "--metric '%.100s': want one name such as loss", metric);
    v = calloc(n, sizeof(*v));
    r = v ? 0 : cli_fail(CLI_FAILED, "no memory for %zu jobs", n);
    for (size_t k = 0; k < n && r == 0; k++)
        r = read_job(c, c->arg[k], metric, &v[k]);
    if (r == 0) {
        struct plot_line lines[JOBS_MAX];

        for (size_t k = 0; k < n; k++)
            lines[k] = v[k].line;
        differs = differing_new(v, n);
        if (c->json) {
            r = cli_print_json_new(document_new(v, n, metric, differs));
        } else {
            plot_print(lines, n, PLOT_STEPS);
            print_results(v, n, metric);
            print_differing(v, n, differs);
        }
    }
    for (size_t k = 0; v && k < n; k++) {
        json_decref(v[k].job);
        json_decref(v[k].series);
        json_decref(v[k].fields);
    }
    json_decref(differs);
    free(v);
    return r;
}
