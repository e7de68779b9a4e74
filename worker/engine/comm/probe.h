/* probe - how fast a group's link and its members' codecs are: short measurements before work begins
 *
 * All members call them together; all get the same numbers, those of the slowest. A probe stops growing once a call
 * takes PROBE_LONG_US. like: where the values will lie (NULL: with the processor); what a GPU will code is
 * measured there, by the clock, from asking until its queue is done, and blocks travel as those of coded calls will.
 * Each wait ends by the group's deadline at the latest.
 */
#ifndef MUSTER_WORKER_COMM_PROBE_H
#define MUSTER_WORKER_COMM_PROBE_H

#include "compress/codec.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/cost.h"

#define PROBE_LONG_US 50000

/* Blocks from all to all. */
int probe_link(struct comm_group *g, const void *like, struct cost_line *ret, struct merr *err);

/* Messages as they are, from each member to the next, all at once. at: PROBE_MESSAGES_BYTES where they will lie, of
 * which all are lost. */
#define PROBE_MESSAGES_BYTES (2u << 20)
int probe_messages(struct comm_group *g, void *at, struct cost_line *ret, struct merr *err);

/* A raw call on part of n values, as the caller makes it. */
typedef int (*probe_call)(void *arg, size_t n, struct merr *err);

/* Predicted time of the raw call on count values, from calls on parts of them and, if they are short enough, on all. */
int probe_raw(struct comm_group *g, probe_call call, void *arg, size_t count, double *ret_us, struct merr *err);

#define PROBE_CALLS_MAX 3

/* Median times of some calls on n values, made in turn so often (odd, at most COST_TRIALS_MAX) after one of each that
 * does not count: ret_us[k] is that of call[k]. */
int probe_turns(struct comm_group *g, const probe_call *call, int calls, void *arg, size_t n, int times, double *ret_us,
                struct merr *err);

/* A codec's work on f32 values, with all members at work at once. */
int probe_codec(struct comm_group *g, const struct codec *c, const void *like, struct cost_codec *ret,
                struct merr *err);

#endif
