/* The audit log: what people changed, and what they were refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/clock.h"
#include "base/try.h"

/* The newest of "before" and "after" in short: what is another in after. */
static void print_change(const json_t *entry)
{
    const json_t *before = json_object_get(entry, "before"), *value;
    const char *key;

    json_object_foreach (json_object_get(entry, "after"), key, value) {
        json_auto_t *was = json_incref(json_object_get(before, key));
        char *now = json_equal(was, value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

        if (!now || (!was && json_is_null(value)))
            continue;
        (void)printf("  %s ", key);
        cli_print_text(now);
        free(now);
    }
}

static void print_entry(const json_t *entry)
{
    const char *code = cli_str(entry, "code"), *actor = cli_str(entry, "actor");

    (void)printf("%s  %-20s %-15s %lld ", cli_str(entry, "at"), *actor ? actor : "-", cli_str(entry, "address"),
                 cli_int(entry, "status"));
    cli_print_text(cli_str(entry, "method"));
    (void)printf(" ");
    cli_print_text(cli_str(entry, "path"));
    if (*code)
        (void)printf("  refused: %s", code);
    else
        print_change(entry);
    (void)printf("\n");
}

int audit_run(struct cli *c)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
    const char *user = cli_option(c, "user");
    char filters[256], at[CLOCK_RFC3339_MAX];
    json_auto_t *answer = NULL;
    const json_t *entry;
    size_t i;
    int n;

    if (user && (!*user || strlen(user) > 128 || strspn(user, good) != strlen(user)))
        return cli_fail(CLI_USAGE, "'%.64s' is no user's name", user);
    clock_rfc3339(clock_wall_us() - cli_number(c, "last", 0) * INT64_C(1000000), at);
    n = snprintf(filters, sizeof(filters), "&from=%s", at);
    if (user)
        (void)snprintf(filters + n, sizeof(filters) - (size_t)n, "&user=%s", user);
    TRY(cli_pages(c, "/v1/audit", filters, "audit", cli_number(c, "limit", 0), &answer));
    if (c->json)
        return cli_print_json(answer);
    json_array_foreach (json_object_get(answer, "audit"), i, entry) {
        print_entry(entry);
    }
    if (json_is_string(json_object_get(answer, "next_cursor")))
        (void)fprintf(stderr, "there are newer ones; --limit N shows more\n");
    return 0;
}
