/* cluster - which waiting jobs get which devices now, and why the others wait
 *
 * One pure function: a snapshot goes in, assignments and a reason for each job that still waits come out. No clock,
 * no I/O, no globals; the same snapshot gives the same plan in whatever order its jobs are listed. Not tied to
 * a thread.
 *
 * Rules of a round: jobs go by priority, then by age (id). A job gets all it needs at once or nothing, in whole
 * replicas, as many as fit up to its max. Devices of one class are preferred over a mix. A job that could run on
 * the devices there are but not now reserves: no job after it takes devices of a class it may use. A job that the
 * present cluster can never hold blocks nobody.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_CLUSTER_H
#define MUSTER_SCHEDULER_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_CLASSES_MAX 64 /* device classes of one cluster: bits of a mask */
#define CLUSTER_ANY_CLASS UINT64_MAX

enum cluster_node_state {
    CLUSTER_NODE_READY,
    CLUSTER_NODE_UNKNOWN, /* contact lost: its devices count, none is given */
    CLUSTER_NODE_DRAINED, /* draining or drained: its devices come back when it is undrained */
    CLUSTER_NODE_LOST,    /* its devices do not count */
};

struct cluster_slot {
    int slot;       /* the node's number of it */
    uint8_t class_; /* index below CLUSTER_CLASSES_MAX */
    bool free;
};

struct cluster_node { /* nodes are listed in an order that does not change: it breaks ties */
    enum cluster_node_state state;
    const struct cluster_slot *slots; /* borrowed */
    size_t n_slots;
};

struct cluster_job { /* one that waits for devices */
    uint64_t id;     /* grows with age; never 0 */
    int priority;    /* higher first */
    int min, max;    /* devices */
    int replica;     /* devices a replica takes, >= 1 */
    int replicas_max; /* >= 1 */
    uint64_t classes; /* mask of the classes it may use, CLUSTER_ANY_CLASS */
    bool held;       /* not before its back-off ends: it neither takes nor reserves */
};

enum cluster_reason_code {
    CLUSTER_ASSIGNED,
    CLUSTER_INSUFFICIENT,  /* it is the first in line for devices that are busy */
    CLUSTER_BEHIND,        /* a job before it reserves the devices it could use */
    CLUSTER_NODES_DRAINED, /* it would fit if drained nodes came back */
    CLUSTER_TOO_SMALL,     /* the cluster never holds as many */
    CLUSTER_NO_CLASS,      /* no device of its classes */
    CLUSTER_NO_NODES,      /* no node at all */
    CLUSTER_HELD,
    CLUSTER_NO_LAYOUT, /* no whole number of replicas lies between min and max */
};

struct cluster_reason {
    enum cluster_reason_code code;
    int need;        /* least devices the job takes */
    int free;        /* free devices of its classes, after those before it were served */
    int total;       /* devices of its classes that count */
    uint64_t behind; /* CLUSTER_BEHIND: the job that reserves */
};

struct cluster_place {
    uint32_t node; /* index into the snapshot's nodes */
    int slot;
    uint8_t class_;
};

struct cluster_snapshot {
    const struct cluster_node *nodes; /* borrowed */
    size_t n_nodes;
    const struct cluster_job *jobs; /* borrowed, in any order */
    size_t n_jobs;
};

struct cluster_assignment {
    size_t job; /* index into the snapshot's jobs */
    size_t first, n; /* its places in plan.places, ordered by node and slot */
};

struct cluster_plan {
    struct cluster_assignment *assignments; /* in the order the jobs were served */
    size_t n_assignments;
    struct cluster_place *places;
    size_t n_places;
    struct cluster_reason *reasons; /* one for each job of the snapshot, by its index */
};

/* Decide. Returns 0 with a plan that cluster_plan_clear() frees, or -ENOMEM with *ret unchanged. */
int cluster_schedule(const struct cluster_snapshot *snap, struct cluster_plan *ret);
void cluster_plan_clear(struct cluster_plan *plan);

/* Least and most devices a job can take in whole replicas; *ret_most < *ret_least: none. */
void cluster_job_range(const struct cluster_job *job, int *ret_least, int *ret_most);

/* "insufficient-devices" and so on: the code in an explanation. */
const char *cluster_reason_name(enum cluster_reason_code code);

#endif
