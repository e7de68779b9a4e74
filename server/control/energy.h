/* energy - what the devices of jobs have drawn
 *
 * Where agents tell the power of a GPU, it counts from one report to the next. Device time that no report covers counts
 * with the power of its class (musterd --class-power); where that is not known either, it is left out. Owned by the
 * core's thread.
 */
#ifndef MUSTER_SERVER_ENERGY_H
#define MUSTER_SERVER_ENERGY_H

#include <jansson.h>

#include "server/control/entry.h"

#define ENERGY_GAP_US INT64_C(60000000) /* a report says nothing of what was longer ago */

#define ENERGY_CLASSES_MAX 8 /* of one run */

struct core;
struct node;

struct energy_run { /* a job before an event */
    struct {
        char class_[SPEC_NAME_MAX];
        int n;
    } of[ENERGY_CLASSES_MAX];
    size_t n;
    bool live, waits;
    uint32_t generation;
    int64_t from_us, waiting_us;
    enum job_state state;
};

struct energy_sum {
    double j;
    int64_t measured_us; /* device time of which it was measured */
};

/* What is known of the job, before an event changes it. */
void energy_look(const struct job *j, struct energy_run *ret);

/* The node has told of its GPUs: their power counts for the jobs that have them. */
void energy_take(struct core *c, struct node *n);

/* The run is over: what it drew, which is the job's from now on. */
struct energy_sum energy_end_run(struct core *c, struct entry *e, const struct energy_run *run);

/* What a job's view says of it. */
void energy_view(const struct core *c, const struct job *j, json_t *o);

#endif
