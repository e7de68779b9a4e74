/* pace - what the runs of a job have shown: how fast it is on which devices, and what a change of them costs
 *
 * The first line of metrics of a run says nothing: its first step is slow for other reasons. Plain data, one a job.
 */
#ifndef MUSTER_SERVER_PACE_H
#define MUSTER_SERVER_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/cluster/slow.h"
#include "server/cluster/job.h"

#define PACE_LEAF_TIMES_MAX 8

struct leaf_time { /* of one virtual worker on devices of a class */
    char class_[SPEC_NAME_MAX];
    double ms;
    struct slow_usual usual; /* of devices that are well */
    int workers;             /* that a replica had for that */
};

struct shares_watch {       /* how long a job's work has not lain by its devices' speed (shares.h) */
    uint32_t generation;    /* that the rest is about */
    int32_t lines;          /* of metrics of it */
    int32_t off;            /* of them in a row, up to the last, that found it so */
    int32_t times;          /* that it was laid anew on these devices */
    uint64_t devices, laid; /* what they were, and how it lay: hashes */
};

struct pace {
    int workers; /* virtual ones of the job */
    struct leaf_time leaf_times[PACE_LEAF_TIMES_MAX];
    size_t n_leaf_times;
    struct shares_watch shares;
    uint8_t home_class;          /* of rank 0 of the newest run */
    uint32_t learned_generation; /* whose first step was seen */
    bool on_slow;                /* the run has devices that are known to be slow */
    int64_t rescale_began_us;    /* monotonic; 0: not rescaling */
    int64_t restart_us;          /* what a change costs, measured; 0: not yet */
};

struct pace_news {      /* of a line of metrics; 0: nothing */
    double steps_per_s; /* so fast is the job on its devices, which are of home_class */
    double restart_s;   /* its last change cost so much */
};

/* Take in a line of metrics of the job's run at the monotonic time. */
struct pace_news pace_learn(struct pace *p, const struct job *j, uint32_t generation, double step_ms, int64_t mono_us);

/* What is known of one virtual worker on devices of a class; NULL: nothing. */
struct leaf_time *pace_leaf_time(struct pace *p, const char *class_);

/* How long one worker takes on devices of a class; 0: not measured. */
double pace_worker_ms(const struct pace *p, const char *class_);

#endif
