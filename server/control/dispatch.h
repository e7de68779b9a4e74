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

struct core;

/* One round: jobs that get devices start, those that lose them are told to leave. */
void dispatch_round(struct core *c);

/* What time brings: a full round that is due, runs that did not drain in time, waits after a failure that are over. */
void dispatch_tick(struct core *c);

/* Whether the cluster could ever run the job; else why not. */
bool dispatch_can_run(struct core *c, const struct entry *e, char *ret_why, size_t size);

#endif
