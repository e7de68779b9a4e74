/* trace - a cluster's description and the jobs that arrive at it, as the simulator reads them
 *
 * docs/simulator.md describes the formats. The caller fills a sim_setup and owns it; a trace is text of lines.
 */
#ifndef MUSTER_SCHEDULER_SIM_TRACE_H
#define MUSTER_SCHEDULER_SIM_TRACE_H

#include "base/merr.h"
#include "scheduler/cluster/sched.h"
#include "scheduler/sim/planned.h"

#define SIM_NAME_MAX 64
#define SIM_TRACE_JOBS_MAX 200000
#define SIM_PROFILES_MAX 256
#define SIM_STEPS_MAX 1000000000000                       /* global steps of one job */
#define SIM_TIME_MAX_US (INT64_C(1000000) * 86400 * 3660) /* ten years */

struct sim_setup {
    char types[RATES_TYPES_MAX][SIM_NAME_MAX];
    size_t n_types;
    struct sched_node *nodes;
    size_t n_nodes;
    char (*tenant_names)[SIM_NAME_MAX]; /* tenant 0 is "default" */
    struct sched_tenant *tenants;
    enum sched_class *tenant_class; /* of its jobs */
    size_t n_tenants;
    char (*profile_names)[SIM_NAME_MAX];
    struct rates_profile *profiles;
    size_t n_profiles;
    size_t n_rated; /* of these have throughputs; the others are of planned's specs, in their order */
    struct planned *planned;
    /* Adds the spec that a trace names to planned and its profile here. Returns 0; -EINVAL; -ENOMEM. NULL: a trace
     * names no specs. */
    int (*add_spec)(struct sim_setup *s, const char *name, struct merr *err);
    void *of_caller; /* what add_spec needs */
    int64_t restart_us, grace_us;
    int64_t checkpoint_us; /* between periodic checkpoints, >= 1: what a lost node costs */
    int64_t mtbf_us;       /* mean time between a node's failures, 0: none fails */
    int64_t repair_us;     /* until it is back, >= 1 */
    int64_t round_us;      /* between full rounds, >= 1 */
    int64_t starve_us;
    int64_t las_us;
    uint64_t seed;
    enum sched_policy policy;
    enum sched_objective objective;
    bool as_server;                      /* the scheduler knows what musterd would: rates are learned */
    double class_speed[RATES_TYPES_MAX]; /* of measured products; 0: not told */
    int64_t (*clock_us)(void);           /* measures the rounds; NULL: they count as 0 */
};

struct sim_job {
    char name[SIM_NAME_MAX];
    int64_t submit_us;
    uint32_t profile, tenant;
    int32_t min, max, workers;
    int32_t replica; /* it takes whole multiples of so many */
    int64_t steps;
    int64_t weight_milli;
    uint32_t types;
    bool hetero_ok;
};

struct sim_trace {
    struct sim_job *jobs; /* by submission, then by line */
    size_t n;
};

/* The defaults of everything but the cluster itself; the setup is empty. */
void sim_setup_init(struct sim_setup *s);
void sim_setup_clear(struct sim_setup *s);

/* Add a profile of a name of fewer than SIM_NAME_MAX bytes. Returns 0; -E2BIG; -ENOMEM. */
int sim_add_profile(struct sim_setup *s, const char *name, const struct rates_profile *profile);

/* The spec of a kind of job, -1: it has throughputs. */
int sim_spec_of(const struct sim_setup *s, uint32_t profile);

/* Index of a name, or -1. */
int sim_find_type(const struct sim_setup *s, const char *name);

/* Read a trace against a setup, which names the types, kinds of jobs and tenants, and gets the specs that jobs have.
 * Returns 0 with a trace that sim_trace_clear() frees; -EINVAL naming line and column; -ENOMEM. On failure *ret is
 * unchanged. */
int sim_trace_parse(struct sim_setup *s, const char *text, size_t len, struct sim_trace *ret, struct merr *err);
void sim_trace_clear(struct sim_trace *t);

#endif
