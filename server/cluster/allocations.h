/* allocations - nodes that are lent by a provider: what was asked of it for which queue, and what to ask or hand back
 *
 * A queue is a kind of node that the provider has: of one class, with so many devices each. An allocation is some nodes
 * of a queue that come and go together; its nodes are named "a3-0", "a3-1" after its number. Plain data and a pure
 * policy: time is an argument. Owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_ALLOCATIONS_H
#define MUSTER_SERVER_ALLOCATIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define ALLOCATIONS_MAX 1024
#define ALLOCATIONS_QUEUES_MAX 16
#define ALLOCATIONS_NODES_MAX 1024 /* of one */
#define ALLOCATIONS_NAME_MAX 64
#define ALLOCATIONS_TEXT_MAX 200
#define ALLOCATIONS_STEPS_MAX 64                 /* of one plan */
#define ALLOCATIONS_ARRIVE_US INT64_C(300000000) /* that agents have to come once there are nodes for them */

struct allocation_queue { /* as the operator has set it */
    char name[ALLOCATIONS_NAME_MAX], class_[ALLOCATIONS_NAME_MAX], account[ALLOCATIONS_NAME_MAX];
    char options[ALLOCATIONS_TEXT_MAX], agent[ALLOCATIONS_TEXT_MAX]; /* for the provider, and for its agents, alone */
    int devices;                                                     /* of a node */
    int fixed, most; /* nodes that are always held, and that are held at most */
    int time_s;      /* that an allocation lasts */
    int idle_s;      /* after which one is handed back that nobody needs */
    int grace_s;     /* that its jobs have to leave when it is taken back */
};

enum allocation_state {
    ALLOCATION_ASKED,    /* the provider may or may not know it */
    ALLOCATION_WAITS,    /* it does, and has no nodes for it yet */
    ALLOCATION_RUNS,     /* its nodes are there, or about to come */
    ALLOCATION_RELEASED, /* the provider is to take it back, or does */
};

struct allocation {
    uint64_t id; /* "a3" is 3 */
    char queue[ALLOCATIONS_NAME_MAX];
    int nodes;
    enum allocation_state state;
    bool sent;          /* by this musterd: the request is under way, or was answered */
    bool answered;      /* and the provider has taken it */
    bool listed;        /* it was in the newest list */
    int64_t asked_us;   /* wall */
    int64_t granted_us; /* wall: when it was first seen to run, by this musterd; 0: it was not */
    int64_t idle_us;    /* wall: nobody needs it since then; 0: it is needed */
    int64_t retry_us;   /* wall: it is to be released once more from then on */
    int64_t ends_us;    /* wall: of its nodes that are there, the first to go; 0: there is none */
    int arrived, free;  /* nodes that are there, devices of them that are free */
    bool busy;          /* some of them have work */
    char reference[ALLOCATIONS_NAME_MAX], why[ALLOCATIONS_TEXT_MAX]; /* as the provider calls it, and why it waits */
};

struct allocations {
    struct allocation_queue queues[ALLOCATIONS_QUEUES_MAX];
    size_t n_queues;
    struct allocation v[ALLOCATIONS_MAX]; /* by id */
    size_t n;
    uint64_t next; /* id */
};

struct allocation_need { /* of a job that waits for devices, those that come first first */
    int devices;
    uint64_t queues;  /* bits of those whose devices it may use */
    int64_t limit_us; /* that it runs at most; 0: nobody says */
};

struct allocation_step {
    bool release;
    size_t queue; /* of which to ask for `nodes` */
    int nodes;
    size_t need; /* for which of the needs; SIZE_MAX: for what is always held */
    uint64_t id; /* to release */
};

/* Read queues as "p:devices=8,class=h100,most=16,time=8h;q:...". 0; -EINVAL with words. */
int allocations_read_queues(const char *text, struct allocations *all, struct merr *err);

const struct allocation_queue *allocations_queue(const struct allocations *all, const char *name); /* NULL: none */
struct allocation *allocations_find(struct allocations *all, uint64_t id);                         /* NULL: none */

/* A new one of these. NULL: there are ALLOCATIONS_MAX. Borrowed until the next is dropped. */
struct allocation *allocations_add(struct allocations *all, const char *queue, int nodes, int64_t now_us);
void allocations_drop(struct allocations *all, struct allocation *a);

/* "a3-1": the name of the allocation's node, and back: the id, 0 for a name of another form. */
void allocations_node(const struct allocation *a, int index, char ret[ALLOCATIONS_NAME_MAX]);
uint64_t allocations_of_node(const char *node);

/* As kept in the store, new; and back: -EINVAL. */
json_t *allocations_record(const struct allocation *a);
int allocations_take(struct allocations *all, const char *name, const json_t *o);

/* What to ask for and to hand back, by what the allocations' nodes are and have; notes since when each has been idle.
 * Returns how many steps. Each need is met from devices that are there or to come and last for as long as it may run,
 * else by asking for nodes of the first of its queues that may have more; all that a need lacks is asked for at once,
 * or nothing. */
size_t allocations_plan(struct allocations *all, const struct allocation_need *needs, size_t n_needs, int64_t now_us,
                        struct allocation_step ret[ALLOCATIONS_STEPS_MAX]);

extern const char *const allocations_states[];

#endif
