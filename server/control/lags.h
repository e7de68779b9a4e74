/* lags - ranks that are slower than they should be: found while a run trains, and told; link_care.h acts upon links
 *
 * Agents report what each step of a rank was spent on; scheduler/diagnose/lag.h judges ten steps of all ranks at a
 * time. What it finds is an event "slow" of the job with the evidence, stands in the job's view and explanation until
 * it is over, and is no reason by itself to keep off a device: that takes a test of it, or what stragglers.h asks for.
 */
#ifndef MUSTER_SERVER_LAGS_H
#define MUSTER_SERVER_LAGS_H

#include "api/protocol/report.h"
#include "server/control/entry.h"

struct cluster;
struct core;

/* What a report says of a rank of the run; without memory nothing is known of it. */
void lags_take(const struct cluster *cl, struct entry *e, const struct report_rank *told);

/* All that a report says of the run's ranks is taken in: judge what is complete. */
void lags_look(struct core *c, struct entry *e);

#endif
