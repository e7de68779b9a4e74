/* slurm up, slurm provider: nodes that Slurm lends; allocations: what is lent. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/promises.h"
#include "api/cli/slurm_batch.h"
#include "api/client/tool.h"
#include "api/times.h"
#include "base/io.h"
#include "base/try.h"

#define SLURM_MS 50000 /* for one of its commands */
#define LIFE_S 604800  /* of a join code: so long may Slurm let the job wait */
#define NAME_MAX_BYTES 48

/* The folder of this program. */
static int find_programs(char ret[PATH_MAX])
{
    if (cli_program("muster-agent", ret, PATH_MAX))
        return CLI_FAILED;
    *strrchr(ret, '/') = '\0';
    return 0;
}

/* Hand a script to Slurm. *ret: the job's number. */
static int submit_batch(const char *script, char ret[64], struct merr *err)
{
    static const char *const argv[] = {"sbatch", "--parsable", NULL};
    char *out = NULL;

    TRY(tool_run(argv, script, SLURM_MS, NULL, &out, err));
    (void)snprintf(ret, 64, "%.*s", (int)strspn(out, "0123456789"), out);
    free(out);
    return *ret ? 0 : merr_set(err, -EPROTO, "sbatch printed no number of a job");
}

/* --- slurm up ------------------------------------------------------------------------------------------ */

static int take_time(const struct cli *c, const char *name, const char *text, int least, int *ret)
{
    (void)c;
    if (!text)
        return 0;
    if (times_parse(text, ret) < 0 || *ret < least)
        return cli_fail(CLI_USAGE, "--%s '%.64s': want a time such as 8h, 8:00:00 or 90 (minutes), of at least %d s",
                        name, text, least);
    return 0;
}

static int choose_name(const struct cli *c, char ret[NAME_MAX_BYTES])
{
    const char *name = cli_option(c, "name");
    unsigned char bytes[4];

    if (name) {
        if (strlen(name) >= NAME_MAX_BYTES - 8 || !*name)
            return cli_fail(CLI_USAGE, "--name '%.64s': want at most %d bytes", name, NAME_MAX_BYTES - 9);
        (void)snprintf(ret, NAME_MAX_BYTES, "%s", name);
        return 0;
    }
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return cli_fail(CLI_FAILED, "no random bytes for a name; give --name");
    (void)snprintf(ret, NAME_MAX_BYTES, "slurm-%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);
    return 0;
}

/* Void the codes that were made. */
static void forget(struct cli *c, const json_t *codes)
{
    const json_t *one;
    size_t i;

    json_array_foreach (codes, i, one) {
        json_auto_t *answer = NULL;
        char path[160];

        (void)snprintf(path, sizeof(path), "/v1/nodes/%s/enroll", cli_str(one, "node"));
        (void)cli_call(c, "DELETE", path, NULL, NULL, &answer);
    }
}

static int enroll(struct cli *c, const char *name, int nodes, json_t *codes)
{
    for (int i = 0; i < nodes; i++) {
        json_t *answer = NULL;
        char path[160];

        (void)snprintf(path, sizeof(path), "/v1/nodes/%s-%d/enroll?life_s=%d", name, i, LIFE_S);
        TRY(cli_call(c, "POST", path, NULL, NULL, &answer));
        (void)json_array_append_new(codes, answer);
    }
    return 0;
}

/* Write the script and have it run; *ret is the job's number. */
static int start_batch(struct cli *c, struct slurm_batch *b, json_t *codes, char ret[64])
{
    BUF_CLEAR_AUTO struct buf script;
    struct merr err = {""};

    buf_init(&script, SLURM_BATCH_MAX);
    TRY(enroll(c, b->name, b->nodes, codes));
    b->codes = codes;
    if (slurm_batch_write(b, &script, &err) < 0)
        return cli_fail(CLI_USAGE, "%s", err.text);
    return submit_batch(buf_text(&script), ret, &err) < 0 ? cli_fail(CLI_FAILED, "%s", err.text) : 0;
}

static int print_batch(struct slurm_batch *b)
{
    BUF_CLEAR_AUTO struct buf script;
    struct merr err = {""};

    buf_init(&script, SLURM_BATCH_MAX);
    if (slurm_batch_write(b, &script, &err) < 0)
        return cli_fail(CLI_USAGE, "%s", err.text);
    (void)fputs(buf_text(&script), stdout);
    return 0;
}

static int bring_up(struct cli *c, struct slurm_batch *b)
{
    json_auto_t *codes = json_array();
    char job[64] = "";
    int r;

    if (cli_option(c, "dry-run"))
        return print_batch(b);
    r = start_batch(c, b, codes, job);
    if (r) {
        forget(c, codes);
        return r;
    }
    (void)fprintf(stderr, "Slurm's job %s brings nodes %s-0 to %s-%d to %s; `scancel %s` ends them\n", job, b->name,
                  b->name, b->nodes - 1, b->server, job);
    (void)printf("%s\n", job);
    return 0;
}

int slurm_up(struct cli *c)
{
    struct slurm_batch b = {.partition = cli_option(c, "partition"),
                            .account = cli_option(c, "account"),
                            .output = cli_option(c, "log"),
                            .options = cli_option(c, "sbatch"),
                            .agent = cli_option(c, "agent"),
                            .class_ = cli_option(c, "class"),
                            .devices = (int)cli_number(c, "devices", 0),
                            .nodes = (int)cli_number(c, "nodes", 1),
                            .time_s = 3600,
                            .grace_s = 60};
    BUF_CLEAR_AUTO struct buf ca;
    const char *trusted = cli_option(c, "ca-file") ? cli_option(c, "ca-file") : getenv("MUSTER_CACERT");
    char name[NAME_MAX_BYTES], programs[PATH_MAX];
    struct merr err;

    buf_init(&ca, 1 << 20);
    TRY(take_time(c, "time", cli_option(c, "time"), 60, &b.time_s));
    TRY(take_time(c, "grace", cli_option(c, "grace"), 1, &b.grace_s));
    TRY(choose_name(c, name));
    TRY(find_programs(programs));
    TRY(cli_connect(c));
    if (trusted && *trusted && io_read_file(trusted, &ca, &err) < 0)
        return cli_fail(CLI_USAGE, "%s", err.text);
    b.name = name;
    b.programs = programs;
    b.server = client_url(c->client);
    b.ca = ca.len > 0 ? buf_text(&ca) : NULL;
    if (strstr(b.server, "//127.") || strstr(b.server, "//localhost"))
        (void)fprintf(stderr, "the agents are to reach %s, which is this machine alone; else give --server\n",
                      b.server);
    return bring_up(c, &b);
}

/* --- slurm provider ------------------------------------------------------------------------------------ */

static int answer(const char *what, int r, const struct merr *err)
{
    if (r < 0)
        return cli_fail(CLI_FAILED, "%s", err->text);
    (void)puts(what);
    return 0;
}

static int request(const json_t *ask)
{
    char programs[PATH_MAX], job[64], text[96];
    struct slurm_batch b = {.name = cli_str(ask, "name"),
                            .partition = cli_str(ask, "queue"),
                            .account = cli_str(ask, "account"),
                            .output = "/dev/null",
                            .options = cli_str(ask, "options"),
                            .agent = cli_str(ask, "agent"),
                            .class_ = cli_str(ask, "class"),
                            .server = cli_str(ask, "server"),
                            .ca = cli_str(ask, "ca"),
                            .devices = (int)cli_int(ask, "devices"),
                            .nodes = (int)cli_int(ask, "count"),
                            .time_s = (int)cli_int(ask, "time_s"),
                            .grace_s = (int)cli_int(ask, "grace_s"),
                            .codes = json_object_get(ask, "nodes"),
                            .programs = programs};
    BUF_CLEAR_AUTO struct buf script;
    struct merr err = {""};
    int r;

    buf_init(&script, SLURM_BATCH_MAX);
    TRY(find_programs(programs));
    r = slurm_batch_write(&b, &script, &err);
    r = r < 0 ? r : submit_batch(buf_text(&script), job, &err);
    (void)snprintf(text, sizeof(text), "{\"reference\": \"%s\"}", r < 0 ? "" : job);
    return answer(text, r, &err);
}

static int release(const json_t *ask)
{
    char by_name[128], *out = NULL;
    const char *argv[] = {"scancel", "--me", by_name, NULL};
    struct merr err = {""};
    int r;

    (void)snprintf(by_name, sizeof(by_name), "--name=%.100s", cli_str(ask, "name"));
    r = *cli_str(ask, "name") ? tool_run(argv, "", SLURM_MS, NULL, &out, &err)
                              : merr_set(&err, -EINVAL, "no name of an allocation");
    free(out);
    return answer("{}", r, &err);
}

/* A line of squeue: number, state, why, name. */
static json_t *listed_new(const char *line)
{
    char job[32], state[32], why[64], name[128];
    bool waits;

    if (sscanf(line, "%31[^|]|%31[^|]|%63[^|]|%127[^\n]", job, state, why, name) != 4)
        return NULL;
    waits = strcmp(state, "PENDING") == 0 || strcmp(state, "CONFIGURING") == 0;
    return json_pack("{s:s, s:s, s:s, s:s}", "name", name, "state", waits ? "waiting" : "running", "reference", job,
                     "why", waits ? why : "");
}

static int list(const json_t *ask)
{
    static const char *const argv[] = {"squeue", "--me", "--noheader", "--format=%A|%T|%r|%j", NULL};
    const char *prefix = cli_str(ask, "prefix");
    json_auto_t *all = json_array(), *doc = NULL;
    char *out = NULL, *save = NULL, *text;
    struct merr err = {""};

    if (tool_run(argv, "", SLURM_MS, NULL, &out, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *one = listed_new(line);

        if (one && strncmp(cli_str(one, "name"), prefix, strlen(prefix)) == 0)
            (void)json_array_append(all, one);
        json_decref(one);
    }
    free(out);
    doc = json_pack("{s:O}", "allocations", all);
    text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    if (!text)
        return cli_fail(CLI_FAILED, "no memory for a list");
    (void)puts(text);
    free(text);
    return 0;
}

int slurm_provider(struct cli *c)
{
    BUF_CLEAR_AUTO struct buf in;
    json_auto_t *ask = NULL;
    struct merr err = {""};

    buf_init(&in, TOOL_OUT_MAX);
    if (cli_read_file("-", &in, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    ask = json_loadb(buf_text(&in), in.len, 0, NULL);
    if (!json_is_object(ask))
        return cli_fail(CLI_USAGE, "want a JSON object on standard input (docs/slurm.md)");
    if (strcmp(c->arg[0], "request") == 0)
        return request(ask);
    if (strcmp(c->arg[0], "release") == 0)
        return release(ask);
    if (strcmp(c->arg[0], "list") == 0)
        return list(ask);
    return cli_fail(CLI_USAGE, "'%.64s': want request, release or list", c->arg[0]);
}

/* --- allocations --------------------------------------------------------------------------------------- */

int allocations_list(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"ID", "QUEUE", "STATE", "NODES", "HERE", "ENDS", "REFERENCE", "WHY"}, .n = 8, .state = -1};
    json_auto_t *got = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/allocations", NULL, NULL, &got));
    if (c->json)
        return cli_print_json(got);
    rows = json_array();
    json_array_foreach (json_object_get(got, "allocations"), i, one) {
        char nodes[24], here[24], ends[PROMISES_TIME_MAX];

        (void)snprintf(nodes, sizeof(nodes), "%lld", cli_int(one, "nodes"));
        (void)snprintf(here, sizeof(here), "%lld", cli_int(one, "arrived"));
        promises_time(cli_str(one, "ends_at"), ends);
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "id"), cli_str(one, "queue"), cli_str(one, "state"), nodes, here,
                                       ends, cli_str(one, "reference"), cli_str(one, "why")},
                      8);
    }
    cli_print_table_new(&table, rows);
    if (*cli_str(got, "trouble"))
        (void)fprintf(stderr, "the provider does not tell what there is: %s\n", cli_str(got, "trouble"));
    json_array_foreach (json_object_get(got, "queues"), i, one) {
        if (*cli_str(one, "trouble"))
            (void)fprintf(stderr, "queue %s: %s\n", cli_str(one, "name"), cli_str(one, "trouble"));
    }
    return 0;
}
