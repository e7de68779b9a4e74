/* What the scheduler promises: when jobs start, and how good such estimates were. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/promises.h"
#include "base/clock.h"
#include "base/try.h"

void promises_time(const char *rfc3339, char ret[PROMISES_TIME_MAX])
{
    int64_t us = 0, off;
    time_t at;
    struct tm tm;

    (void)snprintf(ret, PROMISES_TIME_MAX, "%.*s", PROMISES_TIME_MAX - 1, rfc3339);
    if (clock_read_rfc3339(rfc3339, &us) < 0)
        return;
    at = (time_t)(us / 1000000);
    off = us - clock_wall_us();
    if (localtime_r(&at, &tm))
        (void)strftime(ret, PROMISES_TIME_MAX,
                       off < INT64_C(86400000000) && off > INT64_C(-86400000000) ? "%H:%M" : "%Y-%m-%d %H:%M", &tm);
}

void promises_start(const json_t *starts, char ret[PROMISES_START_MAX])
{
    const char *basis = cli_str(starts, "basis"), *after = cli_str(starts, "after");
    char at[PROMISES_TIME_MAX], latest[PROMISES_TIME_MAX], how[128] = "";

    if (strcmp(basis, "time-limits") == 0)
        (void)snprintf(how, sizeof(how), "after %.24s's time limit", after);
    else if (strcmp(basis, "work-left") == 0)
        (void)snprintf(how, sizeof(how), "when %.24s is expected to be done, by its measured speed", after);
    else if (strcmp(basis, "next-round") == 0 && *after)
        (void)snprintf(how, sizeof(how), "when %.24s gives devices up in a full round", after);
    else if (strcmp(basis, "next-round") == 0)
        (void)snprintf(how, sizeof(how), "in the next full round");
    else if (strcmp(basis, "reserved") == 0)
        (void)snprintf(how, sizeof(how), "when the devices that are kept for it are free");
    ret[0] = '\0';
    if (!*how || !*cli_str(starts, "at"))
        return;
    promises_time(cli_str(starts, "at"), at);
    promises_time(cli_str(starts, "latest"), latest);
    (void)snprintf(ret, PROMISES_START_MAX, "about %s, %s%s%s", at, how, *latest ? "; at the latest " : "", latest);
}

void promises_print(const json_t *job)
{
    const json_t *queue = json_object_get(job, "queue"), *estimate = json_object_get(job, "estimate");
    char start[PROMISES_START_MAX], late[CLI_DURATION_MAX], at[PROMISES_TIME_MAX];
    double late_s = cli_real(estimate, "late_s");

    if (queue)
        (void)printf("queue         %lld ahead of it, which take %lld devices; %lld of them of its project\n",
                     cli_int(queue, "ahead"), cli_int(queue, "ahead_devices"), cli_int(queue, "of_project"));
    promises_start(json_object_get(job, "starts"), start);
    if (*start)
        (void)printf("starts        %s\n", start);
    if (!json_is_number(json_object_get(estimate, "late_s")))
        return;
    promises_time(cli_str(estimate, "at"), at);
    cli_duration(late_s < 0 ? -late_s : late_s, late);
    (void)printf("estimate      start at %s by %s: %s %s\n", at, cli_str(estimate, "basis"), late,
                 late_s < 0 ? "too late" : "too early");
}

int reports_estimates(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"BASIS", "STARTS", "MEDIAN ERROR", "NO LATER THAN TOLD"}, .n = 4, .right = 1 << 1, .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *of;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/reports/estimates", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    if (json_array_size(json_object_get(answer, "estimates")) == 0) {
        (void)fprintf(stderr, "no job has started yet of which a start was told\n");
        return 0;
    }
    rows = json_array();
    json_array_foreach (json_object_get(answer, "estimates"), i, of) {
        char count[24], error[CLI_DURATION_MAX], share[24];

        (void)snprintf(count, sizeof(count), "%lld", cli_int(of, "count"));
        cli_duration(cli_real(of, "median_error_s"), error);
        (void)snprintf(share, sizeof(share), "%.0f %%", 100 * cli_real(of, "in_time"));
        (void)cli_row(rows, (const char *[]){cli_str(of, "basis"), count, error, share}, 4);
    }
    cli_print_table_new(&table, rows);
    return 0;
}
