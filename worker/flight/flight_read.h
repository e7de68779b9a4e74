/* flight_read - what a rank's page says of it, to those who watch: how far it is, and its last operations
 *
 * Reads while the rank writes, without a lock: what was being written is left out.
 */
#ifndef MUSTER_WORKER_FLIGHT_FLIGHT_READ_H
#define MUSTER_WORKER_FLIGHT_FLIGHT_READ_H

#include "base/ops.h"
#include "worker/flight/flight.h"

#define FLIGHT_RING 256   /* last operations kept */
#define FLIGHT_STEPS 1024 /* last steps kept */
#define FLIGHT_GROUPS 48  /* groups kept; a rank has one for each way its work is split, by direction */

struct flight_op { /* one entry of the ring; version odd while it is written */
    uint64_t version, seq, bytes;
    int64_t enter_us, leave_us; /* monotonic; leave 0: still inside */
    uint32_t op, step;
    uint64_t key; /* of its group */
    int32_t peer; /* see struct flight_call */
    uint32_t pad;
};

struct flight_group {
    uint64_t key;
    char name[16]; /* "tp", "dp", "pp", "world", … */
    int size;
    uint64_t entered, left; /* calls of all its members */
    uint32_t op;            /* of the newest, with its bytes */
    uint64_t bytes;
    uint32_t digest; /* of the newest */
};

enum flight_timed { /* of phases whose length is known from earlier ones */
                    FLIGHT_TIMED_DATA,
                    FLIGHT_TIMED_SAVE,
                    FLIGHT_TIMED_EVAL,
                    FLIGHT_TIMED,
};

/* The ordered operations of a rank, in spans: those of a step's computation, and those between two. A span's number is
 * the same on all ranks. */
struct flight_order_of {
    uint32_t role;
    uint64_t span[2], ops[2]; /* the present span and the one before, and operations in each */
    uint64_t
        odd; /* of this step: 2 + the first operation that is another than in the step before; 1: none; 0: unknown */
    uint32_t window[OPS_WINDOW]; /* digests of the last n, the newest last */
    size_t n;
};

uint64_t flight_read_step(const struct flight *f);
enum exit_cause flight_read_cause(const struct flight *f); /* EXIT_CAUSE_UNTOLD: nobody has said */
int flight_read_lost(const struct flight *f);              /* 1 + the rank that it lost; 0: none */
enum flight_phase flight_read_phase(const struct flight *f, int64_t *ret_since_us);
const char *flight_read_phase_name(enum flight_phase phase);

const char *flight_read_op_name(uint32_t op); /* "all_reduce"; "unknown": of no such number */

/* When the rank last showed that it goes on, on the monotonic clock: it entered or left an operation or a phase, or
 * something of the operation that it waits in has moved. */
int64_t flight_read_sign(const struct flight *f);
/* The longest time between two such signs in steps of late, without that of waits for others, microseconds; 0: the rank
 * has not done enough steps to tell. */
int64_t flight_read_gap(const struct flight *f);
/* The longest that the rank's present phase has taken of late; 0: it has not been in it before, or in one in which
 * flight_read_gap says how long. allowed: what flight_allow says of it; 0: nothing. */
int64_t flight_read_usual(const struct flight *f, int64_t *ret_allowed_us);
void flight_read_order(const struct flight *f, struct flight_order_of *ret);
/* Copy the rank's groups, at most n. Returns how many. */
int flight_read_groups(const struct flight *f, struct flight_group *groups, int n);

int64_t flight_read_stopped(const struct flight *f); /* microseconds, in all time */

/* How many steps the rank has told of. */
uint64_t flight_read_steps(const struct flight *f);
/* Copy the i-th step that it told of, from 0. False: there is none yet, or it was replaced by a later one. */
bool flight_read_step_at(const struct flight *f, uint64_t i, struct flight_step *ret);

/* Copy the newest up to n operations, newest first. Returns how many. Entries being written are left out. */
int flight_read_ops(const struct flight *f, struct flight_op *ops, int n);

#endif
