/* Help, completion, the man page and docs/cli.md, all from the table of commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/print.h"
#include "api/cli/help.h"
#include "api/cli/names.h"
#include "api/protocol/reference.h"
#include "api/spec.h"
#include "base/version.h"

static const char summary[] = "queue, watch and run training jobs";

static const struct command *find(const struct command_table *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->v[i].name, name) == 0)
            return &all->v[i];
    return NULL;
}

int help_group(const struct command_table *all, const char *first)
{
    size_t len = strlen(first), n = 0;

    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->v[i];
        char text[64];

        if (strncmp(c->name, first, len) != 0 || c->name[len] != ' ')
            continue;
        if (n++ == 0)
            (void)printf("usage: muster %s COMMAND [ARGUMENT...] [OPTION...]\n\n", first);
        (void)snprintf(text, sizeof(text), "%s %s", c->name, c->args);
        options_print_pair(stdout, text, 30, c->help);
    }
    return n ? 0 : -ENOENT;
}

void help_options(const struct command *cmd, char text[2][HELP_TEXT_MAX], struct options *ret)
{
    (void)snprintf(text[0], HELP_TEXT_MAX, "muster %s", cmd->name);
    (void)snprintf(text[1], HELP_TEXT_MAX, "example:\n  %s", cmd->example);
    *ret = (struct options){.name = text[0],
                            .args = cmd->args,
                            .min = cmd->min,
                            .max = cmd->max,
                            .tail = cli_takes_program(cmd),
                            .about = cmd->help,
                            .rows = cmd->options,
                            .common = cmd->prints ? cli_common : cli_common + 1,
                            .after = text[1]};
}

void help_print(const struct command_table *all, const struct command *cmd)
{
    char words[2][HELP_TEXT_MAX];
    struct options o;

    if (cmd) {
        help_options(cmd, words, &o);
        options_print_help(&o, stdout);
        return;
    }
    (void)printf("usage: muster COMMAND [ARGUMENT...] [OPTION...]\n\n%s\n\n", summary);
    for (size_t i = 0; i < all->n; i++) {
        char text[64];

        if (all->v[i].group)
            (void)printf("%s%s:\n", i ? "\n" : "", all->v[i].group);
        (void)snprintf(text, sizeof(text), "%s %s", all->v[i].name, all->v[i].args);
        options_print_pair(stdout, text, 30, all->v[i].help);
    }
    (void)printf("\n`muster help COMMAND` says more. Exit status: 0 done, 1 failed, 2 wrong usage,\n"
                 "3 not found, 4 refused, 5 server out of reach; `submit --watch` and `watch` end\n"
                 "with the job's outcome.\n");
}

/* Each option by a format of four texts: its name, a space and its value if it has one, its help. */
static void print_rows(const struct option_row *row, const char *format)
{
    char words[HELP_TEXT_MAX * 2];

    for (; row->name; row++)
        (void)printf(format, row->name, row->value ? " " : "", row->value ? row->value : "",
                     options_help_of(row, words, sizeof(words)));
}

static void print_man(const struct command_table *all)
{
    (void)printf(".TH MUSTER 1 \"\" \"muster %s\" \"Muster\"\n.SH NAME\nmuster \\- %s\n.SH SYNOPSIS\n.B muster\n"
                 "COMMAND [ARGUMENT...] [OPTION...]\n.SH COMMANDS\n",
                 MUSTER_VERSION, summary);
    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->v[i];

        (void)printf(".TP\n.B %s%s%s\n%s.\n.br\nExample: %s\n", c->name, *c->args ? " " : "", c->args, c->help,
                     c->example);
        print_rows(c->options, ".br\n\\-\\-%s%s%s: %s\n");
    }
    (void)printf(".SH OPTIONS\n");
    print_rows(cli_common, ".TP\n.B \\-\\-%s%s%s\n%s.\n");
    (void)printf(".SH EXIT STATUS\n0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused; 5 server out of reach.\n"
                 ".SH ENVIRONMENT\nMUSTER_SERVER, MUSTER_TOKEN, MUSTER_STATE, MUSTER_CACERT, NO_COLOR\n");
}

static void print_markdown(const struct command_table *all)
{
    (void)fputs("# Commands\n\n"
                "Printed by `make docs/cli.md` from the table in `api/cli/table.c`, as `muster help` and the man page "
                "are.\n\nExit status: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused; 5 server out of reach. "
                "`submit --watch` and\n`watch` end with the job's own outcome. `NO_COLOR` is honoured; progress moves "
                "only on a terminal. Where a command\nwants JOB, the job's name does as well: of several jobs of one "
                "name the newest is shown, and none is changed.\n\nOptions of all commands, which may stand before the "
                "command too:\n\n",
                stdout);
    print_rows(cli_common, "- `--%s%s%s`: %s\n");
    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->v[i];

        (void)printf("\n## muster %s%s%s\n\n%s.\n", c->name, *c->args ? " " : "", c->args, c->help);
        if (c->options[0].name)
            (void)fputc('\n', stdout);
        print_rows(c->options, "- `--%s%s%s`: %s\n");
        (void)printf("\n```sh\n%s\n```\n", c->example);
    }
}

int help_main(struct cli *c)
{
    const struct command_table *all = c->all;
    const struct command *cmd;
    char name[64];

    if (cli_option(c, "man")) {
        print_man(all);
    } else if (cli_option(c, "markdown")) {
        print_markdown(all);
    } else if (cli_option(c, "spec") || cli_option(c, "protocol")) {
        struct buf b;

        buf_init(&b, 1 << 20);
        (void)(cli_option(c, "spec") ? spec_reference(&b) : reference_print(&b));
        (void)fputs(buf_text(&b), stdout);
        buf_clear(&b);
    } else if (cli_option(c, "schema") || cli_option(c, "messages")) {
        json_t *schema = cli_option(c, "schema") ? spec_schema() : reference_schemas();
        int r = schema ? cli_print_json(schema) : cli_fail(CLI_FAILED, "no memory");

        json_decref(schema);
        return r;
    } else if (c->n == 0) {
        help_print(all, NULL);
    } else {
        (void)snprintf(name, sizeof(name), "%s%s%s", c->arg[0], c->n > 1 ? " " : "", c->n > 1 ? c->arg[1] : "");
        cmd = find(all, name);
        if (!cmd && help_group(all, name) == 0)
            return CLI_DONE;
        if (!cmd)
            return cli_fail(CLI_USAGE, "no command '%s'; `muster help` lists them", name);
        help_print(all, cmd);
    }
    return CLI_DONE;
}

/* --- completion ---------------------------------------------------------------------------------------- */

/* First words of commands, each once; the second words of a group are subs of it. */
static void first_words(const struct command_table *all, const char *before, const char *after)
{
    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->v[i].name;
        size_t len = strcspn(name, " ");

        if (i > 0 && name[len] && strncmp(all->v[i - 1].name, name, len + 1) == 0)
            continue;
        (void)printf("%s%.*s%s", before, (int)len, name, after);
    }
}

/* The second words of the group that command i is the first of; false when it is of none, or not its first. */
static bool second_words(const struct command_table *all, size_t i, const char *before, const char *sep,
                         const char *after)
{
    const char *name = all->v[i].name, *space = strchr(name, ' ');
    size_t len = space ? (size_t)(space - name) + 1 : 0;

    for (size_t k = 0; k < i; k++)
        if (strncmp(all->v[k].name, name, len) == 0)
            return false;
    if (!space)
        return false;
    (void)printf(before, (int)len - 1, name);
    for (size_t k = i; k < all->n; k++)
        if (strncmp(all->v[k].name, name, len) == 0)
            (void)printf("%s%s", all->v[k].name + len, sep);
    (void)printf("%s", after);
    return true;
}

/* Whether command i is of a group whose first word alone is no command. */
static bool group_alone(const struct command_table *all, size_t i)
{
    char first[64];

    (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(all->v[i].name, " "), all->v[i].name);
    return strchr(all->v[i].name, ' ') && !find(all, first);
}

static void option_words(const struct command *c)
{
    for (size_t k = 0; c->options[k].name; k++)
        (void)printf("--%s ", c->options[k].name);
    for (size_t k = 0; cli_common[k].name; k++)
        if (c->prints || cli_common[k].letter != 'o')
            (void)printf("--%s ", cli_common[k].name);
}

/* "NAME*) words", for a case over the first two words of a line: groups' commands before single words. */
static void option_cases(const struct command_table *all, const char *before, const char *after)
{
    for (int two = 1; two >= 0; two--)
        for (size_t i = 0; i < all->n; i++) {
            if ((strchr(all->v[i].name, ' ') != NULL) != two)
                continue;
            (void)printf("        '%s%s%s", all->v[i].name, two ? "'" : " '*", before);
            option_words(&all->v[i]);
            (void)fputs(after, stdout);
        }
}

/* "NAME*) what" for the commands whose first argument a server knows; also: those to which files are offered too. */
static void kind_cases(const struct command_table *all, const char *format, bool also)
{
    for (int two = 1; two >= 0; two--)
        for (size_t i = 0; i < all->n; i++) {
            const char *kind = names_kind(&all->v[i]);

            if (kind && (strchr(all->v[i].name, ' ') != NULL) == two &&
                (strstr(all->v[i].args, "|DIR") != NULL) == also)
                (void)printf(format, all->v[i].name, two ? "'" : " '*", kind);
        }
}

static void print_bash(const struct command_table *all)
{
    (void)printf(
        "# bash completion of muster\n_muster() {\n    local cur=${COMP_WORDS[COMP_CWORD]} words= what= files=yes\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"");
    first_words(all, "", " ");
    (void)printf("\"\n    elif [ \"${cur:0:1}\" = - ]; then\n"
                 "        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    option_cases(all, ") words=\"", "\" ;;\n");
    (void)printf("        esac\n    elif [ \"$COMP_CWORD\" -eq 2 ]; then\n        case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; i < all->n; i++)
        (void)second_words(all, i, "        %.*s) words=\"", " ", "\" ;;\n");
    (void)printf("        esac\n    fi\n    if [ -z \"$words\" ]; then\n"
                 "        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    kind_cases(all, "        '%s%s) what=%s files= ;;\n", false);
    kind_cases(all, "        '%s%s) what=%s ;;\n", true);
    (void)printf(
        "        esac\n"
        "        if [ -n \"$what\" ]; then\n"
        "            words=$(timeout 2 muster completion \"$what\" 2>/dev/null | cut -f1)\n        fi\n    fi\n"
        "    COMPREPLY=()\n"
        "    if [ -n \"$words\" ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n    fi\n"
        "    if [ -n \"$files\" ] && [ \"${#COMPREPLY[@]}\" -eq 0 ]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n    fi\n}\n"
        "complete -o filenames -F _muster muster\n");
}

static void print_zsh(const struct command_table *all)
{
    (void)printf("#compdef muster\n_muster() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < all->n; i++) {
        if (!strchr(all->v[i].name, ' '))
            (void)printf("        '%s:%s'\n", all->v[i].name, all->v[i].help);
        else if (group_alone(all, i))
            (void)second_words(all, i, "        '%.*s:", " ", "'\n");
    }
    (void)printf("    )\n    if (( CURRENT == 2 )); then\n"
                 "        _describe command commands\n        return\n    fi\n"
                 "    if [[ $words[CURRENT] == -* ]]; then\n        case \"$words[2] $words[3]\" in\n");
    option_cases(all, ") compadd -- ", ";;\n");
    (void)printf("        esac\n        return\n    fi\n    if (( CURRENT == 3 )); then\n        case $words[2] in\n");
    for (size_t i = 0; i < all->n; i++)
        (void)second_words(all, i, "        %.*s) compadd ", " ", "; return;;\n");
    (void)printf("        esac\n    fi\n    local what=\n    local -a found\n    case \"$words[2] $words[3]\" in\n");
    kind_cases(all, "        '%s%s) what=%s;;\n", false);
    kind_cases(all, "        '%s%s) what=%s; _files;;\n", true);
    (void)printf("        *) _files;;\n    esac\n    if [[ -n $what ]]; then\n"
                 "        found=(${(f)\"$(timeout 2 muster completion $what 2>/dev/null | tr '\\t' ':')\"})\n"
                 "        _describe $what found\n    fi\n}\n"
                 "_muster \"$@\"\n");
}

static void print_fish(const struct command_table *all)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct command *c = &all->v[i];
        const char *space = strchr(c->name, ' ');

        if (space)
            (void)printf("complete -c muster -n '__fish_seen_subcommand_from %.*s' -a %s -d '%s'\n",
                         (int)(space - c->name), c->name, space + 1, c->help);
        else
            (void)printf("complete -c muster -n __fish_use_subcommand -a %s -d '%s'\n", c->name, c->help);
        for (size_t k = 0; !space && c->options[k].name; k++)
            (void)printf("complete -c muster -n '__fish_seen_subcommand_from %s' -l %s%s\n", c->name,
                         c->options[k].name, c->options[k].value ? " -r" : "");
        if (group_alone(all, i))
            (void)second_words(all, i, "complete -c muster -n __fish_use_subcommand -a %.*s -d '", " ", "'\n");
        if (names_kind(c))
            (void)printf("complete -c muster -n '__fish_seen_subcommand_from %s' %s-a "
                         "'(timeout 2 muster completion %s 2>/dev/null)'\n",
                         space ? space + 1 : c->name, strstr(c->args, "|DIR") ? "" : "-f ", names_kind(c));
    }
}

int help_completion(struct cli *c)
{
    const struct command_table *all = c->all;
    if (strcmp(c->arg[0], "bash") == 0)
        print_bash(all);
    else if (strcmp(c->arg[0], "zsh") == 0)
        print_zsh(all);
    else if (strcmp(c->arg[0], "fish") == 0)
        print_fish(all);
    else {
        int r = names_offer(c, c->arg[0]);

        return r >= 0 ? r : cli_fail(CLI_USAGE, "completion for '%s' is not known; want bash, zsh or fish", c->arg[0]);
    }
    return CLI_DONE;
}
