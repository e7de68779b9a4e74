/* sim_priv - between the files of the simulator only */
#ifndef MUSTER_SCHEDULER_SIM_SIM_PRIV_H
#define MUSTER_SCHEDULER_SIM_SIM_PRIV_H

#include "scheduler/sim/sim.h"

struct durations { /* of rounds, microseconds */
    int32_t *v;
    size_t n, cap;
};

/* Averages, quantiles and shares of what the jobs' outcomes say. 0 or -ENOMEM. */
int sim_summarise(const struct sim_trace *trace, struct sim_result *r);
void sim_summarise_times(struct durations *d, struct sim_times *ret);

/* Rate of a job alone on a share of the cluster with one type, micro-steps a second. */
double sim_share_rate(const struct sim_setup *s, const struct sim_job *j, int type, double devices);

/* Finish-time fairness: the time it took over that on its share, averaged over the types it may use by their size. */
double sim_rho(const struct sim_setup *s, const int32_t total[RATES_TYPES_MAX], const struct sim_job *j, double took_s,
               double contention);

#endif
