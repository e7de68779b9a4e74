/* change - the one way by which jobs change, and what goes with it
 *
 * job_transition() and job_apply() are called here and nowhere else: a job, the event that tells of its change, the
 * devices of its run and the orders of its nodes go together. Marks what the turn is to store and to wake.
 */
#ifndef MUSTER_SERVER_CHANGE_H
#define MUSTER_SERVER_CHANGE_H

#include <stdint.h>

#include "base/merr.h"
#include "server/cluster/job.h"
#include "server/control/entry.h"

struct core;

#define CHANGE_DRAIN_S 300 /* a run that is asked to drain and does not is stopped after that */

/* Let a cause happen to a job: transition, event, record. Returns as job_transition, nothing changed on failure; or
 * -EBADMSG when the event cannot be applied: the job fails by that. */
int change_job(struct core *c, struct entry *e, const struct job_cause *cause, struct merr *err);

/* When the run of a live job has to have left its devices, on the monotonic clock; 0: no matter. Outlives musterd. */
void change_drain_by(struct core *c, struct entry *e, int64_t mono_us);

/* The nodes of its run have other orders for it now. */
void change_orders(struct core *c, const struct job *j);

/* A node's set of assignments has changed. */
void change_assignments(struct core *c, const char *node);

/* What the store keeps of the node has changed. */
void change_node(struct core *c, struct node *n);

#endif
