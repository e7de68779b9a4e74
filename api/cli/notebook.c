/* A web program as a job, a notebook or TensorBoard, and a port of this machine by which a browser reaches it. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "base/clock.h"
#include "base/try.h"

#define MODULE "muster.serve" /* which runs it there */
#define FOLDERS_MAX 64
#define ANSWER_MAX 4096
#define LOOK_MS 300
#define END_US INT64_C(10000000) /* for a job to be told to have ended, once its program has gone */

/* What is to be shown, as words: of a notebook its file, of TensorBoard "NAME:DIR" of each job's folder. */
static int add_shown(struct cli *c, json_t *shown)
{
    bool notebook = strcmp(c->cmd->name, "notebook") == 0;

    if (notebook && c->n > 0)
        (void)json_array_append_new(shown, json_sprintf("--file=%s", c->arg[0]));
    for (int i = 0; !notebook && i < c->n; i++) {
        json_auto_t *job = NULL;
        char path[256];

        TRY(cli_job_path(c->arg[i], "", path));
        TRY(cli_call(c, "GET", path, NULL, NULL, &job));
        (void)json_array_append_new(shown, json_sprintf("%s:%s", cli_str(job, "id"), cli_str(job, "dir")));
    }
    return 0;
}

static int submit(struct cli *c, char ret_job[64])
{
    json_auto_t *shown = json_array(), *doc = NULL, *job = NULL;
    char *words[7 + FOLDERS_MAX] = {"python3", "-m", MODULE, (char *)c->cmd->name, "--idle", NULL};
    size_t n = 5, i;
    const json_t *word;

    TRY(add_shown(c, shown));
    words[n++] = (char *)cli_option(c, "idle");
    json_array_foreach (shown, i, word)
        words[n++] = (char *)json_string_value(word);
    TRY(cli_program_spec(c, words, &doc));
    if (!cli_option(c, "name"))
        (void)json_object_set_new(doc, "name", json_string(c->cmd->name));
    TRY(cli_send_spec(c, "/v1/jobs", "the command line", doc, NULL, &job));
    (void)snprintf(ret_job, 64, "%s", cli_str(job, "id"));
    return 0;
}

/* Until a rank of it runs. An end before is told with its last lines. */
static int await_run(struct cli *c, const char *job)
{
    char path[256];

    TRY(cli_job_path(job, "", path));
    for (bool told = false;; told = true) {
        json_auto_t *doc = NULL;

        TRY(cli_call(c, "GET", path, NULL, NULL, &doc));
        if (cli_job_ended(doc))
            return watch_outcome(c, job, true) ? CLI_FAILED : cli_fail(CLI_FAILED, "job '%s' has ended", job);
        if (strcmp(cli_str(doc, "state"), "running") == 0)
            return 0;
        if (!told)
            (void)fprintf(stderr, "job '%s' is %s; Ctrl-C leaves it so\n", job, cli_str(doc, "state"));
        (void)poll(NULL, 0, LOOK_MS);
    }
}

/* Its program went before it said where it is: tell why, once the job has ended. status: what is known so far. */
static int tell_end(struct cli *c, const char *job, int status)
{
    int64_t deadline_us = clock_mono_us() + END_US;
    char path[256];

    TRY(cli_job_path(job, "", path));
    while (clock_mono_us() < deadline_us) {
        json_auto_t *doc = NULL;

        TRY(cli_call(c, "GET", path, NULL, NULL, &doc));
        if (cli_job_ended(doc))
            return watch_outcome(c, job, true);
        (void)poll(NULL, 0, LOOK_MS);
    }
    return status;
}

/* Where the job's program says that it is. page: new. */
static int find_page(struct cli *c, const char *job, json_t **ret_page)
{
    static const char *const ask[] = {"python3", "-m", MODULE, "where", NULL};
    BUF_CLEAR_AUTO struct buf b;
    json_t *page;
    int r;

    buf_init(&b, ANSWER_MAX);
    r = exec_read(c, job, ask, &b);
    if (r != 0)
        return r == CLI_INTERRUPTED ? r : tell_end(c, job, r);
    page = json_loadb(buf_text(&b), b.len, 0, NULL);
    if (cli_int(page, "port") < 1 || cli_int(page, "port") > UINT16_MAX || *cli_str(page, "path") != '/') {
        json_decref(page);
        return cli_fail(CLI_FAILED, "job '%s' does not say where its program is", job);
    }
    *ret_page = page;
    return 0;
}

int notebook_run(struct cli *c)
{
    const char *known = cli_option(c, "job");
    json_auto_t *page = NULL;
    char job[64];
    int r;

    if (!known && c->n == 0 && strcmp(c->cmd->name, "tensorboard") == 0)
        return cli_fail(CLI_USAGE, "want jobs whose folders are shown, or --job with one that runs TensorBoard");
    if (known && c->n > 0)
        return cli_fail(CLI_USAGE, "job '%.64s' shows what it was begun with; leave out '%s'", known, c->arg[0]);
    (void)snprintf(job, sizeof(job), "%s", known ? known : "");
    if (!known)
        TRY(submit(c, job));
    TRY(await_run(c, job));
    TRY(find_page(c, job, &page));
    r = forward_page(c, job, (int)cli_number(c, "port", 0), (int)cli_int(page, "port"), cli_str(page, "path"));
    if (r == CLI_INTERRUPTED)
        (void)fprintf(stderr,
                      "job '%s' ends once nobody has had a connection for long enough; muster %s --job %s reaches it "
                      "again, muster cancel %s ends it\n",
                      job, c->cmd->name, job, job);
    return r;
}
