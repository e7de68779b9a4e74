/* Webhooks of a user: where notices of their jobs go. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/spec.h"
#include "base/clock.h"
#include "base/try.h"

#define TEST_WAIT_US 15000000
#define LOOK_MS 100

static int path_of(const char *name, const char *tail, char ret[128])
{
    if (!spec_secret_name_ok(name))
        return cli_fail(CLI_USAGE, "'%.64s' is no name of a webhook: want 1 to %d letters, digits, '.', '_', '-'", name,
                        SPEC_SECRET_MAX);
    (void)snprintf(ret, 128, "/v1/webhooks/%s%s", name, tail);
    return 0;
}

/* "a,b" as a list, new; "none": an empty one. */
static json_t *list_of(const char *text)
{
    json_t *all = json_array();

    for (size_t n; strcmp(text, "none") != 0 && *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        (void)json_array_append_new(all, json_stringn(text, n));
    }
    return all;
}

/* What it hears of, on one line. */
static void words_of(const json_t *hook, char *ret, size_t size)
{
    const json_t *one;
    size_t i;

    (void)snprintf(ret, size, "%s", json_array_size(json_object_get(hook, "on")) ? "" : "jobs that name it");
    json_array_foreach (json_object_get(hook, "on"), i, one)
        (void)snprintf(ret + strlen(ret), size - strlen(ret), "%s%s", i ? ", " : "", json_string_value(one));
}

static const char *state_of(const json_t *hook)
{
    return !json_is_true(json_object_get(hook, "enabled")) ? "off" : *cli_str(hook, "failing_since") ? "failing" : "on";
}

static void print(const json_t *hook)
{
    char words[512];

    words_of(hook, words, sizeof(words));
    (void)printf("webhook   %s (%s), %s\nsends to  %s, as %s\ntells     %s%s%s%s\n", cli_str(hook, "name"),
                 cli_str(hook, "id"), state_of(hook), cli_str(hook, "url"), cli_str(hook, "format"), words,
                 *cli_str(hook, "project") ? ", in project " : "", cli_str(hook, "project"),
                 strcmp(cli_str(hook, "scope"), "cluster") == 0 ? ", of the whole cluster" : "");
    if (*cli_str(hook, "failing_since"))
        (void)printf("failing   since %s\n", cli_str(hook, "failing_since"));
    (void)printf("waiting   %lld, left out for want of room %lld\n", cli_int(hook, "waiting"),
                 cli_int(hook, "dropped"));
}

int webhooks_add(struct cli *c)
{
    const char *on = cli_option(c, "on"), *project = cli_option(c, "project");
    json_auto_t *body = NULL, *answer = NULL;

    body = json_pack("{s:s, s:s, s:s, s:s, s:s*, s:o*}", "name", c->arg[0], "url", c->arg[1], "format",
                     cli_option(c, "format"), "scope", cli_option(c, "cluster") ? "cluster" : "own", "project", project,
                     "on", on ? list_of(on) : NULL);
    TRY(cli_call(c, "POST", "/v1/webhooks", body, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    print(answer);
    if (*cli_str(answer, "secret"))
        (void)printf("secret    %s\n          by which its receiver checks signatures; it is not shown again\n",
                     cli_str(answer, "secret"));
    return 0;
}

int webhooks_list(struct cli *c)
{
    static const struct cli_table table = {.head = {"WEBHOOK", "ID", "USER", "STATE", "WAITING", "SENDS TO", "TELLS"},
                                           .n = 7,
                                           .right = 1 << 4,
                                           .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    char words[512], waits[24];
    size_t i;

    TRY(cli_call(c, "GET", "/v1/webhooks", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, "webhooks"), i, one) {
        words_of(one, words, sizeof(words));
        (void)snprintf(waits, sizeof(waits), "%lld", cli_int(one, "waiting"));
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "name"), cli_str(one, "id"), cli_str(one, "user"), state_of(one),
                                       waits, cli_str(one, "url"), words},
                      7);
    }
    cli_print_table_new(&table, rows);
    return 0;
}

static int call(struct cli *c, const char *method, const char *tail, const json_t *body, json_t **ret)
{
    char path[128];

    TRY(path_of(c->arg[0], tail, path));
    return cli_call(c, method, path, body, NULL, ret);
}

int webhooks_show(struct cli *c)
{
    json_auto_t *answer = NULL;

    TRY(call(c, "GET", "", NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    print(answer);
    return 0;
}

int webhooks_change(struct cli *c)
{
    bool on = strcmp(c->cmd->name, "webhook enable") == 0;
    json_auto_t *answer = NULL, *body = json_pack("{s:b}", "enabled", on);

    TRY(call(c, "PATCH", "", body, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("webhook %s is switched %s\n", cli_str(answer, "name"), on ? "on" : "off");
    return 0;
}

int webhooks_delete(struct cli *c)
{
    json_auto_t *answer = NULL;

    TRY(call(c, "DELETE", "", NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("webhook %s is deleted\n", cli_str(answer, "name"));
    return 0;
}

/* The delivery of this id, borrowed from all; NULL: it is not there any more. */
static const json_t *find(const json_t *all, const char *id)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(all, "deliveries"), i, one)
        if (strcmp(cli_str(one, "id"), id) == 0)
            return one;
    return NULL;
}

int webhooks_test(struct cli *c)
{
    json_auto_t *sent = NULL, *all = NULL;
    int64_t until = clock_mono_us() + TEST_WAIT_US;
    const json_t *d;

    TRY(call(c, "POST", "/test", NULL, &sent));
    for (d = sent; d && cli_int(d, "tries") == 0 && clock_mono_us() < until; d = find(all, cli_str(sent, "id"))) {
        (void)poll(NULL, 0, LOOK_MS);
        json_decref(all);
        all = NULL;
        TRY(call(c, "GET", "/deliveries", NULL, &all));
    }
    if (c->json && d)
        (void)cli_print_json(d);
    if (d && strcmp(cli_str(d, "state"), "delivered") == 0) {
        if (!c->json)
            (void)printf("its receiver answered %lld after %lld ms\n", cli_int(d, "status"), cli_int(d, "ms"));
        return 0;
    }
    return cli_fail(CLI_FAILED, "the test did not arrive: %s",
                    d && *cli_str(d, "why") ? cli_str(d, "why") : "it waits behind others");
}

int webhooks_deliveries(struct cli *c)
{
    static const struct cli_table table = {.head = {"AT", "TELLS", "STATE", "TRIES", "ANSWER", "ID", "WHY"},
                                           .n = 7,
                                           .right = 1 << 3 | 1 << 4,
                                           .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(call(c, "GET", "/deliveries", NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, "deliveries"), i, one) {
        char tries[24], status[24] = "-";

        (void)snprintf(tries, sizeof(tries), "%lld", cli_int(one, "tries"));
        if (cli_int(one, "status"))
            (void)snprintf(status, sizeof(status), "%lld", cli_int(one, "status"));
        (void)cli_row(rows,
                      (const char *[]){cli_str(one, "at"), cli_str(one, "type"), cli_str(one, "state"), tries, status,
                                       cli_str(one, "id"), cli_str(one, "why")},
                      7);
    }
    cli_print_table_new(&table, rows);
    return 0;
}
