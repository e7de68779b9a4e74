/* swaps - a run that has lost devices goes on at once, on those that it has left and on spares (spares.h)
 *
 * What it is to get is claimed as soon as it fails, so that nobody else gets its devices meanwhile and it does not wait
 * in the queue. A run that has to wait a while before its next attempt, or for which there are too few spares, goes
 * through the queue as ever, and the spares stay.
 */
#ifndef MUSTER_SERVER_SWAPS_H
#define MUSTER_SERVER_SWAPS_H

#include "server/control/entry.h"

struct core;

/* Set aside, of what is free, the spares that are missing. */
void swaps_settle(struct core *c);

/* Whether a run keeps the devices that its ranks have left: they have given up, and why is not known yet. */
bool swaps_keep(const struct core *c, const struct entry *e);

/* The devices of a node on which a started program is to wait for a rank, where their class has such: spares, and those
 * of training runs, all of whose ranks start anew when one of them is replaced. ret: room for SLOTS_MAX. Returns how
 * many. */
size_t swaps_warm(const struct core *c, const struct node *n, int *ret);

/* The run of a job has failed, by a failure for which it may have spares (act.h): claim them. */
void swaps_claim(struct core *c, struct entry *e, enum act_class class_);

/* Claim spares for a run on a node that is taken out since it seems to fail. True: it is to leave now. */
bool swaps_leave(struct core *c, struct entry *e);

#endif
