/* batch - many jobs by one call: all of them are queued in one turn, or none is
 *
 * Jobs of a batch may come after each other by their names; each gets its number after those that it names.
 */
#ifndef MUSTER_SERVER_CONTROL_BATCH_H
#define MUSTER_SERVER_CONTROL_BATCH_H

#include <jansson.h>
#include <stdint.h>

struct call;
struct core;
struct entry;

/* The job of a spec, which is changed, with a number, checked and admitted; its spec and text are the call's then.
 * NULL: the call is answered. */
struct entry *batch_read(struct core *c, struct call *call, json_t *doc, uint64_t id);

void batch_submit(struct core *c, struct call *call); /* POST /v1/jobs:batch */

#endif
