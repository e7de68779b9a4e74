/* projects - the calls about projects: what they may have, and what their jobs hold now and have had */
#ifndef MUSTER_SERVER_PROJECTS_H
#define MUSTER_SERVER_PROJECTS_H

struct call;
struct core;

void projects_get(struct core *c, struct call *call);  /* GET /v1/projects/{name} */
void projects_list(struct core *c, struct call *call); /* GET /v1/projects */
void projects_put(struct core *c, struct call *call);  /* PUT /v1/projects/{name} */

void projects_remove(struct core *c, struct call *call);      /* DELETE /v1/projects/{name} */
void projects_put_member(struct core *c, struct call *call);  /* PUT /v1/projects/{name}/members/{user} */
void projects_drop_member(struct core *c, struct call *call); /* DELETE the same */

#endif
