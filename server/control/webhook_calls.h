/* webhook_calls - what people ask of their webhooks; an admin may name those of others, by id */
#ifndef MUSTER_SERVER_WEBHOOK_CALLS_H
#define MUSTER_SERVER_WEBHOOK_CALLS_H

struct call;
struct core;

void webhook_calls_add(struct core *c, struct call *call);        /* POST /v1/webhooks */
void webhook_calls_list(struct core *c, struct call *call);       /* GET /v1/webhooks */
void webhook_calls_get(struct core *c, struct call *call);        /* GET /v1/webhooks/{name} */
void webhook_calls_patch(struct core *c, struct call *call);      /* PATCH /v1/webhooks/{name} */
void webhook_calls_drop(struct core *c, struct call *call);       /* DELETE /v1/webhooks/{name} */
void webhook_calls_test(struct core *c, struct call *call);       /* POST /v1/webhooks/{name}/test */
void webhook_calls_deliveries(struct core *c, struct call *call); /* GET /v1/webhooks/{name}/deliveries */

#endif
