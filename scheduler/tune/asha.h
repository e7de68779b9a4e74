/* asha - which trial of a search goes on next, by asynchronous successive halving
 *
 * Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2. A trial runs to
 * the steps of a rung and is paused there with what it measured; each rung's steps are those of the one before it
 * times the reduction. Of those that have come to a rung the best one in so many (the reduction) goes on to the next.
 * Where none may, a new trial begins, so nobody waits for others to come to a rung. Pure.
 */
#ifndef MUSTER_SCHEDULER_TUNE_ASHA_H
#define MUSTER_SCHEDULER_TUNE_ASHA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASHA_RUNGS_MAX 16
#define ASHA_TRIALS_MAX 4096

struct asha_rules {
    int64_t first_steps; /* of rung 0 */
    int reduction;       /* from 2 on */
    int rungs;           /* from 1 on; a trial that goes on from the last runs to its own end */
    bool max;            /* more is better */
};

struct asha_trial {
    int rungs;                 /* it has come to so many */
    bool paused;               /* at the last of them, and may go on from there */
    double at[ASHA_RUNGS_MAX]; /* what it measured at each; NAN counts as the worst */
};

/* The steps at which a trial comes to its next rung; INT64_MAX: there is none. */
int64_t asha_steps(const struct asha_rules *rules, const struct asha_trial *trial);

/* The trial that goes on, from the highest rung that has one; n: none may now. */
size_t asha_promote(const struct asha_rules *rules, const struct asha_trial *trials, size_t n);

#endif
