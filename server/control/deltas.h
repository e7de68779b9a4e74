/* deltas - what nodes, jobs and the cluster look like once they have changed, told to those who follow all of it
 *
 * Who shows the whole cluster reads the lists once and takes each change from the stream of events (`changes=1`):
 * `view-node` and `view-job` carry what the lists have, `view-cluster` the totals, and `reread` says that too much has
 * changed at once. Each is written out once, however many follow. So are pages of the list of nodes, for all who ask
 * within DELTAS_PAGE_US. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_DELTAS_H
#define MUSTER_SERVER_DELTAS_H

#include <stddef.h>

#define DELTAS_NODES_MAX 256 /* told in one tick; the others are with the next */
#define DELTAS_JOBS_MAX 256  /* told in one turn */
#define DELTAS_PAGE_US 1000000

struct call;
struct core;
struct deltas;
struct entry;

struct deltas *deltas_new(void); /* NULL: no memory */
void deltas_free(struct deltas *d);

void deltas_tick(struct core *c); /* nodes and totals that have changed since the last time */
void deltas_jobs(struct core *c); /* the jobs that this turn will have changed */

/* Answer with nodes from the i-th on, at most limit; 304 where the client has them (If-None-Match). */
void deltas_answer_nodes(struct core *c, struct call *call, size_t i, size_t limit);
void deltas_answer_cluster(struct core *c, struct call *call);

#endif
