/* view - jobs and nodes as answers show them; all are new */
#ifndef MUSTER_SERVER_VIEW_H
#define MUSTER_SERVER_VIEW_H

#include <jansson.h>

#include "server/cluster/job.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

/* A job, whose entry is NULL when it has ended; with its spec and plan where the spec's text is given. */
json_t *view_job(const struct core *c, const struct job *j, const struct entry *e, const char *spec_text);

/* Add what lists would grow long by, but for the spec itself, to what view_job has given without its text: the plan,
 * what its program has said, and the ports of the run there is. */
void view_add_whole(const struct job *j, const char *spec_text, json_t *o);

json_t *view_node(const struct core *c, const struct node *n);

/* A number that is another one when more of the node's view has changed than its last word and its GPUs' figures. */
uint64_t view_node_mark(const struct core *c, const struct node *n);

json_t *view_cluster(const struct core *c); /* totals */

/* Why the job is where it is, and what would help. */
json_t *view_explain(struct core *c, const struct job *j, const struct entry *e);

/* How far a job has come, from a line of metrics. */
json_t *view_progress(const json_t *line, int steps);

#endif
