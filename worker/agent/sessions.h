/* sessions - programs that people have beside the ranks of this node: started as the server asks, ended with the rank
 *
 * The server lists those that wait with the node's assignments; each is started once, as a process of its own
 * (session.h). One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_SESSIONS_H
#define MUSTER_WORKER_AGENT_SESSIONS_H

#include <jansson.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/agent/ranks.h"

#define SESSIONS_MOST 256 /* of a node */

struct sessions;

struct sessions_cfg { /* borrowed, and what it points to */
    const char *self; /* path of muster-agent */
    const char *server, *token_file, *ca_file, *node;
    const char *state; /* the agent's folder, which may have a certificate */
};

struct sessions *sessions_new(const struct sessions_cfg *cfg); /* NULL: no memory */
void sessions_free(struct sessions *s);                        /* those that run end by themselves; NULL is fine */

/* Take in the server's list; what is in it and was not started is, once its rank runs. NULL: there are none. */
void sessions_take(struct sessions *s, const json_t *list);

/* Start what waits for its rank, end what has lost it. NULL is fine. */
void sessions_tick(struct sessions *s, struct ranks *ranks, int64_t now_us);

#endif
