/* flight - the page of shared memory between one rank and those who watch it
 *
 * A file in the run's folder, made by whoever starts the rank, and mapped by the rank. It outlives the rank, so it
 * tells how far a rank came that hangs or is gone. The rank writes everything but the order word, the wanted test and
 * how long it was stopped; watchers write only these, and read the rest by flight_read.h. All words are atomic; there
 * are no locks.
 *
 * A user's program may cut the file off, which would end (SIGBUS) whoever looks into a mapping of it. So watchers, the
 * agent and the shim, read and write it by calls of the system (flight_watch), which see what the mapping has.
 */
#ifndef MUSTER_WORKER_FLIGHT_FLIGHT_H
#define MUSTER_WORKER_FLIGHT_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/cause.h"
#include "base/merr.h"

enum flight_phase {
    FLIGHT_INIT,
    FLIGHT_RENDEZVOUS,
    FLIGHT_LOAD,
    FLIGHT_DATA, /* waits for what it is to compute with */
    FLIGHT_FORWARD,
    FLIGHT_BACKWARD,
    FLIGHT_REDUCE,
    FLIGHT_UPDATE,
    FLIGHT_EVAL,
    FLIGHT_CHECKPOINT,
    FLIGHT_EXIT,
    FLIGHT_PROGRAM, /* of a command: whatever it does between its operations */
};

/* What a watcher asks of a rank. Later orders are larger and win. */
enum flight_order {
    FLIGHT_GO = 0,
    FLIGHT_SAVE = 1,      /* checkpoint at the next step boundary, go on */
    FLIGHT_HAND_OVER = 2, /* leave the state in this node's memory at the next step boundary, exit as by DRAIN; where
                             that cannot be: DRAIN */
    FLIGHT_MOVE = 3, /* leave a snapshot in the memories of the run's nodes at the next step boundary, exit as by DRAIN;
                        where that cannot be: DRAIN */
    FLIGHT_DRAIN = 4, /* checkpoint at the next step boundary, commit, end as EXIT_CAUSE_DRAINED */
    FLIGHT_ABORT = 5, /* give up every wait at once, end as EXIT_CAUSE_ABORTED; nothing is saved */
};

struct flight;

struct flight_call {     /* an operation that a rank enters: a call of a group, or the wait for one message */
    const char *group;   /* the name of its group */
    uint64_t key;        /* of the group: the same on all members, and no other group's of the run */
    int size;            /* its members; 0: not told here */
    int peer;            /* the rank whose message is waited for; -1: a call of all members */
    uint32_t op;         /* enum comm_call */
    uint32_t digest;     /* ops.h */
    bool ordered;        /* ranks of the same role make it in the same order (flight_role_set) */
    uint64_t seq, bytes; /* seq: of calls, and of messages waited for, by themselves; from 1 */
};

enum flight_kind { /* of groups, by how they split work; FLIGHT_WORLD: all others */
                   FLIGHT_TP,
                   FLIGHT_PP,
                   FLIGHT_DP,
                   FLIGHT_CP,
                   FLIGHT_WORLD,
                   FLIGHT_KINDS,
};

enum {                  /* flags of a step: why it says little of how fast the rank is */
       FLIGHT_WARM = 1, /* one of the first of the run */
       FLIGHT_EVALUATED = 2,
       FLIGHT_SAVED = 4,  /* or is being saved */
       FLIGHT_PAUSED = 8, /* held, or its links were measured anew */
};

struct flight_step { /* what a step took; times in microseconds */
    uint32_t step, flags;
    uint32_t wall_us;               /* until the next began */
    uint32_t busy_us;               /* computing: without what is told below */
    uint32_t call_us[FLIGHT_KINDS]; /* in operations of groups, by kind: waiting for others, and moving bytes */
    uint32_t data_us, save_us;      /* waiting for what is trained on, and for what is being saved */
    uint32_t cpu_us;                /* of a processor, that the computing thread had in busy_us */
    uint32_t work;                  /* tokens; those in long documents count for more */
    uint32_t kib;                   /* sent */
};

/* Make the file at path, zeroed, mode 0600, and map it (not for NULL). -EEXIST when it is there. */
int flight_create(const char *path, struct flight **ret, struct merr *err);

/* Map the file at path. -EPROTO when it is no flight page of this version. */
int flight_open(const char *path, struct flight **ret, struct merr *err);
void flight_close(struct flight *f);

/* Watch the page at path without mapping it. -EPROTO as for flight_open; -ELOOP, -EMEDIUMTYPE when it is no plain
 * file. */
int flight_watch(const char *path, struct flight **ret, struct merr *err);

/* A page in private memory, for tests and tools that have no watcher. */
int flight_private(struct flight **ret, struct merr *err);

/* Watchers. An order never goes back to a smaller one, except that SAVE is taken back by flight_saved. */
void flight_order_set(struct flight *f, enum flight_order order);

/* The newest test of its device that is wanted, from 1: between two steps it makes that one and tells of it. */
void flight_trial_set(struct flight *f, uint32_t number);

/* Its parent: how long its process has been stopped, in all time, microseconds. */
void flight_stopped_set(struct flight *f, int64_t us);

/* The rank. */
enum flight_order flight_order_get(const struct flight *f);
uint32_t flight_trial_get(const struct flight *f); /* 0: none */
bool flight_aborted(const struct flight *f);       /* order is ABORT: cheap enough for every loop of a wait */
void flight_saved(struct flight *f);               /* SAVE has been obeyed: back to GO */
void flight_phase_set(struct flight *f, enum flight_phase phase, uint64_t step);
/* Until the next phase: this one may take so long without a sign of life. */
void flight_allow(struct flight *f, int64_t us);
/* Ranks of the same role make the same ordered operations in each step; 0: no other rank does. */
void flight_role_set(struct flight *f, uint32_t role);
void flight_cause_set(struct flight *f, enum exit_cause cause); /* why it is about to end; also by who starts it */
void flight_lost_set(struct flight *f, int rank);               /* which rank is gone, so that it cannot go on */
void flight_enter(struct flight *f, const struct flight_call *call);
void flight_leave(struct flight *f);
/* How long the rank has been in operations of each kind of groups since it was asked last, microseconds. Returns the
 * processor time that its thread had in them. */
int64_t flight_calls_take(struct flight *f, uint32_t ret_us[FLIGHT_KINDS]);
/* A step is over. */
void flight_step_add(struct flight *f, const struct flight_step *step);
/* Something of the operation that the rank waits in has moved; cheap enough for some hundred times a second. */
void flight_moved(struct flight *f);

#endif
