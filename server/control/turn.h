/* turn - the one thread that owns the server's state, and the turns in which it works
 *
 * HTTP threads hand calls to the core's queue. The core takes all that wait as one turn: the clock is read; each call
 * changes memory and adds to the store's batch; so do time and a scheduling round that is due; then the batch is
 * committed (one fsync for the turn); only then are the calls answered, events published and long-polls looked at. A
 * crash before the commit loses only what nobody was told.
 */
#ifndef MUSTER_SERVER_TURN_H
#define MUSTER_SERVER_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/control/state.h"

/* Load the working set; no thread is started: who owns the result takes its turns, a test or a simulation. The cfg's
 * strings are borrowed. 0, or a negative errno with words. */
int turn_new(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret, struct merr *err);

/* One turn of these calls, a list that is taken over (NULL: none), and of what time brings. Calls that it has no room
 * for stay in c->turn.later, for the next one. False: it is not durable, and was the last. */
bool turn_take(struct core *c, struct call *list);

/* When the next turn is due, on the monotonic clock, if no call comes before; it may be past. */
int64_t turn_due_us(const struct core *c);

/* The last turn was taken: what still waits is refused, streams end. */
void turn_close(struct core *c);

/* Load the working set and start the thread. The cfg's strings are borrowed. 0, or a negative errno with words. */
int turn_start(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret,
               struct merr *err);

/* Answer what waits, end streams and the threads; what comes later is answered 503. turn_free once HTTP has stopped. */
void turn_stop(struct core *c);
void turn_free(struct core *c);

/* Any thread. Takes the call over; a full queue answers 503. */
void turn_post(struct core *c, struct call *call);

#endif
