#include "worker/flight/flight_read.h"

#include <string.h>

#include "worker/flight/flight_priv.h"

uint64_t flight_read_step(const struct flight *f)
{
    FLIGHT_LOOK_HEAD(f);
    return atomic_load(&f->page->step);
}

enum exit_cause flight_read_cause(const struct flight *f)
{
    uint32_t cause;

    FLIGHT_LOOK_HEAD(f);
    cause = atomic_load(&f->page->cause);
    return cause < EXIT_CAUSES ? (enum exit_cause)cause : EXIT_CAUSE_UNTOLD;
}

int flight_read_lost(const struct flight *f)
{
    uint32_t lost;

    FLIGHT_LOOK_HEAD(f);
    lost = atomic_load(&f->page->lost);
    return lost <= INT32_MAX ? (int)lost : 0;
}

enum flight_phase flight_read_phase(const struct flight *f, int64_t *ret_since_us)
{
    uint64_t word;

    FLIGHT_LOOK_HEAD(f);
    word = atomic_load(&f->page->phase);
    if (ret_since_us)
        *ret_since_us = (int64_t)(word >> 8);
    return (enum flight_phase)(word & 255);
}

const char *flight_read_phase_name(enum flight_phase phase)
{
    static const char *const name[] = {"init",   "rendezvous", "load", "data",       "forward", "backward",
                                       "reduce", "update",     "eval", "checkpoint", "exit",    "program"};

    return (unsigned)phase < sizeof(name) / sizeof(name[0]) ? name[phase] : "unknown";
}

const char *flight_read_op_name(uint32_t op)
{
    return ops_name(op);
}

int64_t flight_read_sign(const struct flight *f)
{
    uint64_t entered, at;
    struct flight_op op;
    int64_t since;

    (void)flight_read_phase(f, &since);
    entered = atomic_load(&f->page->entered);
    at = atomic_load(&f->page->moved_us);
    if ((uint64_t)since > at)
        at = (uint64_t)since;
    if (entered > 0 && flight_read_ops(f, &op, 1) == 1) {
        at = (uint64_t)op.enter_us > at ? (uint64_t)op.enter_us : at;
        at = (uint64_t)op.leave_us > at ? (uint64_t)op.leave_us : at;
    }
    return (int64_t)at;
}

int64_t flight_read_gap(const struct flight *f)
{
    FLIGHT_LOOK_HEAD(f);
    return (int64_t)atomic_load(&f->page->gap_us);
}

int flight_timed_of(enum flight_phase phase)
{
    return phase == FLIGHT_DATA         ? FLIGHT_TIMED_DATA
           : phase == FLIGHT_CHECKPOINT ? FLIGHT_TIMED_SAVE
           : phase == FLIGHT_EVAL       ? FLIGHT_TIMED_EVAL
                                        : -1;
}

int64_t flight_read_usual(const struct flight *f, int64_t *ret_allowed_us)
{
    int kind = flight_timed_of(flight_read_phase(f, NULL));

    *ret_allowed_us = (int64_t)(atomic_load(&f->page->allowed_us) & INT64_MAX);
    return kind < 0 ? 0 : (int64_t)(atomic_load(&f->page->usual_us[kind]) & INT64_MAX);
}

int flight_read_groups(const struct flight *f, struct flight_group *groups, int n)
{
    int got = 0;

    FLIGHT_LOOK_HEAD(f);
    for (int i = 0; i < FLIGHT_GROUPS && got < n; i++) {
        const _Atomic uint64_t *word = f->page->group[i];
        struct flight_group *g = &groups[got];
        uint64_t name[2] = {atomic_load(&word[GROUP_NAME]), atomic_load(&word[GROUP_NAME + 1])}, call;

        g->key = atomic_load(&word[GROUP_KEY]);
        if (g->key == 0)
            break;
        g->left = atomic_load(&word[GROUP_LEFT]);
        g->entered = atomic_load(&word[GROUP_ENTERED]);
        if (g->entered < g->left) /* a copy has them from two moments */
            g->entered = g->left;
        call = atomic_load(&word[GROUP_CALL]);
        memcpy(g->name, name, sizeof(g->name));
        g->name[sizeof(g->name) - 1] = '\0';
        g->size = (int)atomic_load(&word[GROUP_SIZE]);
        g->op = (uint32_t)(call & 255);
        g->bytes = call >> 8;
        g->digest = (uint32_t)atomic_load(&word[GROUP_DIGEST]);
        got++;
    }
    return got;
}

int flight_read_ops(const struct flight *f, struct flight_op *ops, int n)
{
    uint64_t entered, word[OP_WORDS];
    int got = 0;

    flight_look(f, f->page, offsetof(struct page, step_ring));
    entered = atomic_load(&f->page->entered);
    for (uint64_t back = 0; back < FLIGHT_RING && back < entered && got < n; back++) {
        uint64_t i = entered - 1 - back;
        const _Atomic uint64_t *slot = f->page->ring[i % FLIGHT_RING];

        for (size_t k = 0; k < OP_WORDS; k++)
            word[k] = atomic_load_explicit(&slot[k], memory_order_acquire);
        flight_look(f, &slot[WORD_VERSION], sizeof(slot[WORD_VERSION]));
        if (word[WORD_VERSION] != 2 * i + 2 || atomic_load(&slot[WORD_VERSION]) != 2 * i + 2)
            continue;
        memcpy(&ops[got], word, sizeof(ops[got]));
        got++;
    }
    return got;
}

int64_t flight_read_stopped(const struct flight *f)
{
    FLIGHT_LOOK_HEAD(f);
    return (int64_t)(atomic_load(&f->page->stopped_us) & INT64_MAX);
}

uint64_t flight_read_steps(const struct flight *f)
{
    FLIGHT_LOOK_HEAD(f);
    return atomic_load(&f->page->steps);
}

bool flight_read_step_at(const struct flight *f, uint64_t i, struct flight_step *ret)
{
    const _Atomic uint64_t *slot = f->page->step_ring[i % FLIGHT_STEPS];
    uint64_t word[STEP_WORDS];

    flight_look(f, slot, sizeof(f->page->step_ring[0]));
    for (size_t k = 0; k < STEP_WORDS; k++)
        word[k] = atomic_load_explicit(&slot[k], memory_order_acquire);
    flight_look(f, slot, sizeof(slot[0]));
    if (word[WORD_VERSION] != 2 * i + 2 || atomic_load(&slot[WORD_VERSION]) != 2 * i + 2)
        return false;
    memcpy(ret, &word[1], sizeof(*ret));
    return true;
}
