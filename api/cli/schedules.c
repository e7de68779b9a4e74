/* Schedules of a user: jobs that are submitted again and again. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/spec.h"
#include "base/try.h"

static int path_of(const char *name, const char *tail, char ret[128])
{
    if (!spec_secret_name_ok(name))
        return cli_fail(CLI_USAGE, "'%.64s' is no name of a schedule: want 1 to %d letters, digits, '.', '_', '-'",
                        name, SPEC_SECRET_MAX);
    (void)snprintf(ret, 128, "/v1/schedules/%s%s", name, tail);
    return 0;
}

static void print(const json_t *s)
{
    (void)printf(
        "schedule  %s (%s), %s\nat        %s, %s\nnext      %s\nlast      %s%s%s\nmade      %lld jobs, left out "
        "%lld times\n",
        cli_str(s, "name"), cli_str(s, "id"), json_is_true(json_object_get(s, "enabled")) ? "on" : "off",
        cli_str(s, "cron"), cli_str(s, "timezone"), *cli_str(s, "next_at") ? cli_str(s, "next_at") : "-",
        *cli_str(s, "last_at") ? cli_str(s, "last_at") : "-", *cli_str(s, "last_job") ? ", " : "",
        cli_str(s, "last_job"), cli_int(s, "runs"), cli_int(s, "skipped"));
    if (*cli_str(s, "why"))
        (void)printf("why       the newest time made no job: %s\n", cli_str(s, "why"));
}

/* What the server answers, printed. */
static int tell(const struct cli *c, const json_t *answer)
{
    if (c->json)
        return cli_print_json(answer);
    print(answer);
    return 0;
}

int schedules_add(struct cli *c)
{
    json_auto_t *spec = NULL, *body = NULL, *answer = NULL;

    TRY(cli_read_spec(c, c->arg[2], &spec));
    body = json_pack("{s:s, s:s, s:s, s:s, s:s, s:O}", "name", c->arg[0], "cron", c->arg[1], "timezone",
                     cli_option(c, "timezone"), "overlap", cli_option(c, "overlap"), "missed", cli_option(c, "missed"),
                     "spec", spec);
    TRY(cli_call(c, "POST", "/v1/schedules", body, NULL, &answer));
    return tell(c, answer);
}

int schedules_list(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"SCHEDULE", "ID", "USER", "STATE", "AT", "TIME ZONE", "NEXT", "LAST JOB", "WHY NOT"},
        .n = 9,
        .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/schedules", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, "schedules"), i, one)
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "name"), cli_str(one, "id"), cli_str(one, "user"),
                                       json_is_true(json_object_get(one, "enabled")) ? "on" : "off",
                                       cli_str(one, "cron"), cli_str(one, "timezone"), cli_str(one, "next_at"),
                                       cli_str(one, "last_job"), cli_str(one, "why")},
                      9);
    cli_print_table_new(&table, rows);
    return 0;
}

static int call(struct cli *c, const char *method, const char *tail, const json_t *body, json_t **ret)
{
    char path[128];

    TRY(path_of(c->arg[0], tail, path));
    return cli_call(c, method, path, body, NULL, ret);
}

int schedules_show(struct cli *c)
{
    json_auto_t *answer = NULL;

    TRY(call(c, "GET", "", NULL, &answer));
    return tell(c, answer);
}

int schedules_run(struct cli *c)
{
    json_auto_t *answer = NULL;

    TRY(call(c, "POST", "/run", NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("%s\n", cli_str(answer, "last_job"));
    return 0;
}

int schedules_change(struct cli *c)
{
    bool on = strcmp(c->cmd->name, "schedule enable") == 0;
    json_auto_t *answer = NULL, *body = json_pack("{s:b}", "enabled", on);

    TRY(call(c, "PATCH", "", body, &answer));
    return tell(c, answer);
}

int schedules_delete(struct cli *c)
{
    json_auto_t *answer = NULL;

    TRY(call(c, "DELETE", "", NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("schedule %s is deleted; the jobs that it made stay\n", cli_str(answer, "name"));
    return 0;
}
