/* Projects: what a team of users is to have of the cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
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

static const char *const ceilings[] = {"max-priority",         "max-running", "max-queued",
                                       "max-devices-per-user", "max-time-s",  "default-time-s"};

/* "max_priority" of "max-priority". */
static void field_of(const char *option, char ret[32])
{
    (void)snprintf(ret, 32, "%s", option);
    for (char *p = ret; *p; p++)
        *p = *p == '-' ? '_' : *p;
}

/* An option that is a count or "none" into o. Returns 0, or an exit status. */
static int take_count(struct cli *c, const char *name, json_t *o)
{
    const char *text = cli_option(c, name);
    char *end, field[32];
    long n;

    if (!text)
        return 0;
    field_of(name, field);
    if (strcmp(text, "none") == 0)
        return json_object_set_new(o, field, json_null()) < 0 ? cli_fail(CLI_FAILED, "no memory") : 0;
    n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > COUNT_MAX)
        return cli_fail(CLI_USAGE, "--%s wants none or a number from 0 to %d, not '%s'", name, COUNT_MAX, text);
    return json_object_set_new(o, field, json_integer(n)) < 0 ? cli_fail(CLI_FAILED, "no memory") : 0;
}

/* "h100=8" or "h100=8+4", which may borrow four more, or "h100=8+none", any number; "h100=none" takes it off. */
static int take_of_class(const char *text, json_t *o)
{
    const char *eq = strchr(text, '=');
    char name[64], quota[16] = "", borrow[16] = "0", *end;
    json_t *classes = json_object_get(o, "classes");
    long n, more;

    if (eq && eq > text && (size_t)(eq - text) < sizeof(name)) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
        (void)sscanf(eq + 1, "%15[^+]+%15s", quota, borrow);
    }
    if (!json_is_object(classes)) {
        classes = json_object();
        (void)json_object_set_new(o, "classes", classes);
    }
    if (strcmp(quota, "none") == 0) {
        (void)json_object_del(classes, name);
        return 0;
    }
    n = strtol(quota, &end, 10);
    if (!*quota || *end || n < 0 || n > COUNT_MAX)
        return cli_fail(CLI_USAGE, "--of wants CLASS=N, CLASS=N+M or CLASS=none, not '%s'", text);
    more = strtol(borrow, &end, 10);
    if (strcmp(borrow, "none") != 0 && (*end || more < 0 || more > COUNT_MAX))
        return cli_fail(CLI_USAGE, "--of wants CLASS=N, CLASS=N+M or CLASS=none, not '%s'", text);
    return json_object_set_new(classes, name,
                               json_pack("{s:i, s:o}", "quota", (int)n, "borrow",
                                         strcmp(borrow, "none") == 0 ? json_null() : json_integer(more))) < 0
               ? cli_fail(CLI_USAGE, "an option is not UTF-8")
               : 0;
}

static int take_options(struct cli *c, json_t *o)
{
    const char *weight = cli_option(c, "weight"), *class_ = cli_option(c, "class"), *parent = cli_option(c, "parent");
    const char *of = cli_option(c, "of");
    double w = weight ? strtod(weight, NULL) : 0;

    if (of)
        TRY(take_of_class(of, o));
    if (parent && json_object_set_new(o, "parent", strcmp(parent, "none") == 0 ? json_null() : json_string(parent)) < 0)
        return cli_fail(CLI_USAGE, "an option is not UTF-8");
    TRY(take_count(c, "quota", o));
    if (json_is_null(json_object_get(o, "quota"))) /* without a quota there is nothing beyond it */
        (void)json_object_del(o, "borrow");
    TRY(take_count(c, "borrow", o));
    for (size_t i = 0; i < sizeof(ceilings) / sizeof(ceilings[0]); i++)
        TRY(take_count(c, ceilings[i], o));
    if ((weight && json_object_set_new(o, "weight", json_real(w)) < 0) ||
        (class_ && json_object_set_new(o, "class", json_string(class_)) < 0))
        return cli_fail(CLI_USAGE, "an option is not UTF-8");
    if (cli_option(c, "open"))
        (void)json_object_set_new(o, "members", json_null());
    return 0;
}

/* What is set of a project now: what the options do not say stays. New. */
static json_t *settings_of(const json_t *projects, const char *name)
{
    static const char *const kept[] = {"quota",        "borrow",         "weight",     "class",
                                       "max_priority", "max_running",    "max_queued", "max_devices_per_user",
                                       "max_time_s",   "default_time_s", "parent",     "classes"};
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

/* "/v1/projects/NAME" or with "/members/USER" (NULL: without). Returns 0, or an exit status. */
static int path_of(const char *name, const char *user, char ret[512])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";

    if (!*name || strlen(name) > 128 || strspn(name, good) != strlen(name))
        return cli_fail(CLI_USAGE, "'%.64s' is no project's name: want letters, digits, '.', '_' or '-'", name);
    if (user && (!*user || strlen(user) > 128 || strspn(user, good) != strlen(user)))
        return cli_fail(CLI_USAGE, "'%.64s' is no user's name: want letters, digits, '.', '_', '@' or '-'", user);
    (void)snprintf(ret, 512, "/v1/projects/%s%s%s", name, user ? "/members/" : "", user ? user : "");
    return 0;
}

/* Make a call about a project and print what it is then. */
static int change(struct cli *c, const char *method, const char *path, const json_t *body)
{
    json_t *answer = NULL;
    json_auto_t *one = NULL;

    TRY(cli_call(c, method, path, body, NULL, &answer));
    if (c->json)
        return cli_print_json_new(answer);
    one = json_pack("[o]", answer);
    print_projects(one);
    return 0;
}

int projects_set(struct cli *c)
{
    json_auto_t *before = NULL, *settings = NULL;
    bool some = cli_option(c, "open");
    char path[512];

    TRY(path_of(c->arg[0], NULL, path));
    for (const struct option_row *row = c->cmd->options; row->name && !some; row++)
        some = cli_option(c, row->name);
    if (!some)
        return cli_fail(CLI_USAGE, "want --quota, --borrow, --weight, --class, a ceiling, --open or several of them");
    TRY(cli_call(c, "GET", "/v1/projects", NULL, NULL, &before));
    settings = settings_of(json_object_get(before, "projects"), c->arg[0]);
    TRY(take_options(c, settings));
    return change(c, "PUT", path, settings);
}

int projects_show(struct cli *c)
{
    json_auto_t *answer = NULL;
    const json_t *members;
    const char *user;
    json_t *role;
    char path[512], text[24], field[32];

    TRY(path_of(c->arg[0], NULL, path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("%-21s %s\n", "project", cli_str(answer, "name"));
    for (size_t i = 0; i < sizeof(ceilings) / sizeof(ceilings[0]); i++) {
        field_of(ceilings[i], field);
        print_count(answer, field, text);
        (void)printf("%-21s %s\n", ceilings[i], text);
    }
    members = json_object_get(answer, "members");
    if (!json_is_object(members))
        (void)printf("%-21s %s\n", "members", "everyone");
    json_object_foreach ((json_t *)members, user, role) {
        (void)printf("%-21s %s\n", json_string_value(role), user);
    }
    return 0;
}

int projects_member(struct cli *c)
{
    const char *role = cli_option(c, "role");
    json_auto_t *body = NULL;
    char path[512];

    TRY(path_of(c->arg[0], c->arg[1], path));
    if (strcmp(role, "none") == 0)
        return change(c, "DELETE", path, NULL);
    body = json_pack("{s:s}", "role", role);
    return change(c, "PUT", path, body);
}

int projects_delete(struct cli *c)
{
    char path[512];

    TRY(path_of(c->arg[0], NULL, path));
    return change(c, "DELETE", path, NULL);
}
