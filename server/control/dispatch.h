/* dispatch - scheduling rounds and what follows from them: who starts where, who leaves
 *
 * A round takes a snapshot (round.h), asks the scheduler, and does what its plan says. It is due when the state's
 * schedule_wanted is set; a full one, which also moves what runs, comes when its time has.
 */
#ifndef MUSTER_SERVER_DISPATCH_H
#define MUSTER_SERVER_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "server/control/entry.h"
#include "server/control/round.h"

struct core;

struct dispatch_planned { /* what a round came to */
    struct round round;
    struct sched_plan plan; /* when good */
    bool good;
};

/* One round: decide; and do what was decided: jobs that get devices start, those that lose them are told to leave.
 * True: jobs are left that this round did not look at, and the next may start some of them at once. */
/* holder: of the jobs and devices of a reservation alone; 0: of all that are in none now. */
void dispatch_plan(struct core *c, bool full, uint64_t holder, struct dispatch_planned *ret);
bool dispatch_full_due(const struct core *c); /* whether everything may change in this round */
bool dispatch_follow(struct core *c, struct dispatch_planned *p);

/* What time brings: a full round that is due, runs that did not drain in time, waits after a failure that are over. */
void dispatch_tick(struct core *c);

/* Whether the cluster could ever run the job; else why not. */
bool dispatch_can_run(struct core *c, const struct entry *e, char *ret_why, size_t size);

#endif
