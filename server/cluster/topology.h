/* topology - which nodes share a rack, and which are linked worse than others; plain data */
#ifndef MUSTER_SERVER_TOPOLOGY_H
#define MUSTER_SERVER_TOPOLOGY_H

#include "server/cluster/cluster.h"

/* Number the racks of the nodes that are not lost (node.leaf) from 0. A node that tells none is a rack of its own;
 * where no node tells one, all are 0. Returns how many nodes tell theirs. */
size_t topology_number(struct cluster *cl);

/* Mark the nodes (node.far) whose best link is less than half as fast as the middle one of all nodes' best links, as
 * runs have measured them. With fewer than three nodes measured none is. Returns whether any is. */
bool topology_mark(struct cluster *cl);

/* Whether a rack or a node has this name. */
bool topology_has(const struct cluster *cl, const char *name);

#endif
