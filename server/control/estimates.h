/* estimates - when jobs that wait are expected to start: told of each, kept with it, and held against when it did
 *
 * The first estimate that a job gets is kept in its record. When the job starts, what it was off by is counted by the
 * basis of that estimate; the counts and the newest errors of each basis are stored. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_ESTIMATES_H
#define MUSTER_SERVER_ESTIMATES_H

#include <jansson.h>

#include "server/control/round.h"

#define ESTIMATES_KEPT 256         /* newest errors of each basis */
#define ESTIMATES_SLACK_US 1000000 /* what is told is told in whole seconds */

struct call;
struct core;
struct estimates;

struct estimates *estimates_new(void); /* NULL: no memory */
void estimates_free(struct estimates *s);

/* A round was planned: note for each job that waits when it starts. */
void estimates_note(struct core *c, const struct round *r, const struct sched_plan *plan);

/* The job has been given its first devices. */
void estimates_started(struct core *c, struct entry *e);

/* What a job's view says of it: its place in the queue, its start, and the estimate that is kept. */
void estimates_view(const struct job *j, const struct entry *e, json_t *o);

/* GET /v1/reports/estimates */
void estimates_report(struct core *c, struct call *call);

void estimates_put(struct core *c); /* what has changed, into the batch */
int estimates_load(struct core *c, struct merr *err);

#endif
