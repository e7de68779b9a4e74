/* Tokens of a cluster's users. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/clock.h"
#include "base/try.h"

int tokens_create(struct cli *c)
{
    const char *role = cli_option(c, "role"), *unix_user = cli_option(c, "unix");
    long expires_s = cli_number(c, "expires", 0);
    json_t *answer = NULL, *body = json_pack("{s:s, s:s}", "user", c->arg[0], "role", role);
    char expires_at[CLOCK_RFC3339_MAX];
    int r;

    if (body && expires_s > 0) {
        clock_rfc3339(clock_wall_us() + expires_s * 1000000, expires_at);
        (void)json_object_set_new(body, "expires_at", json_string(expires_at));
    }
    if (body && unix_user)
        (void)json_object_set_new(body, "unix_user", json_string(unix_user));
    r = body ? cli_call(c, "POST", "/v1/tokens", body, NULL, &answer)
             : cli_fail(CLI_USAGE, "the user's name or the role is not UTF-8");
    json_decref(body);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(answer);
    (void)printf("%s\n", cli_str(answer, "token")); /* alone on standard output, for a file or a variable */
    (void)fprintf(stderr, "token %s of %s, role %s; it is shown this once\n", cli_str(answer, "id"),
                  cli_str(answer, "user"), cli_str(answer, "role"));
    json_decref(answer);
    return 0;
}

int tokens_list(struct cli *c)
{
    static const struct cli_table table = {
        .head = {"TOKEN", "USER", "ROLE", "MADE", "LAST USED", "EXPIRES"}, .n = 6, .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *token;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/tokens", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, "tokens"), i, token) {
        bool file = json_is_true(json_object_get(token, "file"));

        (void)cli_row(rows,
                      (const char *[]){cli_str(token, "id"), cli_str(token, "user"), cli_str(token, "role"),
                                       file ? "in the server's state folder" : cli_str(token, "made_at"),
                                       cli_str(token, "last_used_at"), cli_str(token, "expires_at")},
                      6);
    }
    cli_print_table_new(&table, rows);
    return 0;
}

int tokens_revoke(struct cli *c)
{
    const char *id = c->arg[0];
    json_t *answer = NULL;
    char path[64];
    int r;

    if (!*id || strlen(id) > 16 || strspn(id, "0123456789abcdef") != strlen(id))
        return cli_fail(CLI_NOT_FOUND, "no token '%.64s'; `muster token list` shows those there are", id);
    (void)snprintf(path, sizeof(path), "/v1/tokens/%s", id);
    r = cli_call(c, "DELETE", path, NULL, NULL, &answer);
    if (r)
        return r;
    if (c->json)
        return cli_print_json_new(answer);
    (void)printf("token %s of %s is no longer good\n", id, cli_str(answer, "user"));
    json_decref(answer);
    return 0;
}
