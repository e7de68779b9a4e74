/* What the ranks of a job print: once or as it comes. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/cli/log_lines.h"
#include "api/times.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/pattern.h"
#include "base/try.h"

#define LAST_US 30000000 /* after its end, what a job has printed comes within so long, or its node is away */
#define LAST_PAUSE_MS 200
#define DOCUMENT_MAX (128 << 20) /* bytes of text in one document of -o json */

struct log_reader {
    struct cli *c;
    struct cli side; /* a connection for what a stream has left out, while that is read */
    struct log_lines *lines;
    const char *job;
    long long rank;         /* or -1 */
    long attempt;           /* 0: the newest */
    long tail;              /* 0: all */
    int since_s;            /* 0: all */
    const char *search;     /* the server looks for this pattern; NULL: all lines */
    struct pattern *chosen; /* borrowed: of what comes as a stream only lines that it finds; NULL: all */
    struct buf line;        /* with chosen: as much of a line as has come */
    bool line_ended;        /* that line was whole */
    bool many;              /* say whose line it is */
    bool raw;               /* what it prints goes to the terminal as it is */
    bool any;               /* something has been printed */
    bool removed;           /* by the server, which keeps only so much */
    bool within;            /* the beginning of a line has been printed */
    int failed;             /* exit status with which the stream was left */
};

/* Whether a line is whole and has a match: then it is *text. Until it is whole its beginning is kept. */
static bool choose(struct log_reader *l, const char **text, size_t *len, bool ended)
{
    if (l->line_ended) /* the last one, which has been printed */
        buf_reset(&l->line);
    l->line_ended = ended;
    if (!ended || l->line.len > 0) {
        (void)buf_add(&l->line, *text, *len);
        *text = l->line.data;
        *len = l->line.len;
    }
    return ended && pattern_finds(l->chosen, *text, *len, NULL);
}

static void print_text(void *arg, int64_t rank, const char *text, size_t len, bool ended)
{
    struct log_reader *l = arg;

    if (l->chosen && !choose(l, &text, &len, ended))
        return;
    l->any = true;
    if (l->c->json)
        return;
    if (l->many && !l->within)
        (void)printf("%s[%lld]%s ", cli_colour("\033[2m"), (long long)rank, cli_colour("\033[0m"));
    if (l->raw)
        (void)fwrite(text, 1, len, stdout);
    else
        cli_print_visible(stdout, text, len);
    if (ended)
        (void)fputc('\n', stdout);
    l->within = !ended;
}

/* A piece of which only the last n bytes are new, as a line of JSON. */
static int print_json_piece(const json_t *piece, size_t n)
{
    json_t *copy = json_copy((json_t *)piece), *text = json_object_get(copy, "text");
    size_t known = json_string_length(text) - n;
    int r;

    (void)json_object_set_new(copy, "offset", json_integer(cli_int(copy, "offset") + (long long)known));
    (void)json_object_set_new(copy, "text", json_stringn(json_string_value(text) + known, n));
    r = cli_print_json_line(copy);
    json_decref(copy);
    return r;
}

/* Say so where a piece begins after the middle of a log that the server does not keep. */
static void tell_gap(const struct log_reader *l, const json_t *piece)
{
    const json_t *gap = json_object_get(piece, "left_out");
    long long next = log_lines_next(l->lines, cli_int(piece, "rank"), cli_int(piece, "generation"));

    if (gap && next <= cli_int(gap, "from") && cli_int(piece, "offset") == cli_int(gap, "to"))
        (void)fprintf(stderr, "%lld bytes in the middle of the log of rank %lld are not kept\n",
                      cli_int(gap, "to") - next, cli_int(piece, "rank"));
}

/* Print what is new of a piece. Returns an exit status, with the reason said. */
static int take(struct log_reader *l, const json_t *piece)
{
    const json_t *text = json_object_get(piece, "text");
    int64_t n;
    int r = 0;

    if (!json_is_string(text) || (l->rank >= 0 && cli_int(piece, "rank") != l->rank))
        return 0;
    if ((l->tail > 0 || l->since_s > 0) &&
        log_lines_next(l->lines, cli_int(piece, "rank"), cli_int(piece, "generation")) == 0)
        r = log_lines_begin(l->lines, cli_int(piece, "rank"), cli_int(piece, "generation"), cli_int(piece, "offset"));
    if (r < 0)
        return cli_fail(CLI_FAILED, "no memory");
    tell_gap(l, piece);
    n = log_lines_take(l->lines, cli_int(piece, "rank"), cli_int(piece, "generation"), cli_int(piece, "offset"),
                       json_string_value(text), json_string_length(text));
    if (n < 0)
        return cli_fail(CLI_FAILED, "no memory");
    if (n > 0 && l->c->json)
        r = print_json_piece(piece, (size_t)n);
    return r == 0 && fflush(stdout) == 0 ? 0 : cli_fail(CLI_FAILED, "cannot write the output");
}

/* GET the logs; of is of one of them, from or before a byte, or NULL. Returns an exit status; the answer is new. */
static int get(struct log_reader *l, const json_t *of, const char *where, long long at, json_t **ret)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    long long rank = of ? cli_int(of, "rank") : l->rank, generation = of ? cli_int(of, "generation") : l->attempt;
    char path[256];
    struct buf b;
    int r;

    TRY(cli_job_path(l->job, "/logs", path));
    buf_init(&b, 8192);
    (void)buf_printf(&b, "%s?%s=%lld", path, where, at);
    if (rank >= 0)
        (void)buf_printf(&b, "&rank=%lld", rank);
    if (generation > 0)
        (void)buf_printf(&b, "&generation=%lld", generation);
    if ((!of || l->search) && l->tail > 0)
        (void)buf_printf(&b, "&tail=%ld", l->tail);
    if ((!of || l->search) && l->since_s > 0)
        (void)buf_printf(&b, "&since_s=%d", l->since_s);
    if (l->search)
        (void)buf_addstr(&b, "&grep=");
    for (const char *p = l->search; p && *p; p++)
        (void)buf_printf(&b, strchr(plain, *p) ? "%c" : "%%%02X", (unsigned char)*p);
    r = cli_call(&l->side, "GET", buf_text(&b), NULL, NULL, ret);
    buf_clear(&b);
    return r;
}

/* Print a log from where it has been printed up to a byte, as far as the server has it. Returns an exit status. */
static int read_on(struct log_reader *l, const json_t *of, long long end)
{
    long long rank = cli_int(of, "rank"), generation = cli_int(of, "generation");
    long long at = log_lines_next(l->lines, rank, generation), was = -1;
    int r = 0;

    while (r == 0 && at < end && at > was) {
        json_t *answer;

        r = get(l, of, "offset", at, &answer);
        if (r)
            break;
        r = take(l, json_array_get(json_object_get(answer, "logs"), 0));
        json_decref(answer);
        was = at;
        at = log_lines_next(l->lines, rank, generation);
    }
    return r;
}

/* Print all there is now. */
static int read_all(struct log_reader *l, const json_t *answer)
{
    const json_t *log;
    size_t i;
    int r = 0;

    json_array_foreach (json_object_get(answer, "logs"), i, log) {
        r = r ? r : take(l, log);
        r = r ? r : read_on(l, log, cli_int(log, "size"));
    }
    return r;
}

static int on_log(void *arg, const char *type, const json_t *piece)
{
    struct log_reader *l = arg;

    if (strcmp(type, "log") != 0)
        return 0;
    if (l->rank < 0 || cli_int(piece, "rank") == l->rank)
        l->failed = read_on(l, piece, cli_int(piece, "offset")); /* it may begin after what was read */
    l->failed = l->failed ? l->failed : take(l, piece);
    return l->failed ? 1 : 0;
}

/* --- what the server finds ------------------------------------------------------------------------------- */

/* Print the lines of a text, each of which is ended. */
static void print_found(struct log_reader *l, const json_t *log, const char *text)
{
    for (const char *nl; (nl = strchr(text, '\n')) != NULL; text = nl + 1)
        print_text(l, cli_int(log, "rank"), text, (size_t)(nl - text), true);
}

static long count_lines(const char *text)
{
    long n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* The last lines of a log that match, from its first answer on: stretch by stretch back. Returns an exit status. */
static int search_back(struct log_reader *l, const json_t *log)
{
    json_auto_t *texts = json_array(); /* the newest first */
    json_t *piece = json_incref((json_t *)log);
    long wanted = l->tail;
    int r = 0;

    while (r == 0 && piece) {
        long long from = cli_int(piece, "offset");
        bool more = from > 0 && from < cli_int(piece, "next_offset");

        (void)json_array_append(texts, json_object_get(piece, "text"));
        l->tail -= count_lines(cli_str(piece, "text"));
        json_decref(piece);
        piece = NULL;
        if (more && l->tail > 0) {
            json_auto_t *answer = NULL;

            r = get(l, log, "before", from, &answer);
            piece = r ? NULL : json_incref(json_array_get(json_object_get(answer, "logs"), 0));
        }
    }
    l->tail = wanted;
    for (size_t i = json_array_size(texts); r == 0 && i > 0; i--)
        print_found(l, log, json_string_value(json_array_get(texts, i - 1)));
    return r;
}

/* All lines of a log that match, from its first answer on. Returns an exit status. */
static int search_on(struct log_reader *l, const json_t *log)
{
    json_t *piece = json_incref((json_t *)log);
    int r = 0;

    while (r == 0 && piece) {
        long long to = cli_int(piece, "next_offset");
        bool more = to < cli_int(piece, "size") && to > cli_int(piece, "offset");

        print_found(l, log, cli_str(piece, "text"));
        json_decref(piece);
        piece = NULL;
        if (more) {
            json_auto_t *answer = NULL;

            r = get(l, log, "offset", to, &answer);
            piece = r ? NULL : json_incref(json_array_get(json_object_get(answer, "logs"), 0));
        }
    }
    return r;
}

static int print_search(struct log_reader *l, const json_t *answer)
{
    const json_t *log;
    size_t i;

    json_array_foreach (json_object_get(answer, "logs"), i, log)
        TRY(l->tail > 0 ? search_back(l, log) : search_on(l, log));
    return fflush(stdout) == 0 ? 0 : cli_fail(CLI_FAILED, "cannot write the output");
}

/* --- one document ---------------------------------------------------------------------------------------- */

/* Put what of a log is beyond its first answer into text. Returns an exit status, with the reason said. */
static int read_rest(struct log_reader *l, json_t *log, struct buf *text)
{
    long long was = -1;
    int r = 0;

    while (r == 0 && was < cli_int(log, "next_offset") && cli_int(log, "next_offset") < cli_int(log, "size")) {
        json_t *answer, *more;

        was = cli_int(log, "next_offset");
        r = get(l, log, "offset", was, &answer);
        if (r)
            break;
        more = json_array_get(json_object_get(answer, "logs"), 0);
        r = buf_addstr(text, cli_str(more, "text"));
        if (r == -EMSGSIZE)
            r = cli_fail(CLI_FAILED,
                         "the output is longer than %d MiB, too long for one document; choose a --rank, or "
                         "print it in pieces, with --follow",
                         DOCUMENT_MAX >> 20);
        else if (r < 0)
            r = cli_fail(CLI_FAILED, "no memory");
        if (r == 0 && more)
            (void)json_object_update_existing(log, more);
        json_decref(answer);
    }
    return r;
}

/* Make a log of the document whole and add its lines. total: bytes of text so far. */
static int complete(struct log_reader *l, json_t *log, json_t *lines, size_t *total)
{
    json_t *offset = json_incref(json_object_get(log, "offset"));
    struct buf text;
    int r;

    buf_init(&text, DOCUMENT_MAX - *total);
    r = buf_addstr(&text, cli_str(log, "text")) < 0 ? cli_fail(CLI_FAILED, "no memory") : read_rest(l, log, &text);
    (void)json_object_set_new(log, "offset", offset);
    (void)json_object_set_new(log, "text", json_stringn(buf_text(&text), text.len));
    *total += text.len;
    for (const char *p = cli_str(log, "text"); *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] != '\0'))
        (void)json_array_append_new(lines, json_stringn(p, strcspn(p, "\n")));
    buf_clear(&text);
    return r;
}

/* The answer with all there is, as one document; answer is taken over. */
static int print_document_new(struct log_reader *l, json_t *answer)
{
    json_t *log, *lines = json_array();
    size_t i, total = 0;
    int r = 0;

    json_array_foreach (json_object_get(answer, "logs"), i, log) {
        r = r ? r : complete(l, log, lines, &total);
    }
    (void)json_object_set_new(answer, "lines", lines);
    if (r == 0)
        return cli_print_json_new(answer);
    json_decref(answer);
    return r;
}

/* --- the command ----------------------------------------------------------------------------------------- */

/* What comes from now on; and at the end what the stream has left out, until the last of it has come. */
static int go_on(struct log_reader *l)
{
    char tail[64] = "/logs?follow=1", stream[256];
    int64_t deadline_us;
    bool complete = false;

    if (l->rank >= 0)
        (void)snprintf(tail, sizeof(tail), "/logs?follow=1&rank=%lld", l->rank);
    TRY(cli_job_path(l->job, tail, stream));
    TRY(follow_stream(l->c, stream, on_log, l));
    TRY(l->failed);
    deadline_us = clock_mono_us() + LAST_US;
    while (!complete && clock_mono_us() < deadline_us) {
        json_auto_t *answer = NULL;

        TRY(get(l, NULL, "offset", 0, &answer));
        complete = !json_is_false(json_object_get(answer, "complete")); /* an older server does not say */
        TRY(read_all(l, answer));
        if (!complete)
            (void)poll(NULL, 0, LAST_PAUSE_MS);
    }
    return 0;
}

static int print_logs(struct log_reader *l, bool follow)
{
    json_t *answer;
    int r;

    TRY(get(l, NULL, "offset", 0, &answer));
    l->removed = json_is_true(json_object_get(answer, "removed"));
    if (!follow && l->c->json)
        return print_document_new(l, answer);
    l->many = l->rank < 0 && (follow || json_array_size(json_object_get(answer, "logs")) > 1);
    if (l->search) {
        r = print_search(l, answer);
        json_decref(answer);
        return r;
    }
    l->lines = log_lines_new(l->many || l->chosen, print_text, l);
    r = l->lines ? read_all(l, answer) : cli_fail(CLI_FAILED, "no memory");
    json_decref(answer);
    l->tail = l->since_s = 0;
    r = r != 0 || !follow ? r : go_on(l);
    if (l->lines)
        log_lines_end(l->lines);
    log_lines_free(l->lines);
    return r;
}

/* Those attempts, oldest first, whose output the server keeps. */
static int print_attempts(struct log_reader *l)
{
    json_auto_t *answer = NULL;
    const json_t *attempt;
    long tail = l->tail;
    int since_s = l->since_s;
    size_t i;

    TRY(get(l, NULL, "offset", 0, &answer));
    json_array_foreach (json_object_get(answer, "attempts"), i, attempt) {
        l->attempt = (long)json_integer_value(attempt);
        l->tail = tail;
        l->since_s = since_s;
        (void)printf("%s--- attempt %ld ---%s\n", cli_colour("\033[2m"), l->attempt, cli_colour("\033[0m"));
        TRY(print_logs(l, false));
    }
    return 0;
}

/* Returns an exit status; *ret_any: there was output, or it is said why there is none. */
static int run(struct cli *c, struct log_reader wish, bool follow, bool every, bool *ret_any)
{
    struct log_reader l = wish;
    const char *job = l.job;
    int r;

    l.c = c;
    l.side = *c;
    l.raw = cli_option(c, "raw");
    l.side.client = NULL;
    buf_init(&l.line, 2 * LOG_LINES_HELD);
    r = every ? print_attempts(&l) : print_logs(&l, follow);
    client_free(l.side.client);
    buf_clear(&l.line);
    if (r == 0 && l.removed && !c->json)
        (void)fprintf(stderr, "the logs of job '%s' were removed: those of all jobs took more than the server keeps\n",
                      job);
    *ret_any = l.any || l.removed;
    return r;
}

int logs_run(struct cli *c)
{
    struct log_reader wish = {.job = c->arg[0],
                              .rank = cli_number(c, "rank", -1),
                              .attempt = cli_number(c, "attempt", 0),
                              .tail = cli_number(c, "tail", 0)};
    bool any = false, follow = cli_option(c, "follow"), every = cli_option(c, "all-attempts");
    const char *pattern = cli_option(c, "grep"), *since = cli_option(c, "since");
    long rank = (long)wish.rank;
    struct pattern *p = NULL;
    struct merr err;
    int r;

    if (since && (times_parse(since, &wish.since_s) < 0 || wish.since_s == 0))
        return cli_fail(CLI_USAGE, "--since '%.64s' is no time: want such as 90s, 10m, 4h, 7d", since);
    if ((follow || c->json) && every)
        return cli_fail(CLI_USAGE, "--all-attempts is printed once, as text; --attempt N chooses one");
    if (follow && wish.attempt > 0)
        return cli_fail(CLI_USAGE, "--follow is of the newest attempt; leave out --attempt");
    if (pattern && c->json)
        return cli_fail(CLI_USAGE, "--grep chooses lines of text; leave out -o json");
    if (pattern && pattern_new(pattern, &p, &err) < 0)
        return cli_fail(CLI_USAGE, "--grep '%.64s' is no pattern: %s", pattern, err.text);
    wish.search = follow ? NULL : pattern; /* a stream has all lines */
    wish.chosen = follow ? p : NULL;
    r = run(c, wish, follow, every, &any);
    pattern_free(p);

    if (r == 0 && !any && !c->json && rank >= 0)
        (void)fprintf(stderr, "no output of rank %ld of job '%s'\n", rank, c->arg[0]);
    else if (r == 0 && !any && !c->json)
        (void)fprintf(stderr, "no output of job '%s' so far\n", c->arg[0]);
    return r;
}

int logs_submitted(struct cli *c, const char *job)
{
    bool any;
    int r = run(c, (struct log_reader){.job = job, .rank = -1}, true, false, &any);

    return r ? r : watch_outcome(c, job, false);
}

int logs_attach(struct cli *c)
{
    json_auto_t *job = NULL;
    char path[256];
    bool any;
    int r;

    if (cli_option(c, "interactive"))
        return cli_fail(CLI_USAGE,
                        "a job's program has no standard input: muster exec %s -i -- PROGRAM has one of yours",
                        c->arg[0]);
    TRY(cli_job_path(c->arg[0], "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &job));
    if (cli_job_ended(job))
        return cli_fail(CLI_FAILED, "job '%s' is %s: its output is what muster logs %s prints", c->arg[0],
                        cli_str(job, "state"), c->arg[0]);
    (void)fprintf(stderr, "output of job '%s' from now on; Ctrl-C leaves it running\n", c->arg[0]);
    r = run(c,
            (struct log_reader){.job = c->arg[0], .rank = cli_number(c, "rank", -1), .tail = cli_number(c, "tail", 0)},
            true, false, &any);
    return r ? r : watch_outcome(c, c->arg[0], false);
}
