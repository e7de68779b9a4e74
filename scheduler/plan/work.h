/* work - how long a device computes at the parts of a step: by its profile, or by its rates where it has none */
#ifndef MUSTER_SCHEDULER_PLAN_WORK_H
#define MUSTER_SCHEDULER_PLAN_WORK_H

#include "scheduler/plan/cost.h"

struct work_block {          /* a block and micro-batch */
    double f_s;              /* forward */
    double i_s, w_s;         /* back: the gradient of its input, and those of its weights */
    double again_s, cheap_s; /* what full and selective recomputation make again: full all but the last product */
};

/* tp cuts the model. */
struct work_block work_block(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d);

/* The ends of a micro-batch, there and back. */
double work_embed_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d);
double work_head_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_device *d);

/* Adding up a step's leaves, the optimizer, and what else comes once a step, of pipeline rank r. */
double work_update_s(const struct plan_job *job, const struct plan_shape *s, int r, const struct plan_device *d);

#endif
