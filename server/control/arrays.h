/* arrays - jobs of many tasks: which of them become jobs, and what their array's changes mean to them
 *
 * An array is a job that is given no devices. Its tasks become jobs of their own, in the order of their indices, when
 * they could start: ARRAYS_WINDOW of them wait at most, however many there are, so that a round looks at no more; and
 * no more have devices than may run, which round.c and dispatch.c hold to for those that were suspended, too. What is
 * to be done is noted where a job changes (change.h), and done once a turn.
 */
#ifndef MUSTER_SERVER_ARRAYS_H
#define MUSTER_SERVER_ARRAYS_H

#include <stdbool.h>

#include "server/control/entry.h"

#define ARRAYS_WINDOW 64 /* tasks of an array that wait as jobs */

struct call;
struct core;

/* An array that was submitted by a spec, and is in the table. False: no memory. */
bool arrays_begin(struct core *c, struct entry *e, const struct job_spec *spec);

/* What is due: tasks become jobs, follow their array, or end it. */
void arrays_turn(struct core *c);

/* Look at each whose tasks wait: there may be room for them in the table again. */
void arrays_tick(struct core *c);

/* A job that was loaded belongs to its array, or is one. Once all are loaded, tasks whose jobs are not there have
 * failed. */
void arrays_link(struct core *c, struct entry *e);
void arrays_loaded(struct core *c);

/* A line of metrics of a job: a trial of a search may be paused by it. */
void arrays_measured(struct core *c, struct entry *e, const json_t *line);

/* A call that names a task, "j17.3", is of the task's job from now on. False: it has none, and the call is answered. */
bool arrays_resolve(struct core *c, struct call *call);

/* A task as a job that it is not yet, or not any more, for answers: *ret is to be cleared. */
void arrays_stand_in(const struct core *c, const struct array *a, const struct job *parent, size_t position,
                     struct job *ret);

#endif
