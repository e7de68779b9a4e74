/* cli - the commands of muster: one table from which parsing, help, completion and the man page are made */
#ifndef MUSTER_API_CLI_CLI_H
#define MUSTER_API_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/client/client.h"
#include "base/buf.h"
#include "base/merr.h"
#include "base/options.h"

#define CLI_OPTIONS_MAX 24  /* of a command, and the row that ends them */
#define CLI_INTERRUPTED 130 /* exit status of a command that Ctrl-C ended */

enum cli_exit { CLI_DONE, CLI_FAILED, CLI_USAGE, CLI_NOT_FOUND, CLI_REFUSED, CLI_NO_SERVER };

struct cli;

struct command {
    const char *name;    /* one word, or two: "checkpoint list" */
    const char *args;    /* as help shows them; with "-- " in it, it takes another program after "--" */
    int min, max;        /* arguments */
    const char *help;    /* one line */
    const char *example; /* as one would type it */
    int (*run)(struct cli *c);
    bool prints; /* data, so it takes -o json */
    struct option_row options[CLI_OPTIONS_MAX];
    bool submits;      /* queues a job, whose spec options change */
    bool acts;         /* changes the jobs that it names */
    const char *group; /* heading in help over it and those after it; NULL: that before */
};

struct command_table {
    const struct command *v;
    size_t n;
};

struct cli {
    const struct command_table *all;
    const struct command *cmd;
    struct options_given given; /* of the command's options, then those of all commands */
    const char *const *arg;     /* its n arguments */
    int n;
    const char *server, *token, *state; /* of the options all commands have */
    bool json;
    struct client *client; /* once cli_connect gave it */
    json_t *ids;           /* of jobs that arguments named otherwise (names.h); NULL: none did */
};

extern const struct command_table cli_commands;
extern const struct option_row cli_common[]; /* the first one is for commands that print data */

bool cli_takes_program(const struct command *cmd);

/* The value of an option: given, or its default; "" for a set flag, NULL when it is not there. */
const char *cli_option(const struct cli *c, const char *name);

/* As a whole number; otherwise when it is not there. */
long cli_number(const struct cli *c, const char *name, long otherwise);

/* Say what failed on stderr and return status. */
int cli_fail(enum cli_exit status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Connect once. Returns 0, or an exit status with the reason said. */
int cli_connect(struct cli *c);

/* A call; the document is new. Returns 0, or an exit status with the reason said. */
int cli_call(struct cli *c, const char *method, const char *path, const json_t *body, const char *key, json_t **ret);

/* A list of up to limit elements, page after page: new, its last page with all there are in field.
 * filters: "&name=value"... */
int cli_pages(struct cli *c, const char *path, const char *filters, const char *field, long limit, json_t **ret);

/* A field of a document; "", 0 without it. */
const char *cli_str(const json_t *o, const char *key);
long long cli_int(const json_t *o, const char *key);
double cli_real(const json_t *o, const char *key);

/* Append a whole file ("-": standard input) to b. Returns 0 or a negative errno with words. */
int cli_read_file(const char *file, struct buf *b, struct merr *err);

/* Read a spec file ("-": standard input), change it by --set, --name, --project, --priority, --devices and --workdir,
 * make its paths absolute. Returns 0 with a new document, or an exit status with all faults said. */
int cli_read_spec(const struct cli *c, const char *file, json_t **ret_doc);

/* The same of the spec of a job that was queued before, which is changed. *ret_doc is new, also on failure. */
int cli_spec_again(const struct cli *c, json_t *doc, json_t **ret_doc);

/* The same of a program and its arguments, NULL at their end. */
int cli_program_spec(const struct cli *c, char *const *program, json_t **ret_doc);

/* A number of devices as people type it: "4" or "1-4". -EINVAL: it is neither, or beyond PLAN_RANKS_MAX. */
int cli_devices(const char *text, long *ret_min, long *ret_max);

/* Look here for the files that a spec names by absolute paths. Returns 0, or an exit status with all faults said, those
 * that cli_check_spec() finds with them. */
int cli_check_files(const char *file, const json_t *doc);

/* Check a spec here. Returns 0, or an exit status with all faults said under the file's name. */
int cli_check_spec(const char *file, const json_t *doc);

/* POST a spec; its faults are said under the file's name. */
int cli_send_spec(struct cli *c, const char *path, const char *file, const json_t *doc, const char *key, json_t **ret);

/* "/v1/jobs/<id><tail>". Returns 0, or an exit status when that cannot be an id, which is said. */
int cli_job_path(const char *id, const char *tail, char out[256]);

/* Replace this program by one from its own folder. Returns only an exit status, when that failed. */
int cli_exec(const char *program, const char *const *argv);
int cli_program(const char *program, char *ret, size_t size);

#endif
