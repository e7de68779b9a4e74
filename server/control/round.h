/* round - a snapshot of the core for the scheduler, and what goes with its rows
 *
 * The slots of one class of one node are a node of the snapshot; those of them that are known to be slow are another. A
 * slot that its run is still leaving counts only for the job that is to get it. Jobs whose run is over in all but name
 * (cancelled, suspended, failed) are not in it, nor is a job that backs off. Owned by the core's thread and valid until
 * the core changes.
 */
#ifndef MUSTER_SERVER_ROUND_H
#define MUSTER_SERVER_ROUND_H

#include "scheduler/cluster/explain.h"
#include "server/control/entry.h"

struct core;

struct round_row { /* of the snapshot's nodes */
    struct node *node;
    uint8_t class_;                 /* of the core */
    bool slow;                      /* those of its slots that are known to be slow, */
    struct calendar_state calendar; /* of which this is said */
};

struct round {
    struct sched_input in;
    struct round_row *rows;           /* in.n_nodes */
    struct entry **entries;           /* in.n_jobs */
    uint8_t classes[RATES_TYPES_MAX]; /* the core's class of each type */
    size_t n_types;
    uint64_t holder;       /* whose devices and jobs it is of; 0: those that are nobody's */
    bool cut;              /* more jobs wait than are looked at at once */
    struct round_own *own; /* the memory of it all */
};

/* Take the snapshot. Targets that cannot be any more are dropped. Returns 0 or -ENOMEM; round_clear() in both cases.
 * holder: of the jobs and devices of a reservation alone; 0: of all that are in none now. */
int round_init(struct core *c, enum sched_mode mode, uint64_t holder, struct round *r);

/* Which of these the job is in. */
uint64_t round_of(const struct core *c, const struct entry *e);
void round_clear(struct round *r);

/* The type of a class, -1: no node has it. */
int round_type(const struct round *r, uint8_t class_);

/* The names of the types, borrowed from the core. */
void round_type_names(const struct core *c, const struct round *r, const char *ret[RATES_TYPES_MAX]);

/* What the job asks for: the fields that sched_job_range() reads. */
struct sched_job round_wish(const struct entry *e);

#endif
