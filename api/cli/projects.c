/* Projects: what a team of users is to have of the cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "base/try.h"

#define COUNT_MAX 1000000 /* the server knows better; this keeps a slip of the hand from travelling */

/* "16", or "none" for a limit that is not there. */
static void print_count(const json_t *o, const char *key, char out[24])
{
    if (json_is_integer(json_object_get(o, key)))
        (void)snprintf(out, 24, "%lld", cli_int(o, key));
    else
        (void)snprintf(out, 24, "none");
}

static void add_row(json_t *rows, const json_t *project)
{
    const json_t *used = json_object_get(project, "used");
    char quota[24], borrow[24], weight[24], devices[24], hours[24];

    print_count(project, "quota", quota);
    print_count(project, "borrow", borrow);
    (void)snprintf(weight, sizeof(weight), "%g", cli_real(project, "weight"));
    (void)snprintf(devices, sizeof(devices), "%lld", cli_int(used, "devices"));
    (void)snprintf(hours, sizeof(hours), "%.1f", cli_real(used, "device_seconds") / 3600);
    (void)cli_row(
        rows,
        (const char *[]){cli_str(project, "name"), cli_str(project, "class"), quota, borrow, weight, devices, hours},
        7);
}

static void print_projects(const json_t *projects)
{
    static const struct cli_table table = {
        .head = {"PROJECT", "CLASS", "QUOTA", "BORROW", "WEIGHT", "HOLDS", "DEVICE HOURS"},
        .n = 7,
        .right = 0x7c,
        .state = -1};
    json_t *rows = json_array();
    const json_t *project;
    size_t i;

    json_array_foreach (projects, i, project) {
        add_row(rows, project);
    }
    cli_print_table_new(&table, rows);
}

int projects_list(struct cli *c)
{
    json_t *answer = NULL;
    int r = cli_call(c, "GET", "/v1/projects", NULL, NULL, &answer);

    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(answer);
    if (json_array_size(json_object_get(answer, "projects")) == 0)
        (void)fprintf(stderr, "no project has limits; `muster project set NAME --quota N` gives it some\n");
    else
        print_projects(json_object_get(answer, "projects"));
    json_decref(answer);
    return 0;
}

/* An option that is a count or "none" into o. Returns 0, or an exit status. */
static int take_count(struct cli *c, const char *name, json_t *o)
{
    const char *text = cli_option(c, name);
    char *end;
    long n;

    if (!text)
        return 0;
    if (strcmp(text, "none") == 0)
        return json_object_set_new(o, name, json_null()) < 0 ? cli_fail(CLI_FAILED, "no memory") : 0;
    n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > COUNT_MAX)
        return cli_fail(CLI_USAGE, "--%s wants none or a number from 0 to %d, not '%s'", name, COUNT_MAX, text);
    return json_object_set_new(o, name, json_integer(n)) < 0 ? cli_fail(CLI_FAILED, "no memory") : 0;
}

static int take_options(struct cli *c, json_t *o)
{
    const char *weight = cli_option(c, "weight"), *class_ = cli_option(c, "class");
    double w = weight ? strtod(weight, NULL) : 0;

    TRY(take_count(c, "quota", o));
    if (json_is_null(json_object_get(o, "quota"))) /* without a quota there is nothing beyond it */
        (void)json_object_del(o, "borrow");
    TRY(take_count(c, "borrow", o));
    if ((weight && json_object_set_new(o, "weight", json_real(w)) < 0) ||
        (class_ && json_object_set_new(o, "class", json_string(class_)) < 0))
        return cli_fail(CLI_USAGE, "an option is not UTF-8");
    return 0;
}

/* What is set of a project now: what the options do not say stays. New. */
static json_t *settings_of(const json_t *projects, const char *name)
{
    static const char *const kept[] = {"quota", "borrow", "weight", "class"};
    json_t *o = json_object();
    const json_t *project;
    size_t i;

    json_array_foreach (projects, i, project) {
        if (strcmp(cli_str(project, "name"), name) != 0)
            continue;
        for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++)
            (void)json_object_set(o, kept[k], json_object_get(project, kept[k]));
    }
    return o;
}

int projects_set(struct cli *c)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *name = c->arg[0];
    json_auto_t *before = NULL, *settings = NULL, *one = NULL;
    json_t *answer = NULL;
    char path[256];

    if (!*name || strlen(name) > 128 || strspn(name, good) != strlen(name))
        return cli_fail(CLI_USAGE, "'%.64s' is no project's name: want letters, digits, '.', '_' or '-'", name);
    if (!cli_option(c, "quota") && !cli_option(c, "borrow") && !cli_option(c, "weight") && !cli_option(c, "class"))
        return cli_fail(CLI_USAGE, "want --quota, --borrow, --weight, --class or several of them");
    TRY(cli_call(c, "GET", "/v1/projects", NULL, NULL, &before));
    settings = settings_of(json_object_get(before, "projects"), name);
    (void)snprintf(path, sizeof(path), "/v1/projects/%s", name);
    TRY(take_options(c, settings));
    TRY(cli_call(c, "PUT", path, settings, NULL, &answer));
    if (c->json)
        return cli_print_json_new(answer);
    one = json_pack("[o]", answer);
    print_projects(one);
    return 0;
}
