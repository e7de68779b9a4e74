/* nodes - the calls about nodes and the cluster: list, drain, remove, count, and what a scheduling round would see */
#ifndef MUSTER_SERVER_NODES_H
#define MUSTER_SERVER_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;
struct core;
struct node;

void nodes_list(struct core *c, struct call *call);     /* GET /v1/nodes */
void nodes_get(struct core *c, struct call *call);      /* GET /v1/nodes/{id} */
void nodes_drain(struct core *c, struct call *call);    /* POST /v1/nodes/{id}/drain */
void nodes_undrain(struct core *c, struct call *call);  /* POST /v1/nodes/{id}/undrain */
void nodes_test(struct core *c, struct call *call);     /* POST /v1/nodes/{id}/test */
void nodes_remove(struct core *c, struct call *call);   /* DELETE /v1/nodes/{id} */
void nodes_cluster(struct core *c, struct call *call);  /* GET /v1/cluster */
void nodes_snapshot(struct core *c, struct call *call); /* GET /v1/cluster/snapshot */

/* Its jobs, and who is on its way off it already, are to be gone by then (monotonic). */
void nodes_hurry(struct core *c, struct node *n, int64_t by_us);

/* Whether the node has to stay on the list, and why. */
bool nodes_needs(const struct core *c, const struct node *n, char *ret_why, size_t size);

#endif
