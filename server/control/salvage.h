/* salvage - the calls about records in quarantine: list, read again, drop (quarantine.h) */
#ifndef MUSTER_SERVER_SALVAGE_H
#define MUSTER_SERVER_SALVAGE_H

struct call;
struct core;

void salvage_list(struct core *c, struct call *call);  /* GET /v1/quarantine */
void salvage_retry(struct core *c, struct call *call); /* POST /v1/quarantine/{id}/retry */
void salvage_drop(struct core *c, struct call *call);  /* DELETE /v1/quarantine/{id} */

#endif
