/* Secrets of a user: values that jobs name and nobody reads back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/spec.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"

#define VALUE_MAX 32768

static int path_of(const char *name, char ret[128])
{
    if (!spec_secret_name_ok(name))
        return cli_fail(CLI_USAGE, "'%.64s' is no name of a secret: want 1 to %d letters, digits, '.', '_', '-'", name,
                        SPEC_SECRET_MAX);
    (void)snprintf(ret, 128, "/v1/secrets/%s", name);
    return 0;
}

/* Print an answer as JSON, or that the secret it names was done with. */
static int say(struct cli *c, json_t *answer, const char *done)
{
    if (c->json)
        return cli_print_json_new(answer);
    (void)printf("secret %s %s\n", cli_str(answer, "name"), done);
    json_decref(answer);
    return 0;
}

/* The value from standard input, less a newline at its end: on a command line others would see it. */
int secrets_set(struct cli *c)
{
    char path[128], text[VALUE_MAX + 2];
    json_t *answer = NULL, *body;
    ssize_t n;
    int r;

    TRY(path_of(c->arg[0], path));
    if (isatty(STDIN_FILENO))
        (void)fprintf(stderr, "the value of secret '%s', then Ctrl-D:\n", c->arg[0]);
    n = io_read_full(STDIN_FILENO, text, sizeof(text));
    if (n > 0 && text[n - 1] == '\n')
        n--;
    if (n < 0 || n > VALUE_MAX)
        return cli_fail(CLI_USAGE, "a secret has at most %d bytes, from standard input", VALUE_MAX);
    body = json_pack("{s:o*}", "value", json_stringn(text, (size_t)n));
    explicit_bzero(text, sizeof(text));
    r = json_object_size(body) == 1 ? cli_call(c, "PUT", path, body, NULL, &answer)
                                    : cli_fail(CLI_USAGE, "a secret is text: UTF-8");
    json_decref(body);
    return r ? r : say(c, answer, "is set");
}

int secrets_list(struct cli *c)
{
    static const struct cli_table table = {.head = {"SECRET", "SET"}, .n = 2, .state = -1};
    json_auto_t *answer = NULL;
    json_t *rows, *one;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/secrets", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    rows = json_array();
    json_array_foreach (json_object_get(answer, "secrets"), i, one) {
        (void)cli_row(rows, (const char *[]){cli_str(one, "name"), cli_str(one, "set_at")}, 2);
    }
    cli_print_table_new(&table, rows);
    return 0;
}

int secrets_delete(struct cli *c)
{
    json_t *answer = NULL;
    char path[128];

    TRY(path_of(c->arg[0], path));
    TRY(cli_call(c, "DELETE", path, NULL, NULL, &answer));
    return say(c, answer, "is deleted");
}
