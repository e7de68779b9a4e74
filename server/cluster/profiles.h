/* profiles - what nodes have measured of the classes of their devices, and the middle of it
 *
 * Of each class the newest PROFILES_NODES nodes count, each with its newest profile. Plain data: owned by the thread
 * that owns the cluster.
 */
#ifndef MUSTER_SERVER_PROFILES_H
#define MUSTER_SERVER_PROFILES_H

#include "server/cluster/cluster.h"

#define PROFILES_NODES 16

/* Take what a node tells, {CLASS: profile}; NULL: nothing. Of classes that it does not offer, and what is no profile,
 * is left out; then why has words. True: what is known of some class is another now. */
bool profiles_take(struct cluster *cl, const struct node *n, const json_t *doc, struct merr *why);

void profiles_clear(struct cluster *cl);

/* Of the class, borrowed until nodes register; NULL: nobody has measured it. threads: of a rank there, whom one with
 * other threads says nothing. */
const struct plan_profile *profiles_of(const struct cluster *cl, uint8_t class_, int threads);

/* Nodes whose profiles make it up. */
size_t profiles_nodes(const struct cluster *cl, uint8_t class_);

#endif
