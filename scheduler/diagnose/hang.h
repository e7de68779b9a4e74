/* hang - which rank the others wait for, and in what
 *
 * A fault of one rank stops all ranks of a synchronous run within moments, so that every rank waits; the one to name is
 * waited for and waits for nobody. Each rank tells how many calls of each group it has entered and left, and what it
 * waits in. From any rank that waits the walk goes to the members that have not entered its call, from those that wait
 * in something else on, until it meets ranks that wait in nothing (they have not entered), a call that all members have
 * entered (nothing moves in it), or comes back to where it was (they wait for each other). Counts and durations on one
 * clock are all that is compared: no two nodes' clocks are.
 *
 * Where ranks wait for each other, or in a call of which nothing moves, one of them may have called something else than
 * the others (order.h): then that rank is named, with what it called. Where they wait for each other's messages and all
 * have called what they did a step ago, a message has got lost: nothing moves between them.
 *
 * Each call is followed once and each rank met once, so the walk takes time in proportion to ranks and their groups.
 * After "wait-for graph" of Mycroft (SOSP 2025) and the hang branch of CCL-D (PPoPP 2026), section 2.2.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_HANG_H
#define MUSTER_SCHEDULER_DIAGNOSE_HANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/diagnose/order.h"

#define HANG_ROOTS_MAX 8

enum hang_phase {              /* of a rank; each has a deadline of its own */
                  HANG_STARTS, /* until it computes: it meets the others, loads its state */
                  HANG_READS,  /* what it is to compute with */
                  HANG_COMPUTES,
                  HANG_RUNS, /* a program of a user: what it does, and how evenly, is not known */
                  HANG_EVALUATES,
                  HANG_SAVES,
                  HANG_ENDS,
};

struct hang_group {   /* of a rank */
    uint64_t key;     /* the same for all members */
    uint64_t entered; /* calls of all members */
    int size;         /* members; 0: not known */
    uint32_t digest;  /* of the newest call: the same on all that make the same; 0: not known */
};

struct hang_rank {
    bool told; /* its page was read, and it has shown no sign of life for idle_us; false: it goes on, or is not known */
    bool stopped;  /* its process is stopped or frozen */
    bool inside;   /* it waits in a call of all members, or for a message */
    int peer;      /* inside: the rank whose message it waits for; -1: a call of all members */
    uint64_t key;  /* inside: of the group */
    uint64_t call; /* inside: the number of the call of all members */
    bool sends;    /* inside, with a peer: it waits to be rid of a message, not for one */
    enum hang_phase phase;
    int64_t idle_us;    /* since its last sign of life */
    int64_t gap_us;     /* its longest time between two signs of late; 0: not known */
    int64_t usual_us;   /* the longest that such a phase of it took of late; 0: not known */
    int64_t allowed_us; /* that it has asked for in this phase or section; 0: nothing */
    uint64_t step;
    const struct hang_group *group; /* its groups */
    size_t n_groups;
    const struct order_list *order; /* the operations that it has made; NULL: not known */
};

enum hang_class {
    HANG_NONE,        /* a rank goes on, or may still do so within its deadline */
    HANG_STOPPED,     /* the roots are stopped (F2) */
    HANG_NOT_ENTERED, /* the roots compute, or do nothing, and have not entered (H1) */
    HANG_PHASE,       /* the roots start, load, evaluate or save for too long (H4) */
    HANG_IN_CALL,     /* all have entered, and nothing moves (H3); the roots are those that are in the call */
    HANG_CYCLE,       /* the roots wait for each other: they called in different orders (H2) */
    HANG_DIFFERS,     /* the roots have called something else than the others (H2) */
    HANG_CLASSES,
};

struct hang_verdict {
    enum hang_class class_;
    int root[HANG_ROOTS_MAX]; /* ranks, in order; more than these may be at fault */
    size_t roots;             /* of them all */
    size_t waiting;           /* ranks that wait in something */
    int waiter;               /* a rank that waits for the first root, or in the call; -1: none */
    struct order_odd odd;     /* of HANG_DIFFERS */
};

/* How long this rank may show no sign of life in its phase, microseconds. gap_us is the longest that a rank of the run
 * is known to take between two signs; 0: none has done enough steps to tell. */
int64_t hang_deadline_us(const struct hang_rank *r, int64_t gap_us);

/* Likewise, or be stopped. */
int64_t hang_limit_us(const struct hang_rank *r, int64_t gap_us);

/* Judge the ranks of a program that tells by a heartbeat how far it is, and not what it waits in: a rank past its
 * deadline, also while others go on. A stopped one is named before one in a section, and that before one that is in
 * none; of those the one that is behind, else the one that has been silent for longest. The roots of one that may wait
 * for a rank within its section are not named yet. */
void hang_judge_beats(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret);

/* Judge the ranks of a run; ranks[i] is rank i. Returns 0, or -ENOMEM. */
int hang_judge(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret);

/* A run in which calls of ranks did not go together has failed: who called something else than the others
 * (HANG_DIFFERS)? Else HANG_NONE. What ranks wait in is not asked. Returns 0, or -ENOMEM. */
int hang_odd(const struct hang_rank *ranks, size_t n, struct hang_verdict *ret);

/* "stopped", "not-entered", "phase", "in-call", "cycle", "differs" */
const char *hang_class_name(enum hang_class class_);

#endif
