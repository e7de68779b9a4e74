/* spec - a job as its owner writes it: read, checked, filled with defaults, printed
 *
 * One definition for the server, the agent, the trainer and the CLI. The fields, their ranges and
 * defaults come from one table in spec.c, from which docs/spec.md and the JSON schema are printed too.
 * A spec is immutable once made. Not tied to a thread.
 */
#ifndef MUSTER_API_SPEC_H
#define MUSTER_API_SPEC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define SPEC_TEXT_MAX (1 << 20) /* bytes of a spec as text */
#define SPEC_FAULTS_MAX 64      /* faults reported at once; the rest are counted */
#define SPEC_NAME_MAX 64
#define SPEC_CLASSES_MAX 16
#define SPEC_PORTS_MAX 8 /* names of ports of a command */
#define SPEC_LABELS_MAX 32
#define SPEC_LABEL_BYTES 63 /* of a label's key, and of its value */
#define SPEC_LABEL_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789./-"
#define SPEC_AFTER_MAX 64        /* jobs that one comes after */
#define SPEC_TIME_S_MAX 31536000 /* of a time limit: a year */
#define SPEC_RANKS_MAX 64        /* of a command, that share a device */
#define SPEC_STAGES_MAX 256      /* whose layers are given one by one */

/* What is wrong with a spec: every fault under its JSON pointer. */
struct faults {
    struct fault {
        char *pointer; /* RFC 6901, "" is the whole document */
        char *message;
    } v[SPEC_FAULTS_MAX];
    size_t n;
    size_t more; /* faults beyond the table */
};

void faults_add(struct faults *f, const char *pointer, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void faults_clear(struct faults *f);

/* Whether a command (as JSON) brings its files along: its workdir is a folder of those then. */
bool spec_has_source(const json_t *command);

/* A new array [{"pointer":…,"message":…}, …]; NULL when memory is short. */
json_t *faults_json(const struct faults *f);

enum job_kind { JOB_TRAIN, JOB_COMMAND };
enum model_family { MODEL_GPT2, MODEL_LLAMA };
enum data_format { DATA_TEXT, DATA_JSONL, DATA_TOKENS };
enum data_separator { SEPARATE_NONE, SEPARATE_BLANK, SEPARATE_PERCENT }; /* where a document of text ends */
enum data_tokenizer { TOKENIZER_BYTES, TOKENIZER_GPT2, TOKENIZER_FILE };
enum data_samples { SAMPLES_STREAM, SAMPLES_DOCUMENTS };
enum data_overlong { OVERLONG_FAIL, OVERLONG_CUT, OVERLONG_DROP }; /* documents longer than batch.length */
enum data_order { ORDER_SHUFFLE, ORDER_SEQUENTIAL };
enum precision { PRECISION_F32, PRECISION_BF16 };
enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT };
enum pipeline_schedule { PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1, PIPELINE_AUTO };
enum class_change { CLASS_CHANGE_AUTO, CLASS_CHANGE_NEVER, CLASS_CHANGE_AT_CHECKPOINT };
enum within { WITHIN_ANY, WITHIN_RACK };
enum exactness { EXACT_RELAXED, EXACT_STRICT };
enum cp_mode { CP_ZIGZAG, CP_ULYSSES };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_AUTO };
enum on_fail { ON_FAIL_CONTINUE, ON_FAIL_STOP };
enum search_method { SEARCH_GRID, SEARCH_RANDOM, SEARCH_ASHA };
enum search_goal { GOAL_MIN, GOAL_MAX };
enum launcher { LAUNCH_RANKS, LAUNCH_TORCHRUN };
enum on_broken { BROKEN_CANCEL, BROKEN_HOLD };
enum nonfinite { NONFINITE_FAIL, NONFINITE_SKIP, NONFINITE_ROLL_BACK };

#define SPEC_AUTO 0           /* the planner chooses, as it does for PIPELINE_AUTO, RECOMPUTE_AUTO */
#define SPEC_AUTO_SWITCH (-1) /* and for a field that is true or false */
#define SPEC_EVERY_AUTO (-1)  /* every_steps of checkpoints: from what saving was seen to cost */

struct job_spec {
    char name[SPEC_NAME_MAX];    /* default: "job" */
    char project[SPEC_NAME_MAX]; /* default: "default" */
    int priority;                /* 0..100, default 50; higher goes first */
    char **labels;               /* NULL-terminated "key=value" */
    enum job_kind kind;

    struct {
        int min, max; /* default 1, 1 (max: min) */
        struct spec_names {
            char v[SPEC_CLASSES_MAX][SPEC_NAME_MAX];
            size_t n;
        } classes, exclude, prefer; /* none: any class; nodes that it never runs on; what it would rather have */
        enum within within;
        bool hetero_ok; /* it may mix classes and move between them */
        enum class_change class_change;
    } devices;

    struct {
        struct {
            char preset[SPEC_NAME_MAX]; /* "" when every size is given */
            enum model_family family;
            int layers, hidden, heads, kv_heads, ffn, context, vocab;
            double dropout; /* 0 <= p < 1 */
            bool tie_embeddings;
            double norm_eps; /* 0: that of init.from, else 1e-5 */
            /* llama */
            bool qkv_bias, qk_norm, fused;
            int head_dim;          /* 0: that of init.from, else hidden / heads */
            int window;            /* 0: none */
            double rope_theta;     /* 0: that of init.from, else 10000 */
            char rope_scaling[16]; /* "auto": as init.from says, else "none" */
            double rope_factor;
            int rope_original;
        } model;
        struct {
            uint64_t seed; /* of weights, order, dropout; default 1234 */
            char *from;    /* NULL: fresh weights */
            bool resume;   /* go on from there: with the optimizer's state, at its step */
        } init;
        struct {
            char *path;
            enum data_format format;
            enum data_separator separator;
            enum data_tokenizer tokenizer;
            char *tokenizer_path; /* NULL unless tokenizer is file or gpt2 */
            enum data_samples samples;
            enum data_overlong overlong; /* of documents */
            char *index;                 /* where documents of tokens end; NULL: not given */
            enum data_order order;
            double holdout; /* share of documents kept for evaluation, 0..0.5 */
        } data;
        struct {
            int sequences; /* B: sequences (or documents) a step over all replicas; default 8 */
            int micro;     /* sequences a micro-batch, or SPEC_AUTO */
            int length;    /* tokens a sequence, most tokens of a document; default: model.context */
            int capacity;  /* of documents: most tokens of a micro-batch; default: length */
        } batch;
        int steps;
        enum precision precision;
        struct {
            double lr, beta1, beta2, eps, weight_decay, clip /* 0: none */, min_lr_ratio;
            enum lr_schedule schedule;
            int warmup;
        } optimizer;
        struct {
            int every_steps; /* 0: before the first and after the last step only */
            int sequences;   /* most held-out sequences looked at each time; default 64 */
        } eval;
        enum nonfinite on_nonfinite;
        int nonfinite_limit; /* steps skipped in a row before the job fails */
    } train;                 /* only when kind is JOB_TRAIN */

    struct {
        char **argv; /* NULL-terminated, argv[0] the program */
        char **env;  /* NULL-terminated "NAME=value", or "NAME@secret" for one of the user's secrets */
        char *workdir;
        char *bundle; /* name of what its user has uploaded (bundle.h), and it runs in; NULL: none */
        struct {
            char *url, *ref, *commit; /* NULL: none; ref: what commit was known as */
        } git;
        char *image;  /* that its program runs in; NULL: none */
        int grace_s;  /* SIGTERM to SIGKILL; default 10 */
        int ranks;    /* processes a device */
        bool elastic; /* an order gives it another number of devices between devices.min and max */
        enum launcher launcher;
        int stop_s;              /* of an elastic one: from the order to SIGTERM; default 120 */
        struct spec_names ports; /* for which each run has a port (assignment_port) */
    } command;                   /* only when kind is JOB_COMMAND */

    struct {
        int tp, pp;           /* or SPEC_AUTO */
        int cp;               /* or SPEC_AUTO */
        enum cp_mode cp_mode; /* what ranks of cp exchange */
        int virtual_workers;  /* V: fixed leaves of the gradient tree; divides batch.sequences; or SPEC_AUTO */
        int zero;             /* 0 or 1 */
        enum exactness exact;
        enum pipeline_schedule schedule;
        struct spec_counts {
            int n; /* 0: not given */
            uint16_t v[SPEC_STAGES_MAX];
        } layers;              /* of each stage, in the model's order */
        int sequence_parallel; /* 1, 0 or SPEC_AUTO_SWITCH */
        int chunks;            /* model chunks a pipeline rank, for interleaved; or SPEC_AUTO */
        enum recompute recompute;
        struct spec_counts recompute_layers; /* of each stage, whose layers make again; not given: all */
    } parallel;

    struct {
        char tp[16], pp[16], dp[16], checkpoint[16]; /* codec names; "none" */
    } compress;

    struct {
        char policy[16];
        int chunk_tokens, keep_chunks;
    } sequence;

    struct { /* of each rank; 0: the share of its device, where ranks have accounts of their own, else no limit */
        int memory_mib, pids;
        double cpus;
    } resources;

    struct {
        int activation_budget_mib; /* 0: no limit */
        char policy[16];
        char optimizer[16]; /* where masters and moments are */
    } memory;

    struct {
        char *dir;              /* NULL: "checkpoints" in the job's folder; relative: to the job's folder */
        int every_steps;        /* 0: only at the end and when asked; or SPEC_EVERY_AUTO */
        int keep;               /* newest kept, at least 2 */
        int keep_every;         /* those of a step that this divides are kept too; 0: none */
        char archive[16];       /* codec that committed checkpoints are written anew with, or "none" */
        int memory_every_steps; /* 0: none; or SPEC_EVERY_AUTO */
        double mtbf_hours;      /* mean time between failures of a node */
    } checkpoint;

    struct {
        int max;  /* restarts after faults of system and node, default 3 */
        int user; /* restarts after the job's own faults, default 0 */
    } retry;

    struct {
        int max_mib; /* of each rank's output, kept by the server */
    } logs;

    struct {          /* of many tasks (spec_array.h); the rest of the spec is then that of the first */
        size_t tasks; /* 0: it is one job */
        char *index;  /* NULL: 0, 1, ... */
        int count;    /* 0: not given */
        int max_running;
        enum on_fail on_fail;
        int fail_limit;          /* failed tasks that end an array which stops */
        json_t *matrix, *ranges; /* owned: values by name; NULL: none */
        struct {
            enum search_method method;
            uint64_t seed;
            char *metric; /* NULL: loss */
            enum search_goal goal;
            int first_steps, reduction, rungs; /* of asha; first_steps 0: not given */
        } search;
    } array;

    json_t *after; /* owned: a list of {job, when}; NULL: none */
    enum on_broken on_broken;
    bool singleton;
    struct {
        char *webhook;        /* of its user; NULL: none */
        struct spec_names on; /* of what it hears: "failed", ... */
    } notify;
    char *reservation; /* on whose devices it runs; NULL: none's */

    struct { /* seconds; 0: none */
        int time_s, queue_s, warn_s;
        char *finish_by;      /* as it was given; NULL: none */
        char warn_signal[16]; /* "none", or its name */
    } limits;
};

#define SPEC_SECRET_MAX 63 /* bytes of the name of a secret */
#define SPEC_MASK "***"    /* what a variable's value is for all but the job's owner */

/* Whether a secret can have this name. */
bool spec_secret_name_ok(const char *name);

/* Read a spec from JSON. doc is borrowed. Adds every fault it finds to f (unknown fields by name with the
 * nearest known one, wrong types, ranges, combinations that cannot work such as heads not divisible by
 * tp or layers < pp). Returns 0 with a new spec, or -EINVAL (see f), -ENOMEM. */
int spec_from_json(const json_t *doc, struct job_spec **ret_spec, struct faults *f);

/* Add a fault for each file that doc names relative to a folder: a server does not know its client's folder; and for a
 * checkpoint.dir that leaves the job's folder by "..". */
void spec_check_paths(const json_t *doc, struct faults *f);

/* As spec_from_json from text: JSON when its first character is '{', else YAML. Syntax errors are faults
 * that name line and column. */
int spec_from_text(const char *text, size_t len, struct job_spec **ret_spec, struct faults *f);

/* The document alone, without the checks of a spec: what the CLI sends. *ret_doc is new. */
int spec_document(const char *text, size_t len, json_t **ret_doc, struct faults *f);

/* The whole spec with every default filled in, as new JSON that spec_from_json reads back to an equal
 * spec. NULL when memory is short. */
json_t *spec_to_json(const struct job_spec *spec);

/* The JSON schema of a spec, new; and its reference as Markdown on out (docs/spec.md is made with it). */
json_t *spec_schema(void);
struct buf;
int spec_reference(struct buf *out);

void spec_free(struct job_spec *spec);

/* Devices one replica takes: tp × pp × cp, or 1 for a command. */
/* Virtual workers; of a spec that leaves them to the planner those that it tries first. */
int spec_workers(const struct job_spec *spec);
int spec_replica_devices(const struct job_spec *spec);

#endif
