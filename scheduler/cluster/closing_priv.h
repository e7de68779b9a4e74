/* closing_priv - devices of nodes that close during a round's jobs: how many a job could be put on (closing.c) */
#ifndef MUSTER_SCHEDULER_CLUSTER_CLOSING_PRIV_H
#define MUSTER_SCHEDULER_CLUSTER_CLOSING_PRIV_H

#include "scheduler/cluster/sched_priv.h"

/* Of a round whose jobs are in order: 0 or -ENOMEM. */
int closing_init(struct round *r);
int32_t closing_total(const struct round *r, const struct rjob *j, int type); /* devices that it could be put on */
bool closing_fits(const struct round *r, const struct rjob *j, int type, int32_t more);
void closing_count(struct round *r, const struct rjob *j, const struct sched_shape *s, int sign);
void closing_reset(struct round *r); /* nobody is to get any */
bool closing_bars(const struct round *r, const struct sched_job *job, uint32_t node);
bool closing_blames(const struct round *r, const struct rjob *j); /* whether it waits for that */

#endif
