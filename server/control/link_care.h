/* link_care - a run whose links have become slow (lags.h): it leaves once it has lost what a restart takes, and the
 * nodes of its next attempt measure how fast they reach each other. Only what is measured then is held against a node.
 */
#ifndef MUSTER_SERVER_LINK_CARE_H
#define MUSTER_SERVER_LINK_CARE_H

#include "scheduler/diagnose/lag.h"
#include "server/control/entry.h"

struct core;

/* A finding of the class LAG_LINK, or its end. */
void link_care_found(struct core *c, struct entry *e, const struct lag_finding *f);

/* Time has passed: the run may leave now. */
void link_care_look(struct core *c, struct entry *e);

/* Nodes of the run have measured. */
void link_care_measured(struct core *c, struct entry *e);

#endif
