/* finishes - whether jobs that should have ended at some time make it
 *
 * It is told at submit, in each job's view, and once by an event where one will be late. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_FINISHES_H
#define MUSTER_SERVER_FINISHES_H

#include <jansson.h>

#include "server/control/round.h"

struct core;

/* A round was decided, and the starts of those that wait estimated. */
void finishes_note(struct core *c, const struct round *r, const struct sched_plan *plan);

/* A job was queued: find out by a round that changes nothing, if it has such a wish. */
void finishes_ask(struct core *c, struct entry *e);

/* Put it into a job's view, if the job has such a wish. */
void finishes_view(const struct core *c, const struct entry *e, json_t *o);

#endif
