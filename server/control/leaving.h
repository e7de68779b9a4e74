/* leaving - nodes that are lent: each has an end, before it their jobs move away, and after it they are no nodes any
 * more
 *
 * The agent of such a node says when it goes, and when it was told to go now. The end is an entry of the calendar
 * (booking.h). A node whose agent was told is drained by its end and goes off the list as soon as it is needed no
 * more: no run on it, no log that is yet to come, no state that another node is yet to fetch. One that fell silent
 * goes off the list once it is lost and its end has come.
 */
#ifndef MUSTER_SERVER_LEAVING_H
#define MUSTER_SERVER_LEAVING_H

#include "api/protocol/registration.h"
#include "server/cluster/node.h"

struct core;

/* What a registration that was taken says of the node's end. */
void leaving_take(struct core *c, struct node *n, const struct registration *r);

void leaving_tick(struct core *c);

#endif
