/* saves - a checkpoint that somebody has asked for while a job runs
 *
 * A training job's is over once an event tells of a checkpoint. A command is asked by the order 'save', which it may
 * know nothing of: the first of its ranks that answers speaks for all, and where none does within SAVES_ANSWER_S the
 * job is told that.
 */
#ifndef MUSTER_SERVER_CONTROL_SAVES_H
#define MUSTER_SERVER_CONTROL_SAVES_H

#include "api/protocol/report.h"
#include "server/control/entry.h"

#define SAVES_ANSWER_S 120

struct core;

/* Order a running job to save. While it does, another call changes nothing. */
void saves_ask(struct core *c, struct entry *e);

/* Take the order back: it was obeyed, or is not waited for. */
void saves_done(struct core *c, struct entry *e);

/* Take in what the ranks of a node's run have answered. */
void saves_take(struct core *c, struct entry *e, const struct node *n, const struct report_run *run, const char *actor);

#endif
