/* muster - the command line of Muster: find the command, read its options, run it */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/help.h"
#include "api/cli/names.h"
#include "base/try.h"
#include "base/version.h"
#include "base/word.h"

#define COMMANDS_MAX 256

/* The command of argv[0] (and argv[1]); *ret_words is how many words name it. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; i < cli_commands.n; i++) {
        const char *name = cli_commands.v[i].name, *space = strchr(name, ' ');
        size_t first = space ? (size_t)(space - name) : strlen(name);

        if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
            continue;
        if (!space || (argc > 1 && strcmp(argv[1], space + 1) == 0)) {
            *ret_words = space ? 2 : 1;
            return &cli_commands.v[i];
        }
    }
    return NULL;
}

static int unknown_command(int argc, char **argv)
{
    const char *known[COMMANDS_MAX], *near;
    char word[128];
    size_t n = 0;
    bool group = false;

    for (size_t i = 0; i < cli_commands.n && n < COMMANDS_MAX; i++) {
        known[n++] = cli_commands.v[i].name;
        group = group || (strncmp(cli_commands.v[i].name, argv[0], strlen(argv[0])) == 0 &&
                          cli_commands.v[i].name[strlen(argv[0])] == ' ');
    }
    group = group && argc > 1;
    (void)snprintf(word, sizeof(word), "%s%s%s", argv[0], group ? " " : "", group ? argv[1] : "");
    near = word_nearest(word, known, n);
    if (near)
        return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean '%s'?", word, near);
    return cli_fail(CLI_USAGE, "unknown command '%s'; `muster help` lists them", word);
}

/* Returns 0, an exit status, or -1 when help was all that was asked for. */
static int read_options(struct cli *c, int argc, char **argv)
{
    char text[2][HELP_TEXT_MAX];
    struct options o;
    struct merr err;
    int r;

    help_options(c->cmd, text, &o);
    o.common = cli_common;
    r = options_read(&o, argc, argv, c, &c->given, &err);
    if (r == OPTION_HELP)
        help_print(&cli_commands, c->cmd);
    if (r != 0)
        return r < 0 ? cli_fail(CLI_USAGE, "%s", err.text) : -1;
    c->arg = c->given.arg;
    c->n = c->given.n_args;
    c->json = cli_option(c, "output");
    if (c->json && !c->cmd->prints)
        return cli_fail(CLI_USAGE, "`muster %s` prints no data: it takes no -o", c->cmd->name);
    return 0;
}

/* Options before the command are of all commands: put them behind its words, before its own. argv without the
 * program's name. Returns 0 or an exit status. */
static int move_options(int argc, char **argv)
{
    struct options o = {
        .name = "muster", .args = "COMMAND", .max = OPTIONS_ARGS_MAX, .passes = true, .rows = cli_common};
    struct options_given given;
    char *moved[OPTIONS_ROWS_MAX];
    struct merr err;
    struct cli seen;
    int words = 1, before, r = options_read(&o, argc, argv, &seen, &given, &err);

    if (r != 0 || !given.rest)
        return r < 0 ? cli_fail(CLI_USAGE, "%s", err.text) : 0;
    before = (int)(given.rest - argv);
    if (before == 0 || before > OPTIONS_ROWS_MAX || before == argc)
        return 0;
    (void)find_command(argc - before, argv + before, &words); /* one that is unknown is so by its first word */
    memcpy(moved, argv, (size_t)before * sizeof(*argv));
    memmove(argv, argv + before, (size_t)words * sizeof(*argv));
    memcpy(argv + words, moved, (size_t)before * sizeof(*argv));
    return 0;
}

static int run(int argc, char **argv)
{
    struct cli c = {.all = &cli_commands};
    int words = 0, r;

    if (argc < 2) {
        help_print(&cli_commands, NULL);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || (argc == 2 && strcmp(argv[1], "version") == 0)) {
        (void)printf("muster %s\n", MUSTER_VERSION);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_print(&cli_commands, NULL);
        return CLI_DONE;
    }
    if (argv[1][0] == '-')
        TRY(move_options(argc - 1, argv + 1));
    c.cmd = find_command(argc - 1, argv + 1, &words);
    if (!c.cmd && (argc == 2 || strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0) &&
        help_group(&cli_commands, argv[1]) == 0)
        return argc == 2 ? CLI_USAGE : CLI_DONE;
    if (!c.cmd)
        return unknown_command(argc - 1, argv + 1);
    r = read_options(&c, argc - 1 - words, argv + 1 + words);
    if (r != 0)
        return r < 0 ? CLI_DONE : r;
    r = names_resolve(&c);
    r = r ? r : c.cmd->run(&c);
    client_free(c.client);
    json_decref(c.ids);
    if (r != 0)
        return r < 0 ? CLI_DONE : r;
    return fflush(stdout) == 0 ? CLI_DONE : CLI_FAILED;
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_DFL); /* `muster list | head` just ends */
    return run(argc, argv);
}
