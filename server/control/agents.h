/* agents - the call with which an agent registers its node: what it offers, and which runs it has */
#ifndef MUSTER_SERVER_AGENTS_H
#define MUSTER_SERVER_AGENTS_H

struct call;
struct core;

/* POST /v1/agents/register. Answers; runs that the agent does not know any more are over. */
void agents_register(struct core *c, struct call *call);

#endif
