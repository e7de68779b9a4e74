/* kept - schedules that a search has made, for the candidates that have the same
 *
 * Candidates differ in tp, in the size of micro-batches and in recomputation more often than in their schedule, and to
 * make and check one takes longer than to run it. Pure; one search has one, which one thread uses.
 */
#ifndef MUSTER_SCHEDULER_PLAN_KEPT_H
#define MUSTER_SCHEDULER_PLAN_KEPT_H

#include "base/merr.h"
#include "scheduler/plan/schedule.h"

#define KEPT_MAX 512               /* schedules */
#define KEPT_ACTIONS_MAX (4 << 20) /* of all of them together */

struct kept;

struct kept *kept_new(void);
void kept_free(struct kept *k); /* NULL is fine; what was taken of it must have been given back */

/* As schedule_new(); *ret is given back by kept_give(). k NULL: nothing is kept. */
int kept_take(struct kept *k, enum schedule_kind kind, int ranks, int chunks, int micros, struct schedule **ret,
              struct merr *err);
void kept_give(struct kept *k, struct schedule *s); /* NULL is fine */

#endif
