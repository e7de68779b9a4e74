/* summary - what each step took, by what it was spent on, told to those who watch the rank (flight.h)
 *
 * The times of a step: summary_begin(), the step, in which the data, the checkpoints and the calls of groups are timed
 * by themselves, summary_computed(), what comes between two steps, summary_end(). Some clock reads a step.
 */
#ifndef MUSTER_WORKER_TRAIN_SUMMARY_H
#define MUSTER_WORKER_TRAIN_SUMMARY_H

#include <stdint.h>

#include "worker/flight/flight.h"

#define SUMMARY_WARM_STEPS 5 /* of a run: they are slow for other reasons */

struct summary {
    struct flight *flight;    /* borrowed; the rest is zero at first */
    uint64_t told;            /* steps */
    uint32_t before;          /* flags of the step before: what came after it makes the next one slow, too */
    int64_t began_us, cpu_us; /* of this step */
    int64_t data_us;          /* waited for what is trained on */
    int64_t saved_us;         /* waited for checkpoints, in all time */
    uint64_t sent;            /* bytes, in all time */
    struct flight_step step;
};

void summary_begin(struct summary *s);

/* The step is computed: it waited for checkpoints, in all time, and has done so much work. */
void summary_computed(struct summary *s, uint64_t step, int64_t saved_us, double work);

/* What comes between two steps is over; sent: bytes in all time. */
void summary_end(struct summary *s, uint32_t flags, uint64_t sent);

#endif
