/* flight_priv - how the page is laid out, for the code that writes it and the code that reads it */
#ifndef MUSTER_WORKER_FLIGHT_FLIGHT_PRIV_H
#define MUSTER_WORKER_FLIGHT_FLIGHT_PRIV_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

#include "worker/flight/flight_read.h"

#define OP_WORDS (sizeof(struct flight_op) / sizeof(uint64_t))

/* An entry as the words of struct flight_op. Entry i (from 0, in all time) stands in ring[i % FLIGHT_RING]; its
 * version is 2·i + 1 while it is written and 2·i + 2 after, so a reader sees both a torn and a replaced entry. */
enum { WORD_VERSION = 0, WORD_LEAVE = 4 };
static_assert(sizeof(struct flight_op) == 64, "an entry is one cache line");
static_assert(offsetof(struct flight_op, leave_us) == WORD_LEAVE * sizeof(uint64_t), "leave_us is word 4");

/* A step as words: its version as an entry's, and struct flight_step. */
#define STEP_WORDS 8
static_assert(sizeof(struct flight_step) == (STEP_WORDS - 1) * sizeof(uint64_t), "a step is one cache line");

/* A group of the rank, as words; GROUP_KEY 0: there is none yet. The name and the size stand before the key. */
enum {
    GROUP_KEY,
    GROUP_NAME, /* 16 bytes */
    GROUP_SIZE = 3,
    GROUP_ENTERED, /* calls of all its members that the rank has entered */
    GROUP_LEFT,    /* and those that it has left */
    GROUP_CALL,    /* the newest: its op, and bytes times 256 */
    GROUP_DIGEST,  /* and its digest */
    GROUP_WORDS = 8,
};

struct page {
    uint64_t magic, version;
    _Atomic uint32_t order; /* the watchers' word; enum flight_order */
    _Atomic uint32_t cause; /* enum exit_cause; 0 in pages of ranks that do not know of it */
    _Atomic uint64_t phase; /* microseconds since when, times 256, plus enum flight_phase: one word, never torn */
    _Atomic uint64_t step;
    _Atomic uint32_t lost;     /* 1 + the rank whose connection was gone first; 0: none was */
    _Atomic uint32_t trial;    /* the watchers' word: by flight_trial_set; 0 in pages made before it was there */
    _Atomic uint64_t entered;  /* operations ever entered */
    _Atomic uint64_t moved_us; /* when flight_moved was last called */
    _Atomic uint64_t gap_us;   /* the longest that the rank was between two signs of life in the last steps */
    _Atomic uint64_t usual_us[FLIGHT_TIMED]; /* see flight_read_usual */
    _Atomic uint64_t allowed_us;             /* by flight_allow, for the present phase */
    _Atomic uint64_t stopped_us;             /* by flight_stopped_set */
    struct {                                 /* ordered operations: see struct flight_order_of */
        _Atomic uint64_t role, odd, span[2], ops[2], all;
        _Atomic uint32_t window[OPS_WINDOW]; /* operation i of all stands in window[i % OPS_WINDOW] */
    } order_of;
    _Atomic uint64_t group[FLIGHT_GROUPS][GROUP_WORDS];
    _Atomic uint64_t steps; /* ever told */
    _Atomic uint64_t ring[FLIGHT_RING][OP_WORDS];
    _Atomic uint64_t step_ring[FLIGHT_STEPS][STEP_WORDS];
};

struct flight {
    struct page *page;        /* mapped, or a copy of what fd had when it was looked at last */
    int fd;                   /* -1: mapped */
    _Atomic uint64_t *inside; /* the group whose call the rank is in; NULL: none */
    enum flight_kind kind;    /* of the group of the newest operation */
    int64_t enter_us;         /* when it was entered */
    uint64_t call_us[FLIGHT_KINDS];
    int64_t enter_cpu_us, calls_cpu_us; /* processor time of the rank's thread: then, and in operations */
    int64_t sign_us;                    /* the rank's last sign of life */
    uint64_t first_step;                /* that it computed; UINT64_MAX: none yet */
    uint64_t window;                    /* of GAP_STEPS steps: the number of the present one */
    uint64_t gap_us[2];                 /* the longest gap of the present window, and of the one before */
    uint32_t *step_ops[2];              /* ordered operations of the present step, and of the one before */
    uint64_t step_ops_n;                /* of the one before; UINT64_MAX: not known */
};

int flight_timed_of(enum flight_phase phase); /* -1: of none of them */

/* order.c: the rank enters an ordered operation, or a phase. */
void flight_order_add(struct flight *f, uint32_t digest);
void flight_order_phase(struct flight *f, enum flight_phase phase, uint64_t step);

/* Bring bytes of a copy up to date. What the file does not have any more stays as it was. */
void flight_look(const struct flight *f, const volatile void *from, size_t bytes);
#define FLIGHT_LOOK_HEAD(f) flight_look(f, (f)->page, offsetof(struct page, ring))

#endif
