/* cluster - the nodes, classes of devices and projects that there are, and which job has which slot
 *
 * Nodes are in the order of their names; a pointer to one is good until it is dropped. Plain data without I/O, owned by
 * the core's thread: whoever changes it says so to the store and to followers, which the cluster knows nothing of.
 */
#ifndef MUSTER_SERVER_CLUSTER_H
#define MUSTER_SERVER_CLUSTER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cluster/classes.h"
#include "server/cluster/node.h"
#include "server/cluster/project.h"
#include "server/cluster/roster.h"

#define CLUSTER_NODES_MAX 16384

struct class_profiles;

struct cluster {
    struct node **nodes; /* by name */
    size_t n_nodes;
    struct classes classes;
    struct projects projects;
    struct roster roster;
    struct class_profiles *profiles[CLASSES_MAX]; /* owned (profiles.h); NULL: nobody has measured the class */
    uint64_t sites;                               /* grows when nodes, their slots, links or profiles change; from 1 */
};

int cluster_init(struct cluster *cl); /* empty; 0 or -ENOMEM */
void cluster_clear(struct cluster *cl);

/* Borrowed; NULL: there is no such node. */
struct node *cluster_node(const struct cluster *cl, const char *name);

/* Where in nodes the first one is whose name comes after this one; n_nodes: none does. */
size_t cluster_after(const struct cluster *cl, const char *name);

/* The node of that name, made with this version of its assignments when it is new. NULL: CLUSTER_NODES_MAX, or no
 * memory. */
struct node *cluster_add(struct cluster *cl, const char *name, uint64_t version);

/* The node leaves the list and is freed; no other must have a link to it. */
void cluster_drop(struct cluster *cl, struct node *n);

/* The slots of some node are others now: which classes training may use, and the sites. All nodes are looked at. */
void cluster_slots_changed(struct cluster *cl);

/* The same of a node that has lost none. Quick: thousands of nodes come at a time. */
void cluster_slots_came(struct cluster *cl, const struct node *n);

/* The slot at a place; NULL: it is not there any more. */
struct slot *cluster_slot(const struct cluster *cl, const struct job_place *p);

/* How many times as long as its class takes the device at a place takes; 1: it is well. */
double cluster_slowness(const struct cluster *cl, const struct job_place *p);

/* A node of a live job's run from which nothing has been heard since then (monotonic); NULL: there is none. */
const struct node *cluster_silent(const struct cluster *cl, const struct job *j, int64_t since_us);

/* The run of a live job has the slots of its places. */
void cluster_hold(struct cluster *cl, const struct job *j);

/* They are free again; node: of this one alone, NULL: all of them. */
void cluster_release(struct cluster *cl, const struct job *j, const char *node);

/* A wall time as all answers show it: RFC 3339, null for 0. New. */
json_t *cluster_time(int64_t wall_us);

#endif
