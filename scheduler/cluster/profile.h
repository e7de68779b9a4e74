/* profile - the rates that a job is thought to have on each type of device, from what its runs have shown
 *
 * Without any measurement a job's rates follow a law alone: replicas in number, all of which wait for the one that has
 * most virtual workers; what is measured scales it. Pure, not tied to a thread.
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
};

struct profile_type {
    uint8_t class_;   /* as the speeds count classes */
    double worker_ms; /* that one virtual worker of the job takes there, measured; 0: not yet */
};

/* Relative rate of k replicas of a job with so many virtual workers: all wait for the one with most of them. A
 * command's are as fast as many. */
double profile_law(bool command, int workers, int k);

/* The rates on n types, at most RATES_TYPES_MAX; the rest of *ret is left as it is. A measurement of whole steps at the
 * nearest count of the type's class goes before one of single workers, that before one of another class. */
void profile_fill(const struct profile_job *j, const struct profile_type *types, size_t n, struct rates_profile *ret);

#endif
