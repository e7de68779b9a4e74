/* cost - how long a step of a layout takes, and whether its ranks have the memory
 *
 * Arithmetic by the rate of the devices, messages by latency and bandwidth of the links they cross (ring collectives),
 * the pipeline by running its schedule (schedule.h) with the times of each stage, which shows what 1F1B exposes once
 * for each group of micro-batches. Memory is counted as the ranks will count it (memory.h), and a plan fits only with
 * room to spare. Pure; times are seconds.
 */
#ifndef MUSTER_SCHEDULER_PLAN_COST_H
#define MUSTER_SCHEDULER_PLAN_COST_H

#include "base/merr.h"
#include "scheduler/plan/kept.h"
#include "scheduler/plan/memory.h"
#include "scheduler/plan/net.h"
#include "scheduler/plan/profile.h"

#define PLAN_GROUPS_MAX 8
#define PLAN_ROOM 0.94 /* share of a device's memory that a plan may use */

struct plan_link {
    double latency_s, bytes_per_s;
    const struct plan_profile *measured; /* borrowed: its messages go before the two; NULL: none */
};

struct plan_device {                     /* of one class */
    double flops;                        /* in matrix products, a second */
    double bytes_per_s;                  /* of its memory, in long additions */
    double call_s;                       /* what a pass of a block takes however little it computes */
    uint64_t memory_bytes;               /* 0: not known */
    double times;                        /* as fast as measured; 0 counts as 1 */
    const struct plan_profile *measured; /* borrowed: goes before the rates; NULL or without products: nothing was */
};

struct plan_group {
    struct plan_device device;
    int n;
};

struct plan_site { /* devices in the order of ranks: a stage of the pipeline is as fast as its slowest */
    struct plan_group group[PLAN_GROUPS_MAX];
    int groups;
    int node_devices;                 /* side by side in a node, at least 1 */
    struct plan_link inside, between; /* two ranks of a node; what a node's ranks share to others */
    struct kept *kept;                /* borrowed: schedules of a search; NULL: none are kept */
    const struct plan_net *net;       /* borrowed: how fast nodes reach each other. NULL: all as between says */
};

struct plan_cost {
    double step_s;     /* all of the following */
    double compute_s;  /* arithmetic of the stage with most of it */
    double tp_s;       /* its sums over tp, and keys and values that go round cp */
    double idle_s;     /* its waits for the pipeline */
    double exchange_s; /* of gradients and weights between replicas, less what the backward hides */
    double update_s;   /* adding up leaves, the optimizer */
};

struct plan_option { /* a shape and what it costs */
    struct plan_shape shape;
    int virtual_workers; /* of the job that it was weighed for */
    bool sequence_parallel;
    struct plan_cost cost;
    struct plan_memory memory; /* of the rank that has least to spare */
    int tightest;              /* its place in the pipeline */
    uint64_t room_bytes;       /* that it has; 0: not known */
    bool fits;                 /* true also when the room is not known */
};

int plan_site_devices(const struct plan_site *site);

/* The device with which the ranks of pipeline place r keep pace, as slow and small as any of them. */
struct plan_device plan_stage_device(const struct plan_site *site, const struct plan_shape *shape, int r);

/* The same device k times as fast. */
struct plan_device plan_device_times(struct plan_device d, double k);

/* Seconds of an all-reduce of n bytes over g ranks: as measured, or by a ring. */
double plan_ring_s(const struct plan_link *l, double n, int g);

/* Bytes of a message between two stages; those that a rank of place r sends in a step's exchange between replicas, in a
 * ring; and those of its sums over tp and its keys and values over cp in all micro-batches. */
double plan_hop_bytes(const struct plan_job *job, const struct plan_shape *shape);
double plan_exchange_bytes(const struct plan_job *job, const struct plan_shape *shape, int r);
double plan_sums_bytes(const struct plan_job *job, const struct plan_shape *shape);

/* No plan of the shape takes less; cheap. 0 when tp cannot cut the model. */
double plan_cost_bound(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site);

/* Whether the shape may fit: false when it lacks memory for sure, and then *ret has what the rank that lacks most needs
 * at least. Cheap. */
bool plan_may_fit(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
                  struct plan_option *ret);

/* Times of each of the pp · chunks stages for one micro-batch. */
void plan_stage_times(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
                      struct schedule_times *ret);

/* Fill in *ret for the shape. -EINVAL when the shape cannot be (tp does not cut the model, more stages than blocks),
 * -ENOMEM; *ret is unchanged then. */
int plan_weigh(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
               struct plan_option *ret, struct merr *err);

/* Let as few blocks of each stage as its rank's memory asks for make again what the shape's recomputation drops.
 * Returns 1; 0: it does not fit even with all of them; or as plan_weigh. */
int plan_remake_least(const struct plan_job *job, const struct plan_site *site, struct plan_shape *shape,
                      struct merr *err);

/* Memory of each of pp ranks of a pipeline. As plan_weigh. */
int plan_stage_memory(const struct plan_job *job, const struct plan_shape *shape, struct plan_memory *ret,
                      struct merr *err);

#endif
