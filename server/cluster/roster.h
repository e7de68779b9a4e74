/* roster - agents whose nodes left the list: they may still call, and are to end
 *
 * The newest ROSTER_MAX are known, each for ROSTER_S seconds. Plain data: owned by the thread that owns the cluster.
 */
#ifndef MUSTER_SERVER_ROSTER_H
#define MUSTER_SERVER_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cluster/job.h"

#define ROSTER_MAX 1024       /* agents of removed nodes that may still call */
#define ROSTER_S (30 * 86400) /* how long they may */

struct removed { /* an agent whose node was removed: it is to end */
    char node[JOB_NODE_MAX], incarnation[64];
    int64_t wall_us; /* when it was */
};

struct roster {
    struct removed v[ROSTER_MAX]; /* the newest, by turns */
    size_t n;                     /* ever */
};

/* The agent's node was removed at the wall time, or is another agent's now. Returns the record, borrowed. */
const struct removed *roster_add(struct roster *r, const char *node, const char *incarnation, int64_t wall_us);

/* Whether this agent is to end, as things stand at the wall time. */
bool roster_has(const struct roster *r, const char *node, const char *incarnation, int64_t wall_us);

#endif
