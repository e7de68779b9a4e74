/* Nodes, and the view of all that moves. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/try.h"

#define NODES_MOST 1000000
#define REASON_BYTES 200
#define PATH_BYTES 1024
#define TOP_JOBS 200 /* looked at; as many as the terminal has room for are shown */

/* "4 cpu": the classes of a node's devices; the jobs on them; how many are free. */
static void sum_slots(const json_t *node, char classes[128], char jobs[256], long *ret_free)
{
    json_t *count = json_object(), *seen = json_object(), *slots = json_object_get(node, "slots"), *slot;
    const char *key;
    const json_t *v;
    size_t i;

    classes[0] = jobs[0] = '\0';
    *ret_free = 0;
    json_array_foreach (slots, i, slot) {
        const char *class = cli_str(slot, "class"), *job = cli_str(slot, "job"), *state = cli_str(slot, "state");

        (void)json_object_set_new(count, class, json_integer(cli_int(count, class) + 1));
        *ret_free += strcmp(state, "free") == 0;
        if (*job)
            (void)json_object_set_new(seen, job, json_true());
        else if (strcmp(state, "free") != 0)
            (void)json_object_set_new(seen, state, json_true());
    }
    json_object_foreach (count, key, v) {
        (void)snprintf(classes + strlen(classes), 128 - strlen(classes), "%s%lld %s", *classes ? ", " : "",
                       (long long)json_integer_value(v), key);
    }
    json_object_foreach (seen, key, v) {
        (void)snprintf(jobs + strlen(jobs), 256 - strlen(jobs), "%s%s", *jobs ? " " : "", key);
    }
    json_decref(count);
    json_decref(seen);
}

static void print_nodes(const json_t *nodes, bool clear)
{
    const struct cli_table table = {.head = {"NODE", "STATE", "ADDRESS", "DEVICES", "FREE", "JOBS"},
                                    .n = 6,
                                    .right = 1 << 4,
                                    .state = 1,
                                    .clear = clear,
                                    .spare = {2}};
    json_t *rows = json_array(), *node;
    size_t i;

    json_array_foreach (nodes, i, node) {
        char classes[128], jobs[256], text[24];
        long free_slots;

        sum_slots(node, classes, jobs, &free_slots);
        (void)snprintf(text, sizeof(text), "%ld", free_slots);
        (void)cli_row(rows,
                      (const char *[]){cli_str(node, "id"), cli_str(node, "state"), cli_str(node, "address"), classes,
                                       text, jobs},
                      6);
    }
    cli_print_table_new(&table, rows);
}

static void print_slot(const json_t *node, const json_t *slot)
{
    (void)printf("device %lld of ", cli_int(slot, "slot"));
    cli_print_text(cli_str(node, "id"));
}

/* Why a node is given no work, or less, and since when. */
static void print_health(const json_t *node, const json_t *health, const char *state)
{
    if (!*state || strcmp(state, "well") == 0)
        return;
    cli_print_text(cli_str(node, "id"));
    (void)printf(": %s since %s", state, cli_str(health, "since"));
    (void)printf(*cli_str(health, "reason") ? ": " : "");
    cli_print_text(cli_str(health, "reason"));
    (void)printf("\n");
}

/* Why nodes and GPUs take no work, and which devices are slow, a line each. */
static void print_ills(const json_t *nodes)
{
    const json_t *node, *slot;
    size_t i, k;

    json_array_foreach (nodes, i, node) {
        const json_t *health = json_object_get(node, "health"), *check = json_object_get(health, "check");

        print_health(node, health, cli_str(health, "state"));
        print_health(node, check, cli_str(check, "level"));
        json_array_foreach (json_object_get(node, "slots"), k, slot) {
            const char *why = cli_str(json_object_get(slot, "gpu"), "why");
            const json_t *slow = json_object_get(slot, "slow");

            if (*why) {
                print_slot(node, slot);
                (void)printf(" takes no work: ");
                cli_print_text(why);
                (void)printf("\n");
            }
            if (json_is_object(slow)) {
                print_slot(node, slot);
                (void)printf(" is slow: %.1f times as long as others of class ",
                             json_number_value(json_object_get(slow, "ratio")));
                cli_print_text(cli_str(slot, "class"));
                (void)printf("; taken last until ");
                cli_print_text(cli_str(slow, "retry_at"));
                (void)printf(", or `muster undrain ");
                cli_print_text(cli_str(node, "id"));
                (void)printf("`\n");
            }
        }
    }
}

/* Where jobs can do what the agent can, in one line. */
static void print_shared(const json_t *nodes)
{
    size_t i, n = 0;
    json_t *node;

    json_array_foreach (nodes, i, node) {
        if (!json_is_true(json_object_get(node, "shared_account")))
            continue;
        if (n++ < 3) {
            (void)printf(n == 1 ? "shared account: " : ", ");
            cli_print_text(cli_str(node, "id"));
        }
    }
    if (n > 3)
        (void)printf(" and %zu others", n - 3);
    if (n > 0)
        (void)printf(" (jobs can do there what the agent can)\n");
}

int nodes_list(struct cli *c)
{
    json_t *answer = NULL;
    int r = cli_pages(c, "/v1/nodes", "", "nodes", NODES_MOST, &answer);

    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(answer);
    if (json_array_size(json_object_get(answer, "nodes")) == 0)
        (void)fprintf(stderr, "no nodes; start muster-agent on each machine that shall work\n");
    else
        print_nodes(json_object_get(answer, "nodes"), false);
    print_ills(json_object_get(answer, "nodes"));
    print_shared(json_object_get(answer, "nodes"));
    json_decref(answer);
    return 0;
}

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* Call something of a node, whose path tail follows. *ret is new. */
static int call_node(struct cli *c, const char *method, const char *tail, json_t **ret)
{
    const char *node = c->arg[0];
    char path[PATH_BYTES];

    if (!*node || strlen(node) > 128 || strspn(node, plain) != strlen(node))
        return cli_fail(CLI_NOT_FOUND, "no node '%.64s'; `muster nodes` shows those there are", node);
    (void)snprintf(path, sizeof(path), "/v1/nodes/%s%s", node, tail);
    return cli_call(c, method, path, NULL, NULL, ret);
}

/* The same; *ret NULL: it was printed as JSON. */
static int ask(struct cli *c, const char *method, const char *tail, json_t **ret)
{
    int r = call_node(c, method, tail, ret);

    if (r || !c->json)
        return r;
    r = cli_print_json_new(*ret);
    *ret = NULL;
    return r;
}

/* Ask something of a node, and say what was done. */
static int act(struct cli *c, const char *method, const char *tail, const char *done)
{
    json_auto_t *answer = NULL;
    int r = ask(c, method, tail, &answer);

    if (r == 0 && answer)
        (void)printf("%s %s\n", c->arg[0], done);
    return r;
}

int nodes_act(struct cli *c)
{
    bool drain = strcmp(c->cmd->name, "drain") == 0;
    long deadline = drain ? cli_number(c, "deadline", 0) : 0;
    const char *reason = drain ? cli_option(c, "reason") : NULL;
    char tail[PATH_BYTES - 160];
    size_t n;

    if (reason && strlen(reason) > REASON_BYTES)
        return cli_fail(CLI_USAGE, "--reason: want at most %d bytes", REASON_BYTES);
    n = (size_t)snprintf(tail, sizeof(tail), "/%s?", c->cmd->name);
    if (deadline)
        n += (size_t)snprintf(tail + n, sizeof(tail) - n, "deadline_s=%ld&", deadline);
    n += reason ? (size_t)snprintf(tail + n, sizeof(tail) - n, "reason=") : 0;
    for (const char *p = reason; p && *p; p++)
        n += (size_t)snprintf(tail + n, sizeof(tail) - n, strchr(plain, *p) ? "%c" : "%%%02X", (unsigned char)*p);
    tail[n - (tail[n - 1] == '?' || tail[n - 1] == '&')] = '\0';
    return act(c, "POST", tail, drain ? "gets no new work" : "gets work again");
}

static void print_test(const char *node, const json_t *test)
{
    static const struct {
        const char *field, *unit;
    } rate[] = {{"memory_gb_s", "GB/s of memory copied"},
                {"gemm_gflop_s", "GFLOP/s of matrices multiplied"},
                {"disk_mb_s", "MB/s written to disk"},
                {"loopback_gb_s", "GB/s over loopback"}};

    (void)printf("%s %s its test%s", node, json_is_true(json_object_get(test, "passed")) ? "has passed" : "has failed",
                 *cli_str(test, "why") ? ": " : "");
    cli_print_text(cli_str(test, "why"));
    (void)printf("\n");
    for (size_t i = 0; i < sizeof(rate) / sizeof(rate[0]); i++)
        if (json_is_number(json_object_get(test, rate[i].field)))
            (void)printf("  %.1f %s\n", cli_real(test, rate[i].field), rate[i].unit);
}

int nodes_test(struct cli *c)
{
    json_auto_t *node = NULL;
    const json_t *test;
    int r = call_node(c, "POST", "/test", &node);
    long long id = r ? 0 : cli_int(json_object_get(node, "test"), "running");

    while (r == 0 && cli_int(json_object_get(node, "test"), "running") == id) { /* the server sets an end */
        (void)poll(NULL, 0, 500);
        json_decref(node);
        node = NULL;
        r = call_node(c, "GET", "", &node);
    }
    if (r)
        return r;
    test = json_object_get(node, "test");
    if (cli_int(test, "id") != id)
        return cli_fail(CLI_FAILED, "%s went silent before its test was over", c->arg[0]);
    if (c->json)
        r = cli_print_json(test);
    else
        print_test(c->arg[0], test);
    return r ? r : json_is_true(json_object_get(test, "passed")) ? 0 : CLI_FAILED;
}

int nodes_enroll(struct cli *c)
{
    json_auto_t *answer = NULL;
    int r = ask(c, "POST", "/enroll", &answer);

    if (r || !answer)
        return r;
    (void)printf("%s\n", cli_str(answer, "code")); /* alone on standard output, for a file */
    (void)fprintf(stderr,
                  "a code for node %s, good once and until %s: `muster-agent --join-file FILE`, or --join CODE\n",
                  cli_str(answer, "node"), cli_str(answer, "expires_at"));
    return 0;
}

int nodes_forget(struct cli *c)
{
    return act(c, "DELETE", "/enroll", "has no token any more");
}

int nodes_remove(struct cli *c)
{
    return act(c, "DELETE", "", "is off the list");
}

/* --- top ----------------------------------------------------------------------------------------------- */

/* One line: longer it would take two, and the jobs have one less. What does not fit is left out from the end. */
static void print_totals(const json_t *cluster, bool clear)
{
    static const char *const states[] = {"running",    "queued",    "starting", "rescaling",
                                         "recovering", "suspended", "failed",   "succeeded"};
    const json_t *slots = json_object_get(cluster, "slots"), *jobs = json_object_get(cluster, "jobs");
    int columns = cli_columns();
    char text[256];
    size_t len;

    len = (size_t)snprintf(text, sizeof(text), "%lld of %lld devices busy; jobs:", cli_int(slots, "busy"),
                           cli_int(slots, "total"));
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        long long n = cli_int(jobs, states[i]);
        char part[48];
        int more = snprintf(part, sizeof(part), "%s %lld %s", i ? "," : "", n, states[i]);

        if ((n > 0 || i < 2) && len + (size_t)more < sizeof(text) && (columns <= 0 || (int)len + more <= columns)) {
            memcpy(text + len, part, (size_t)more + 1);
            len += (size_t)more;
        }
    }
    (void)printf("%s%s\n%s\n", text, clear ? "\033[K" : "", clear ? "\033[K" : "");
}

/* At most that many nodes, those that are not ready before the others. New, or NULL without memory. */
static json_t *choose_nodes(const json_t *nodes, size_t most)
{
    json_t *chosen = json_array(), *node;
    size_t i;

    for (int ready = 0; ready < 2; ready++) {
        json_array_foreach (nodes, i, node) {
            if (chosen && json_array_size(chosen) < most && (strcmp(cli_str(node, "state"), "ready") == 0) == ready)
                (void)json_array_append(chosen, node);
        }
    }
    return chosen;
}

static void print_top_jobs(const json_t *jobs, size_t room, bool clear)
{
    const struct cli_table table = {.head = {"JOB", "NAME", "STATE", "STEP", "LOSS", "TOKENS/S", "ETA", "WHY"},
                                    .n = 8,
                                    .right = 0x78,
                                    .state = 2,
                                    .clear = clear,
                                    .spare = {5, 4, 6}};
    json_t *rows = json_array(), *job;
    size_t i;

    json_array_foreach (jobs, i, job) {
        const json_t *p = json_object_get(job, "progress");
        char step[48] = "-", loss[32] = "-", rate[32] = "-", eta[CLI_DURATION_MAX] = "-", name[24];

        if (i == room)
            break;
        if (json_is_object(p)) {
            (void)snprintf(step, sizeof(step), cli_int(p, "steps") > 0 ? "%lld/%lld" : "%lld", cli_int(p, "step"),
                           cli_int(p, "steps"));
            if (json_is_number(json_object_get(p, "loss")))
                (void)snprintf(loss, sizeof(loss), "%.4f", cli_real(p, "loss"));
            if (json_is_number(json_object_get(p, "tokens_per_s")))
                (void)snprintf(rate, sizeof(rate), "%.0f", cli_real(p, "tokens_per_s"));
            if (strcmp(cli_str(job, "state"), "running") == 0)
                cli_duration(cli_real(p, "eta_s"), eta);
        }
        (void)snprintf(name, sizeof(name), strlen(cli_str(job, "name")) > 20 ? "%.17s..." : "%s", cli_str(job, "name"));
        (void)cli_row(
            rows,
            (const char *[]){cli_str(job, "id"), name, cli_str(job, "state"), step, loss, rate, eta, cli_job_why(job)},
            8);
    }
    cli_print_table_new(&table, rows);
}

/* {"cluster", "nodes", "jobs"}: those that have not ended, then the newest that have. */
static int read_top(struct cli *c, json_t **ret)
{
    json_auto_t *cluster = NULL, *nodes = NULL, *active = NULL, *ended = NULL;

    TRY(cli_call(c, "GET", "/v1/cluster", NULL, NULL, &cluster));
    TRY(cli_pages(c, "/v1/nodes", "", "nodes", NODES_MOST, &nodes));
    TRY(cli_pages(c, "/v1/jobs", "&state=active", "jobs", TOP_JOBS, &active));
    TRY(cli_pages(c, "/v1/jobs", "&state=succeeded,failed,cancelled", "jobs", 20, &ended));
    (void)json_array_extend(json_object_get(active, "jobs"), json_object_get(ended, "jobs"));
    *ret = json_pack("{s:O, s:O, s:O}", "cluster", cluster, "nodes", json_object_get(nodes, "nodes"), "jobs",
                     json_object_get(active, "jobs"));
    return 0;
}

static int top_once(struct cli *c, bool moving)
{
    json_t *all = NULL, *jobs, *all_nodes, *nodes;
    size_t room, used, left_out = 0;
    int r = read_top(c, &all);

    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(all);
    jobs = json_object_get(all, "jobs");
    all_nodes = json_object_get(all, "nodes");
    if (moving && json_array_size(all_nodes) > (size_t)cli_lines() / 3) { /* the rest is the jobs' */
        nodes = choose_nodes(all_nodes, (size_t)cli_lines() / 3);
        left_out = json_array_size(all_nodes) - json_array_size(nodes);
    } else {
        nodes = json_incref(all_nodes);
    }
    used = json_array_size(nodes) + 6 + (left_out > 0); /* totals, heads, blank lines, the cursor's */
    room = !moving ? json_array_size(jobs) : (size_t)cli_lines() > used ? (size_t)cli_lines() - used : 1;
    if (moving)
        (void)printf("\033[H");
    print_totals(json_object_get(all, "cluster"), moving);
    print_nodes(nodes, moving);
    if (left_out)
        (void)printf("and %zu more: `muster nodes`\033[K\n", left_out);
    (void)printf("%s\n", moving ? "\033[K" : "");
    if (json_array_size(jobs) > 0)
        print_top_jobs(jobs, room, moving);
    if (moving)
        (void)printf("\033[J");
    (void)fflush(stdout);
    json_decref(nodes);
    json_decref(all);
    return 0;
}

int top_run(struct cli *c)
{
    bool moving = !c->json && !cli_option(c, "once") && cli_is_terminal();
    int r;

    if (moving)
        (void)printf("\033[2J");
    r = top_once(c, moving);
    while (r == 0 && moving) {
        (void)poll(NULL, 0, 1000);
        r = top_once(c, moving);
    }
    return r;
}
