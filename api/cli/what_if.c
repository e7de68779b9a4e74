/* What-if: when a job would start if something were different. Nothing changes. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/promises.h"
#include "base/clock.h"
#include "base/try.h"

static void set_number(const struct cli *c, const char *option, const char *field, json_t *body)
{
    if (cli_option(c, option))
        (void)json_object_set_new(body, field, json_integer(cli_number(c, option, 0)));
}

static void time_of(const json_t *o, const char *field, char ret[PROMISES_TIME_MAX])
{
    promises_time(cli_str(o, field), ret);
    if (!*ret)
        (void)snprintf(ret, PROMISES_TIME_MAX, "nobody knows");
}

static void print_line(const char *head, const char *at, long long devices)
{
    (void)printf("%-9s starts %s, on %lld device%s\n", head, at, devices, devices == 1 ? "" : "s");
}

static void print_gain(const json_t *now, const json_t *then)
{
    char took[CLI_DURATION_MAX];
    int64_t from = 0, to = 0;

    if (clock_read_rfc3339(cli_str(now, "starts"), &from) < 0 || clock_read_rfc3339(cli_str(then, "starts"), &to) < 0)
        return;
    cli_duration((double)(from > to ? from - to : to - from) / 1e6, took);
    if (from / 1000000 == to / 1000000)
        (void)printf("gain      none\n");
    else
        (void)printf("gain      %s %s\n", took, from > to ? "sooner" : "later");
}

static void print_answer(const json_t *answer)
{
    static const struct cli_table table = {
        .head = {"OTHER JOB", "STARTS NOW", "STARTS THEN", "DEVICES NOW", "DEVICES THEN"},
        .n = 5,
        .right = 3 << 3,
        .state = -1};
    const json_t *now = json_object_get(answer, "now"), *then = json_object_get(answer, "then");
    const json_t *others = json_object_get(answer, "others"), *o;
    char at[PROMISES_TIME_MAX], at_then[PROMISES_TIME_MAX];
    json_t *rows = json_array();
    size_t i;

    time_of(now, "starts", at);
    time_of(then, "starts", at_then);
    print_line("now", at, cli_int(now, "devices"));
    print_line("then", at_then, cli_int(then, "devices"));
    print_gain(now, then);
    json_array_foreach (others, i, o) {
        char devices[24], devices_then[24];

        promises_time(cli_str(o, "starts_now"), at);
        promises_time(cli_str(o, "starts_then"), at_then);
        (void)snprintf(devices, sizeof(devices), "%lld", cli_int(o, "devices_now"));
        (void)snprintf(devices_then, sizeof(devices_then), "%lld", cli_int(o, "devices_then"));
        (void)cli_row(
            rows, (const char *[]){cli_str(o, "job"), *at ? at : "-", *at_then ? at_then : "-", devices, devices_then},
            5);
    }
    if (json_array_size(rows) > 0) {
        (void)printf("\n");
        cli_print_table_new(&table, rows);
    } else {
        json_decref(rows);
        (void)printf("no other job would feel it\n");
    }
}

/* "cpu=1x8" as the field add_nodes. 0, or an exit status with words. */
static int set_nodes(const char *text, json_t *body)
{
    const char *equals = strchr(text, '=');
    int nodes = 0, devices = 0, end = 0;

    if (!equals || equals == text || equals - text > 63 || sscanf(equals, "=%6dx%6d%n", &nodes, &devices, &end) != 2 ||
        equals[end] || nodes < 1 || devices < 1)
        return cli_fail(CLI_USAGE, "--add-nodes '%.100s': want a class, nodes and devices of each, such as cpu=1x8",
                        text);
    (void)json_object_set_new(
        body, "add_nodes",
        json_pack("{s:s%, s:i, s:i}", "class", text, (size_t)(equals - text), "nodes", nodes, "devices", devices));
    return 0;
}

int what_if_ask(struct cli *c)
{
    const char *nodes = cli_option(c, "add-nodes");
    json_auto_t *body = json_pack("{s:s}", "job", c->arg[0]);
    json_auto_t *answer = NULL;

    set_number(c, "priority", "priority", body);
    set_number(c, "min", "min", body);
    set_number(c, "max", "max", body);
    if (nodes)
        TRY(set_nodes(nodes, body));
    if (json_object_size(body) == 1)
        return cli_fail(CLI_USAGE, "what would be different? --priority, --min, --max or --add-nodes says it");
    TRY(cli_call(c, "POST", "/v1/cluster/what-if", body, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    print_answer(answer);
    return 0;
}
