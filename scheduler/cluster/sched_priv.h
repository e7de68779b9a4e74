/* sched_priv - what the stages of one round share; for scheduler/cluster only */
#ifndef MUSTER_SCHEDULER_CLUSTER_SCHED_PRIV_H
#define MUSTER_SCHEDULER_CLUSTER_SCHED_PRIV_H

#include <math.h>

#include "scheduler/cluster/sched.h"

#define ROUND_MEMO 1024
#define MASKS_MAX 64       /* choices of types that are told apart; the first is all of them */
#define EXACT_JOBS_MAX 512 /* in a round of more the prices alone come close enough to the best plan */
#define HORIZONS_MAX 16    /* times at which nodes close that are told apart */
#define NONE (-1)          /* no candidate: the job gets nothing */

struct cand {
    struct sched_shape shape;
    double utility;
};

struct rjob {                    /* a job in the round, by age */
    const struct sched_job *job; /* in the snapshot, or a copy in round.by_age */
    size_t index;                /* in the snapshot */
    uint32_t first;              /* its candidates in round.cands, by rising number of devices */
    uint16_t n;
    int16_t current;       /* candidate it runs now, or NONE */
    int16_t chosen;        /* or NONE */
    int16_t granted;       /* candidate with which it starts whatever others gain, or NONE; it is pinned then */
    bool pinned;           /* keeps its current candidate */
    bool lost;             /* had devices that are gone */
    bool urgent;           /* a guarantee within its quota, or starving */
    uint32_t urgent_types; /* on these types */
    bool crowded;          /* it was not looked at: it takes more than is free, or too many are before it */
    bool placed;
    bool kept;         /* where it was */
    bool relieved;     /* of slow devices, for others of the same types */
    uint8_t reach;     /* so many of the times at which nodes close are too early for it (closing.c) */
    uint8_t mask;      /* of its types, in round.masks */
    int32_t least;     /* devices it takes at least */
    double weight;     /* of what it gains */
    double claim;      /* worth of its smallest configuration a device */
    double per_device; /* none of its candidates is worth more a device */
    enum sched_reason reason;
    uint64_t behind;
    int32_t kept_n;                /* idle devices that are kept for it */
    int64_t starts_us;             /* when it gets those that are kept for it at the latest; 0: nobody knows */
    uint32_t place_first, place_n; /* in round.places */
};

struct horizon { /* a time at which nodes close */
    int64_t at_us;
    int32_t total[RATES_TYPES_MAX]; /* devices that are open after it, and */
    int32_t held[RATES_TYPES_MAX];  /* those of them that jobs have, and */
    int32_t used[RATES_TYPES_MAX];  /* these with those that jobs are to get that reach it */
};

struct round {
    const struct sched_input *in;
    struct rjob *jobs;
    size_t n_jobs;
    struct sched_job *by_age; /* room for a copy of the snapshot's, behind jobs (age.c) */
    struct cand *cands;
    size_t n_cands, cands_cap;
    int32_t total[RATES_TYPES_MAX];     /* usable devices */
    int32_t node_size[RATES_TYPES_MAX]; /* of the largest node */
    int32_t used[RATES_TYPES_MAX];      /* by chosen candidates */
    int32_t free[RATES_TYPES_MAX];      /* that nobody holds as the round begins */
    const struct rjob **memo;  /* ROUND_MEMO jobs that wait, by what they ask for, where the input has no cache */
    uint32_t masks[MASKS_MAX]; /* of types; n_masks of them */
    size_t n_masks;
    int32_t *tenant_used;
    int32_t *tenant_cap;       /* INT32_MAX: no limit */
    int32_t *tenant_type_used; /* RATES_TYPES_MAX a tenant */
    bool tenants_nest;         /* some tenant is within another, or has limits of types, or power is limited */
    int64_t power_used;        /* watts of chosen candidates */
    size_t *order;             /* n_jobs: scratch of the stages */
    int32_t *node_free;
    int32_t *kept; /* free devices by node that are kept for urgent jobs; NULL: none are (reserve.c) */
    int32_t kept_devices[RATES_TYPES_MAX];
    uint32_t closed;                        /* types of which, in a full round, nobody else gets what is kept */
    int32_t granted_idle[RATES_TYPES_MAX];  /* of free devices, those that granted jobs start on */
    int64_t kept_until_us[RATES_TYPES_MAX]; /* when the first of those that they are kept for can start */
    uint64_t kept_for[RATES_TYPES_MAX];     /* the first job that they are kept for */
    struct sched_place *places;
    size_t n_places, places_cap;
    struct horizon horizons[HORIZONS_MAX]; /* n_horizons of them, by time */
    size_t n_horizons;
    uint32_t *closing; /* nodes that close, n_closing of them */
    size_t n_closing;
    double prices[RATES_TYPES_MAX];
    double *tenant_prices; /* of a device within each tenant's limit, beside prices, once price_choose() is done */
    double value, dual;
    int64_t looks;      /* at choices that a cold start may take yet (beam.c) */
    size_t n_leaves;    /* counted only where a job asks for one leaf */
    int32_t *leaf_most; /* devices of each type in the leaf that has most; NULL: no job asks for one leaf */
    bool contended;     /* minima of all jobs exceed the cluster */
};

/* An empty round of a snapshot that is in order: 0, or -ENOMEM; sched_round_clear() in both cases (sched.c). */
int sched_round_init(struct round *r, const struct sched_input *in);
void sched_round_clear(struct round *r);

/* Its jobs by age: who came first goes first (age.c). 0 or -ENOMEM. */
int age_sort(struct round *r);

static inline int32_t shape_size(const struct sched_shape *s)
{
    return s->n[0] + s->n[1];
}

static inline struct cand *cand_of(const struct round *r, const struct rjob *j, int c)
{
    return &r->cands[j->first + (size_t)c];
}

/* Candidates of every job with their utilities (candidates.c). 0 or -ENOMEM. */
int candidates_fill(struct round *r);

/* What a change that makes the job as many times as fast is worth to it, its price taken off, where the rate that it
 * would have is that of its smallest candidate (candidates.c). */
double candidates_gain(const struct round *r, const struct sched_job *job, double times);

/* Least time between two changes of a job; NULL: of one whose restarts cost nothing (candidates.c). */
int64_t candidates_hold_us(const struct round *r, const struct sched_job *job);

/* Mark those that wait as crowded who are too far back in the queue, by claim (queue.c). */
void queue_cut(struct round *r);

/* Whether the job may change from its present candidate to c within used and the tenants' limits (policy.c). */
bool choice_fits(const struct round *r, const struct rjob *j, int c);
void choice_set(struct round *r, struct rjob *j, int c); /* counts used and tenant_used */

/* Whether the policy weighs configurations of all jobs against each other, by prices. */
static inline bool policy_solves(const struct round *r)
{
    enum sched_policy p = r->in->config.policy;

    return p == SCHED_POLICY_MUSTER || p == SCHED_POLICY_POLLUX || p == SCHED_POLICY_SIA;
}

/* What an objective, or a published solver, weighs a job by in place of fairness (objective.c); 0: by fairness. */
double objective_weight(const struct round *r, const struct rjob *j, double own);
/* What a candidate is worth to a job of weight 1, where that is no matter of fairness; else false, *ret unchanged.
 * base: rate of the job's slowest candidate; factor: what a change leaves of the rate. */
bool objective_worth(const struct round *r, const struct rjob *j, const struct cand *cand, double base, double factor,
                     double *ret);

/* How long the rest of its work takes at a rate; INFINITY: not known. */
static inline double sched_rest_us(const struct sched_job *job, int64_t rate_ups)
{
    return job->remaining_us < 0 || rate_ups <= 0 ? INFINITY : (double)job->remaining_us / (double)rate_ups * 1e6;
}

#define SLICE_ROUNDS 5    /* a time slice is at least as many rounds */
#define SLICE_RESTARTS 25 /* and as many times what a restart costs */

/* The least length of a time slice. */
static inline int64_t sched_slice_us(const struct round *r, const struct sched_job *job)
{
    int64_t rounds_us = SLICE_ROUNDS * r->in->config.round_us, restarts_us = SLICE_RESTARTS * job->restart_us;

    return rounds_us > restarts_us ? rounds_us : restarts_us;
}

/* What one more restart leaves of the rest of its work (candidates.c). */
double candidates_rest_factor(const struct sched_job *job, int64_t rate_ups);

/* Stages that set chosen. 0 or -ENOMEM. */
int attempts_choose(struct round *r); /* muster, full: price_choose() and place_all() until the plan is good */
int policy_choose(struct round *r);   /* every policy but muster */
int price_choose(struct round *r);    /* muster, full */
int fill_choose(struct round *r);     /* muster, fast */

/* Keep free devices for urgent jobs that wait and do not fit (reserve.c). Between full rounds, when those that fit are
 * chosen: what is kept does not count in r->total from then on. In a full round before anything is chosen: only from
 * jobs that are fixed once they run. 0 or -ENOMEM. */
int reserve_between(struct round *r);
int reserve_at_full(struct round *r);
/* Whether its time limit ends the job before anyone whom devices of its types are kept for can start (EASY). */
bool reserve_lets_pass(const struct round *r, const struct rjob *j);
void reserve_backfill(struct round *r); /* between full rounds, once others are chosen: such jobs take what is kept */
void reserve_end(struct round *r);      /* when all are chosen: who waits for that reason */

/* Where jobs are few: the best of all choices for those that are not pinned, if it is worth more than round.value and
 * least (exact.c). At the round's prices its bound is round.dual, which is lowered to what was proved. 0 or -ENOMEM. */
int exact_improve(struct round *r, double least);
/* The same of those choices that find nodes side by side. The bound stays. */
int exact_improve_on_nodes(struct round *r, double least);

/* Of jobs that are not pinned a plan that is worth more than round.value and least, at the round's prices, with about
 * so many looks at choices (beam.c). 1: it is chosen, 0: none was found, or -ENOMEM. */
int beam_improve(struct round *r, double least, int64_t looks);

/* Nodes for the chosen (place.c); those that fail go down to a smaller candidate or wait. 0 or -ENOMEM. */
int place_all(struct round *r);
/* Whether all that are chosen find nodes: 1, 0 or -ENOMEM. Leaves no places. */
int place_possible(struct round *r);

/* Once all are placed: who stays on slow devices, and gains enough by it, gets free ones that are well (relieve.c).
 * 0 or -ENOMEM. */
int relieve_all(struct round *r);

#endif
