/* contact - whether nodes are heard of, and what becomes of their runs and of them when they are not
 *
 * A node that is silent is unknown after a while, and its runs go on; after a longer one it is lost, and they are over;
 * one that has been lost for very long is forgotten. Of a run whose other ranks have lost a peer, or failed, a few
 * seconds of silence are enough: its part on the silent node is over, while the node's other runs go on.
 */
#ifndef MUSTER_SERVER_CONTACT_H
#define MUSTER_SERVER_CONTACT_H

#include <stdbool.h>

#include "api/protocol/report.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

/* A word came from the node's agent. */
void contact_see(struct core *c, struct node *n);

/* Ranks of a live run that ran on this node are gone, and why; node_gone: with all else there. */
void contact_lose_run(struct core *c, struct entry *e, const char *node, const char *why, bool node_gone);

/* So are those of all runs that its agent does not list. */
void contact_lose_unlisted(struct core *c, struct node *n, const struct report *r, bool rebooted);

/* Runs that are to stop, of which nothing was heard and which this report does not list, will never be started. */
void contact_end_unstarted(struct core *c, struct node *n, const struct report *r);

/* Another agent is this node now: the one before is to end. */
void contact_replace(struct core *c, const struct node *n);

/* The node is lost, and so are all runs on it. */
void contact_lose(struct core *c, struct node *n, const char *why);

/* The node leaves the list: n is freed, its agent told to end. */
void contact_remove(struct core *c, struct node *n, const char *actor);

/* Nodes become unknown, lost and forgotten as time goes by; late_us: for so long the server itself has stood still, as
 * with a store that does not answer. */
void contact_tick(struct core *c, int64_t late_us);

#endif
