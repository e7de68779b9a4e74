/* cadence - when the next checkpoint is worth its cost: Young's interval as Daly refined it, from measured times
 *
 * What one costs is the time by which the steps beside it took longer than others, stalls included. A plain struct for
 * one thread; rank 0 decides for all.
 */
#ifndef MUSTER_WORKER_TRAIN_CADENCE_H
#define MUSTER_WORKER_TRAIN_CADENCE_H

#include <stdbool.h>
#include <stdint.h>

#define CADENCE_FIRST_S 20.0 /* until one was measured */

struct cadence {
    double mtbf_s;           /* mean time between failures of the whole job */
    double step_s;           /* a step beside which nothing is written: moving average, 0: not known */
    double excess_s;         /* of the one under way */
    double cost_s, commit_s; /* of one, and from its request to its commit: moving averages */
    int measured;
    int64_t begun_us; /* of the last one, or of the first step */
};

void cadence_init(struct cadence *c, double mtbf_s, int64_t now_us);

/* A step took so long; saving: something was written meanwhile. */
void cadence_step(struct cadence *c, double seconds, bool saving);

void cadence_begun(struct cadence *c, int64_t now_us);
void cadence_committed(struct cadence *c, double seconds);

/* Seconds from one checkpoint to the next that lose least: never more often than two under way at once allow. */
double cadence_interval_s(const struct cadence *c);

bool cadence_due(const struct cadence *c, int64_t now_us);

#endif
