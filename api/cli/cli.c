#include "api/cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/word.h"
#include "base/version.h"

#define PAGE_MAX 1000 /* elements asked for at once: what the server gives at most */

int cli_fail(enum cli_exit status, const char *fmt, ...)
{
    va_list ap;

    (void)fflush(stdout);
    (void)fputs("muster: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    return (int)status;
}

const char *cli_option(const struct cli *c, const char *name)
{
    for (size_t i = 0; i < CLI_OPTIONS_MAX && c->cmd->options[i].name; i++)
        if (strcmp(c->cmd->options[i].name, name) == 0)
            return c->value[i];
    return NULL;
}

int cli_number(const struct cli *c, const char *name, long lo, long hi, long def, long *ret)
{
    const char *text = cli_option(c, name);
    char *end;
    long n;

    *ret = def;
    if (!text)
        return 0;
    errno = 0;
    n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < lo || n > hi) {
        (void)cli_fail(CLI_USAGE, "--%s wants a number from %ld to %ld, got '%s'", name, lo, hi, text);
        return -EINVAL;
    }
    *ret = n;
    return 0;
}

int cli_connect(struct cli *c)
{
    struct merr err;
    int r = c->client ? 0 : client_new(c->server, c->token, c->state, &c->client, &err);

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
    char url[1024], after[80] = "";
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

/* --- parsing ------------------------------------------------------------------------------------------- */

/* The command of argv[0] (and argv[1]); *ret_words is how many words name it. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; i < cli_commands_n; i++) {
        const char *name = cli_commands[i].name, *space = strchr(name, ' ');
        size_t first = space ? (size_t)(space - name) : strlen(name);

        if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
            continue;
        if (!space || (argc > 1 && strcmp(argv[1], space + 1) == 0)) {
            *ret_words = space ? 2 : 1;
            return &cli_commands[i];
        }
    }
    return NULL;
}

static int unknown_command(int argc, char **argv)
{
    const char *known[64], *near;
    char word[128];
    size_t n = 0;
    bool group = false;

    for (size_t i = 0; i < cli_commands_n && n < 64; i++) {
        known[n++] = cli_commands[i].name;
        group = group || (strncmp(cli_commands[i].name, argv[0], strlen(argv[0])) == 0 &&
                          cli_commands[i].name[strlen(argv[0])] == ' ');
    }
    group = group && argc > 1;
    (void)snprintf(word, sizeof(word), "%s%s%s", argv[0], group ? " " : "", group ? argv[1] : "");
    near = word_nearest(word, known, n);
    if (near)
        return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean '%s'?", word, near);
    return cli_fail(CLI_USAGE, "unknown command '%s'; `muster help` lists them", word);
}

static int unknown_option(const struct cli *c, const char *text)
{
    const char *known[CLI_OPTIONS_MAX + 8], *near, *name = text + strspn(text, "-");
    char word[64];
    size_t n = 0;

    for (size_t i = 0; i < CLI_OPTIONS_MAX && c->cmd->options[i].name; i++)
        known[n++] = c->cmd->options[i].name;
    for (size_t i = 0; i < cli_common_n; i++)
        known[n++] = cli_common[i].name;
    (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "="), name);
    near = text[1] == '-' ? word_nearest(word, known, n) : NULL;
    if (near)
        return cli_fail(CLI_USAGE, "unknown option '%s'; did you mean '--%s'?", text, near);
    return cli_fail(CLI_USAGE, "unknown option '%s'; see `muster help %s`", text, c->cmd->name);
}

static const struct option_row *match(const struct option_row *rows, size_t n, const char *text, size_t *ret_at)
{
    for (size_t i = 0; i < n && rows[i].name; i++) {
        size_t len = strcspn(text + 2 * (text[1] == '-'), "=");
        bool is = text[1] == '-' ? strlen(rows[i].name) == len && strncmp(rows[i].name, text + 2, len) == 0
                                 : text[1] && text[1] == rows[i].letter;

        if (is) {
            *ret_at = i;
            return &rows[i];
        }
    }
    return NULL;
}

static int take_common(struct cli *c, size_t at, const char *value)
{
    switch (at) {
    case 0:
        c->server = value;
        return 0;
    case 1:
        c->token = value;
        return 0;
    case 2:
        c->state = value;
        return 0;
    case 3:
        if (strcmp(value, "json") != 0)
            return cli_fail(CLI_USAGE, "-o '%s': want json", value);
        if (!c->cmd->prints)
            return cli_fail(CLI_USAGE, "`muster %s` prints no data: it takes no -o", c->cmd->name);
        c->json = true;
        return 0;
    default:
        help_print(c->cmd);
        return -1; /* done */
    }
}

static bool may_repeat(const struct option_row *o)
{
    size_t n = o->value ? strlen(o->value) : 0;

    return n > 2 && strcmp(o->value + n - 2, "..") == 0;
}

/* One option at argv[*i]. Returns 0, an exit status, or -1 when all is done. */
static int take_option(struct cli *c, int argc, char **argv, int *i)
{
    const char *text = argv[*i], *value = NULL;
    size_t at = 0;
    const struct option_row *own = match(c->cmd->options, CLI_OPTIONS_MAX, text, &at), *row = own;

    if (!row)
        row = match(cli_common, cli_common_n, text, &at);
    if (!row)
        return unknown_option(c, text);
    if (text[1] == '-')
        value = strchr(text, '=') ? strchr(text, '=') + 1 : NULL;
    else if (text[2])
        value = text + 2;
    if (value && !row->value)
        return cli_fail(CLI_USAGE, "'%s': --%s takes no value", text, row->name);
    if (!value && row->value) {
        if (*i + 1 >= argc)
            return cli_fail(CLI_USAGE, "--%s wants %s", row->name, row->value);
        value = argv[++*i];
    }
    if (own && may_repeat(own)) {
        if (c->n_many == CLI_MANY_MAX)
            return cli_fail(CLI_USAGE, "more than %d --%s; leave some out", CLI_MANY_MAX, own->name);
        c->many[c->n_many++] = value;
    }
    if (own) {
        c->value[at] = value ? value : "";
        return 0;
    }
    return take_common(c, at, value);
}

static int parse(struct cli *c, int argc, char **argv)
{
    bool only_args = false;
    int r;

    for (int i = 0; i < argc; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0) {
            only_args = true;
        } else if (!only_args && argv[i][0] == '-' && argv[i][1]) {
            r = take_option(c, argc, argv, &i);
            if (r)
                return r;
        } else if (c->n == CLI_ARGS_MAX || c->n == c->cmd->max) {
            return cli_fail(CLI_USAGE, "'%s' is one argument too many; usage: muster %s %s", argv[i], c->cmd->name,
                            c->cmd->args);
        } else {
            c->arg[c->n++] = argv[i];
        }
    }
    if (c->n < c->cmd->min)
        return cli_fail(CLI_USAGE, "usage: muster %s %s", c->cmd->name, c->cmd->args);
    return 0;
}

int cli_main(int argc, char **argv)
{
    struct cli c = {.n = 0};
    int words = 0, r;

    if (argc < 2) {
        help_print(NULL);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("muster %s\n", MUSTER_VERSION);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_print(NULL);
        return CLI_DONE;
    }
    c.cmd = find_command(argc - 1, argv + 1, &words);
    if (!c.cmd && (argc == 2 || strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0) &&
        help_group(argv[1]) == 0)
        return argc == 2 ? CLI_USAGE : CLI_DONE;
    if (!c.cmd)
        return unknown_command(argc - 1, argv + 1);
    r = parse(&c, argc - 1 - words, argv + 1 + words);
    if (r == 0)
        r = c.cmd->run(&c);
    client_free(c.client);
    if (fflush(stdout) != 0 && r == 0)
        r = CLI_FAILED;
    return r < 0 ? CLI_DONE : r;
}

/* --- what several commands share ----------------------------------------------------------------------- */

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
