/* agent_rights - what an agent may do: pure decisions over whose token asks, for which node, and what is known of that
 *
 * A token is bound to one node by enrolling (enroll.h). The shared one, of a file of the state folder, speaks for any
 * node that is not enrolled, on servers that are one person's (musterd --agents). Every call names the incarnation
 * (protocol.md) that it is of, so that of two agents with one token one alone is heard.
 */
#ifndef MUSTER_SERVER_AGENT_RIGHTS_H
#define MUSTER_SERVER_AGENT_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/protocol.h"
#include "server/cluster/job.h"

#define AGENT_CODE_S 900 /* that a join code is good for */

enum agent_verdict { AGENT_MAY, AGENT_OTHER_NODE, AGENT_NOT_SHARED, AGENT_ENROLLED };

struct agent_ask {
    const char *bound; /* the node of the token that asks; "": the shared one */
    const char *node;  /* that the call is about */
    bool shared;       /* the server takes the shared token, */
    bool enrolled;     /* and this node has a token of its own */
};

enum agent_verdict agent_may_speak(const struct agent_ask *ask);

/* Whether a call is of the agent that is registered. told: what it says, NULL: nothing. */
bool agent_is_registered(const char *told, const char *registered);

/* Whether a node has a rank of the run that is live, or is a source node of it: then it may read the run's keys. */
bool agent_has_part(const struct job *j, const char *node);

/* Whether a rendezvous key is of a rank of this node. Keys end with the number of their rank, from the world's size on
 * of a source node: "ucx-3". Those of the world "guard." end with the number of their node in the run: "guard.ucx-1".
 */
bool agent_may_put_key(const struct job *j, const char *node, const char *key);

/* What proves that a run was given to a node, also when it is over: a keyed hash (HMAC-SHA256) of both. */
void agent_prove(const char *key, uint64_t job, uint64_t generation, const char *node, char ret[PROTOCOL_PROOF_MAX]);
bool agent_has_proof(const char *key, uint64_t job, uint64_t generation, const char *node, const char *proof);

enum agent_join { AGENT_JOINS, AGENT_JOINED, AGENT_CODE_UNKNOWN, AGENT_CODE_OVER, AGENT_CODE_USED };

struct agent_code {
    const char *node;
    int64_t expires_us;  /* wall */
    const char *used_by; /* SHA-256 of the token that was traded for it; "": none yet */
};

/* A code (NULL: none like it) is to be traded for the token of this hash. JOINED: it was, before, and by the same
 * agent, which has not heard the answer. */
enum agent_join agent_may_join(const struct agent_code *code, const char *token_hash, int64_t wall_us);

#endif
