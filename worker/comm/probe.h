/* probe - how fast a group's link and this machine's codecs are: short measurements before work begins
 *
 * All members call them together; all get the same numbers, those of the slowest. On a slow link a probe stops growing
 * once a call takes PROBE_LONG_US.
 */
#ifndef MUSTER_WORKER_COMM_PROBE_H
#define MUSTER_WORKER_COMM_PROBE_H

#include "compress/codec.h"
#include "worker/comm/comm.h"
#include "worker/comm/cost.h"

#define PROBE_LONG_US 50000

/* Messages of all to all. */
int probe_link(struct comm_group *g, struct cost_line *ret, struct merr *err);

/* A raw call on part of n values, as the caller makes it. */
typedef int (*probe_call)(void *arg, size_t n, struct merr *err);

/* Predicted time of the raw call on count values, from calls on parts of them and, if they are short enough, on all. */
int probe_raw(struct comm_group *g, probe_call call, void *arg, size_t count, double *ret_us, struct merr *err);

#define PROBE_CALLS_MAX 3

/* Median times of some calls on n values, made in turn so often (odd, at most COST_TRIALS_MAX) after one of each that
 * does not count: ret_us[k] is that of call[k]. */
int probe_turns(struct comm_group *g, const probe_call *call, int calls, void *arg, size_t n, int times, double *ret_us,
                struct merr *err);

/* A codec's work on values of a type, on this machine, with all members at work at once. */
int probe_codec(struct comm_group *g, const struct codec *c, enum codec_type type, struct cost_codec *ret,
                struct merr *err);

#endif
