/* webhook_send - from what happens to deliveries, and from those to messages that are tried until they are taken
 *
 * Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_WEBHOOK_SEND_H
#define MUSTER_SERVER_WEBHOOK_SEND_H

#include "api/client/post.h"

struct core;

void webhook_send_collect(struct core *c); /* before the commit: what the turn's events are to tell */
void webhook_send_due(struct core *c);     /* after it: what is due */

/* One has been sent, or not: as post_done, on any thread; arg is the core. */
post_done webhook_send_done;

#endif
