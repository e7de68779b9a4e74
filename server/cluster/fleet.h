/* fleet - what can be told of a node's health only beside the other nodes
 *
 * Plain data: nothing is changed here.
 */
#ifndef MUSTER_SERVER_FLEET_H
#define MUSTER_SERVER_FLEET_H

#include <stdbool.h>
#include <stddef.h>

#include "server/cluster/cluster.h"

/* Incidents a day of the nodes but this one; where little has been seen of them, about what is usual. */
double fleet_rate(const struct cluster *cl, const struct node *n, int64_t wall_us);

/* Whether two nodes of this one's rack were taken out within the hour: then what the rack shares is at fault. */
bool fleet_rack_fails(const struct cluster *cl, const struct node *n, int64_t wall_us);

/* Whether one more node may be taken out by itself: at most two, or one of 20 nodes, within an hour, two of them in a
 * rack, and never more than half of them or the last that gives devices. Else what they share is at fault. */
bool fleet_may_convict(const struct cluster *cl, const struct node *n, int64_t wall_us);

/* Whether so many nodes have gone silent together with this one that what they share is at fault: more than two, and
 * more than one of 20. *ret (may be NULL): how many, with itself. */
bool fleet_is_silent(const struct cluster *cl, const struct node *n, int64_t mono_us, size_t *ret);

/* Whether the two were heard of last at about the same time, by this musterd, and are silent. */
bool fleet_silent_together(const struct node *a, const struct node *b, int64_t mono_us);

/* Whether a rate of the node's newest test (a number of that name in its result) is less than half of the median of
 * others of its class; *ret_median is that. False also where fewer than three others were tested. */
bool fleet_is_behind(const struct cluster *cl, const struct node *n, const json_t *result, const char *rate,
                     double *ret_median);

#endif
