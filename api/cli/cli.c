#include "api/cli/cli.h"
#include "api/cli/print.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_MAX 1000 /* elements asked for at once: what the server gives at most */

static const char *const formats[] = {"json", NULL};

const struct option_row cli_common[] = {
    {"output", 'o', "json", "print one JSON document", .kind = OPTION_WORD, .words = formats},
    {"server", 0, "URL",
     "the server, or several that take over from each other, with commas between (else MUSTER_SERVER, else the one of "
     "the state folder); a certificate "
     "of your own for https://: MUSTER_CACERT=FILE",
     OPTION_TEXT, .env = "MUSTER_SERVER", .at = OPTION_AT(struct cli, server)},
    {"token", 0, "TOKEN", "who you are (else MUSTER_TOKEN, else the state folder's)", OPTION_TEXT,
     .env = "MUSTER_TOKEN", .at = OPTION_AT(struct cli, token)},
    {"state", 0, "DIR", "the state folder (else MUSTER_STATE)", OPTION_TEXT, .env = "MUSTER_STATE",
     .at = OPTION_AT(struct cli, state)},
    {"help", 'h', NULL, "say how the command is used", .kind = OPTION_HELP},
    {0},
};

int cli_fail(enum cli_exit status, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    (void)fflush(stdout);
    (void)fputs("muster: ", stderr);
    if (n >= 0)
        cli_print_visible(stderr, text, (size_t)n);
    (void)fputc('\n', stderr);
    free(n >= 0 ? text : NULL);
    return (int)status;
}

/* NULL: the command has no option of that name. Its own options come before those of all commands. */
static const struct option_row *find_row(const struct cli *c, const char *name, size_t *ret_at)
{
    const struct option_row *rows[] = {c->cmd->options, cli_common};

    *ret_at = 0;
    for (size_t k = 0; k < 2; k++)
        for (const struct option_row *row = rows[k]; row->name; row++, ++*ret_at)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

bool cli_takes_program(const struct command *cmd)
{
    return strstr(cmd->args, "-- ") != NULL;
}

const char *cli_option(const struct cli *c, const char *name)
{
    size_t at;

    return find_row(c, name, &at) ? c->given.text[at] : NULL;
}

long cli_number(const struct cli *c, const char *name, long otherwise)
{
    size_t at;
    const struct option_row *row = find_row(c, name, &at);

    return row && c->given.text[at] ? (long)options_whole(row, c->given.text[at]) : otherwise;
}

static void say_wait(int wait_s)
{
    (void)fprintf(stderr, "muster: the server has had too many requests; trying again in %d s\n", wait_s);
}

int cli_connect(struct cli *c)
{
    struct merr err;
    bool first = !c->client;
    int r = c->client ? 0 : client_new(c->server, c->token, c->state, &c->client, &err);

    if (r == 0)
        client_on_wait(c->client, say_wait);
    if (r == 0 && first && client_bares_token(c->client))
        (void)fprintf(stderr,
                      "muster: warning: the token goes to '%s' in the clear, for all on the way to read; use https\n",
                      client_url(c->client));
    return r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text) : 0;
}

int cli_call(struct cli *c, const char *method, const char *path, const json_t *body, const char *key, json_t **ret)
{
    struct merr err;
    int r = cli_connect(c);

    if (r)
        return r;
    r = client_call(c->client, method, path, body, key, ret, &err);
    return r < 0 ? cli_fail((enum cli_exit)client_exit_status(r), "%s", err.text) : 0;
}

int cli_pages(struct cli *c, const char *path, const char *filters, const char *field, long limit, json_t **ret)
{
    json_t *all = json_array(), *page = NULL, *next;
    char url[2048], after[80] = "";
    long left = limit;
    int r;

    for (;;) {
        (void)snprintf(url, sizeof(url), "%s?limit=%ld%s%s", path, left < PAGE_MAX ? left : PAGE_MAX, filters, after);
        r = cli_call(c, "GET", url, NULL, NULL, &page);
        if (r) {
            json_decref(all);
            return r;
        }
        (void)json_array_extend(all, json_object_get(page, field));
        next = json_object_get(page, "next_cursor");
        left = limit - (long)json_array_size(all);
        if (!json_is_string(next) || left <= 0)
            break;
        (void)snprintf(after, sizeof(after), "&cursor=%.64s", json_string_value(next));
        json_decref(page);
    }
    (void)json_object_set_new(page, field, all); /* what else the last page says stays */
    *ret = page;
    return 0;
}

/* --- what several commands share ----------------------------------------------------------------------- */

/* "/v1/jobs/<id><tail>"; a number alone is taken for the id with it. What is no part of an id exists nowhere. */
int cli_job_path(const char *id, const char *tail, char out[256])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!*id || *id == '.' || strlen(id) > 64 || strspn(id, good) != strlen(id)) /* .. would lead elsewhere */
        return cli_fail(CLI_NOT_FOUND, "no job '%.64s'; `muster list` shows those there are", id);
    (void)snprintf(out, 256, "/v1/jobs/%s%s%s", strspn(id, "0123456789") == strlen(id) ? "j" : "", id, tail);
    return 0;
}

int cli_program(const char *program, char *ret, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (n < 0)
        return cli_fail(CLI_FAILED, "cannot find this program's folder: %s", strerror(errno));
    self[n] = '\0';
    slash = strrchr(self, '/');
    n = snprintf(ret, size, "%.*s/%s", (int)(slash - self), self, program);
    if (n < 0 || (size_t)n >= size || access(ret, X_OK) != 0)
        return cli_fail(CLI_FAILED, "'%s' is not beside this program: %s; build or install all of Muster", ret,
                        strerror(errno));
    return 0;
}

int cli_exec(const char *program, const char *const *argv)
{
    char path[PATH_MAX];
    int r = cli_program(program, path, sizeof(path));

    if (r)
        return r;
    (void)fflush(stdout);
    (void)execv(path, (char *const *)argv);
    return cli_fail(CLI_FAILED, "cannot start '%s': %s", path, strerror(errno));
}
