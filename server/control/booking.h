/* booking - calls for maintenance of nodes and for reservations of devices, and what follows as their times come
 *
 * Kept in the store. One that is over is dropped, unless it comes again. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_BOOKING_H
#define MUSTER_SERVER_BOOKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"
#include "server/cluster/bookings.h"

struct call;
struct core;
struct job;

void booking_add_maintenance(struct core *c, struct call *call);
void booking_list_maintenance(struct core *c, struct call *call);
void booking_drop_maintenance(struct core *c, struct call *call);
/* A node goes at a time, for good: nothing is put there that runs for longer, and who is there leaves before. */
void booking_end_node(struct core *c, struct call *call);
/* The same, as its agent says it; false: there is no room for it. And a node that has gone needs none any more. */
bool booking_node_goes(struct core *c, const char *node, int64_t at_us);
void booking_node_gone(struct core *c, const char *node);
void booking_add_reservation(struct core *c, struct call *call);
void booking_list_reservations(struct core *c, struct call *call);
void booking_drop_reservation(struct core *c, struct call *call);

/* The reservation that a job names; NULL: none, or it is over: the job is as any other. */
const struct booking *booking_of(const struct core *c, const struct job *j);

/* Whether the user may submit a job of this project and of so many devices that names the reservation; else why not. */
bool booking_allows(const struct core *c, const struct job *j, char *ret_why, size_t size);

void booking_tick(struct core *c);
int booking_load(struct core *c, struct merr *err); /* after the nodes */

#endif
