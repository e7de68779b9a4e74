/* spec_priv - the table of a spec's fields, shared by the files that read, check and print specs
 *
 * One row a field. A field's path is its JSON pointer. Rows of one object stand together.
 */
#ifndef MUSTER_API_SPEC_PRIV_H
#define MUSTER_API_SPEC_PRIV_H

#include <stdbool.h>
#include <stddef.h>

#include "api/spec.h"
#include "scheduler/plan/layout.h"

#define SPEC_TEXT_FIELD_MAX 4095        /* bytes of a path: what the kernel takes, with its NUL */
#define SPEC_DEPTH_MAX 64               /* of a document */
#define SPEC_VALUES_MAX 100000          /* values in a document, aliases written out */
#define SPEC_ARGS_MAX 1024              /* arguments of a command, variables of its environment */
#define SPEC_ARG_BYTES 131071           /* of one of them ("NAME=value"): what the kernel takes, with its NUL */
#define SPEC_ARGS_BYTES 262144          /* of all arguments, of all variables: each with its NUL */
#define SPEC_VARIABLE_MAX 256           /* bytes of a variable's name */
#define SPEC_DEVICES_MAX PLAN_RANKS_MAX /* ranks of a job, and devices: one a rank */

enum field_type {
    FIELD_INT,
    FIELD_AUTO, /* int, or "auto" for the field's auto_value */
    FIELD_U64,
    FIELD_NUMBER,
    FIELD_PAIR, /* two numbers, two doubles */
    FIELD_BOOL,
    FIELD_SWITCH, /* true, false or "auto" as an int: 1, 0, SPEC_AUTO_SWITCH */
    FIELD_NAME,   /* char[SPEC_NAME_MAX] */
    FIELD_ENUM,   /* an int: the index in words */
    FIELD_WORD,   /* char[16], one of words */
    FIELD_TEXT,   /* char *, NULL when not given */
    FIELD_FIXED,  /* not kept: the only value is words[0] */
    FIELD_NAMES,  /* struct spec_names */
    FIELD_COUNTS, /* struct spec_counts */
    FIELD_ARGV,
    FIELD_ENV,
    FIELD_AFTER,  /* json_t *: a list of {job, when}, NULL when there is none */
    FIELD_LABELS, /* char **: NULL-terminated "key=value" */
    FIELD_VALUES, /* json_t *: an object, NULL when not given */
};

enum field_scope { SCOPE_ALL, SCOPE_TRAIN, SCOPE_COMMAND, SCOPE_ARRAY };

struct field {
    const char *path; /* "/train/optimizer/lr" */
    enum field_type type;
    enum field_scope scope;
    size_t at;                /* offset in struct job_spec */
    double lo, hi;            /* of numbers; hi of a text: its most bytes, 0: SPEC_TEXT_FIELD_MAX */
    int auto_value;           /* of FIELD_AUTO: SPEC_AUTO, or another below lo */
    bool below_hi;            /* hi itself is too much */
    bool above_lo;            /* lo itself is too little */
    const char *const *words; /* NULL-terminated */
    const char *def;          /* default as JSON text; NULL: the field is needed or its default is computed */
    const char *computed;     /* how the default is computed, in words; NULL: there is none */
    const char *help;         /* one line */
};

extern const struct field spec_fields[];
extern const size_t spec_fields_n;

/* The most bytes of a field of type FIELD_TEXT. */
size_t spec_text_max(const struct field *d);

/* The words about an object ("/train/model"), NULL when path is none. */
const char *spec_object_help(const char *path);

struct preset {
    const char *name;
    enum model_family family;
    int layers, hidden, heads, kv_heads, ffn, context, vocab;
    bool tie_embeddings, qkv_bias, qk_norm, fused;
    int head_dim, window;                     /* 0: not its own */
    double norm_eps, rope_theta, rope_factor; /* 0: not its own */
    const char *rope_scaling;                 /* NULL: auto */
};

/* A shallow copy of doc in which the short forms are written out: train.model as a preset's name, command as a line for
 * the shell, parallel as "auto". NULL when memory is short. */
json_t *spec_write_out(const json_t *doc);

extern const struct preset spec_presets[];
extern const size_t spec_presets_n;

/* A fault's words, with ; did you mean 'X'? when something known is near. */
void faults_add_unknown(struct faults *f, const char *pointer, const char *what, const char *word,
                        const char *const *known, size_t n);

#endif
