/* nodes - the calls about nodes and the cluster: list, drain, remove, count, and what a scheduling round would see */
#ifndef MUSTER_SERVER_NODES_H
#define MUSTER_SERVER_NODES_H

struct call;
struct core;

void nodes_list(struct core *c, struct call *call);     /* GET /v1/nodes */
void nodes_get(struct core *c, struct call *call);      /* GET /v1/nodes/{id} */
void nodes_drain(struct core *c, struct call *call);    /* POST /v1/nodes/{id}/drain */
void nodes_undrain(struct core *c, struct call *call);  /* POST /v1/nodes/{id}/undrain */
void nodes_test(struct core *c, struct call *call);     /* POST /v1/nodes/{id}/test */
void nodes_remove(struct core *c, struct call *call);   /* DELETE /v1/nodes/{id} */
void nodes_cluster(struct core *c, struct call *call);  /* GET /v1/cluster */
void nodes_snapshot(struct core *c, struct call *call); /* GET /v1/cluster/snapshot */

#endif
