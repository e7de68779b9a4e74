/* sessions - who may have a program run beside a rank, or reach a port of it, and what is kept of that
 *
 * A session (server/http/relay.h) is its job's owner's, or an admin's: it acts as the job does, with its files and
 * secrets, so who may only manage the job may not. Its beginning and its end are in the audit log, without what passed
 * and without values of variables. The agent of the rank learns of it with its assignments.
 */
#ifndef MUSTER_SERVER_SESSIONS_H
#define MUSTER_SERVER_SESSIONS_H

#include <jansson.h>

struct call;
struct core;
struct node;
struct relay_session;

#define SESSIONS_WORDS_MAX 256        /* of a command line, and of its variables */
#define SESSIONS_BYTES_MAX (32 << 10) /* of all that */

void sessions_exec(struct core *c, struct call *call);    /* POST /v1/jobs/{id}/exec */
void sessions_forward(struct core *c, struct call *call); /* POST /v1/jobs/{id}/forward */

/* Those that the agent of a node is to join: a new array. */
json_t *sessions_waiting(const struct core *c, const struct node *n);

/* As relay_cfg.ended; arg is the core. */
void sessions_ended(void *arg, const struct relay_session *s);

#endif
