/* What the scheduler promises: when jobs start, how good such estimates were, maintenance and reservations. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/promises.h"
#include "api/spec.h"
#include "api/times.h"
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
    else if (strcmp(basis, "calendar") == 0)
        (void)snprintf(how, sizeof(how), "when a maintenance is over or its reservation begins");
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
    const json_t *finish = json_object_get(job, "finish");
    const json_t *energy = json_object_get(job, "energy");
    char start[PROMISES_START_MAX], late[CLI_DURATION_MAX], at[PROMISES_TIME_MAX];
    double late_s = cli_real(estimate, "late_s");

    if (queue)
        (void)printf("queue         %lld ahead of it, which take %lld devices; %lld of them of its project\n",
                     cli_int(queue, "ahead"), cli_int(queue, "ahead_devices"), cli_int(queue, "of_project"));
    promises_start(json_object_get(job, "starts"), start);
    if (*start)
        (void)printf("starts        %s\n", start);
    if (finish) {
        promises_time(cli_str(finish, "by"), at);
        (void)printf("finish by     %s: %s; it %s\n", at, cli_str(finish, "verdict"), cli_str(finish, "text"));
    }
    if (energy)
        (void)printf("energy        %.2f kWh, %s\n", cli_real(energy, "kwh"),
                     strcmp(cli_str(energy, "basis"), "class-power") == 0 ? "by the power of its classes"
                     : strcmp(cli_str(energy, "basis"), "measured") == 0  ? "measured"
                                                                          : "in part by the power of its classes");
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

/* --- maintenance and reservations ----------------------------------------------------------------------- */

int promises_when(const char *option, const char *text, int64_t *now, const char *field, json_t *body)
{
    static const char *const forms[] = {"%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%H:%M"};
    int64_t us = 0;
    char at[CLOCK_RFC3339_MAX];
    int seconds;

    if (!text)
        return 0;
    if (clock_read_rfc3339(text, &us) < 0) {
        us = text[0] == '+' && times_parse(text + 1, &seconds) == 0 ? *now + seconds * INT64_C(1000000) : 0;
        for (size_t i = 0; us == 0 && i < sizeof(forms) / sizeof(forms[0]); i++) {
            time_t today = (time_t)(*now / 1000000);
            struct tm tm = {.tm_mday = 0};
            const char *end;

            if (!localtime_r(&today, &tm))
                continue;
            tm.tm_sec = 0;
            tm.tm_isdst = -1;
            end = strptime(text, forms[i], &tm);
            us = end && !*end ? (int64_t)mktime(&tm) * 1000000 : 0;
            if (us > 0 && us < *now && strcmp(forms[i], "%H:%M") == 0) {
                tm.tm_mday++;
                us = (int64_t)mktime(&tm) * 1000000;
            }
        }
    }
    if (us <= 0)
        return cli_fail(CLI_USAGE, "--%s '%.64s': want a time such as +2h, 14:05, '2026-11-21 14:05' or with its zone",
                        option, text);
    clock_rfc3339(us, at);
    *now = us;
    return json_object_set_new(body, field, json_string(at)) < 0 ? cli_fail(CLI_FAILED, "no memory") : 0;
}

/* An option that is text, if it is given. */
static int take_text(const struct cli *c, const char *name, json_t *body)
{
    const char *text = cli_option(c, name);

    return text && json_object_set_new(body, name, json_string(text)) < 0
               ? cli_fail(CLI_USAGE, "--%s is not UTF-8", name)
               : 0;
}

static int send(struct cli *c, const char *path, const json_t *body)
{
    json_auto_t *answer = NULL;
    char from[PROMISES_TIME_MAX], to[PROMISES_TIME_MAX];

    TRY(cli_call(c, "POST", path, body, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    promises_time(cli_str(answer, "from"), from);
    promises_time(cli_str(answer, "to"), to);
    (void)printf("%s: from %s to %s\n", cli_str(answer, "id"), from, to);
    return 0;
}

int maintenance_add(struct cli *c)
{
    const char *nodes = cli_option(c, "nodes"), *to = cli_option(c, "to");
    json_auto_t *body = json_pack("{s:[]}", "nodes");
    int64_t now = clock_wall_us();

    if (!nodes || !to)
        return cli_fail(CLI_USAGE, "want --nodes and --to: which nodes, and until when");
    while (*nodes) {
        size_t n = strcspn(nodes, ",");

        if (n > 0)
            (void)json_array_append_new(json_object_get(body, "nodes"), json_stringn(nodes, n));
        nodes += n + (nodes[n] == ',');
    }
    TRY(promises_when("from", cli_option(c, "from"), &now, "from", body));
    TRY(promises_when("to", to, &now, "to", body));
    TRY(take_text(c, "reason", body));
    if (cli_option(c, "every"))
        (void)json_object_set_new(body, "every_s", json_integer(cli_number(c, "every", 0)));
    return send(c, "/v1/maintenance", body);
}

int nodes_end(struct cli *c)
{
    json_auto_t *answer = NULL, *body = json_object();
    char path[160], at[PROMISES_TIME_MAX];
    int64_t now = clock_wall_us();

    if (!cli_option(c, "at"))
        return cli_fail(CLI_USAGE, "want --at: when it goes, as +2h or 14:05");
    if (strlen(c->arg[0]) >= 64 || strspn(c->arg[0], SPEC_LABEL_LETTERS) != strlen(c->arg[0]))
        return cli_fail(CLI_USAGE, "'%.64s' is no name of a node", c->arg[0]);
    TRY(promises_when("at", cli_option(c, "at"), &now, "at", body));
    TRY(take_text(c, "reason", body));
    (void)snprintf(path, sizeof(path), "/v1/nodes/%s/end", c->arg[0]);
    TRY(cli_call(c, "POST", path, body, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    promises_time(cli_str(answer, "from"), at);
    (void)printf("%s goes at %s (%s)\n", c->arg[0], at, cli_str(answer, "id"));
    return 0;
}

int reservations_add(struct cli *c)
{
    const char *to = cli_option(c, "to");
    json_auto_t *body = json_pack("{s:I}", "devices", (json_int_t)cli_number(c, "devices", 0));
    int64_t now = clock_wall_us();

    if (cli_number(c, "devices", 0) < 1 || !to)
        return cli_fail(CLI_USAGE, "want --devices and --to: how many, and until when");
    TRY(promises_when("from", cli_option(c, "from"), &now, "from", body));
    TRY(promises_when("to", to, &now, "to", body));
    TRY(take_text(c, "class", body));
    TRY(take_text(c, "project", body));
    TRY(take_text(c, "user", body));
    TRY(take_text(c, "reason", body));
    return send(c, "/v1/reservations", body);
}

/* Names, one after the other, cut to size. */
static void join(const json_t *list, char *ret, size_t size)
{
    const json_t *one;
    size_t i, at = 0;

    ret[0] = '\0';
    json_array_foreach (list, i, one) {
        int n = at < size ? snprintf(ret + at, size - at, "%s%s", i ? "," : "", json_string_value(one)) : 0;

        at += (size_t)(n > 0 ? n : 0);
    }
}

static int list(struct cli *c, const char *path, const char *field, bool reserved)
{
    static const struct cli_table tables[] = {
        {.head = {"ID", "FROM", "TO", "NOW", "EVERY", "BY", "NODES", "REASON"}, .n = 8, .state = -1},
        {.head = {"ID", "FROM", "TO", "NOW", "DEVICES", "FOR", "NODES", "REASON"}, .n = 8, .state = -1}};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, field), i, one) {
        char from[PROMISES_TIME_MAX], to[PROMISES_TIME_MAX], what[96], whose[160], nodes[512];

        promises_time(cli_str(one, "from"), from);
        if (*cli_str(one, "to"))
            promises_time(cli_str(one, "to"), to);
        else
            (void)snprintf(to, sizeof(to), "for good");
        join(json_object_get(one, "nodes"), nodes, sizeof(nodes));
        if (reserved)
            (void)snprintf(what, sizeof(what), "%lld %s", cli_int(one, "devices"), cli_str(one, "class"));
        else if (cli_int(one, "every_s") > 0)
            cli_duration((double)cli_int(one, "every_s"), what);
        else
            (void)snprintf(what, sizeof(what), "-");
        (void)snprintf(whose, sizeof(whose), "%s%s%s", reserved ? cli_str(one, "project") : cli_str(one, "by"),
                       *cli_str(one, "user") && *cli_str(one, "project") ? "/" : "",
                       reserved ? cli_str(one, "user") : "");
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "id"), from, to,
                                       json_is_true(json_object_get(one, "now")) ? "yes" : "-", what, whose, nodes,
                                       cli_str(one, "reason")},
                      8);
    }
    cli_print_table_new(&tables[reserved], rows);
    return 0;
}

int maintenance_list(struct cli *c)
{
    return list(c, "/v1/maintenance", "maintenance", false);
}

int reservations_list(struct cli *c)
{
    return list(c, "/v1/reservations", "reservations", true);
}

static int delete (struct cli *c, const char *where)
{
    json_auto_t *answer = NULL;
    char path[128];

    if (strspn(c->arg[0], "mr0123456789") != strlen(c->arg[0]) || strlen(c->arg[0]) > 24)
        return cli_fail(CLI_USAGE, "'%.64s' is none of them; they are called as m3 and r3", c->arg[0]);
    (void)snprintf(path, sizeof(path), "%s/%s", where, c->arg[0]);
    TRY(cli_call(c, "DELETE", path, NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("%s is deleted\n", cli_str(answer, "id"));
    return 0;
}

int maintenance_delete(struct cli *c)
{
    return delete (c, "/v1/maintenance");
}

int reservations_delete(struct cli *c)
{
    return delete (c, "/v1/reservations");
}
