/* incidents - what is kept of a run that stood still or failed, and the evidence that is asked for of its nodes
 *
 * A verdict is written by the files' thread at once. The run's assignments, which tell it to stop, ask for evidence
 * with the same message, so that agents look at the ranks before they end them; what they send is added as it comes.
 * A run has one incident: its first fault ends it.
 */
#ifndef MUSTER_SERVER_INCIDENTS_H
#define MUSTER_SERVER_INCIDENTS_H

#include "api/protocol/incident.h"
#include "server/control/entry.h"

#define INCIDENTS_OF_RUN 1 /* number of the incident that ends a run */

struct call;
struct core;

/* The run stands still: keep the verdict. ranks are borrowed. */
void incidents_hang(struct core *c, struct entry *e, const struct incident_rank *ranks, size_t n,
                    const struct hang_verdict *v, const char *text);

/* A rank has failed first: keep that, unless the run stands still and that was kept. */
void incidents_failure(struct core *c, struct entry *e, int rank, const char *text);

/* Ask the nodes of the run for evidence of their ranks, with their next assignments. */
void incidents_ask(struct core *c, struct entry *e);

/* Add a node's evidence (a body without what proves it, taken over) to the incident of a run. */
void incidents_add_new(struct core *c, uint64_t job, uint32_t generation, json_t *part);

/* On a reader's thread: answer GET .../incidents and .../incidents/{n}. */
void incidents_answer_list(void *core, struct call *call);
void incidents_answer_one(void *core, struct call *call);

#endif
