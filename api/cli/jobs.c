/* Jobs: submit, plan, list, show, explain and what changes them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/promises.h"
#include "api/cli/upload.h"
#include "api/cli/commands.h"
#include "api/spec.h"
#include "api/times.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/plan/layout.h"

#define SNAPSHOT_BYTES_MAX (64u << 20) /* as the server's */

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

static int check_views(const struct cli *c)
{
    return cli_option(c, "watch") && cli_option(c, "follow") ? cli_fail(CLI_USAGE, "want --watch or --follow, not both")
                                                             : 0;
}

/* Queue doc and say so, or follow what came of it. */
static int queue(struct cli *c, const json_t *doc)
{
    bool watch = cli_option(c, "watch"), follow = cli_option(c, "follow");
    json_auto_t *job = NULL;
    char own[40];
    const char *key = submit_key(c, own);

    if (!key)
        return cli_fail(CLI_FAILED, "no random numbers for an idempotency key: %s", strerror(errno));
    TRY(cli_send_spec(c, "/v1/jobs", c->arg[0], doc, key, &job));
    if (c->json && !watch && !follow)
        TRY(cli_print_json(job));
    else if (!c->json)
        (void)printf("%s %s (%s)\n", client_status(c->client) == 200 ? "submitted before:" : "submitted",
                     cli_str(job, "id"), cli_str(job, "name"));
    (void)fflush(stdout);
    if (watch)
        return watch_job(c, cli_str(job, "id"));
    return follow ? logs_submitted(c, cli_str(job, "id")) : CLI_DONE;
}

/* Queue all jobs of a list, or none, and say so. */
static int queue_all(struct cli *c, const json_t *doc)
{
    json_auto_t *answer = NULL;
    const char *key;
    const json_t *job;
    char own[40];
    size_t i;

    if (cli_option(c, "watch") || cli_option(c, "follow") || cli_option(c, "dry-run"))
        return cli_fail(CLI_USAGE, "--watch, --follow and --dry-run are of one job; the file has a list of them");
    if (cli_option(c, "upload") || cli_option(c, "git"))
        return cli_fail(CLI_USAGE, "--upload and --git are of one job; the file has a list of them");
    json_array_foreach (json_object_get(doc, "jobs"), i, job) {
        if (!cli_option(c, "no-check-files"))
            TRY(cli_check_files(c->arg[0], job));
    }
    key = submit_key(c, own);
    if (!key)
        return cli_fail(CLI_FAILED, "no random numbers for an idempotency key: %s", strerror(errno));
    TRY(cli_send_spec(c, "/v1/jobs:batch", c->arg[0], doc, key, &answer));
    if (c->json)
        return cli_print_json(answer);
    json_array_foreach (json_object_get(answer, "jobs"), i, job) {
        (void)printf("%s %s (%s)\n", client_status(c->client) == 200 ? "submitted before:" : "submitted",
                     cli_str(job, "id"), json_is_string(json_object_get(job, "name")) ? cli_str(job, "name") : "job");
    }
    return CLI_DONE;
}

int jobs_submit(struct cli *c)
{
    json_auto_t *doc = NULL;

    TRY(check_views(c));
    if (c->given.rest ? c->n > 0 || !c->given.rest[0] : c->n == 0)
        return cli_fail(CLI_USAGE, "want a file with a spec, or -- and a program with its arguments: `muster submit "
                                   "job.yaml`, `muster submit --devices 2 -- python3 train.py`");
    if (c->given.rest)
        c->given.arg[0] = "the command line"; /* where faults of its spec are */
    TRY(c->given.rest ? cli_program_spec(c, c->given.rest, &doc) : cli_read_spec(c, c->arg[0], &doc));
    if (json_is_array(json_object_get(doc, "jobs")))
        return queue_all(c, doc);
    TRY(arrays_add(c, doc));
    TRY(upload_add(c, doc));
    if (!cli_option(c, "no-check-files"))
        TRY(cli_check_files(c->arg[0], doc));
    return cli_option(c, "dry-run") ? plan_dry_run(c, doc) : queue(c, doc);
}

int jobs_resubmit(struct cli *c)
{
    json_auto_t *job = NULL, *doc = NULL;
    char path[256];

    TRY(check_views(c));
    TRY(cli_job_path(c->arg[0], "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &job));
    if (!json_is_object(json_object_get(job, "spec")))
        return cli_fail(CLI_FAILED, "%s has no spec that could be submitted again", c->arg[0]);
    TRY(cli_spec_again(c, json_object_get(job, "spec"), &doc));
    return cli_option(c, "dry-run") ? plan_dry_run(c, doc) : queue(c, doc);
}

/* --- showing ------------------------------------------------------------------------------------------- */

/* Of a job that has ended: those of its last attempt. */
static long long devices_had(const json_t *job)
{
    const json_t *l = json_object_get(job, "layout");

    return cli_int(l, "tp") * cli_int(l, "pp") * cli_int(l, "cp") * cli_int(l, "dp");
}

static void print_jobs(json_t *jobs)
{
    static const struct cli_table table = {
        .head = {"JOB", "NAME", "USER", "STATE", "AHEAD", "KIND", "PRI", "DEVICES", "STEP", "TIME", "WHY"},
        .n = 11,
        .right = 1 << 4 | 1 << 6,
        .state = 3,
        .spare = {5, 2, 6, 4, 7}};
    json_t *rows = json_array(), *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        const json_t *p = json_object_get(job, "progress"), *d = json_object_get(job, "devices");
        char progress[48] = "-", devices[48], priority[16], name[24], time[CLI_DURATION_MAX], id[320];
        const json_t *queue = json_object_get(job, "queue");
        char ahead[24] = "";

        if (queue)
            (void)snprintf(ahead, sizeof(ahead), "%lld", cli_int(queue, "ahead"));
        if (json_is_object(p) && cli_int(p, "steps") > 0)
            (void)snprintf(progress, sizeof(progress), "%lld/%lld", cli_int(p, "step"), cli_int(p, "steps"));
        else if (json_is_object(p)) /* of a command, which tells no end */
            (void)snprintf(progress, sizeof(progress), "%lld", cli_int(p, "step"));
        else if (json_object_get(job, "array"))
            arrays_progress(job, progress, sizeof(progress));
        arrays_id(job, id);
        if (cli_job_ended(job))
            (void)snprintf(devices, sizeof(devices), "%lld", devices_had(job));
        else
            (void)snprintf(devices, sizeof(devices), "%lld/%lld", cli_int(d, "assigned"), cli_int(d, "max"));
        (void)snprintf(priority, sizeof(priority), "%lld", cli_int(job, "priority"));
        (void)snprintf(name, sizeof(name), "%.20s", cli_str(job, "name"));
        cli_job_time(job, time);
        (void)cli_row(rows,
                      (const char *[]){id, name, cli_str(job, "user"), cli_str(job, "state"), ahead,
                                       cli_str(job, "kind"), priority, devices, progress, time, cli_job_why(job)},
                      11);
    }
    cli_print_table_new(&table, rows);
}

static const char *const selectors[] = {"state", "project", "user", "name", "label"};

/* "&parameter=value" of an option at the end of path; value is a word of these letters. */
static int add_filter(const struct cli *c, const char *name, const char *parameter, char *path, size_t size)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-,@/=!";
    const char *value = cli_option(c, name);
    size_t len = strlen(path);

    if (!value)
        return 0;
    if (!*value || strlen(value) > 256 || strspn(value, good) != strlen(value))
        return cli_fail(CLI_USAGE, "--%s '%.64s': want %s", name, value,
                        strcmp(name, "state") == 0   ? "states such as running,queued, or active"
                        : strcmp(name, "label") == 0 ? "labels such as team=nlp,stage!=test"
                                                     : "a name");
    (void)snprintf(path + len, size - len, "&%s=%s", parameter, value);
    return 0;
}

int jobs_list(struct cli *c)
{
    json_t *answer = NULL;
    char filters[1400] = "";
    int r = 0;

    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++)
        TRY(add_filter(c, selectors[i], strcmp(selectors[i], "name") == 0 ? "name~" : selectors[i], filters,
                       sizeof(filters)));
    TRY(add_filter(c, "tasks", "array", filters, sizeof(filters)));
    TRY(cli_pages(c, "/v1/jobs", filters, "jobs", cli_number(c, "limit", 0), &answer));
    if (c->json) {
        r = cli_print_json(answer);
    } else if (json_array_size(json_object_get(answer, "jobs")) == 0) {
        (void)fprintf(stderr, "%s\n", *filters ? "no such jobs" : "no jobs yet; queue one with `muster submit FILE`");
    } else {
        print_jobs(json_object_get(answer, "jobs"));
        if (json_is_string(json_object_get(answer, "next_cursor")))
            (void)fprintf(stderr, "there are older ones; --limit N shows more\n");
    }
    if (!c->json)
        quarantine_tell(answer);
    json_decref(answer);
    return r;
}

static void print_progress(const json_t *job)
{
    const json_t *p = json_object_get(job, "progress"), *e = json_object_get(job, "eval");
    bool runs = strcmp(cli_str(job, "state"), "running") == 0 && cli_real(p, "eta_s") > 0;
    char eta[CLI_DURATION_MAX] = "";

    if (runs)
        cli_duration(cli_real(p, "eta_s"), eta);
    if (json_is_object(p)) {
        (void)printf("progress      step %lld", cli_int(p, "step"));
        if (cli_int(p, "steps") > 0)
            (void)printf(" of %lld", cli_int(p, "steps"));
        if (json_is_number(json_object_get(p, "loss")))
            (void)printf(", loss %.4f", cli_real(p, "loss"));
        if (json_is_number(json_object_get(p, "tokens_per_s")))
            (void)printf(", %.0f tokens/s", cli_real(p, "tokens_per_s"));
        (void)printf("%s%s%s\n", runs ? ", " : "", eta, runs ? " left" : "");
    }
    if (json_is_number(json_object_get(e, "loss")))
        (void)printf("evaluation    loss %.4f at step %lld\n", cli_real(e, "loss"), cli_int(e, "step"));
}

/* What was predicted, what was measured. */
static void print_plan(const json_t *plan)
{
    if (!json_is_object(plan))
        return;
    (void)printf("plan          %.4g ms a step predicted", cli_real(plan, "predicted_step_ms"));
    if (json_is_number(json_object_get(plan, "error_percent"))) {
        double off = cli_real(plan, "error_percent");

        (void)printf(", %.4g ms measured: %.1f %% too %s", cli_real(plan, "measured_step_ms"), fabs(off),
                     off < 0 ? "low" : "high");
    }
    (void)printf("\n");
}

static void print_array(const json_t *array)
{
    const char *state;
    json_t *n;

    if (!array)
        return;
    (void)printf("tasks         %lld, at most %lld running:", cli_int(array, "count"), cli_int(array, "max_running"));
    json_object_foreach (json_object_get(array, "tasks"), state, n) {
        if (json_integer_value(n) > 0)
            (void)printf(" %lld %s", (long long)json_integer_value(n), state);
    }
    (void)printf("\n");
}

/* What its program says that it was given, or came to, in one line. */
static void print_told(const json_t *job, const char *name)
{
    const json_t *told = json_object_get(job, name);
    const char *key;
    json_t *value;
    bool more = false;

    if (json_object_size(told) == 0)
        return;
    (void)printf("%-13s ", name);
    json_object_foreach ((json_t *)told, key, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

        (void)printf("%s", more ? ", " : "");
        cli_print_text(key);
        (void)printf(" ");
        cli_print_text(json_is_string(value) ? json_string_value(value) : text ? text : "");
        free(text);
        more = true;
    }
    (void)printf("\n");
}

static void print_job(const json_t *job)
{
    static const char *const lines[] = {"name",         "project",    "kind",        "user",
                                        "submitted_at", "started_at", "finished_at", "dir"};
    const json_t *d = json_object_get(job, "devices"), *l = json_object_get(job, "layout"), *v;
    json_t *port;
    const json_t *o = json_object_get(job, "outcome"), *k = json_object_get(job, "checkpoint");
    const char *state = cli_str(job, "state");
    char time[CLI_DURATION_MAX];
    const char *name;
    size_t i;

    (void)printf("job           %s\nstate         %s%s%s: ", cli_str(job, "id"), cli_state_colour(state), state,
                 *cli_state_colour(state) ? cli_colour("\033[0m") : "");
    cli_print_text(cli_str(json_object_get(job, "reason"), "text"));
    (void)printf("\n");
    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (*cli_str(job, lines[i]))
            (void)printf("%-13s %s\n", lines[i], cli_str(job, lines[i]));
    cli_job_time(job, time);
    (void)printf("%-13s %s\n",
                 !*cli_str(job, "started_at")   ? "waiting"
                 : *cli_str(job, "finished_at") ? "took"
                                                : "running",
                 time);
    (void)printf("priority      %lld\nattempt       %lld\ndevices       %s%lld (%lld to %lld allowed)\n",
                 cli_int(job, "priority"), cli_int(job, "generation"), cli_job_ended(job) ? "used " : "",
                 cli_job_ended(job) ? devices_had(job) : cli_int(d, "assigned"), cli_int(d, "min"), cli_int(d, "max"));
    if (json_is_object(l) && strcmp(cli_str(job, "kind"), "train") == 0)
        (void)printf("layout        tp %lld x pp %lld x cp %lld x dp %lld\n", cli_int(l, "tp"), cli_int(l, "pp"),
                     cli_int(l, "cp"), cli_int(l, "dp"));
    promises_print(job);
    print_plan(json_object_get(job, "plan"));
    print_array(json_object_get(job, "array"));
    print_progress(job);
    print_told(job, "config");
    print_told(job, "summary");
    if (json_is_object(k))
        (void)printf("checkpoint    step %lld in %s\n", cli_int(k, "step"), cli_str(k, "path"));
    json_array_foreach (json_object_get(job, "assignment"), i, v) {
        (void)printf("rank %-8lld %s device %lld (%s)\n", cli_int(v, "rank"), cli_str(v, "node"), cli_int(v, "slot"),
                     cli_str(v, "class"));
    }
    json_object_foreach (json_object_get(job, "ports"), name, port)
        (void)printf("port          %lld is '%s': muster port-forward %s %s\n", json_integer_value(port), name,
                     cli_str(job, "id"), name);
    json_array_foreach (json_object_get(job, "slow"), i, v) {
        (void)printf("slow          ");
        cli_print_text(cli_str(v, "text"));
        (void)printf("\n");
    }
    if (json_is_object(o) && strcmp(cli_str(o, "class"), "done") != 0) { /* of one that is done all is said */
        (void)printf("outcome       %s: ", cli_str(o, "class"));
        cli_print_text(cli_str(o, "message"));
        (void)printf("\n");
        json_array_foreach (json_object_get(o, "log_tail"), i, v) {
            (void)printf("  | ");
            cli_print_text(json_string_value(v) ? json_string_value(v) : "");
            (void)printf("\n");
        }
    }
}

int jobs_show(struct cli *c)
{
    json_t *job = NULL;
    char path[256];
    int r = 0;

    if (cli_option(c, "ranks"))
        return ranks_show(c);
    TRY(cli_job_path(c->arg[0], "", path));
    TRY(cli_call(c, "GET", path, NULL, NULL, &job));
    if (c->json)
        r = cli_print_json(job);
    else
        print_job(job);
    json_decref(job);
    return r;
}

/* What the scheduler sees now, into a file. Returns an exit status. */
static int save_snapshot(struct cli *c, const char *file)
{
    struct merr err;
    struct buf b;
    int r = cli_connect(c);

    if (r)
        return r;
    buf_init(&b, SNAPSHOT_BYTES_MAX);
    r = client_text(c->client, "/v1/cluster/snapshot", &b, &err);
    if (r < 0)
        r = cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text);
    else if (io_write_file(file, buf_text(&b), b.len, 0644, &err) < 0)
        r = cli_fail(CLI_FAILED, "%s", err.text);
    buf_clear(&b);
    return r;
}

void cli_print_cause(const json_t *cause, const char *said)
{
    const json_t *starts = json_object_get(cause, "starts"), *behind = json_object_get(cause, "behind");
    char start[PROMISES_START_MAX];
    json_t *item;
    size_t i;

    if (!said || strcmp(cli_str(cause, "text"), said) != 0)
        (void)printf("  %s: %s\n", cli_str(cause, "code"), cli_str(cause, "text"));
    json_array_foreach (json_object_get(cause, "classes"), i, item) {
        (void)printf("    %s: %lld devices, %lld free, %lld drained\n", cli_str(item, "class"), cli_int(item, "total"),
                     cli_int(item, "free"), cli_int(item, "drained"));
    }
    json_array_foreach (behind, i, item) {
        (void)printf("%s%s%s", i ? ", " : "    behind: ", json_string_value(item) ? json_string_value(item) : "",
                     i + 1 == json_array_size(behind) ? "\n" : "");
    }
    promises_start(starts, start);
    if (*start)
        (void)printf("    starts %s\n", start);
    json_array_foreach (json_object_get(cause, "would_help"), i, item) {
        (void)printf("    would help: %s\n", json_string_value(item) ? json_string_value(item) : "");
    }
}

/* How fast the scheduler takes the job to be. */
static void print_rate(const json_t *rate)
{
    long long count = cli_int(rate, "count");
    double steps_per_s = json_number_value(json_object_get(rate, "steps_per_s"));

    (void)printf("  on %lld %s: %.4g steps a second, ", cli_int(rate, "devices"), cli_str(rate, "class"), steps_per_s);
    if (count > 0)
        (void)printf("measured %lld time%s, within %.1f %%\n", count, count == 1 ? "" : "s",
                     100 * json_number_value(json_object_get(rate, "spread")));
    else
        (void)printf("expected by %s\n", cli_str(rate, "from"));
}

int jobs_explain(struct cli *c)
{
    const char *file = cli_option(c, "save");
    json_t *answer = NULL, *cause;
    char path[256];
    size_t i;
    int r = 0;

    TRY(cli_job_path(c->arg[0], "/explain", path));
    if (file)
        TRY(save_snapshot(c, file));
    TRY(cli_call(c, "GET", path, NULL, NULL, &answer));
    if (c->json) {
        r = cli_print_json(answer);
    } else {
        const char *state = cli_str(answer, "state"), *summary = cli_str(answer, "summary");
        bool verb = strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0;

        (void)printf("%s %s%s: %s\n", cli_str(answer, "job"), verb ? "" : "is ", state, summary);
        json_array_foreach (json_object_get(answer, "causes"), i, cause) {
            if (strcmp(state, "succeeded") != 0) /* there all is said */
                cli_print_cause(cause, summary);
        }
        json_array_foreach (json_object_get(answer, "rates"), i, cause) {
            print_rate(cause);
        }
    }
    json_decref(answer);
    return r;
}

static int act(struct cli *c, const char *id, const char *action, const char *said, const json_t *body, json_t **ret)
{
    char path[256], tail[32], own[40];

    (void)snprintf(tail, sizeof(tail), "/%s", action);
    TRY(cli_job_path(id, tail, path));
    TRY(cli_call(c, "POST", path, body, submit_key(c, own), ret));
    if (!c->json)
        (void)printf("%s %s\n", said, id);
    return 0;
}

/* All jobs named, also when one is refused. Returns the first exit status that is not 0. */
static int act_on_all(struct cli *c, const char *action, const char *said, const json_t *body)
{
    json_t *jobs = json_array(), *id;
    json_auto_t *ids = json_array();
    int first = 0;
    size_t i;

    for (int k = 0; k < c->n && first == 0; k++)
        first = arrays_name_tasks(c->arg[k], ids);
    if (first)
        json_array_clear(ids);
    json_array_foreach (ids, i, id) {
        json_t *job = NULL;
        int r = act(c, json_string_value(id), action, said, body, &job);

        first = first ? first : r;
        if (r == 0)
            (void)json_array_append_new(jobs, job);
    }
    if (c->json && json_array_size(ids) > 1)
        (void)cli_print_json_new(json_pack("{s:O}", "jobs", jobs));
    else if (c->json && first == 0)
        first = cli_print_json(json_array_get(jobs, 0));
    json_decref(jobs);
    return first;
}

/* suspend, resume, cancel: the command's name is the action's. */
int jobs_act(struct cli *c)
{
    return act_on_all(c, c->cmd->name, strcmp(c->cmd->name, "cancel") == 0 ? "cancelling" : "suspending", NULL);
}

int jobs_resume(struct cli *c)
{
    const char *text = cli_option(c, "time");
    json_auto_t *body = NULL;
    int more = 0;

    if (text && (*text != '+' || times_parse(text + 1, &more) < 0 || more < 1))
        return cli_fail(CLI_USAGE, "--time wants the time to add, as +3600 (seconds), +90m or +4:00:00, not '%s'",
                        text);
    if (text && !text[strspn(text + 1, "0123456789") + 1]) /* a number alone is seconds, as in a spec */
        more /= 60;
    if (text)
        body = json_pack("{s:{s:i}}", "limits", "more_s", more);
    return act_on_all(c, "resume", "resuming", body);
}

/* The jobs that a selector names, page by page; new. dry_run: nothing is done to them. */
static int cancel_selected(struct cli *c, json_t *selector, bool dry_run, json_t **ret)
{
    json_t *all = json_array();
    char cursor[32] = "";

    do {
        json_auto_t *page = NULL;
        json_auto_t *body =
            json_pack("{s:O, s:b, s:s*}", "selector", selector, "dry_run", dry_run, "cursor", *cursor ? cursor : NULL);
        int r = cli_call(c, "POST", "/v1/jobs:cancel", body, NULL, &page);

        if (r) {
            json_decref(all);
            return r;
        }
        (void)json_array_extend(all, json_object_get(page, "jobs"));
        (void)snprintf(cursor, sizeof(cursor), "%s", cli_str(page, "next_cursor"));
    } while (*cursor);
    *ret = all;
    return 0;
}

/* Whether the person at the terminal agrees. */
static int ask(const json_t *jobs)
{
    char answer[16] = "";

    if (!isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "%zu jobs would be cancelled; --yes does it, --dry-run shows them",
                        json_array_size(jobs));
    (void)fprintf(stderr, "cancel %zu jobs? [y/N] ", json_array_size(jobs));
    if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
        return cli_fail(CLI_FAILED, "nothing is cancelled");
    return 0;
}

static int cancel_by_options(struct cli *c, json_t *selector)
{
    json_auto_t *jobs = NULL;
    const json_t *job;
    size_t i;

    if (!cli_option(c, "yes") || cli_option(c, "dry-run"))
        TRY(cancel_selected(c, selector, true, &jobs));
    if (!cli_option(c, "dry-run") && !cli_option(c, "yes") && json_array_size(jobs) > 0)
        TRY(ask(jobs));
    if (!cli_option(c, "dry-run")) {
        json_decref(jobs);
        jobs = NULL;
        TRY(cancel_selected(c, selector, false, &jobs));
    }
    if (c->json)
        return cli_print_json_new(json_pack("{s:O}", "jobs", jobs));
    json_array_foreach (jobs, i, job) {
        (void)printf("%s %s\n", cli_option(c, "dry-run") ? "would cancel" : "cancelling", cli_str(job, "id"));
    }
    if (json_array_size(jobs) == 0)
        (void)fprintf(stderr, "no such jobs\n");
    return 0;
}

int jobs_cancel(struct cli *c)
{
    json_auto_t *selector = json_object();

    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++)
        if (cli_option(c, selectors[i]) &&
            json_object_set_new(selector, selectors[i], json_string(cli_option(c, selectors[i]))) < 0)
            return cli_fail(CLI_USAGE, "--%s is not UTF-8", selectors[i]);
    if ((c->n > 0) == (json_object_size(selector) > 0))
        return cli_fail(CLI_USAGE, "want jobs, or options that select some, such as --user or --state; not both");
    if (c->n == 0)
        return cancel_by_options(c, selector);
    return cli_option(c, "dry-run") ? cli_fail(CLI_USAGE, "--dry-run is for jobs that options select") : jobs_act(c);
}

int jobs_checkpoint_now(struct cli *c)
{
    return act_on_all(c, "checkpoint", "asked for a checkpoint of", NULL);
}

/* PATCH a job with change, which is taken over; the job is new. */
static int patch_new(struct cli *c, json_t *change, json_t **ret)
{
    json_auto_t *taken = change;
    char path[256];

    TRY(cli_job_path(c->arg[0], "", path));
    return cli_call(c, "PATCH", path, taken, NULL, ret);
}

int jobs_priority(struct cli *c)
{
    json_t *job = NULL;
    char *end;
    long n = strtol(c->arg[1], &end, 10);
    int r;

    if (end == c->arg[1] || *end || n < 0 || n > 100)
        return cli_fail(CLI_USAGE, "a priority is a number from 0 to 100, not '%s'", c->arg[1]);
    r = patch_new(c, json_pack("{s:i}", "priority", (int)n), &job);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(job);
    (void)printf("%s has priority %lld\n", c->arg[0], cli_int(job, "priority"));
    json_decref(job);
    return 0;
}

int jobs_scale(struct cli *c)
{
    long min = 0, max = 0;
    json_t *job = NULL, *devices;
    int r;

    if (c->arg[1] && cli_devices(c->arg[1], &min, &max) < 0)
        return cli_fail(CLI_USAGE, "a number of devices is 1 to %d, or a range such as 1-4, not '%s'", PLAN_RANKS_MAX,
                        c->arg[1]);
    min = cli_number(c, "min", min);
    max = cli_number(c, "max", max);
    if (!min && !max)
        return cli_fail(CLI_USAGE, "want a number of devices, or --min N, --max N or both");
    if (min && max && min > max)
        return cli_fail(CLI_USAGE, "--min %ld is more than --max %ld", min, max);
    devices = json_object();
    if (min)
        (void)json_object_set_new(devices, "min", json_integer(min));
    if (max)
        (void)json_object_set_new(devices, "max", json_integer(max));
    r = patch_new(c, json_pack("{s:o}", "devices", devices), &job);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(job);
    devices = json_object_get(job, "devices");
    (void)printf("%s may have %lld", c->arg[0], cli_int(devices, "min"));
    if (cli_int(devices, "min") != cli_int(devices, "max"))
        (void)printf(" to %lld", cli_int(devices, "max"));
    (void)printf(" device%s\n", cli_int(devices, "max") == 1 ? "" : "s");
    json_decref(job);
    return 0;
}

int jobs_limit(struct cli *c)
{
    const char *text = cli_option(c, "time");
    int running = (int)cli_number(c, "running", 0), time_s = 0;
    json_t *job = NULL;

    if (!text == !running)
        return cli_fail(CLI_USAGE, "want --time TIME, or --running N for an array");
    if (text && strcmp(text, "none") != 0 && (times_parse(text, &time_s) < 0 || time_s < 1 || time_s > SPEC_TIME_S_MAX))
        return cli_fail(CLI_USAGE, "--time wants none, or a time such as 90m, 4h, 4:00:00 or 90 (minutes), not '%s'",
                        text);
    TRY(patch_new(c,
                  text ? json_pack("{s:{s:i}}", "limits", "time_s", time_s)
                       : json_pack("{s:{s:i}}", "array", "max_running", running),
                  &job));
    if (c->json)
        return cli_print_json_new(job);
    json_decref(job);
    if (running)
        (void)printf("%s runs at most %d tasks at one time\n", c->arg[0], running);
    else if (time_s)
        (void)printf("%s may run for %d s in all\n", c->arg[0], time_s);
    else
        (void)printf("%s may run for as long as it likes\n", c->arg[0]);
    return 0;
}
