/* meter - how a node and its devices did, added up from the reports of its agent until somebody reads it
 *
 * Plain data: kept in the node and its slots (node.h), owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_METER_H
#define MUSTER_SERVER_METER_H

#include "server/cluster/node.h"

#define METER_NONE (-1)

struct meter_device {
    int busy, use;           /* percent of the time: that a job had it, that a kernel ran */
    int memory, temperature; /* percent in use, degrees */
    int power_w;
};

/* A report has come, with these numbers of the node (enum report_host), or fewer; its GPUs are in node.gpus. */
void meter_take(struct node *n, const int *host, size_t n_host);

/* The means since they began; METER_NONE: not known. */
int64_t meter_read_host(const struct node *n, enum report_host what);
struct meter_device meter_read_device(const struct slot *s);

/* Begin anew, the node and its devices. */
void meter_begin(struct node *n);

#endif
