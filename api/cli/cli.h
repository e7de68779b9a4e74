/* cli - the commands of muster: one table from which parsing, help, completion and the man page are made */
#ifndef MUSTER_API_CLI_CLI_H
#define MUSTER_API_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "api/client/client.h"
#include "base/merr.h"
#include "base/options.h"

#define CLI_OPTIONS_MAX 16 /* of a command, and the row that ends them */
#define CLI_TABLE_MAX 16   /* columns of a table */
#define CLI_DURATION_MAX 24
#define CLI_INTERRUPTED 130 /* exit status of a command that Ctrl-C ended */

enum cli_exit { CLI_DONE, CLI_FAILED, CLI_USAGE, CLI_NOT_FOUND, CLI_REFUSED, CLI_NO_SERVER };

struct cli;

struct command {
    const char *name;    /* one word, or two: "checkpoint list" */
    const char *args;    /* as help shows them */
    int min, max;        /* arguments */
    const char *help;    /* one line */
    const char *example; /* as one would type it */
    int (*run)(struct cli *c);
    bool prints; /* data, so it takes -o json */
    struct option_row options[CLI_OPTIONS_MAX];
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
};

extern const struct command_table cli_commands;
extern const struct option_row cli_common[]; /* the first one is for commands that print data */

/* The value of an option: given, or its default; "" for a set flag, NULL when it is not there. */
const char *cli_option(const struct cli *c, const char *name);

/* As a whole number; otherwise when it is not there. */
long cli_number(const struct cli *c, const char *name, long otherwise);

/* Say what failed on stderr and return status. */
int cli_fail(enum cli_exit status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One cause of an explanation, in lines, less the text when it is what was just said (NULL: nothing). */
void cli_print_cause(const json_t *cause, const char *said);

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

/* Print one document; _new takes it over; _line on one line, for streams: 0 or -EIO. */
int cli_print_json(const json_t *doc);
int cli_print_json_new(json_t *doc);
int cli_print_json_line(const json_t *doc);

/* May colours and moving lines go to standard output? */
bool cli_is_terminal(void);
int cli_columns(void); /* of the terminal; 0 when it is none: no limit */
int cli_lines(void);
const char *cli_colour(const char *code); /* "" where there are none */
const char *cli_state_colour(const char *state);
void cli_duration(double seconds, char out[CLI_DURATION_MAX]); /* "1m05s" */
/* How long a job has run, or waited for its first devices, or took from its start to its end; "-": it never started. */
void cli_job_time(const json_t *job, char out[CLI_DURATION_MAX]);
const char *cli_job_why(const json_t *job); /* what it does or waits for, or how it failed; borrowed */
void cli_print_text(const char *text);      /* control characters as '?' */

/* Text of others, of whole characters: escape sequences and control characters, but line feeds and tabs, are shown (^[,
 * <U+009B>) instead of obeyed. */
void cli_print_visible(FILE *to, const char *text, size_t len);

struct cli_table {
    const char *head[CLI_TABLE_MAX];
    size_t n;
    unsigned right;         /* bit i: column i holds numbers */
    int state;              /* the column coloured as a state, or -1 */
    bool clear;             /* clear the rest of each line of a terminal: the table is drawn over another */
    bool whole;             /* the last column is never cut: a path or a name that one copies */
    unsigned char spare[4]; /* columns (never 0) left out where a terminal is narrow, in this order */
};

/* Print rows (an array of arrays of text, taken over) under their heads, each column as wide as it needs; the last
 * is cut where a terminal ends. */
void cli_print_table_new(const struct cli_table *t, json_t *rows);
int cli_row(json_t *rows, const char *const *cells, size_t n);

/* Read a spec file ("-": standard input), change it by --set, --name, --project and --priority, make its paths
 * absolute. Returns 0 with a new document, or an exit status with all faults said. */
int cli_read_spec(const struct cli *c, const char *file, json_t **ret_doc);

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

int jobs_submit(struct cli *c);
int jobs_list(struct cli *c);
int jobs_show(struct cli *c);
int jobs_explain(struct cli *c);
int jobs_act(struct cli *c);
int diagnose_main(struct cli *c);
int jobs_cancel(struct cli *c);
int jobs_checkpoint_now(struct cli *c);
int plan_main(struct cli *c);
int plan_dry_run(struct cli *c, json_t *doc); /* ask the server how doc would run, and print it */
int jobs_scale(struct cli *c);
int jobs_priority(struct cli *c);
int follow_events(struct cli *c);
int follow_metrics(struct cli *c);
int follow_stream(struct cli *c, const char *path, client_event_fn *fn, void *arg); /* to its end, with patience */
/* What happened, less when, to which job and of what type; brief: less what it was before and paths. */
void follow_print_event(const json_t *event, bool brief);
int logs_run(struct cli *c);
int logs_submitted(struct cli *c, const char *job); /* its output until its end, then its outcome */
int nodes_list(struct cli *c);
int nodes_act(struct cli *c);
int nodes_test(struct cli *c);
int nodes_remove(struct cli *c);
int nodes_enroll(struct cli *c);
int nodes_forget(struct cli *c);
int top_run(struct cli *c);
int projects_list(struct cli *c);
int projects_set(struct cli *c);
int audit_run(struct cli *c);
int projects_show(struct cli *c);
int projects_member(struct cli *c);
int projects_delete(struct cli *c);
int quarantine_list(struct cli *c);
int quarantine_act(struct cli *c);
void quarantine_tell(const json_t *list); /* what a list of jobs says of records that cannot be read */
int secrets_set(struct cli *c);
int secrets_list(struct cli *c);
int secrets_delete(struct cli *c);
int tokens_create(struct cli *c);
int tokens_list(struct cli *c);
int tokens_revoke(struct cli *c);
int watch_run(struct cli *c);
int watch_job(struct cli *c, const char *job);
/* 0 when the job succeeded; else CLI_FAILED with the cause said, and with its last lines when tail. */
int watch_outcome(struct cli *c, const char *job, bool tail);
int files_checkpoint(struct cli *c);
int local_run(struct cli *c);
int local_sample(struct cli *c);
int local_find_checkpoint(struct cli *c, const char *job_or_dir, bool parent, char *ret, size_t size);
int local_up(struct cli *c);
int local_down(struct cli *c);

#endif
