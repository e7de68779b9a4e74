/* Following a job: a bar on a terminal, plain lines elsewhere; and the view of all that moves. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "base/clock.h"

#define LINE_US 5000000 /* between two plain lines of progress */

struct watching {
    struct cli *c;
    const char *job;
    long long step, steps;
    double loss, rate;
    bool terminal, bar; /* bar: one is on the screen */
    int64_t next_line_us;
};

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static double real(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void wipe(struct watching *w)
{
    if (w->bar)
        (void)printf("\r\033[K");
    w->bar = false;
}

static void draw(struct watching *w)
{
    enum { WIDTH = 28 };
    int full = w->steps > 0 ? (int)(WIDTH * w->step / w->steps) : 0;
    double tokens = w->rate;

    if (w->terminal) {
        (void)printf("\r\033[K%s[", cli_colour("\033[36m"));
        for (int i = 0; i < WIDTH; i++)
            (void)fputc(i < full ? '#' : '.', stdout);
        (void)printf("]%s step %lld/%lld  loss %.4f  %.0f tokens/s", cli_colour("\033[0m"), w->step, w->steps, w->loss,
                     tokens);
        w->bar = true;
    } else if (clock_mono_us() >= w->next_line_us || w->step == w->steps) {
        (void)printf("step %lld/%lld  loss %.4f  %.0f tokens/s\n", w->step, w->steps, w->loss, tokens);
        w->next_line_us = clock_mono_us() + LINE_US;
    }
}

static int on_event(void *arg, const char *type, const json_t *e)
{
    struct watching *w = arg;
    const json_t *d = json_object_get(e, "data"), *cause = json_object_get(e, "cause");

    if (!e)
        return 0;
    if (strcmp(type, "submitted") == 0) {
        w->steps = (long long)real(json_object_get(d, "train"), "steps");
    } else if (strcmp(type, "metrics") == 0) {
        if (!json_object_get(d, "step"))
            d = e;
        w->step = (long long)real(d, "step") + 1;
        w->loss = real(d, "loss");
        w->rate = real(d, "tokens_per_s");
        draw(w);
    } else if (strcmp(type, "state") == 0) {
        wipe(w);
        (void)printf("%s %s%s%s: %s\n", w->job, cli_colour("\033[1m"), str(e, "to"), cli_colour("\033[0m"),
                     str(cause, "text"));
    } else if (strcmp(type, "eval") == 0) {
        wipe(w);
        (void)printf("step %.0f  held-out loss %.4f\n", real(d, "step"), real(d, "loss"));
    } else if (strcmp(type, "checkpoint") == 0) {
        wipe(w);
        if (*str(d, "error"))
            (void)printf("checkpoint of step %.0f failed: %s\n", real(d, "step"), str(d, "error"));
        else
            (void)printf("checkpoint of step %.0f, %.1f MiB\n", real(d, "step"), real(d, "bytes") / 1048576);
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int outcome(struct cli *c, const char *job)
{
    json_t *doc = NULL, *line;
    const json_t *o;
    char path[256];
    size_t i;
    int r;

    (void)snprintf(path, sizeof(path), "/v1/jobs/%.64s", job);
    r = cli_call(c, "GET", path, NULL, NULL, &doc);
    if (r)
        return r;
    o = json_object_get(doc, "outcome");
    r = strcmp(str(doc, "state"), "succeeded") == 0 ? CLI_DONE : CLI_FAILED;
    if (c->json)
        (void)cli_print_json(doc);
    else if (r != CLI_DONE) {
        (void)cli_fail(CLI_FAILED, "%s %s (%s): %s", job, str(doc, "state"), str(o, "class"), str(o, "message"));
        json_array_foreach(json_object_get(o, "log_tail"), i, line) {
            (void)fprintf(stderr, "  | %s\n", json_string_value(line) ? json_string_value(line) : "");
        }
    }
    json_decref(doc);
    return r;
}

static int silent(void *arg, const char *type, const json_t *e)
{
    (void)arg, (void)type, (void)e;
    return 0;
}

int watch_job(struct cli *c, const char *job)
{
    struct watching w = {.c = c, .job = job, .terminal = cli_is_terminal()};
    struct merr err = {""};
    char path[256];
    int r = cli_connect(c);

    if (r)
        return r;
    if (strlen(job) > 64 || strpbrk(job, "/?#% "))
        return cli_fail(CLI_NOT_FOUND, "no job '%.64s'; `muster list` shows those there are", job);
    (void)snprintf(path, sizeof(path), "/v1/jobs/%s/events", job);
    r = client_follow(c->client, path, 120, c->json ? silent : on_event, &w, &err);
    wipe(&w);
    if (r < 0)
        return cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text[0] ? err.text : strerror(-r));
    return outcome(c, job);
}

int watch_run(struct cli *c)
{
    return watch_job(c, c->arg[0]);
}

/* --- nodes and the view of all ------------------------------------------------------------------------- */

static void print_nodes(const json_t *answer)
{
    json_t *node, *slot;
    size_t i, k;

    (void)printf("%-16s %-10s %-16s %s\n", "NODE", "STATE", "ADDRESS", "SLOTS");
    json_array_foreach(json_object_get(answer, "nodes"), i, node) {
        (void)printf("%-16s %-10s %-16s", str(node, "id"), str(node, "state"), str(node, "address"));
        json_array_foreach(json_object_get(node, "slots"), k, slot) {
            const char *job = str(slot, "job");

            (void)printf(" %s:%s", str(slot, "class"), *job ? job : str(slot, "state"));
        }
        (void)printf("\n");
    }
}

int nodes_list(struct cli *c)
{
    json_t *answer = NULL;
    int r = cli_call(c, "GET", "/v1/nodes", NULL, NULL, &answer);

    if (r == 0 && c->json)
        r = cli_print_json(answer);
    else if (r == 0)
        print_nodes(answer);
    json_decref(answer);
    return r;
}

int nodes_act(struct cli *c)
{
    json_t *answer = NULL;
    char path[256];
    int r;

    if (strlen(c->arg[0]) > 128 || strpbrk(c->arg[0], "/?#% "))
        return cli_fail(CLI_NOT_FOUND, "no node '%.64s'; `muster nodes` shows those there are", c->arg[0]);
    (void)snprintf(path, sizeof(path), "/v1/nodes/%s/%s", c->arg[0], c->cmd->name);
    r = cli_call(c, "POST", path, NULL, NULL, &answer);
    if (r == 0 && c->json)
        r = cli_print_json(answer);
    else if (r == 0)
        (void)printf("%s: %s\n", c->cmd->name, c->arg[0]);
    json_decref(answer);
    return r;
}

static int top_once(struct cli *c)
{
    json_t *nodes = NULL, *jobs = NULL, *job;
    size_t i;
    int r = cli_call(c, "GET", "/v1/nodes", NULL, NULL, &nodes);

    if (r == 0)
        r = cli_call(c, "GET", "/v1/jobs?limit=30", NULL, NULL, &jobs);
    if (r == 0) {
        if (cli_is_terminal() && !cli_option(c, "once"))
            (void)printf("\033[H\033[2J");
        print_nodes(nodes);
        (void)printf("\n%-8s %-20s %-11s %-12s %-9s %s\n", "JOB", "NAME", "STATE", "STEP", "LOSS", "TOKENS/S");
        json_array_foreach(json_object_get(jobs, "jobs"), i, job) {
            const json_t *p = json_object_get(job, "progress");

            (void)printf("%-8s %-20.20s %-11s %5.0f/%-6.0f %-9.4f %.0f\n", str(job, "id"), str(job, "name"),
                         str(job, "state"), real(p, "step"), real(p, "steps"), real(p, "loss"),
                         real(p, "tokens_per_s"));
        }
        (void)fflush(stdout);
    }
    json_decref(nodes);
    json_decref(jobs);
    return r;
}

int top_run(struct cli *c)
{
    int r = top_once(c);

    while (r == 0 && !cli_option(c, "once") && cli_is_terminal()) {
        (void)poll(NULL, 0, 1000);
        r = top_once(c);
    }
    return r;
}
