/* measures - how nodes and devices did over time: sampled here, kept in files (server/store/node_series.h), told
 *
 * Every 15 s a sample is taken of each node that is heard of, and handed to the files' thread. Series are read on the
 * threads of readers.h.
 */
#ifndef MUSTER_SERVER_MEASURES_H
#define MUSTER_SERVER_MEASURES_H

#define MEASURES_BUCKETS_MAX 1000
#define MEASURES_NODES_MAX 256 /* of one answer about the cluster */

struct call;
struct core;

/* Take samples, if it is time. */
void measures_tick(struct core *c);

/* GET /v1/nodes/{id}/series and GET /v1/cluster/series. */
void measures_node(struct core *c, struct call *call);
void measures_cluster(struct core *c, struct call *call);

#endif
