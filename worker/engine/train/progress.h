/* progress - a line for people now and then, in the log of a training run's first rank
 *
 * Of each ten seconds one line, with the loss and gradient norm of its last step and the rate of all its steps. Pure.
 */
#ifndef MUSTER_WORKER_TRAIN_PROGRESS_H
#define MUSTER_WORKER_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_EVERY_US INT64_C(10000000)
#define PROGRESS_LINE_MAX 160

struct progress {           /* zeroed: nothing was told in this attempt */
    int64_t told_us;        /* monotonic; 0: never */
    uint64_t steps, tokens; /* done when it was told */
};

struct progress_step {
    uint64_t steps, tokens, of; /* done, seen; of: steps of the job */
    double loss, norm;
    int64_t began_us; /* of the step, monotonic */
};

/* Whether a line is due: after the first step of an attempt, each ten seconds, and after the last step. It is written
 * into ret, and counted as told. */
bool progress_take(struct progress *p, const struct progress_step *s, int64_t now_us, char ret[PROGRESS_LINE_MAX]);

#endif
