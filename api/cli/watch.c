/* Following a job: a bar on a terminal, plain lines elsewhere. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/clock.h"
#include "base/try.h"

#define PATIENCE_S 120    /* how long the server may be away */
#define LINE_US 5000000   /* between two plain lines of progress */
#define REASON_US 2000000 /* between two looks at why a job waits */
#define BAR_MAX 40        /* columns */
#define BAR_MIN 8

struct watching {
    struct cli *c;
    const char *job;
    long long step, steps;
    double loss, rate, step_s; /* step_s: smoothed; 0 before the first */
    bool terminal, bar;        /* bar: one is on the screen */
    bool waits;                /* queued or suspended: say why */
    char why[256];             /* said last */
    struct client *side;       /* for questions while the stream is open; NULL before the first */
    int64_t next_line_us, next_reason_us;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static void wipe(struct watching *w)
{
    if (w->bar)
        (void)printf("\r\033[K");
    w->bar = false;
}

static void draw_bar(const char *text, double share)
{
    int width = cli_columns() - (int)strlen(text) - 4, full;

    (void)printf("\r\033[K");
    width = width > BAR_MAX ? BAR_MAX : width;
    if (width >= BAR_MIN) {
        full = (int)(width * share);
        (void)printf("%s[", cli_colour("\033[36m"));
        for (int i = 0; i < width; i++)
            (void)fputc(i < full ? '#' : '.', stdout);
        (void)printf("]%s ", cli_colour("\033[0m"));
    }
    (void)printf("%.*s", cli_columns() - 1, text);
}

static void draw(struct watching *w)
{
    char text[200], eta[CLI_DURATION_MAX] = "", steps[32], loss[32], rate[32];
    double share = w->steps > 0 ? (double)w->step / (double)w->steps : 0;
    int64_t now = clock_mono_us();

    if (w->step_s > 0 && w->step < w->steps)
        cli_duration(w->step_s * (double)(w->steps - w->step), eta);
    (void)snprintf(steps, sizeof(steps), w->steps > 0 ? "/%lld" : "", w->steps); /* a command tells of none */
    (void)snprintf(loss, sizeof(loss), isfinite(w->loss) ? "  loss %.4f" : "", w->loss);
    (void)snprintf(rate, sizeof(rate), w->rate > 0 ? "  %.0f tokens/s" : "", w->rate);
    (void)snprintf(text, sizeof(text), "%lld%s%s%s%s%s", w->step, steps, loss, rate, *eta ? "  ETA " : "", eta);
    if (w->terminal) {
        draw_bar(text, share > 1 ? 1 : share);
        w->bar = true;
    } else if (now >= w->next_line_us || w->step == w->steps) {
        (void)printf("step %s\n", text);
        w->next_line_us = now + LINE_US;
    }
}

static void take_metrics(struct watching *w, const json_t *d)
{
    double s = cli_real(d, "step_ms") / 1000;

    w->step = cli_int(d, "step") + (w->steps > 0 && cli_int(d, "v") < 1); /* version 1 counts steps that are done */
    w->loss = json_is_number(json_object_get(d, "loss")) ? cli_real(d, "loss") : NAN;
    w->rate = cli_real(d, "tokens_per_s");
    w->step_s = w->step_s > 0 ? 0.9 * w->step_s + 0.1 * s : s;
    draw(w);
}

static void print_event(struct watching *w, const char *type, const json_t *e)
{
    wipe(w);
    if (strcmp(type, "state") == 0)
        (void)printf("%s ", w->job);
    follow_print_event(e, true);
    (void)fputc('\n', stdout);
    if (w->terminal && w->step_s > 0)
        draw(w);
}

/* A job that waits: say why, again when that changes. */
static void say_why(struct watching *w)
{
    int64_t now = clock_mono_us();
    char path[256];
    json_t *job = NULL;
    const char *why;

    if (!w->waits || now < w->next_reason_us)
        return;
    w->next_reason_us = now + REASON_US;
    if (!w->side && client_new(w->c->server, w->c->token, w->c->state, &w->side, NULL) < 0)
        return;
    (void)snprintf(path, sizeof(path), "/v1/jobs/%.64s", w->job);
    if (client_call(w->side, "GET", path, NULL, NULL, &job, NULL) < 0)
        return; /* the stream finds out */
    why = cli_str(json_object_get(job, "reason"), "text");
    if (strcmp(cli_str(job, "state"), "queued") == 0 && *why && strncmp(why, w->why, sizeof(w->why) - 1) != 0) {
        (void)snprintf(w->why, sizeof(w->why), "%s", why);
        (void)printf("%s queued: ", w->job);
        cli_print_text(why);
        (void)fputc('\n', stdout);
    }
    json_decref(job);
}

static int on_event(void *arg, const char *type, const json_t *e)
{
    struct watching *w = arg;
    const json_t *d = json_object_get(e, "data");

    if (interrupted)
        return 1;
    if (!*type) {
        say_why(w);
    } else if (!e) {
        return 0;
    } else if (strcmp(type, "submitted") == 0) {
        w->steps = cli_int(json_object_get(d, "train"), "steps");
        w->waits = true;
        w->next_reason_us = clock_mono_us() + REASON_US / 4;
    } else if (strcmp(type, "metrics") == 0) {
        take_metrics(w, json_object_get(d, "step") ? d : e);
    } else if (strcmp(type, "state") == 0) {
        w->waits = strcmp(cli_str(e, "to"), "queued") == 0;
        w->step_s = 0;
        w->why[0] = '\0';
        print_event(w, type, e);
    } else if (strcmp(type, "eval") == 0 || strcmp(type, "checkpoint") == 0) {
        print_event(w, type, e);
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

int watch_outcome(struct cli *c, const char *job, bool tail)
{
    json_t *doc = NULL, *line;
    const json_t *o;
    char path[256];
    size_t i;
    int r;

    TRY(cli_job_path(job, "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &doc));
    o = json_object_get(doc, "outcome");
    r = strcmp(cli_str(doc, "state"), "succeeded") == 0 ? CLI_DONE : CLI_FAILED;
    if (c->json)
        (void)cli_print_json(doc);
    else if (r != CLI_DONE) {
        (void)cli_fail(CLI_FAILED, "%s %s (%s): %s", job, cli_str(doc, "state"), cli_str(o, "class"),
                       cli_str(o, "message"));
        json_array_foreach (tail ? json_object_get(o, "log_tail") : NULL, i, line) {
            (void)fputs("  | ", stderr);
            cli_print_visible(stderr, json_string_value(line), json_string_length(line));
            (void)fputc('\n', stderr);
        }
    }
    json_decref(doc);
    return r;
}

static int silent(void *arg, const char *type, const json_t *e)
{
    (void)arg, (void)type, (void)e;
    return interrupted ? 1 : 0;
}

int watch_job(struct cli *c, const char *job)
{
    struct watching w = {.c = c, .job = job, .terminal = cli_is_terminal()};
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND}, old;
    struct merr err = {""};
    char path[256];
    int r;

    TRY(cli_connect(c));
    TRY(cli_job_path(job, "/events", path));
    interrupted = 0;
    (void)sigaction(SIGINT, &act, &old);
    r = client_follow(c->client, path, PATIENCE_S, c->json ? silent : on_event, &w, &err);
    (void)sigaction(SIGINT, &old, NULL);
    wipe(&w);
    client_free(w.side);
    if (interrupted) {
        (void)cli_fail(CLI_FAILED, "%s goes on; `muster watch %s` comes back to it, `muster cancel %s` ends it", job,
                       job, job);
        return CLI_INTERRUPTED;
    }
    if (r < 0)
        return cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text[0] ? err.text : strerror(-r));
    return watch_outcome(c, job, true);
}

/* What became of a job that has ended, without its history. -1: it has not ended. */
static int tell_end(struct cli *c, const char *id)
{
    json_auto_t *job = NULL;
    char path[256];

    TRY(cli_job_path(id, "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &job));
    if (!cli_job_ended(job))
        return -1;
    (void)printf("%s %s: ", id, cli_str(job, "state"));
    cli_print_text(cli_str(json_object_get(job, "reason"), "text"));
    (void)fputc('\n', stdout);
    return watch_outcome(c, id, true);
}

int watch_run(struct cli *c)
{
    int r = c->json || cli_option(c, "history") ? -1 : tell_end(c, c->arg[0]);

    if (r >= 0)
        return r;
    return watch_job(c, c->arg[0]);
}
