/* tokens - the calls about tokens: make, list, revoke (auth.h) */
#ifndef MUSTER_SERVER_TOKENS_H
#define MUSTER_SERVER_TOKENS_H

struct call;
struct core;

void tokens_create(struct core *c, struct call *call); /* POST /v1/tokens */
void tokens_list(struct core *c, struct call *call);   /* GET /v1/tokens */
void tokens_revoke(struct core *c, struct call *call); /* DELETE /v1/tokens/{id}; streams that it opened end */

#endif
