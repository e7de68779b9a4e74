/* report - what an agent tells of its node's runs, and what the server answers
 *
 * What a rank wrote travels as pieces of files, each with its offset; the answer tells up to where all is durable. A
 * run or a piece with faults is passed over: it shall not keep the others, nor the word that the node lives.
 */
#ifndef MUSTER_API_PROTOCOL_REPORT_H
#define MUSTER_API_PROTOCOL_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/exit.h"
#include "base/ops.h"
#include "api/protocol/protocol.h"
#include "base/merr.h"

enum report_state { REPORT_NONE, REPORT_STARTING, REPORT_RUNNING, REPORT_EXITED, REPORT_STATES }; /* NONE: not sent */

/* Kinds of pieces. */
enum report_kind { REPORT_LOGS, REPORT_METRICS, REPORT_EVENTS, REPORT_KINDS };

#define REPORT_GROUPS_MAX 48

struct report_group { /* of a rank: those with whom it splits work */
    char name[16];
    int64_t key;           /* the same for all members */
    int64_t entered, left; /* calls of all members */
    int size;              /* members; 0: not known */
    int64_t digest;        /* of the newest (ops.h); 0: not known */
};

struct report_order { /* operations that ranks of its role make in the same order, in spans (flight_read.h) */
    int64_t role;     /* 0: no other rank has it */
    int64_t span, ops, span_before, ops_before;
    int64_t odd; /* 2 + the first of the span that is another than a step ago; 1: none; 0: not known */
    char window[8 * OPS_WINDOW + 1]; /* digests of the last, 8 hexadecimal digits each */
};

struct report_stall {   /* of a rank that has shown no sign of life for a while */
    int64_t idle_us;    /* how long; 0: it goes on, and nothing else is told */
    int64_t gap_us;     /* its longest time between two signs of late; 0: not known */
    int64_t usual_us;   /* the longest that its phase has taken of late; 0: not known */
    int64_t allowed_us; /* that it has asked for in this phase; 0: nothing */
    bool stopped;       /* its process is */
    bool frozen;        /* and by its control group */
    char op[16];        /* that it waits in; "": it waits for nobody */
    int64_t key, call;  /* of the operation: of its group, and its number */
    int peer;           /* the rank whose message is waited for; -1: a call of all members */
    bool beats;         /* of a command: known by its heartbeat alone, not by what it waits in */
    char section[32];   /* of a command: that it has declared, which may take allowed_us; "": none */
    struct report_group *groups;
    size_t n_groups;
    struct report_order order;
};

#define REPORT_STEPS_MAX 40  /* records of a rank in one report */
#define REPORT_SPAN_MAX 1024 /* steps of one record */

enum report_step {                    /* of a record: sums over consecutive steps; times in microseconds */
                   REPORT_STEP,       /* number of the first */
                   REPORT_STEP_SPAN,  /* how many there are, */
                   REPORT_STEP_COUNT, /* of which so many count: the rest of the numbers are of these */
                   REPORT_STEP_FLAGS, /* of the others. 1: the first; 2, 4, 8: an evaluation, save, pause beside */
                   REPORT_STEP_WALL,
                   REPORT_STEP_BUSY, /* computing */
                   REPORT_STEP_TP,   /* in calls of groups */
                   REPORT_STEP_PP,
                   REPORT_STEP_DP,
                   REPORT_STEP_CP,
                   REPORT_STEP_WORLD, /* of any other group */
                   REPORT_STEP_DATA,
                   REPORT_STEP_SAVE,      /* waiting for checkpoints: of all of them, also those that do not count */
                   REPORT_STEP_CPU,       /* of processors */
                   REPORT_STEP_WORK,      /* tokens */
                   REPORT_STEP_KIB,       /* sent */
                   REPORT_STEP_STARVED,   /* could have run, and had no processor */
                   REPORT_STEP_THROTTLED, /* its control group was at its limit of processor time */
                   REPORT_STEP_NUMBERS,
};

enum report_did { REPORT_DID_NOTHING, REPORT_DID_SAVE, REPORT_DID_STOP, REPORT_DID_REFUSE, REPORT_DIDS };

struct report_ack { /* the newest order that a command's rank has answered */
    int64_t seq;    /* its number; 0: it has answered none */
    int64_t step;   /* -1: not told */
    enum report_did did;
};

struct report_rank {
    int rank;
    int slot; /* -1: of a source node */
    enum report_state state;
    int64_t pid;    /* 0: not known */
    int64_t step;   /* -1: not known */
    char phase[16]; /* "": not known */
    struct report_stall stall;
    int *steps;     /* REPORT_STEP_NUMBERS of each record of its steps since the last report */
    size_t n_steps; /* numbers */
    struct report_ack ack;
    struct rank_exit exit; /* of one that has exited */
    json_t *log_tail;      /* its last lines, where it failed; NULL: none */
};

struct report_run {
    char job[PROTOCOL_JOB_MAX];
    int64_t generation;
    char proof[PROTOCOL_PROOF_MAX]; /* of its assignment; "": it had none */
    struct report_rank *ranks;      /* of this node */
    size_t n_ranks;
    char trouble[200]; /* of its files, in words; "": none */
};

struct report_ref { /* a run that is spoken of */
    char job[PROTOCOL_JOB_MAX];
    int64_t generation;
};

struct report_piece { /* of a file of a run */
    char job[PROTOCOL_JOB_MAX];
    int64_t generation;
    int rank;         /* of a log; -1: none */
    int64_t offset;   /* where it begins; of an ack: up to where all is durable */
    const char *text; /* borrowed; NULL in an ack */
    int max_mib;      /* of a log: that its job wants to be kept; 0: not told */
};

struct report_pieces {
    struct report_piece *v;
    size_t n;
};

enum report_host {                     /* of a node, as its kernel counts; -1: not known */
                   REPORT_HOST_CPU,    /* percent of all processors */
                   REPORT_HOST_MEMORY, /* MiB in use */
                   REPORT_HOST_MEMORY_ALL,
                   REPORT_HOST_LOAD, /* hundredths of processes that run or wait to */
                   REPORT_HOST_IN,   /* KiB/s over its networks */
                   REPORT_HOST_OUT,
                   REPORT_HOST_DISK, /* MiB free where jobs have their folders */
                   REPORT_HOST_NUMBERS,
};

struct report {
    char incarnation[PROTOCOL_NODE_MAX]; /* of the agent's process */
    int64_t seq;
    struct report_run *runs;
    size_t n_runs;
    json_t *gpus; /* NULL: none are offered */
    int pressure; /* percent of the last ten seconds in which something had to wait for a processor; -1: not known */
    int steal;    /* percent of its processors' time since the last report that the hypervisor took; -1: not known */
    int *host;    /* REPORT_HOST_NUMBERS, or none */
    size_t n_host;
    json_t *health; /* what the node's checks say; NULL: nothing new */
    json_t *test;   /* what came of an active test; NULL: none was done */
    struct report_pieces pieces[REPORT_KINDS];
};

struct report_acks {
    struct report_pieces of[REPORT_KINDS];
};

#define REPORT_SLOTS_MAX 256 /* of a node */

struct report_answer {
    struct report_acks acks;
    struct report_ref *stale; /* over: to be stopped */
    size_t n_stale;
    struct report_ref *forget; /* stored: their folders may go */
    size_t n_forget;
    int64_t test; /* number of an active test that the node is to do; 0: none */
    int *warm;    /* slots that are to have a started program that waits for a rank */
    size_t n_warm;
    int64_t now_ms; /* the server's wall time; 0: not told */
};

extern const char *const report_kind_names[REPORT_KINDS]; /* "logs", "metrics", "events" */
extern const char *const report_did_names[REPORT_DIDS];   /* NULL, "saved", "stopping", "refused" */
extern const struct wire_message report_message, report_run_message, report_rank_message, report_piece_message;
extern const struct wire_message report_group_message, report_answer_message, report_acks_message, report_ack_message,
    report_ref_message;

/* Read doc, borrowed; texts of pieces are borrowed from it. Returns 0, -EINVAL with every fault, -ENOMEM; *ret is
 * unchanged then. */
int report_read(const json_t *doc, struct report *ret, struct merr *err);
json_t *report_write(const struct report *r); /* new; NULL without memory */
void report_clear(struct report *r);

void report_run_clear(struct report_run *run);

/* Pieces one by one: for those who gather them as they fit, or store them as they come. */
int report_piece_read(const json_t *doc, struct report_piece *ret, struct merr *err);
json_t *report_piece_write(const struct report_piece *p);
json_t *report_ack_write(const struct report_piece *ack);

int report_acks_read(const json_t *doc, struct report_acks *ret, struct merr *err);
void report_acks_clear(struct report_acks *a);
int report_answer_read(const json_t *doc, struct report_answer *ret, struct merr *err);
json_t *report_answer_write(const struct report_answer *a);
void report_answer_clear(struct report_answer *a);
int report_ref_read(const json_t *doc, struct report_ref *ret, struct merr *err);

#endif
