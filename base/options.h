/* options - the options of a program or command: one table by which they are read, checked, explained and listed
 *
 * A row says how an option is called, what its value is, where the value goes and what help says of it. "--name value",
 * "--name=value", "-n value" and "-nvalue" are read; "--" ends the options; the last of an option given twice counts.
 * Without an option its environment variable counts, then its default. Tables are constant; texts are borrowed from the
 * arguments, the environment and the table.
 */
#ifndef MUSTER_BASE_OPTIONS_H
#define MUSTER_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/merr.h"

#define OPTIONS_ROWS_MAX 64 /* of a table, with those that it has in common with others */
#define OPTIONS_ARGS_MAX 64 /* arguments that are no options */
#define OPTIONS_LIST_MAX 64 /* values of the option that may be given again */
#define OPTIONS_USAGE 2     /* exit status for a wrong command line */

/* What a value is, and as what it is kept. */
enum option_kind {
    OPTION_FLAG,      /* bool; the row has no value, nor have help and version */
    OPTION_TEXT,      /* const char *, NULL when not given */
    OPTION_INT,       /* int: a whole number from lo to hi */
    OPTION_WHOLE,     /* uint64_t: any whole number */
    OPTION_REAL,      /* double: from lo to hi, which may be INFINITY */
    OPTION_REAL_OVER, /* double: above lo, up to hi */
    OPTION_SECONDS,   /* int: "90", "90s", "5m", "2h" or "7d", from lo to hi seconds */
    OPTION_BYTES,     /* uint64_t: "4096", or with k, m, g or t for KiB to TiB; not 0 */
    OPTION_WORD,      /* int: where the value stands in words */
    OPTION_LIST,      /* may be given again: in struct options_given alone, and once in a table */
    OPTION_HELP,
    OPTION_VERSION,
};

struct option_row {
    const char *name;
    char letter;       /* 0: none */
    const char *value; /* what its value is called */
    const char *help;
    enum option_kind kind;
    double lo, hi;
    const char *def;          /* as one would type it; NULL: none, or help says what */
    const char *const *words; /* of OPTION_WORD, the last NULL */
    size_t at;                /* OPTION_AT: where the value goes; 0: struct options_given has it */
    const char *env;          /* the environment variable that stands in for it, unless empty */
    bool zero;                /* a number may be 0 as well */
    bool needed;
};

#define OPTION_AT(type, member) (offsetof(type, member) + 1)
#define OPTION_DEFAULT_(text) #text
#define OPTION_DEFAULT(constant) OPTION_DEFAULT_(constant) /* a default of a number that has a name */

struct options {
    const char *name;                /* "musterd", "muster list" */
    const char *args;                /* as usage shows them: "FILE", "" for none */
    int min, max;                    /* arguments that are no options */
    bool passes;                     /* the first of them ends the options: what follows is another program's */
    bool tail;                       /* what follows "--" is another program's */
    const char *about;               /* what it does */
    const struct option_row *rows;   /* the last one has no name */
    const struct option_row *common; /* those that it shares with others, ends alike; may be NULL */
    const char *after;               /* what help says after the options; may be NULL */
};

struct options_given {
    const char
        *text[OPTIONS_ROWS_MAX]; /* of rows, then common: the value, "" for a flag; NULL: neither given nor known */
    const char *list[OPTIONS_LIST_MAX];
    size_t n_list;
    const char *arg[OPTIONS_ARGS_MAX];
    int n_args;
    char *const *rest; /* of another program, NULL at their end: the first argument that is no option and all after it
                          (passes), all after "--" (tail); NULL: there is none */
};

/* Read the arguments after the program's name. Values go to ret (of the struct that the rows' places are in; may be
 * NULL where no row has one) and to *ret_given. Returns 0, or with both as they were:
 * OPTION_HELP or OPTION_VERSION as soon as one of these is met, or -EINVAL with what is wrong. */
int options_read(const struct options *o, int argc, char *const *argv, void *ret, struct options_given *ret_given,
                 struct merr *err);

/* As the main function of a program does it: argv[0] is the program's name, and help, version and faults are printed.
 * Returns 0 to go on, or 1 with *ret_status set to what the program ends with. */
int options_main(const struct options *o, int argc, char *const *argv, void *ret, struct options_given *ret_given,
                 int *ret_status);

/* "NAME: " and the words on standard error. Returns OPTIONS_USAGE. */
int options_refuse(const struct options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Usage, what it does, the options, in lines of at most 80 columns. */
void options_print_help(const struct options *o, FILE *out);

/* What stands left in a column of that width, then words about it. */
void options_print_pair(FILE *out, const char *left, int width, const char *words);

/* The row's help, with its default. Returns out. */
const char *options_help_of(const struct option_row *row, char *out, size_t size);

/* The number that a text of options_given stands for, where it is whole (also seconds, bytes, a place in words). */
long long options_whole(const struct option_row *row, const char *text);

#endif
