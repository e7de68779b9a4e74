/* batch - many jobs by one call: all of them are queued in one turn, or none is
 *
 * Jobs of a batch may come after each other by their names; each gets its number after those that it names.
 */
#ifndef MUSTER_SERVER_CONTROL_BATCH_H
#define MUSTER_SERVER_CONTROL_BATCH_H

struct call;
struct core;

void batch_submit(struct core *c, struct call *call); /* POST /v1/jobs:batch */

#endif
