/* cli - the commands of muster: one table from which parsing, help, completion and the man page are made */
#ifndef MUSTER_API_CLI_CLI_H
#define MUSTER_API_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/client/client.h"
#include "base/merr.h"

#define CLI_ARGS_MAX 64
#define CLI_OPTIONS_MAX 16

enum cli_exit { CLI_DONE, CLI_FAILED, CLI_USAGE, CLI_NOT_FOUND, CLI_REFUSED, CLI_NO_SERVER };

struct option_row {
    const char *name;
    char letter;       /* 0: none */
    const char *value; /* what its value is called; NULL: a flag */
    const char *help;
};

struct cli;

struct command {
    const char *name; /* one word, or two: "checkpoint list" */
    const char *args; /* as help shows them */
    int min, max;     /* arguments */
    const char *help; /* one line */
    int (*run)(struct cli *c);
    bool prints; /* data, so it takes -o json */
    struct option_row options[CLI_OPTIONS_MAX];
};

struct cli {
    const struct command *cmd;
    const char *arg[CLI_ARGS_MAX];
    int n;
    const char *value[CLI_OPTIONS_MAX]; /* of cmd->options; "" for a flag that is set */
    const char *server, *token, *state; /* of the options all commands have */
    bool json;
    struct client *client; /* once cli_connect gave it */
};

extern const struct command cli_commands[];
extern const size_t cli_commands_n;
extern const struct option_row cli_common[];
extern const size_t cli_common_n;

/* Parse and run. Returns the exit status. */
int cli_main(int argc, char **argv);

/* The value of an option of the command, "" for a set flag, NULL when it is not there. */
const char *cli_option(const struct cli *c, const char *name);

/* A whole number as an option's value, def without it. -EINVAL with words on stderr. */
int cli_number(const struct cli *c, const char *name, long lo, long hi, long def, long *ret);

/* Say what failed on stderr and return status. */
int cli_fail(enum cli_exit status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Connect once. Returns 0, or an exit status with the reason said. */
int cli_connect(struct cli *c);

/* A call; the document is new. Returns 0, or an exit status with the reason said. */
int cli_call(struct cli *c, const char *method, const char *path, const json_t *body, const char *key, json_t **ret);

/* Print one document. */
int cli_print_json(const json_t *doc);

/* May colours and moving lines go to standard output? */
bool cli_is_terminal(void);
const char *cli_colour(const char *code); /* "" where there are none */

/* Read a spec file ("-": standard input); paths in it made absolute. Returns 0, or an exit status. */
int cli_read_spec(const char *file, json_t **ret_doc);

/* Replace this program by one from its own folder. Returns only an exit status, when that failed. */
int cli_exec(const char *program, const char *const *argv);
int cli_program(const char *program, char *ret, size_t size);

int help_main(struct cli *c);
int help_completion(struct cli *c);
void help_print(const struct command *cmd); /* NULL: of all */

int jobs_submit(struct cli *c);
int jobs_list(struct cli *c);
int jobs_show(struct cli *c);
int jobs_events(struct cli *c);
int jobs_logs(struct cli *c);
int jobs_explain(struct cli *c);
int jobs_act(struct cli *c);
int jobs_checkpoint_now(struct cli *c);
int jobs_plan(struct cli *c);
int jobs_unbuilt(struct cli *c);
int nodes_list(struct cli *c);
int nodes_act(struct cli *c);
int top_run(struct cli *c);
int watch_run(struct cli *c);
int watch_job(struct cli *c, const char *job);
int files_checkpoint(struct cli *c);
int local_run(struct cli *c);
int local_sample(struct cli *c);
int local_up(struct cli *c);
int local_down(struct cli *c);

#endif
