/* words - a verdict over a run's ranks in one sentence, the same wherever it is told
 *
 * Pure: events, explain, show, the dashboard and a replayed dump all have their words from here.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_WORDS_H
#define MUSTER_SCHEDULER_DIAGNOSE_WORDS_H

#include "base/buf.h"
#include "scheduler/diagnose/hang.h"

struct words_rank {         /* what people read of a rank; all borrowed */
    const char *node;       /* where it runs */
    const char *phase, *op; /* as its page names them; op "": it waits in none */
    const char *group;      /* of the operation; "": not told */
    const char *section;    /* that its program has declared; "": none */
    bool beats;             /* a heartbeat is all that is known of it */
    bool frozen;            /* by a control group, where it is stopped */
    uint64_t step;
};

/* Which deadline a phase is under, by the name that its page gives it. */
enum hang_phase words_phase(const char *name);

/* A phase as a sentence has it: "the data loader". */
const char *words_of_phase(const char *name);

/* Append the sentence, which begins with "rank R on NODE". Nothing for HANG_NONE. */
void words_verdict(const struct hang_rank *ranks, const struct words_rank *of, size_t n, const struct hang_verdict *v,
                   struct buf *out);

#endif
