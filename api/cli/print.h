/* print - what people read: documents, tables as wide as their terminal, colours, durations, text of others */
#ifndef MUSTER_API_CLI_PRINT_H
#define MUSTER_API_CLI_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CLI_TABLE_MAX 16 /* columns of a table */
#define CLI_DURATION_MAX 24

/* One cause of an explanation, in lines, less the text when it is what was just said (NULL: nothing). */
void cli_print_cause(const json_t *cause, const char *said);

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
bool cli_job_ended(const json_t *job);
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
    size_t marked;          /* row shown as chosen, from 1; 0: none */
    unsigned char spare[5]; /* columns (never 0) left out where a terminal is narrow, in this order */
};

/* Print rows (an array of arrays of text, taken over) under their heads, each column as wide as it needs; the last
 * is cut where a terminal ends. */
void cli_print_table_new(const struct cli_table *t, json_t *rows);
int cli_row(json_t *rows, const char *const *cells, size_t n);

#endif
