/* help - what is said of the commands, from their table: help, completion, the man page, docs/cli.md */
#ifndef MUSTER_API_CLI_HELP_H
#define MUSTER_API_CLI_HELP_H

#include "api/cli/cli.h"

#define HELP_TEXT_MAX 256

/* The options that the command takes. text holds what *ret points to. */
void help_options(const struct command *cmd, char text[2][HELP_TEXT_MAX], struct options *ret);

/* How a command is used; NULL: all commands. */
void help_print(const struct command_table *all, const struct command *cmd);

/* The commands of two words that begin with this one. -ENOENT when there are none. */
int help_group(const struct command_table *all, const char *first);

/* The commands help and completion. */
int help_main(struct cli *c);
int help_completion(struct cli *c);

#endif
