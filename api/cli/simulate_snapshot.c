/* simulate --snapshot: a round that was kept, taken again, also as it would have been otherwise. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/simulate.h"
#include "base/io.h"
#include "base/try.h"
#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/snapshot.h"

#define SNAPSHOT_BYTES_MAX (256u << 20)
#define CAUSE_BYTES_MAX 65536

/* "j17" or "17"; 0: neither. */
static uint64_t job_number(const char *text)
{
    char *end;
    unsigned long long id;

    text += *text == 'j';
    if (*text < '1' || *text > '9')
        return 0;
    errno = 0;
    id = strtoull(text, &end, 10);
    return *end || errno ? 0 : id;
}

static struct sched_job *find_job(struct snapshot *s, const char *text)
{
    uint64_t id = job_number(text);

    for (size_t i = 0; id != 0 && i < s->in.n_jobs; i++)
        if (s->jobs[i].id == id)
            return &s->jobs[i];
    return NULL;
}

/* "CLASS=NODESxDEVICES": so many more nodes. */
static int add_nodes(struct snapshot *s, const char *text)
{
    const char *equals = strchr(text, '=');
    struct sched_node node = {.leaf = SCHED_NODES_MAX - 1};
    size_t type = 0, len = equals ? (size_t)(equals - text) : 0;
    int nodes, devices;
    char rest;

    if (!equals || sscanf(equals + 1, "%dx%d%c", &nodes, &devices, &rest) != 2 || nodes < 1 || devices < 1 ||
        devices > SCHED_NODE_DEVICES_MAX)
        return cli_fail(CLI_USAGE, "--add-nodes '%s': want CLASS=NODESxDEVICES, as cpu=2x8", text);
    while (type < s->n_types && (strlen(s->types[type]) != len || memcmp(s->types[type], text, len) != 0))
        type++;
    if (type == s->n_types)
        return cli_fail(CLI_REFUSED, "--add-nodes: the snapshot has no class '%.*s', so no job's speed on it is known",
                        (int)len, text);
    node.type = (uint8_t)type;
    node.devices = devices;
    for (int i = 0; i < nodes; i++)
        if (snapshot_add_node(s, node) < 0)
            return cli_fail(CLI_REFUSED, "--add-nodes: %d nodes are more than a snapshot takes", nodes);
    return CLI_DONE;
}

/* "JOB=N": another priority, where five points double the weight. */
static int set_priority(struct snapshot *s, const char *text)
{
    char name[32];
    int priority;
    char rest;
    struct sched_job *j;

    if (sscanf(text, "%31[^=]=%d%c", name, &priority, &rest) != 2 || priority < 0 || priority > 100)
        return cli_fail(CLI_USAGE, "--set-priority '%s': want JOB=N, N from 0 to 100", text);
    j = find_job(s, name);
    if (!j)
        return cli_fail(CLI_NOT_FOUND, "--set-priority: no job '%s' in the snapshot", name);
    j->weight_milli = sched_weight_milli(priority);
    return CLI_DONE;
}

/* Take a round and say what it does with the job. New; NULL with the reason said. */
static json_t *take(struct snapshot *s, enum sched_mode mode, size_t job)
{
    const char *types[RATES_TYPES_MAX];
    struct explain_cause cause;
    struct sched_plan plan;
    struct merr err;
    struct buf b;
    json_t *o = NULL;

    for (size_t t = 0; t < s->n_types; t++)
        types[t] = s->types[t];
    s->in.config.mode = mode;
    if (sched_schedule(&s->in, &plan, &err) < 0) {
        (void)cli_fail(CLI_REFUSED, "%s", err.text);
        return NULL;
    }
    buf_init(&b, CAUSE_BYTES_MAX);
    if (explain_job(&s->in, &plan, job, &cause) == 0 && explain_print(&cause, types, &b) == 0)
        o = json_pack("{s:s, s:i, s:o}", "action", sched_action_name(plan.verdicts[job].action), "devices",
                      plan.verdicts[job].shape.n[0] + plan.verdicts[job].shape.n[1], "cause",
                      json_loadb(b.data, b.len, 0, NULL));
    if (!o)
        (void)cli_fail(CLI_FAILED, "out of memory");
    buf_clear(&b);
    sched_plan_clear(&plan);
    return o;
}

static int explain(const struct cli *c, struct snapshot *s, const struct sched_job *j)
{
    size_t at = (size_t)(j - s->jobs);
    json_auto_t *fast = take(s, SCHED_FAST, at), *full = fast ? take(s, SCHED_FULL, at) : NULL;
    const char *text = json_string_value(json_object_get(json_object_get(fast, "cause"), "text"));

    if (!fast || !full)
        return CLI_FAILED;
    if (c->json)
        return cli_print_json_new(
                   json_pack("{s:s, s:O, s:O}", "job", cli_option(c, "explain"), "fast", fast, "full", full)) < 0
                   ? CLI_FAILED
                   : CLI_DONE;
    (void)printf("at once              %s", json_string_value(json_object_get(fast, "action")));
    if (strcmp(json_string_value(json_object_get(fast, "action")), "wait") == 0)
        (void)printf(": %s\n", text);
    else
        (void)printf(" on %d devices\n", (int)json_integer_value(json_object_get(fast, "devices")));
    (void)printf("next full round      %s", json_string_value(json_object_get(full, "action")));
    (void)printf(" on %d devices\n", (int)json_integer_value(json_object_get(full, "devices")));
    cli_print_cause(json_object_get(fast, "cause"), NULL);
    return CLI_DONE;
}

static int read_snapshot(const char *path, struct snapshot *ret, struct merr *err)
{
    BUF_CLEAR_AUTO struct buf b;

    buf_init(&b, SNAPSHOT_BYTES_MAX);
    TRY(io_read_file(path, &b, err));
    return snapshot_parse(buf_text(&b), b.len, ret, err);
}

static int what_if(struct cli *c, struct snapshot *s, const char *name)
{
    const char *nodes = cli_option(c, "add-nodes"), *priority = cli_option(c, "set-priority");
    struct sched_job *j;

    if (nodes)
        TRY(add_nodes(s, nodes));
    if (priority)
        TRY(set_priority(s, priority));
    j = find_job(s, name);
    if (!j)
        return cli_fail(CLI_NOT_FOUND, "no job '%s' in the snapshot: it had ended, was suspended or backed off", name);
    return explain(c, s, j);
}

int simulate_snapshot(struct cli *c)
{
    const char *path = cli_option(c, "snapshot"), *name = cli_option(c, "explain");
    struct snapshot s;
    struct merr err;
    int r;

    if (!name)
        return cli_fail(CLI_USAGE, "want --explain JOB with --snapshot");
    r = read_snapshot(path, &s, &err);
    if (r < 0)
        return cli_fail(r == -ENOENT ? CLI_NOT_FOUND : CLI_REFUSED, "%s: %s", path, err.text);
    s.in.config.policy = (enum sched_policy)cli_number(c, "policy", (long)s.in.config.policy);
    s.in.config.objective = (enum sched_objective)cli_number(c, "objective", (long)s.in.config.objective);
    r = what_if(c, &s, name);
    snapshot_clear(&s);
    return r;
}
