/* slots - what a node offers: read from its agent's registration or from the store, checked before anything changes
 *
 * Plain data: owned by the thread that owns the cluster. struct slot is in node.h.
 */
#ifndef MUSTER_SERVER_SLOTS_H
#define MUSTER_SERVER_SLOTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/cluster/classes.h"
#include "server/cluster/node.h"

#define SLOTS_MAX 256 /* of a node */

struct cluster;

struct slots { /* that a node is to have */
    struct slot *v;
    size_t n;
};

/* Read a list of slots; classes that are new get their numbers. 0 with new ones; -EINVAL: they cannot be, or are of
 * more classes than a cluster has; -ENOMEM. */
int slots_read(struct classes *k, const json_t *list, struct slots *ret);

/* They are the slots of this node of the cluster, and s is empty; those in use keep their job. */
void slots_take(struct cluster *cl, struct node *n, struct slots *s);

/* As slots_read() reads them; new. */
json_t *slots_record(const struct classes *k, const struct node *n);

/* Whether a slot that is in no job's hands can be given to one, as far as the slot goes. */
bool slots_usable(const struct slot *s);

#endif
