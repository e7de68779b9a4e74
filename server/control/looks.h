/* looks - what each rank of a live run does, asked of its nodes by whoever wants to know now
 *
 * GET .../diagnosis asks the agents of the run for evidence by their assignments and is answered once all have sent it,
 * or LOOK_US later with what came. Who asks for a run that is being looked at is answered with the others; who asks
 * again at once is told to come later, for all nodes of the run are asked each time. What
 * agents send that nobody looks for belongs to the incident of its run (incidents.h).
 */
#ifndef MUSTER_SERVER_LOOKS_H
#define MUSTER_SERVER_LOOKS_H

#include "server/control/entry.h"

#define LOOK_US 4000000       /* agents have 3 s */
#define LOOKS_MAX 32          /* at a time */
#define LOOK_PAUSE_US 1000000 /* from one look at a run to the next */
#define LOOK_CALLS_MAX 16     /* that wait for one */
#define LOOK_BYTES (8 << 20)  /* of bodies, beyond which only what ranks told is kept */

struct call;
struct core;
struct looks;

struct looks *looks_new(void);    /* NULL: no memory */
void looks_free(struct looks *l); /* stopped before; NULL is fine */

/* Answer a call with what the ranks of the run do; e is live. It waits for that, or is refused at once. */
void looks_begin(struct core *c, struct call *call, struct entry *e);

/* POST /v1/agents/{node}/evidence. */
void looks_take(struct core *c, struct call *call);

void looks_tick(struct core *c); /* answer those that have waited long enough */
void looks_stop(struct core *c); /* those that wait are refused */

#endif
