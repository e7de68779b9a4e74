/* What a job does: its events and its metrics; once or as they come. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/try.h"

#define PATIENCE_S 60      /* how long a server may be away from a stream */
#define EVENTS_MAX 1000000 /* events printed at once */
#define POINTS_JSON 10000  /* the most that the server gives */
#define POINTS_SHOWN 20    /* rows of metrics unless asked otherwise */

int follow_stream(struct cli *c, const char *path, client_event_fn *fn, void *arg)
{
    struct merr err = {""};
    int r = cli_connect(c);

    if (r)
        return r;
    r = client_follow(c->client, path, PATIENCE_S, fn, arg, &err);
    return r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text[0] ? err.text : strerror(-r)) : 0;
}

/* --- events -------------------------------------------------------------------------------------------- */

/* The fields of data that the words do not say. */
static void print_data(const json_t *data, const char *words)
{
    const char *key;
    const json_t *v;

    json_object_foreach ((json_t *)data, key, v) {
        bool said = json_is_string(v) && strcmp(json_string_value(v), words) == 0;
        char *text = said ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

        if (text && strcmp(key, "type") != 0) {
            (void)printf(" %s=", key);
            cli_print_text(text);
        }
        free(text);
    }
}

void follow_print_event(const json_t *e, bool brief)
{
    const char *type = cli_str(e, "type"), *to = cli_str(e, "to"), *from = brief ? "" : cli_str(e, "from");
    const json_t *d = json_object_get(e, "data");

    if (strcmp(type, "eval") == 0 && json_is_number(json_object_get(d, "loss"))) {
        (void)printf("step %lld  evaluation loss %.4f", cli_int(d, "step"), cli_real(d, "loss"));
    } else if (strcmp(type, "checkpoint") == 0 && *cli_str(d, "error")) {
        (void)printf("step %lld  %s%sfailed%s: ", cli_int(d, "step"), brief ? "checkpoint " : "",
                     cli_colour("\033[31m"), cli_colour("\033[0m"));
        cli_print_text(cli_str(d, "error"));
    } else if (strcmp(type, "checkpoint") == 0 && *cli_str(d, "path")) {
        (void)printf("step %lld  %s%.1f MiB in %.2f s%s", cli_int(d, "step"), brief ? "checkpoint of " : "",
                     cli_real(d, "bytes") / 1048576, cli_real(d, "seconds"), brief ? "" : ": ");
        cli_print_text(brief ? "" : cli_str(d, "path"));
    } else if (*to) {
        (void)printf("%s%s%s%s%s: ", from, *from ? " -> " : "", cli_state_colour(to), to,
                     *cli_state_colour(to) ? cli_colour("\033[0m") : "");
        cli_print_text(cli_str(json_object_get(e, "cause"), "text"));
    } else {
        const char *words = cli_str(json_object_get(e, "cause"), "text");

        cli_print_text(words);
        if (strcmp(type, "submitted") != 0)
            print_data(d, words);
    }
}

static void print_event(const json_t *e)
{
    (void)printf("%.19sZ  %-5s  %-10s  ", cli_str(e, "at"), *cli_str(e, "job") ? cli_str(e, "job") : "-",
                 cli_str(e, "type"));
    follow_print_event(e, false);
    (void)fputc('\n', stdout);
}

static void print_gap(const json_t *gap)
{
    (void)printf("(%lld events are not kept any more)\n", cli_int(gap, "events"));
}

static int on_event(void *arg, const char *type, const json_t *e)
{
    struct cli *c = arg;

    if (!*type || !e || strcmp(type, "metrics") == 0 || strcmp(type, "log") == 0)
        return 0;
    if (c->json)
        return cli_print_json_line(e);
    if (strcmp(type, "left-out") == 0)
        print_gap(e);
    else
        print_event(e);
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static void print_events(const json_t *answer)
{
    const json_t *events = json_object_get(answer, "events"), *gap = json_object_get(answer, "left_out"), *e;
    const char *before = cli_str(gap, "before");
    size_t i;

    if (json_array_size(events) == 0)
        (void)fprintf(stderr, "nothing has happened yet\n");
    if (json_is_object(gap) && !*before)
        print_gap(gap);
    json_array_foreach (events, i, e) {
        if (*before && strcmp(cli_str(e, "id"), before) == 0)
            print_gap(gap);
        print_event(e);
    }
}

int follow_events(struct cli *c)
{
    json_t *answer = NULL;
    char path[256] = "/v1/events";
    int r = c->n ? cli_job_path(c->arg[0], "/events", path) : 0;

    if (r)
        return r;
    if (cli_option(c, "follow"))
        return follow_stream(c, path, on_event, c);
    r = cli_pages(c, path, "", "events", cli_number(c, "limit", EVENTS_MAX), &answer);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(answer);
    print_events(answer);
    json_decref(answer);
    return 0;
}

/* --- metrics ------------------------------------------------------------------------------------------- */

static void number_cell(const json_t *v, char out[32])
{
    if (json_is_integer(v))
        (void)snprintf(out, 32, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(out, 32, "%.5g", json_real_value(v));
    else
        (void)snprintf(out, 32, "-");
}

/* The columns asked for; else those that matter most to people. */
static size_t choose_columns(const json_t *columns, bool all, const char *ret[CLI_TABLE_MAX])
{
    static const char *const usual[] = {"step", "loss", "lr", "grad_norm", "tokens_per_s", "step_ms", "stall_ms"};
    const json_t *v;
    const char *key;
    size_t n = 0;

    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (json_object_get(columns, usual[i]))
            ret[n++] = usual[i];
    json_object_foreach ((json_t *)columns, key, v) {
        bool there = !all;

        for (size_t i = 0; i < n; i++)
            there = there || strcmp(ret[i], key) == 0;
        if (!there && n < CLI_TABLE_MAX)
            ret[n++] = key;
    }
    return n;
}

static void print_metrics(const json_t *columns, bool all)
{
    struct cli_table table = {.right = ~0u, .state = -1};
    json_t *rows = json_array();
    char text[CLI_TABLE_MAX][32];
    const char *cells[CLI_TABLE_MAX];

    table.n = choose_columns(columns, all, table.head);
    for (size_t i = 0; table.n && i < json_array_size(json_object_get(columns, table.head[0])); i++) {
        for (size_t k = 0; k < table.n; k++) {
            number_cell(json_array_get(json_object_get(columns, table.head[k]), i), text[k]);
            cells[k] = text[k];
        }
        (void)cli_row(rows, cells, table.n);
    }
    cli_print_table_new(&table, rows);
}

/* The first of names, separated by commas, that is no column; NULL: all are. */
static const char *find_missing(const json_t *columns, const char *names, char out[104])
{
    for (const char *p = names; p && *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
        (void)snprintf(out, 104, "%.*s", (int)strcspn(p, ","), p);
        if (*out && !json_object_get(columns, out))
            return out;
    }
    return NULL;
}

int follow_metrics(struct cli *c)
{
    const char *names = cli_option(c, "names");
    json_t *answer = NULL;
    char path[256], tail[160], missing[104];
    long points = cli_number(c, "points", c->json ? POINTS_JSON : POINTS_SHOWN);

    if (names &&
        (!*names || strlen(names) > 100 || strspn(names, "abcdefghijklmnopqrstuvwxyz0123456789_,") != strlen(names)))
        return cli_fail(CLI_USAGE, "--names '%.100s': want names such as loss,lr", names);
    (void)snprintf(tail, sizeof(tail), "/metrics?%s%s%s", names ? "names=step," : "", names ? names : "",
                   names && points ? "&" : "");
    if (points)
        (void)snprintf(tail + strlen(tail), sizeof(tail) - strlen(tail), "points=%ld", points);
    TRY(cli_job_path(c->arg[0], tail, path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (cli_int(answer, "points") > 0 && find_missing(json_object_get(answer, "metrics"), names, missing)) {
        json_decref(answer);
        return cli_fail(CLI_NOT_FOUND, "job '%s' measures no '%s'; `muster metrics %s -o json` shows what it does",
                        c->arg[0], missing, c->arg[0]);
    }
    if (c->json)
        return cli_print_json_new(answer);
    if (cli_int(answer, "points") == 0)
        (void)fprintf(stderr, "no metrics of job '%s' yet\n", c->arg[0]);
    else
        print_metrics(json_object_get(answer, "metrics"), names);
    json_decref(answer);
    return 0;
}
