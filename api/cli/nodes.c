/* Nodes. */
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

void nodes_print(const json_t *nodes, bool clear)
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
        nodes_print(json_object_get(answer, "nodes"), false);
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
