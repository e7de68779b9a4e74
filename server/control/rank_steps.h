/* rank_steps - where the ranks of a live run spend their steps: what agents report, kept (step_parts.h) and told
 *
 * Nothing of it outlasts the run, or this musterd.
 */
#ifndef MUSTER_SERVER_RANK_STEPS_H
#define MUSTER_SERVER_RANK_STEPS_H

#include "api/protocol/report.h"
#include "server/control/entry.h"

struct call;
struct core;

/* What a report says of a rank of the run, which is one of its places; without memory nothing is known of it. */
void rank_steps_take(struct entry *e, const struct report_rank *told);

/* GET /v1/jobs/{id}/ranks of a job that is live. */
void rank_steps_answer(struct core *c, struct call *call, const struct entry *e);

#endif
