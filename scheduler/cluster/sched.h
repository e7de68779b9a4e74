/* sched - one round: which job runs on how many devices of which types, and on which nodes
 *
 * One pure function of a snapshot, called by the server and, for every policy, by the simulator. No clock, no I/O, no
 * globals; arithmetic is integer or IEEE +, -, *, / and sqrt, so the same snapshot gives the same plan on every host
 * and in whatever order its jobs are listed (nodes have a fixed order: it breaks ties; of jobs age, then what they
 * ask for, and ids last, break ties). Limits: SCHED_*_MAX. Not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_SCHED_H
#define MUSTER_SCHEDULER_CLUSTER_SCHED_H

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/cluster/rates.h"

#define SCHED_NODES_MAX 100000
#define SCHED_JOBS_MAX 200000
#define SCHED_TENANTS_MAX 1024
#define SCHED_NODE_DEVICES_MAX 1024
#define SCHED_CANDIDATES_MAX 48
#define SCHED_POWER_MAX INT64_C(1000000000000) /* watts of a cluster, and */
#define SCHED_DEVICE_POWER_MAX 100000          /* of a device */
#define SCHED_SLOW_MAX 1000000                 /* thousandths of the time that others take */
#define SCHED_WITHIN_MAX 8                     /* tenants that one is within, one within the other */

enum sched_policy {
    SCHED_POLICY_MUSTER,   /* utility and prices, elastic, tenants and classes */
    SCHED_POLICY_FIFO,     /* gang, in order of submission; the first that does not fit holds the rest up */
    SCHED_POLICY_BACKFILL, /* EASY: later jobs may pass it that do not delay it */
    SCHED_POLICY_LAS,      /* two queues by attained service, preemptive (Tiresias 2019) */
    SCHED_POLICY_MAXMIN,   /* least received share goes first, preemptive rounds (Gavel 2020) */
    SCHED_POLICY_SRTF,     /* shortest remaining time first, told the truth */
    SCHED_POLICY_POLLUX,   /* goodput over that on a fair share, blind to types (Pollux 2021) */
    SCHED_POLICY_SIA,      /* goodput over that of the least configuration, by type (Sia 2023) */
    SCHED_POLICY_MAX,
};

enum sched_objective {                   /* of the policy muster */
                       SCHED_FAIR,       /* finish-time fairness */
                       SCHED_JCT,        /* the average completion time */
                       SCHED_MAKESPAN,   /* when the last job is done */
                       SCHED_THROUGHPUT, /* the sum of all rates, each over that of the job's least configuration */
                       SCHED_OBJECTIVE_MAX,
};

enum sched_mode {
    SCHED_FAST, /* on an event: nothing that runs is touched but for a lost node or a guarantee */
    SCHED_FULL, /* at a tick: everything may change */
};

enum sched_class {
    SCHED_ELASTIC,       /* may shrink to its minimum */
    SCHED_GUARANTEED,    /* within its tenant's quota nobody takes its minimum */
    SCHED_OPPORTUNISTIC, /* may be stopped at any time */
};

struct sched_node {
    uint8_t type;
    int32_t devices; /* fit to be used: 0 while the node is lost or drains */
    uint32_t leaf;   /* rack that it is in, or switch it hangs on, below SCHED_NODES_MAX */
    /* further devices that nobody gets now: it drains, contact is lost, they are kept as spares; for explanations */
    int32_t drained, silent, spare;
    int32_t slow_milli; /* known to be slow: its devices take so many thousandths of what their type takes; 0: well */
    int64_t slow_us;    /* since when that is known */
    int64_t closes_us;  /* when jobs have to have left it (calendar.h); 0: never */
    int64_t opens_us;   /* when those of its devices that are drained come back; 0: nobody knows */
};

struct sched_tenant {
    int32_t quota;        /* devices its guaranteed jobs may count on */
    int32_t borrow;       /* devices beyond the quota it may hold at most; -1: no limit */
    int64_t weight_milli; /* >= 1 */
    int32_t leaving;      /* devices that it has beside those of the jobs below: their runs are on their way out */
    uint32_t within;      /* index + 1 of the tenant that its devices count for as well; 0: none */
    /* borrowed, RATES_TYPES_MAX of them each; NULL: no type has its own. Of each type: devices that guaranteed jobs may
     * count on, -1: as many as the quota; devices that the tenant holds at most, -1: no limit */
    const int32_t *type_quota, *type_most;
};

struct sched_place {
    uint32_t node;
    int32_t devices;
};

struct sched_job {
    uint64_t id; /* never 0, each once */
    uint32_t tenant;
    enum sched_class class_;
    int64_t submit_us;
    int32_t min, max;
    int32_t replica; /* it takes whole multiples of so many; 0 counts as 1 */
    int32_t stage;   /* devices of a pipeline stage of a replica, which may be of another type than the next stage's;
                          0: a replica is of one type */
    int32_t workers; /* virtual workers, which bound the replicas; 0: none, no mix of types */
    uint32_t types;  /* mask of those it may use */
    bool hetero_ok;  /* its result does not depend on the type: it may mix and change types */
    bool fixed;      /* once started it is never touched */
    bool within;     /* all its devices are of one leaf */
    uint32_t prefer; /* mask of types that it would rather have than others; 0: all alike */
    bool unsure;     /* none of its kind has shown how fast it is on any type */
    bool hasty;      /* it may leave slow devices before its hold is over */
    int8_t home;     /* type it has run on, and stays on unless hetero_ok; -1: has not run */
    int64_t weight_milli; /* >= 1 */
    int64_t restart_us;   /* what a change costs it */
    int32_t restarts;
    int64_t changed_us;   /* when its devices were changed last */
    int64_t waiting_us;   /* when it last had none (its submission at first) */
    int64_t attained_us;  /* device time it has had */
    int64_t remaining_us; /* work left, micro-steps; -1: unknown */
    int64_t finish_us;    /* when it should have ended; 0: nobody says */
    int64_t limit_us;     /* it runs so long from now on at most; 0: nobody says how long */
    int64_t rho_milli;    /* finish-time fairness forecast, 1000 is fair */
    int64_t share_milli;  /* 1000 x weight for what its user and project had less than they are due; 0: as 1000 */
    const struct rates_profile *profile; /* borrowed */
    const struct sched_place *places;    /* borrowed: where it runs now, by node */
    size_t n_places;
    const uint32_t *avoid; /* borrowed: nodes that it is not given: the first n_barred of them never, the others only */
    size_t n_avoid, n_barred; /* where there is no other way */
};

struct sched_config {
    enum sched_policy policy;
    enum sched_objective objective;
    enum sched_mode mode;
    int64_t now_us;
    int64_t round_us;  /* between full rounds */
    int64_t starve_us; /* a job that waits longer goes before all but guarantees */
    int64_t grace_us;  /* from the notice to the kill of who loses devices */
    int64_t hold_us;   /* least time between two changes of a job; four restarts when that is longer */
    bool spread;       /* a job that finds no whole nodes may take parts of several */
    int64_t power_w;   /* that devices of jobs may draw together; 0: no limit */
    int64_t las_us;    /* device time after which LAS puts a job into the second queue */
};

/* Configurations that rounds have found for jobs that ask alike, so that the next need not find them again. It changes
 * no plan. The profiles of the jobs must stay as they are, where they are, for as long as it is used. */
struct sched_cache;
struct sched_cache *sched_cache_new(void); /* NULL when memory is short */
void sched_cache_free(struct sched_cache *c);

struct sched_input {
    struct sched_config config;
    const struct sched_node *nodes;
    size_t n_nodes;
    const struct sched_tenant *tenants;
    size_t n_tenants; /* >= 1 */
    const struct sched_job *jobs;
    size_t n_jobs;
    int32_t power_w[RATES_TYPES_MAX]; /* that a device of each type draws while it works */
    double prices[RATES_TYPES_MAX];   /* of the plan before, 0 at first: only speeds the search up */
    struct sched_cache *cache;        /* borrowed and filled; NULL: none is kept */
};

struct sched_shape { /* a configuration: devices of one type or two */
    int8_t type[2];  /* -1: none */
    int32_t n[2];
    int64_t rate_ups;
};

enum sched_action { SCHED_KEEP, SCHED_STOP, SCHED_SHRINK, SCHED_MOVE, SCHED_GROW, SCHED_START, SCHED_WAIT };

enum sched_reason {
    SCHED_RUNS,
    SCHED_BUSY,       /* others have more to gain from the devices, or came first */
    SCHED_BEHIND,     /* devices are kept for a job before it */
    SCHED_LIMIT,      /* its tenant holds as much as it may */
    SCHED_TOO_BIG,    /* the cluster never holds its minimum */
    SCHED_FRAGMENTED, /* enough devices are free, but not side by side */
    SCHED_RECLAIMED,  /* its devices went to a guarantee or were lost */
    SCHED_CLOSING,    /* its time limit runs into a time when nodes are closed, or kept for others */
    SCHED_POWER,      /* devices would draw more than they may together */
    SCHED_SLOW,       /* MOVE: for slow devices it gets such that are well */
};

struct sched_verdict { /* of one job */
    enum sched_action action;
    enum sched_reason reason;
    struct sched_shape shape; /* type -1: none */
    struct rates_est est[2];  /* where its virtual workers lie, when it has some */
    size_t first, n;          /* in plan.places */
    uint64_t behind;          /* SCHED_BEHIND: the job for which devices are kept */
    int32_t kept;             /* WAIT: idle devices that are kept for it */
    int64_t starts_us;        /* and when it gets the rest at the latest; 0: nobody knows */
    int64_t deadline_us;      /* STOP, SHRINK, MOVE: when its processes are killed */
};

struct sched_plan {
    struct sched_verdict *verdicts; /* by the job's index in the snapshot */
    size_t n_verdicts;
    struct sched_place *places;
    size_t n_places;
    size_t *order; /* indexes of jobs whose action is not KEEP or WAIT: stop, shrink, move, grow, start */
    size_t n_order;
    double prices[RATES_TYPES_MAX]; /* what a device of each type is worth */
    int64_t value_u, dual_u; /* utility of the plan and its upper bound, millionths; 0 but for muster's full round */
    int64_t gap_ppm;         /* (dual - value) / dual */
};

/* Decide. Returns 0 with a plan that sched_plan_clear() frees; -EINVAL with words for a snapshot that contradicts
 * itself; -ENOMEM. On failure *ret is unchanged. */
int sched_schedule(const struct sched_input *in, struct sched_plan *ret, struct merr *err);
void sched_plan_clear(struct sched_plan *plan);

/* The weight of a priority from 0 to 100: 50 is 1000, and five points double it. */
int64_t sched_weight_milli(int priority);

/* Least and most devices a job can take in whole replicas; *ret_most < *ret_least: none. */
void sched_job_range(const struct sched_job *job, int32_t *ret_least, int32_t *ret_most);

/* How long it goes on at this rate: until its work is done or its time is up, whichever comes first. */
#define SCHED_LEFT_UNKNOWN INT64_C(1000000000000000000)
int64_t sched_left_us(const struct sched_job *job, int64_t rate_ups);

/* Mask of the types it may use from now on. */
static inline uint32_t sched_job_types(const struct sched_job *job)
{
    return job->home < 0 || job->hetero_ok ? job->types : job->types & UINT32_C(1) << job->home;
}

/* Write a plan as text, jobs by id: equal plans give equal bytes, which tests compare. Returns 0
 * or as buf_printf. */
int sched_plan_print(const struct sched_input *in, const struct sched_plan *plan, struct buf *out);

const char *sched_action_name(enum sched_action action);
const char *sched_reason_name(enum sched_reason reason);
const char *sched_policy_name(enum sched_policy policy);
extern const char *const sched_policy_names[]; /* by policy, the last NULL */
extern const char *const sched_objective_names[];

#endif
