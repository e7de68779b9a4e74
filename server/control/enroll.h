/* enroll - how a machine becomes a node: an admin has a code made for a name, its agent trades that for a token
 *
 * A code is good once and for AGENT_CODE_S; only its SHA-256 is kept. The agent makes its token itself and sends it
 * with the code, so that an answer that is lost is told again: the same code and the same token give the same answer.
 * Where the server asks for certificates (node_ca.h), the answer brings one of the node and the token.
 * Of two agents that trade one code the first one wins. Who tries codes is held up as who tries tokens (http_guard.h).
 */
#ifndef MUSTER_SERVER_ENROLL_H
#define MUSTER_SERVER_ENROLL_H

#include "base/merr.h"
#include "server/control/auth.h"

#define ENROLL_CODES_MAX 4096
#define ENROLL_LIFE_MAX_S (7 * 86400) /* nodes that are asked for may come days later */

struct call;
struct core;
struct enroll;

struct enroll *enroll_new(void); /* NULL: no memory */
void enroll_free(struct enroll *all);

/* The codes that the store has. 0; -EIO, -ENOMEM with words. */
int enroll_load(struct core *c, struct merr *err);

/* A code for a node that is asked for of others, good for so long. 0; -ENOSPC: there are too many; -EIO. */
int enroll_code(struct core *c, const char *node, int life_s, char ret[AUTH_TOKEN_MAX]);

/* It does not come any more: its codes and its token are void. */
void enroll_void(struct core *c, const char *node);

void enroll_make(struct core *c, struct call *call);   /* POST /v1/nodes/{id}/enroll */
void enroll_forget(struct core *c, struct call *call); /* DELETE /v1/nodes/{id}/enroll: token and codes are void */
void enroll_join(struct core *c, struct call *call);   /* POST /v1/agents/join */
void enroll_renew(struct core *c, struct call *call);  /* POST /v1/agents/{node}/certificate */

#endif
