/* profile - the rates that a job is thought to have on each type of device, from what runs of its kind have shown
 *
 * Without any measurement a job's rates follow a law alone: replicas in number, all of which wait for the one that has
 * most virtual workers. Measurements give the law two things: its scale on each class, and what of a step does not
 * become shorter with more replicas, which is one share for all classes. Pure, not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_PROFILE_H
#define MUSTER_SCHEDULER_CLUSTER_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/cluster/rates.h"

struct profile_speed { /* measured on devices of one class */
    uint8_t class_;
    int32_t devices;
    double steps_per_s;
};

struct profile_job {
    bool command;         /* its replicas do not wait for each other */
    int workers, replica; /* virtual workers; devices of one replica; at least 1 each */
    const struct profile_speed *speeds;
    size_t n_speeds;
    struct profile_speed predicted; /* by the planner; counts where nothing was measured; steps_per_s 0: it is not */
    double fixed;                   /* of a step, where no class was measured at two counts (profile_fixed) */
};

struct profile_type {
    uint8_t class_;   /* as the speeds count classes */
    double worker_ms; /* that one virtual worker of the job takes there, measured; 0: not yet */
    double speed;     /* how fast devices of the class are beside those of others, thought of any job; 0: 1 */
};

/* Relative rate of k replicas of a job with so many virtual workers: all wait for the one with most of them. A
 * command's are as fast as many. */
double profile_law(bool command, int workers, int k);

/* The part of a step that stays as long however many replicas there are, as a share of the rest of it on one replica.
 * False: no class was measured at two counts. */
bool profile_fixed(const struct profile_job *j, double *ret);

/* How fast a class is by the job's measurements there: steps a second of one replica without that part. 0: none. */
double profile_scale(const struct profile_job *j, uint8_t class_, double fixed);

/* The rates on n types, at most RATES_TYPES_MAX; the rest of *ret is left as it is. A measured count has its measured
 * rate. Measurements of whole steps on the type's class go before one of single workers, that before those on other
 * classes, these before what is predicted. Returns whether the rates are steps a second, and not relative alone. */
bool profile_fill(const struct profile_job *j, const struct profile_type *types, size_t n, struct rates_profile *ret);

#endif
