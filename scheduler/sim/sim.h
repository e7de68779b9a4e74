/* sim - play a trace of jobs through the scheduler, event by event
 *
 * The decisions are those of sched_schedule(), nothing is decided here. Events at the same time go: completions,
 * failures and repairs, arrivals, tick. After events a fast round, at ticks a full one. Every change of a job's devices
 * but its first start costs it the restart time, on the new devices. No clock but the setup's, no I/O; the same setup
 * and trace give the same result, solve times apart. Not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_SIM_SIM_H
#define MUSTER_SCHEDULER_SIM_SIM_H

#include "scheduler/sim/trace.h"

#define SIM_SAMPLES_MAX 20000 /* of the timeline; more are thinned out */
#define SIM_CDF_POINTS 21
#define SIM_HOLD_US 120000000 /* least time between two changes of a job */

struct sim_outcome { /* of one job of the trace */
    int64_t start_us, finish_us;
    int64_t attained_us; /* device time */
    int32_t restarts;
    double rho; /* its time over that on its fair share alone */
};

struct sim_sample { /* how it stood from then on */
    int64_t at_us;
    int32_t capacity, used, running, waiting;
    int32_t by_type[RATES_TYPES_MAX];
};

struct sim_times { /* of rounds of one mode */
    size_t n;
    int64_t total_us, p50_us, p99_us, max_us;
};

struct sim_result {
    struct sim_outcome *jobs; /* as in the trace */
    size_t n_jobs;
    struct sim_sample *samples;
    size_t n_samples;
    double jct_avg_s, jct_median_s, jct_p99_s, makespan_s, wait_avg_s;
    double rho_worst, rho_over, rho_cdf[SIM_CDF_POINTS]; /* share over 1.05; quantiles 0, 0.05, ..., 1 */
    int64_t capacity_us, used_us, idle_us;               /* device time until the last completion */
    double utilisation;
    size_t restarts, failures;
    int64_t lost_steps_u; /* work done again after failures, micro-steps */
    int64_t gap_worst_ppm;
    struct sim_times fast, full;
};

/* Returns 0 with a result that sim_result_clear() frees; -EINVAL naming a job that can never run; -ETIMEDOUT when jobs
 * are still waiting ten simulated years after the last arrival; -ENOMEM. On failure *ret is unchanged. */
int sim_run(const struct sim_setup *setup, const struct sim_trace *trace, struct sim_result *ret, struct merr *err);
void sim_result_clear(struct sim_result *r);

/* The timeline as CSV and as a picture. Return 0, or -EMSGSIZE or -ENOMEM of the buffer. */
int sim_print_csv(const struct sim_setup *s, const struct sim_result *r, struct buf *out);
int sim_print_svg(const struct sim_setup *s, const struct sim_result *r, struct buf *out);

#endif
