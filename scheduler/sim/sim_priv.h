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

/* Finish-time fairness: the time it took over that on its share, averaged over the types it may use by their size. */
double sim_rho(const struct sim_setup *s, const int32_t total[RATES_TYPES_MAX], const struct sim_job *j, double took_s,
               double contention);

/* What the scheduler is told of kinds of jobs: the truth, or what musterd would have learned by now (told.c). */
struct told {
    const struct sim_setup *s;
    struct learned *learned; /* NULL: it is told the truth */
    struct rates_profile *profiles;
    bool *rated;
    int32_t *workers;              /* of each kind, the most devices that a job of it takes */
    int32_t most[RATES_TYPES_MAX]; /* devices of the cluster */
    uint64_t version;              /* of what was learned when the profiles were made */
};
int told_init(struct told *t, const struct sim_setup *s, const struct sim_trace *trace); /* 0 or -ENOMEM */
void told_clear(struct told *t);

/* A job of the kind has shown its rate on these devices, or what a change of them cost it. 0 or -ENOMEM. */
int told_run(struct told *t, uint32_t kind, const int32_t by_type[RATES_TYPES_MAX], double rate_ups);
int told_restart(struct told *t, uint32_t kind, int64_t restart_us);

/* Before a round. True: the profiles have changed. */
bool told_refresh(struct told *t);
const struct rates_profile *told_profile(const struct told *t, uint32_t kind, bool *ret_rated);
double told_restart_s(struct told *t, uint32_t kind); /* 0: nobody knows yet */

#endif
