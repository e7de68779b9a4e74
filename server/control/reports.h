/* reports - what agents report of their runs: ranks, metrics, output, events
 *
 * A report may come twice, late, or of a run that is over; what was taken in before changes nothing.
 */
#ifndef MUSTER_SERVER_REPORTS_H
#define MUSTER_SERVER_REPORTS_H

#include "api/protocol/report.h"
#include "server/cluster/node.h"

struct call;
struct core;

/* POST /v1/agents/{node}/report. The node lives from here on; its runs are taken, and the answer given, once the pieces
 * are stored (storing.h) or the disk was waited for in vain. */
void reports_take(struct core *c, struct call *call);
struct storing *reports_storing_new(void); /* for that; NULL: no memory */

/* What a node says of its runs; those that are over go to the answer (zero at first, the caller's to clear). Returns 0
 * or -ENOMEM. */
int reports_take_runs(struct core *c, struct node *n, const struct report *r, struct report_answer *ret);

/* What a registration or a report says of the node itself: its GPUs, checks and tests. */
void reports_take_node(struct core *c, struct node *n, const json_t *body);

/* Whether what a job printed may still be on its way: it has not ended, or a node has a run of it. */
bool reports_more_come(const struct core *c, uint64_t job);

#endif
