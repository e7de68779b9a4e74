#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/cli/cli.h"

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static long long num(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

/* "/v1/jobs/<id><tail>" with what is no part of an id escaped away: such ids exist nowhere. */
static int job_path(const char *id, const char *tail, char out[256])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (strlen(id) > 64 || strspn(id, good) != strlen(id))
        return cli_fail(CLI_NOT_FOUND, "no job '%.64s'; `muster list` shows those there are", id);
    (void)snprintf(out, 256, "/v1/jobs/%s%s", id, tail);
    return 0;
}

static int override(struct cli *c, json_t *doc)
{
    const char *name = cli_option(c, "name"), *project = cli_option(c, "project");
    long priority;
    int r = 0;

    if (!json_is_object(doc))
        return 0; /* the server says what is wrong */
    if (cli_number(c, "priority", 0, 100, -1, &priority) < 0)
        return CLI_USAGE;
    if (name)
        r |= json_object_set_new(doc, "name", json_string(name));
    if (project)
        r |= json_object_set_new(doc, "project", json_string(project));
    if (priority >= 0)
        r |= json_object_set_new(doc, "priority", json_integer(priority));
    return r ? cli_fail(CLI_USAGE, "--name or --project is not UTF-8") : 0;
}

static int print_plan(struct cli *c, json_t *answer)
{
    const json_t *plan = json_object_get(answer, "plan"), *layout = json_object_get(plan, "layout"), *v;
    const char *key;
    int r = CLI_DONE;

    if (c->json) {
        r = cli_print_json(answer);
    } else {
        (void)printf("the spec is good");
        if (layout)
            (void)printf("; it would run as tp %lld x pp %lld x cp %lld x dp %lld", num(layout, "tp"),
                         num(layout, "pp"), num(layout, "cp"), num(layout, "dp"));
        (void)printf("\n");
        json_object_foreach((json_t *)plan, key, v) {
            char *text = json_is_object(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

            if (text)
                (void)printf("  %-14s %s\n", key, text);
            free(text);
        }
    }
    json_decref(answer);
    return r;
}

static int dry_run(struct cli *c, json_t *doc)
{
    json_t *answer = NULL;
    int r = cli_call(c, "POST", "/v1/jobs?dry_run=1", doc, NULL, &answer);

    return r ? r : print_plan(c, answer);
}

int jobs_plan(struct cli *c)
{
    json_t *doc = NULL;
    int r = cli_read_spec(c->arg[0], &doc);

    if (r == 0)
        r = dry_run(c, doc);
    json_decref(doc);
    return r;
}

/* A key of chance: a submit that is sent again after a loss of contact queues one job. */
static const char *submit_key(struct cli *c, char own[40])
{
    const char *given = cli_option(c, "key");
    unsigned char b[16];

    if (given)
        return given;
    if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
        return NULL;
    for (size_t i = 0; i < sizeof(b); i++)
        (void)snprintf(own + 2 * i, 3, "%02x", b[i]);
    return own;
}

int jobs_submit(struct cli *c)
{
    json_t *doc = NULL, *job = NULL;
    char own[40];
    int r = cli_read_spec(c->arg[0], &doc);

    if (r == 0)
        r = override(c, doc);
    if (r == 0 && cli_option(c, "dry-run")) {
        r = dry_run(c, doc);
        json_decref(doc);
        return r;
    }
    if (r == 0)
        r = cli_call(c, "POST", "/v1/jobs", doc, submit_key(c, own), &job);
    if (r == 0 && c->json && !cli_option(c, "watch"))
        r = cli_print_json(job);
    else if (r == 0 && !c->json)
        (void)printf("submitted %s (%s)\n", str(job, "id"), str(job, "name"));
    if (r == 0 && cli_option(c, "watch")) {
        (void)fflush(stdout);
        r = watch_job(c, str(job, "id"));
    }
    json_decref(doc);
    json_decref(job);
    return r;
}

static void print_row(const json_t *job)
{
    const json_t *p = json_object_get(job, "progress"), *d = json_object_get(job, "devices");
    char progress[48] = "";

    if (json_is_object(p) && num(p, "steps") > 0)
        (void)snprintf(progress, sizeof(progress), "%lld/%lld", num(p, "step"), num(p, "steps"));
    (void)printf("%-8s %-20.20s %-11s %-8s %3lld  %3lld/%-5lld %-12s %s\n", str(job, "id"), str(job, "name"),
                 str(job, "state"), str(job, "kind"), num(job, "priority"), num(d, "assigned"), num(d, "max"),
                 progress, str(json_object_get(job, "reason"), "text"));
}

int jobs_list(struct cli *c)
{
    const char *state = cli_option(c, "state");
    json_t *answer = NULL, *job;
    char path[256];
    long limit;
    size_t i;
    int r;

    if (cli_number(c, "limit", 1, 1000, 100, &limit) < 0)
        return CLI_USAGE;
    if (state && strspn(state, "abcdefghijklmnopqrstuvwxyz") != strlen(state))
        return cli_fail(CLI_USAGE, "--state '%s': want a state such as running", state);
    (void)snprintf(path, sizeof(path), "/v1/jobs?limit=%ld%s%.32s", limit, state ? "&state=" : "", state ? state : "");
    r = cli_call(c, "GET", path, NULL, NULL, &answer);
    if (r)
        return r;
    if (c->json) {
        r = cli_print_json(answer);
    } else {
        (void)printf("%-8s %-20s %-11s %-8s %3s  %-9s %-12s %s\n", "JOB", "NAME", "STATE", "KIND", "PRI", "DEVICES",
                     "STEP", "WHY");
        json_array_foreach(json_object_get(answer, "jobs"), i, job) {
            print_row(job);
        }
        if (json_is_string(json_object_get(answer, "next_cursor")))
            (void)printf("there are more; -n shows up to 1000\n");
    }
    json_decref(answer);
    return r;
}

static void print_job(const json_t *job)
{
    static const char *const lines[] = {"name", "project", "kind", "user", "state", "submitted_at", "started_at",
                                        "finished_at", "dir"};
    const json_t *p = json_object_get(job, "progress"), *l = json_object_get(job, "layout"), *v;
    const json_t *o = json_object_get(job, "outcome"), *k = json_object_get(job, "checkpoint");
    size_t i;

    (void)printf("job           %s\n", str(job, "id"));
    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (*str(job, lines[i]))
            (void)printf("%-13s %s\n", lines[i], str(job, lines[i]));
    (void)printf("why           %s\n", str(json_object_get(job, "reason"), "text"));
    (void)printf("generation    %lld\n", num(job, "generation"));
    if (json_is_object(l))
        (void)printf("layout        tp %lld x pp %lld x cp %lld x dp %lld\n", num(l, "tp"), num(l, "pp"), num(l, "cp"),
                     num(l, "dp"));
    if (json_is_object(p))
        (void)printf("progress      step %lld of %lld, loss %.4f, %.0f tokens/s\n", num(p, "step"), num(p, "steps"),
                     json_number_value(json_object_get(p, "loss")),
                     json_number_value(json_object_get(p, "tokens_per_s")));
    if (json_is_object(k))
        (void)printf("checkpoint    step %lld in %s\n", num(k, "step"), str(k, "path"));
    json_array_foreach(json_object_get(job, "assignment"), i, v) {
        (void)printf("rank %-8lld %s slot %lld\n", num(v, "rank"), str(v, "node"), num(v, "slot"));
    }
    if (json_is_object(o)) {
        (void)printf("outcome       %s: %s\n", str(o, "class"), str(o, "message"));
        json_array_foreach(json_object_get(o, "log_tail"), i, v) {
            (void)printf("  | %s\n", json_string_value(v) ? json_string_value(v) : "");
        }
    }
}

int jobs_show(struct cli *c)
{
    json_t *job = NULL;
    char path[256];
    int r = job_path(c->arg[0], "", path);

    if (r == 0)
        r = cli_call(c, "GET", path, NULL, NULL, &job);
    if (r)
        return r;
    if (c->json)
        r = cli_print_json(job);
    else
        print_job(job);
    json_decref(job);
    return r;
}

int jobs_explain(struct cli *c)
{
    json_t *answer = NULL, *cause, *hint;
    char path[256];
    size_t i, k;
    int r = job_path(c->arg[0], "/explain", path);

    if (r == 0)
        r = cli_call(c, "GET", path, NULL, NULL, &answer);
    if (r)
        return r;
    if (c->json) {
        r = cli_print_json(answer);
    } else {
        (void)printf("%s is %s: %s\n", str(answer, "job"), str(answer, "state"), str(answer, "summary"));
        json_array_foreach(json_object_get(answer, "causes"), i, cause) {
            (void)printf("  %s: %s\n", str(cause, "code"), str(cause, "text"));
            json_array_foreach(json_object_get(cause, "would_help"), k, hint) {
                (void)printf("    would help: %s\n", json_string_value(hint) ? json_string_value(hint) : "");
            }
        }
    }
    json_decref(answer);
    return r;
}

/* suspend, resume, cancel: the command's name is the action's. */
static int act(struct cli *c, const char *action, const char *said)
{
    json_t *job = NULL;
    char path[256], tail[32], own[40];
    int r;

    (void)snprintf(tail, sizeof(tail), "/%s", action);
    r = job_path(c->arg[0], tail, path);
    if (r == 0)
        r = cli_call(c, "POST", path, NULL, submit_key(c, own), &job);
    if (r == 0 && c->json)
        r = cli_print_json(job);
    else if (r == 0)
        (void)printf("%s %s\n", said, c->arg[0]);
    json_decref(job);
    return r;
}

int jobs_act(struct cli *c)
{
    return act(c, c->cmd->name, strcmp(c->cmd->name, "cancel") == 0    ? "cancelling"
                                : strcmp(c->cmd->name, "resume") == 0 ? "resuming"
                                                                      : "suspending");
}

int jobs_checkpoint_now(struct cli *c)
{
    return act(c, "checkpoint", "asked for a checkpoint of");
}

int jobs_unbuilt(struct cli *c)
{
    return cli_fail(CLI_REFUSED, "`muster %s` is not built yet in this version%s", c->cmd->name,
                    strcmp(c->cmd->name, "scale") == 0 ? "; cancel the job and submit it with other devices" : "");
}

/* --- events and logs ----------------------------------------------------------------------------------- */

static void print_event(const json_t *e)
{
    const json_t *cause = json_object_get(e, "cause");
    const char *to = str(e, "to");
    char *data = NULL;

    if (!*to && json_object_size(json_object_get(e, "data")) > 0 && strcmp(str(e, "type"), "submitted") != 0)
        data = json_dumps(json_object_get(e, "data"), JSON_COMPACT);
    (void)printf("%s %-6s %-10s %s%s%s %s %s\n", str(e, "at"), str(e, "job"), str(e, "type"), str(e, "from"),
                 *to ? " -> " : "", to, str(cause, "text"), data ? data : "");
    free(data);
}

static int on_event(void *arg, const char *type, const json_t *data)
{
    struct cli *c = arg;

    if (!*type || !data || strcmp(type, "metrics") == 0 || strcmp(type, "log") == 0)
        return 0;
    if (c->json) {
        (void)json_dumpf(data, stdout, JSON_COMPACT);
        (void)fputc('\n', stdout);
    } else {
        print_event(data);
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int follow(struct cli *c, const char *path, client_event_fn *fn)
{
    struct merr err = {""};
    int r = cli_connect(c);

    if (r)
        return r;
    r = client_follow(c->client, path, 60, fn, c, &err);
    return r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text[0] ? err.text : strerror(-r)) : 0;
}

int jobs_events(struct cli *c)
{
    json_t *answer = NULL, *e;
    char path[256] = "/v1/events";
    size_t i;
    int r = c->n ? job_path(c->arg[0], "/events", path) : 0;

    if (r)
        return r;
    if (cli_option(c, "follow"))
        return follow(c, path, on_event);
    r = cli_call(c, "GET", path, NULL, NULL, &answer);
    if (r)
        return r;
    if (c->json)
        r = cli_print_json(answer);
    else
        json_array_foreach(json_object_get(answer, "events"), i, e) {
            print_event(e);
        }
    json_decref(answer);
    return r;
}

struct log_reader {
    struct cli *c;
    long long rank; /* or -1 */
    struct at {
        long long rank, generation, next;
    } at[1024]; /* how far each log has been printed */
    size_t n;
};

/* Print what of a piece is new. */
static int print_piece(struct log_reader *l, const json_t *piece, bool many)
{
    const char *text = str(piece, "text"), *end;
    long long rank = num(piece, "rank"), generation = num(piece, "generation"), offset = num(piece, "offset");
    size_t i = 0, len = strlen(text), skip = 0;

    if (l->rank >= 0 && rank != l->rank)
        return 0;
    while (i < l->n && (l->at[i].rank != rank || l->at[i].generation != generation))
        i++;
    if (i < l->n && offset < l->at[i].next)
        skip = (size_t)(l->at[i].next - offset);
    if (skip >= len)
        return 0;
    if (i == l->n && l->n < sizeof(l->at) / sizeof(l->at[0]))
        l->n++;
    if (i < l->n)
        l->at[i] = (struct at){.rank = rank, .generation = generation, .next = offset + (long long)len};
    for (text += skip; *text; text = *end ? end + 1 : end) {
        end = strchr(text, '\n');
        if (!end)
            end = text + strlen(text);
        if (many)
            (void)printf("[%lld] ", rank);
        (void)printf("%.*s\n", (int)(end - text), text);
    }
    return fflush(stdout) == 0 ? 0 : -EIO;
}

static int on_log(void *arg, const char *type, const json_t *e)
{
    struct log_reader *l = arg;
    const json_t *piece;
    size_t i;

    if (strcmp(type, "log") != 0)
        return 0;
    piece = json_object_get(e, "data") ? json_object_get(e, "data") : e;
    if (!json_is_array(json_object_get(piece, "logs")))
        return print_piece(l, piece, l->rank < 0);
    json_array_foreach(json_object_get(piece, "logs"), i, piece) {
        (void)print_piece(l, piece, l->rank < 0);
    }
    return 0;
}

static int print_logs(struct cli *c, struct log_reader *l, const char *path)
{
    json_t *answer = NULL, *piece;
    size_t i, n;
    int r = cli_call(c, "GET", path, NULL, NULL, &answer);

    if (r)
        return r;
    n = json_array_size(json_object_get(answer, "logs"));
    if (c->json)
        r = cli_print_json(answer);
    else
        json_array_foreach(json_object_get(answer, "logs"), i, piece) {
            (void)print_piece(l, piece, n > 1);
        }
    json_decref(answer);
    return r;
}

int jobs_logs(struct cli *c)
{
    struct log_reader *l = calloc(1, sizeof(*l));
    struct merr err = {""};
    char path[256], tail[64] = "/logs";
    long rank;
    int r;

    if (!l)
        return cli_fail(CLI_FAILED, "no memory");
    r = cli_number(c, "rank", 0, 65535, -1, &rank) < 0 ? CLI_USAGE : 0;
    l->rank = rank;
    l->c = c;
    if (r == 0 && rank >= 0)
        (void)snprintf(tail, sizeof(tail), "/logs?rank=%ld", rank);
    if (r == 0)
        r = job_path(c->arg[0], tail, path);
    if (r == 0)
        r = print_logs(c, l, path);
    if (r == 0 && cli_option(c, "follow")) {
        (void)snprintf(tail, sizeof(tail), rank >= 0 ? "/logs?follow=1&rank=%ld" : "/logs?follow=1", rank);
        (void)job_path(c->arg[0], tail, path);
        r = client_follow(c->client, path, 60, on_log, l, &err);
        r = r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text) : print_logs(c, l, path);
    }
    free(l);
    return r;
}
