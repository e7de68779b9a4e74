/* What the ranks of a job print: once or as it comes. */
#include <errno.h>
#include <poll.h>
#include <regex.h>
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
#include "base/try.h"

#define LAST_US 30000000 /* after its end, what a job has printed comes within so long, or its node is away */
#define LAST_PAUSE_MS 200
#define DOCUMENT_MAX (128 << 20) /* bytes of text in one document of -o json */

struct log_reader {
    struct cli *c;
    struct cli side; /* a connection for what a stream has left out, while that is read */
    struct log_lines *lines;
    const char *job;
    long long rank;  /* or -1 */
    long attempt;    /* 0: the newest */
    long tail;       /* 0: all */
    int since_s;     /* 0: all */
    regex_t *grep;   /* borrowed; NULL: all lines */
    struct buf line; /* with grep: as much of a line as has come */
    bool chosen;     /* that line was whole */
    bool many;       /* say whose line it is */
    bool raw;        /* what it prints goes to the terminal as it is */
    bool any;        /* something has been printed */
    bool removed;    /* by the server, which keeps only so much */
    bool within;     /* the beginning of a line has been printed */
    int failed;      /* exit status with which the stream was left */
};

/* Whether a line, which may hold any bytes, has a match; one that does not fit into memory has none. */
static bool matches(const regex_t *re, const char *line, size_t len)
{
    regmatch_t all = {.rm_so = 0, .rm_eo = (regoff_t)len};

    return len <= INT32_MAX && regexec(re, line, 1, &all, REG_STARTEND) == 0;
}

/* Whether a line is whole and has a match: then it is *text. Until it is whole its beginning is kept. */
static bool choose(struct log_reader *l, const char **text, size_t *len, bool ended)
{
    if (l->chosen) /* the last one, which has been printed */
        buf_reset(&l->line);
    l->chosen = ended;
    if (!ended || l->line.len > 0) {
        (void)buf_add(&l->line, *text, *len);
        *text = l->line.data;
        *len = l->line.len;
    }
    return ended && matches(l->grep, *text, *len);
}

static void print_text(void *arg, int64_t rank, const char *text, size_t len, bool ended)
{
    struct log_reader *l = arg;

    if (l->grep && !choose(l, &text, &len, ended))
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

static void append(char *text, size_t size, const char *format, long long n)
{
    size_t len = strlen(text);

    (void)snprintf(text + len, size - len, format, n);
}

/* GET the logs; of is of one of them, from a byte on, or NULL. Returns an exit status; the answer is new. */
static int get(struct log_reader *l, const json_t *of, long long offset, json_t **ret)
{
    char path[256], tail[128] = "/logs";
    int r;

    if (of)
        (void)snprintf(tail, sizeof(tail), "/logs?rank=%lld&generation=%lld&offset=%lld", cli_int(of, "rank"),
                       cli_int(of, "generation"), offset);
    else
        (void)snprintf(tail, sizeof(tail), "/logs?offset=0");
    if (!of && l->rank >= 0)
        append(tail, sizeof(tail), "&rank=%lld", l->rank);
    if (!of && l->attempt > 0)
        append(tail, sizeof(tail), "&generation=%lld", l->attempt);
    if (!of && l->tail > 0)
        append(tail, sizeof(tail), "&tail=%lld", l->tail);
    if (!of && l->since_s > 0)
        append(tail, sizeof(tail), "&since_s=%lld", l->since_s);
    r = cli_job_path(l->job, tail, path);
    return r ? r : cli_call(&l->side, "GET", path, NULL, NULL, ret);
}

/* Print a log from where it has been printed up to a byte, as far as the server has it. Returns an exit status. */
static int read_on(struct log_reader *l, const json_t *of, long long end)
{
    long long rank = cli_int(of, "rank"), generation = cli_int(of, "generation");
    long long at = log_lines_next(l->lines, rank, generation), was = -1;
    int r = 0;

    while (r == 0 && at < end && at > was) {
        json_t *answer;

        r = get(l, of, at, &answer);
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

/* --- one document ---------------------------------------------------------------------------------------- */

/* Put what of a log is beyond its first answer into text. Returns an exit status, with the reason said. */
static int read_rest(struct log_reader *l, json_t *log, struct buf *text)
{
    long long was = -1;
    int r = 0;

    while (r == 0 && was < cli_int(log, "next_offset") && cli_int(log, "next_offset") < cli_int(log, "size")) {
        json_t *answer, *more;

        was = cli_int(log, "next_offset");
        r = get(l, log, was, &answer);
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

        TRY(get(l, NULL, 0, &answer));
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

    TRY(get(l, NULL, 0, &answer));
    l->removed = json_is_true(json_object_get(answer, "removed"));
    if (!follow && l->c->json)
        return print_document_new(l, answer);
    l->many = l->rank < 0 && (follow || json_array_size(json_object_get(answer, "logs")) > 1);
    l->lines = log_lines_new(l->many || l->grep, print_text, l);
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

    TRY(get(l, NULL, 0, &answer));
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
    char why[128];
    regex_t re;
    int r;

    if (since && (times_parse(since, &wish.since_s) < 0 || wish.since_s == 0))
        return cli_fail(CLI_USAGE, "--since '%.64s' is no time: want such as 90s, 10m, 4h, 7d", since);
    if ((follow || c->json) && every)
        return cli_fail(CLI_USAGE, "--all-attempts is printed once, as text; --attempt N chooses one");
    if (follow && wish.attempt > 0)
        return cli_fail(CLI_USAGE, "--follow is of the newest attempt; leave out --attempt");
    if (pattern && c->json)
        return cli_fail(CLI_USAGE, "--grep chooses lines of text; leave out -o json");
    r = pattern ? regcomp(&re, pattern, REG_EXTENDED) : 0;
    if (r != 0) {
        (void)regerror(r, &re, why, sizeof(why));
        return cli_fail(CLI_USAGE, "--grep '%.64s' is no regular expression: %s", pattern, why);
    }
    wish.grep = pattern ? &re : NULL;
    r = run(c, wish, follow, every, &any);
    if (pattern)
        regfree(&re);

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
