/* polls - the long-polls of agents: for their node's assignments, and for the keys of a run's rendezvous
 *
 * A poll is looked at once the turn in which it came is durable, and again when what it waits for is woken (waiters.h)
 * or its time is over.
 */
#ifndef MUSTER_SERVER_POLLS_H
#define MUSTER_SERVER_POLLS_H

#include <stdbool.h>

struct call;
struct core;
struct waiters;

struct waiters *polls_new(void); /* for the core; NULL: no memory */

void polls_assignments(struct core *c, struct call *call); /* GET /v1/agents/{node}/assignments */
void polls_keys(struct core *c, struct call *call);        /* GET …/rendezvous/{job}/{generation} */
void polls_put_key(struct core *c, struct call *call);     /* PUT …/rendezvous/{job}/{generation}/{key} */

/* Answer those that need not wait any more; stopping: all of them. */
void polls_answer(struct core *c, bool stopping);

#endif
