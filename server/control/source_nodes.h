/* source_nodes - nodes that a job has left and whose memory may have its state, which each hands to the next run
 *
 * What a source node is asked for and answers goes through its node's assignments and reports, as for a run.
 */
#ifndef MUSTER_SERVER_SOURCE_NODES_H
#define MUSTER_SERVER_SOURCE_NODES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/assignment.h"
#include "api/protocol/report.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

struct source_nodes; /* jobs that left state in nodes' memories; some of them may not any more */

struct source_nodes *source_nodes_new(void); /* NULL: no memory */
void source_nodes_free(struct source_nodes *all);

/* A run that was told to leave its state in memory is about to be over, on its places: new, NULL: none holds it. */
struct job_holder *source_nodes_of_run(const struct job *j, bool drained, size_t *ret_n);
/* It is over: these hold what the next one goes on from (taken over; none: those that held it before, if it did not
 * take it from them). */
void source_nodes_hold(struct core *c, struct entry *e, struct job_holder *holders, size_t n);
void source_nodes_load(struct core *c, struct entry *e);  /* a job as it was stored */
void source_nodes_start(struct core *c, struct entry *e); /* a run was assigned: those that it can use, and no others */
/* Name the run's source nodes in its assignment. Returns 0 or -ENOMEM. */
int source_nodes_assign(const struct job *j, struct assignment *a);
/* Tell fn of each job for which the node is a source node. */
typedef void source_nodes_fn(void *arg, const struct entry *e, const char *node);
void source_nodes_each(struct core *c, const struct node *n, source_nodes_fn *fn, void *arg);
/* What a node reports as a source node of the run that is live. True: it was over before, and may be forgotten. */
bool source_nodes_take(struct core *c, struct entry *e, const struct node *n, const struct report_run *run);
void source_nodes_resumed(struct core *c,
                          struct entry *e); /* the run has its state: who has not come by now need not */
uint64_t source_nodes_job_on(const struct core *c,
                             const struct node *n); /* a job whose state it may be the one to have; 0 */

#endif
