/* witness - tells the server what ranks of this node do: when it asks, and of itself when one of them has failed
 *
 * The server asks by an assignment, which may bring the order to end the ranks, too: that waits until they have been
 * looked at (witness_busy), 3 s at most. What is gathered is sent by a call of its own, a few times if it must be, and
 * then dropped: nothing depends on it. One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_WITNESS_H
#define MUSTER_WORKER_AGENT_WITNESS_H

#include "worker/agent/ranks.h"

#define WITNESS_US 3000000       /* to gather it */
#define WITNESS_FAILED_US 300000 /* of a run that has failed and waits */
#define WITNESS_RUNS_MAX 8       /* at a time */

struct calls;
struct witness;

/* All is borrowed, and outlives it; calls go first. NULL: no memory. */
struct witness *witness_new(struct calls *calls, struct machine *h, const char *node, const char *incarnation);
void witness_free(struct witness *w);

/* The server asks for this evidence of a run. Once for each number. */
void witness_ask(struct witness *w, struct run *run, uint64_t number);

/* A rank of the run has failed, and the others are about to be ended. */
void witness_failed(void *witness, struct run *run);

/* The ranks of a run are being looked at: they are not to be ended yet. */
bool witness_busy(const struct witness *w, const char *job, uint64_t generation);

/* Send what is gathered; *ret_next_us is when to come again (monotonic), and machine_fd() tells when more is. True: a
 * run is busy no more. */
bool witness_tick(struct witness *w, int64_t now_us, int64_t *ret_next_us);

#endif
