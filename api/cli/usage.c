/* report usage: the device time, waits and energy of jobs. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "base/clock.h"
#include "base/try.h"

#define COLUMNS 10

/* What a row of the report is of, in the order of its columns. */
static const char *const keys[] = {"from", "project", "user", "class"};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

static double of(const json_t *row, const char *what, const char *end)
{
    return json_number_value(json_object_get(json_object_get(row, what), end));
}

/* Hours of runs that ended in a failure, whosever it was. */
static double failed(const json_t *row, const char *what)
{
    return of(row, what, "failed_user") + of(row, what, "failed_system") + of(row, what, "failed_node");
}

static void say_numbers(const json_t *row, char ret[6][24])
{
    const char *d = "device_hours_by_end";

    (void)snprintf(ret[0], 24, "%.2f", cli_real(row, "device_hours"));
    (void)snprintf(ret[1], 24, "%.2f", of(row, d, "running"));
    (void)snprintf(ret[2], 24, "%.2f", failed(row, d));
    (void)snprintf(ret[3], 24, "%.0f",
                   of(row, "jobs_by_end", "succeeded") + of(row, "jobs_by_end", "cancelled") +
                       failed(row, "jobs_by_end"));
    (void)snprintf(ret[4], 24, "%.2f", cli_real(row, "wait_hours"));
    (void)snprintf(ret[5], 24, "%.2f", cli_real(row, "energy_kwh"));
}

static int print_table(json_t *usage)
{
    struct cli_table table = {.state = -1};
    json_t *rows = json_array(), *row;
    static const char *const heads[] = {"DEVICE HOURS", "RUNNING", "FAILED", "JOBS ENDED", "WAIT HOURS", "KWH"};
    static const char *const names[KEYS] = {"FROM", "PROJECT", "USER", "CLASS"};
    size_t i;

    for (size_t k = 0; k < KEYS; k++)
        if (json_object_get(json_array_get(usage, 0), keys[k]))
            table.head[table.n++] = names[k];
    for (size_t k = 0; k < 6; k++) {
        table.right |= 1u << table.n;
        table.head[table.n++] = heads[k];
    }
    json_array_foreach (usage, i, row) {
        const char *cells[COLUMNS];
        char number[6][24];
        int n = 0;

        for (size_t k = 0; k < KEYS; k++)
            if (json_object_get(row, keys[k]))
                cells[n++] = json_is_string(json_object_get(row, keys[k])) ? cli_str(row, keys[k]) : "none";
        say_numbers(row, number);
        for (size_t k = 0; k < 6; k++)
            cells[n++] = number[k];
        (void)cli_row(rows, cells, n);
    }
    cli_print_table_new(&table, rows);
    return CLI_DONE;
}

/* A name may have commas and quotes; one that a spreadsheet would take for a formula gets an apostrophe before it. */
static void print_field(const char *text)
{
    (void)printf("\"%s", *text && strchr("=+-@", *text) && text[1] ? "'" : "");
    for (; *text; text++)
        (void)printf(*text == '"' ? "\"\"" : "%c", *text);
    (void)printf("\"");
}

/* As lines of comma-separated values. */
static int print_csv(json_t *usage)
{
    static const char *const ends[] = {"succeeded",     "cancelled",   "paused", "failed_user",
                                       "failed_system", "failed_node", "running"};
    json_t *row;
    size_t i;

    for (size_t k = 0; k < KEYS; k++)
        if (json_object_get(json_array_get(usage, 0), keys[k]))
            (void)printf("%s,", keys[k]);
    (void)printf("device_hours,wait_hours,energy_kwh,energy_measured");
    for (size_t e = 0; e < sizeof(ends) / sizeof(ends[0]); e++)
        (void)printf(",device_hours_%s,jobs_%s", ends[e], ends[e]);
    (void)printf("\n");
    json_array_foreach (usage, i, row) {
        for (size_t k = 0; k < KEYS; k++)
            if (json_object_get(row, keys[k])) {
                const char *text = json_string_value(json_object_get(row, keys[k]));

                print_field(text ? text : "");
                (void)printf(",");
            }
        (void)printf("%.6f,%.6f,%.6f,%.4f", cli_real(row, "device_hours"), cli_real(row, "wait_hours"),
                     cli_real(row, "energy_kwh"), cli_real(row, "energy_measured"));
        for (size_t e = 0; e < sizeof(ends) / sizeof(ends[0]); e++)
            (void)printf(",%.6f,%.0f", of(row, "device_hours_by_end", ends[e]), of(row, "jobs_by_end", ends[e]));
        (void)printf("\n");
    }
    return CLI_DONE;
}

int reports_usage(struct cli *c)
{
    json_auto_t *answer = NULL;
    char path[256], at[CLOCK_RFC3339_MAX];
    const char *by = cli_option(c, "by");
    json_t *usage;

    if (by && strspn(by, "abcdefghijklmnopqrstuvwxyz,") != strlen(by))
        return cli_fail(CLI_USAGE, "--by '%s': want some of user, project, class, day, hour, with commas", by);
    clock_rfc3339(clock_wall_us() - cli_number(c, "last", 0) * INT64_C(1000000), at);
    (void)snprintf(path, sizeof(path), "/v1/usage?from=%s%s%.64s", at, by ? "&by=" : "", by ? by : "");
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    usage = json_object_get(answer, "usage");
    if (cli_int(answer, "left_out") > 0 || json_is_true(json_object_get(answer, "incomplete")))
        (void)fprintf(
            stderr, "muster: the report is not whole: %lld rows are left out%s\n", cli_int(answer, "left_out"),
            json_is_true(json_object_get(answer, "incomplete")) ? ", and the server has no room for more" : "");
    if (cli_option(c, "csv"))
        return print_csv(usage);
    if (json_array_size(usage) == 0) {
        (void)fprintf(stderr, "no job of yours has had a device in that time\n");
        return CLI_DONE;
    }
    return print_table(usage);
}
