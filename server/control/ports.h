/* ports - the MASTER_PORTs of runs: which are taken, and a free one for the next
 *
 * Nodes may share an address, so a port is of one run in the whole cluster, as far as there are enough of them.
 */
#ifndef MUSTER_SERVER_PORTS_H
#define MUSTER_SERVER_PORTS_H

#include "server/cluster/job.h"

struct core;

/* For the next run of the job: one that nobody has, or else one of those that fewest have. */
int ports_choose(const struct core *c, const struct job *j);

void ports_take(struct core *c, const struct job *j);  /* its run has begun, or was found again */
void ports_leave(struct core *c, const struct job *j); /* and is over */

#endif
