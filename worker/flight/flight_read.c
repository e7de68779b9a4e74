#include "worker/flight/flight_read.h"

#include <string.h>

#include "worker/flight/flight_priv.h"

uint64_t flight_read_step(const struct flight *f)
{
    return atomic_load(&f->page->step);
}

enum exit_cause flight_read_cause(const struct flight *f)
{
    uint32_t cause = atomic_load(&f->page->cause);

    return cause < EXIT_CAUSES ? (enum exit_cause)cause : EXIT_CAUSE_UNTOLD;
}

enum flight_phase flight_read_phase(const struct flight *f, int64_t *ret_since_us)
{
    uint64_t word = atomic_load(&f->page->phase);

    if (ret_since_us)
        *ret_since_us = (int64_t)(word >> 8);
    return (enum flight_phase)(word & 255);
}

const char *flight_read_phase_name(enum flight_phase phase)
{
    static const char *const name[] = {"init",   "rendezvous", "load", "forward",    "backward",
                                       "reduce", "update",     "eval", "checkpoint", "exit"};

    return (unsigned)phase < sizeof(name) / sizeof(name[0]) ? name[phase] : "unknown";
}

int flight_read_ops(const struct flight *f, struct flight_op *ops, int n)
{
    uint64_t entered = atomic_load(&f->page->entered), word[OP_WORDS];
    int got = 0;

    for (uint64_t back = 0; back < FLIGHT_RING && back < entered && got < n; back++) {
        uint64_t i = entered - 1 - back;
        const _Atomic uint64_t *slot = f->page->ring[i % FLIGHT_RING];

        for (size_t k = 0; k < OP_WORDS; k++)
            word[k] = atomic_load_explicit(&slot[k], memory_order_acquire);
        if (word[WORD_VERSION] != 2 * i + 2 || atomic_load(&slot[WORD_VERSION]) != 2 * i + 2)
            continue;
        memcpy(&ops[got], word, sizeof(ops[got]));
        ops[got].group[sizeof(ops[got].group) - 1] = '\0';
        got++;
    }
    return got;
}
