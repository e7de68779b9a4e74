/* supply - nodes come from a provider when jobs wait for devices, and go back when nobody needs them
 *
 * What to ask for is decided by allocations_plan(). An allocation is stored before the provider is asked for it,
 * under a name of this cluster and its number; its nodes join by codes that go with the request. The provider is
 * asked again and again what there is: an allocation that it does not list is over once none of its nodes is heard
 * of, and one of this cluster's names that is not known here, since a server ended between asking and storing or a
 * call failed halfway, is handed back. Nothing is asked for before the first list has come.
 */
#ifndef MUSTER_SERVER_SUPPLY_H
#define MUSTER_SERVER_SUPPLY_H

#include <stdbool.h>

#include "base/merr.h"

struct call;
struct core;
struct supply;

/* Read the queues, before the jobs are loaded; without a provider *ret is NULL. */
int supply_start(struct core *c, bool thread, struct supply **ret, struct merr *err);
int supply_load(struct core *c, struct merr *err); /* after the nodes */
void supply_free(struct supply *s);                /* NULL is fine */

void supply_tick(struct core *c);
void supply_send(struct core *c);                    /* after the commit: what the provider is asked */
void supply_list(struct core *c, struct call *call); /* GET /v1/allocations */

#endif
