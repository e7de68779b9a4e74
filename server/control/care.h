/* care - the health of nodes (server/cluster/health.h): charged, taken out, tested and let back, and told each time
 *
 * A node is tested by its agent, which hears of it with the answer to its next report and tells what came of it with
 * one of those that follow. One test of a node at a time.
 */
#ifndef MUSTER_SERVER_CARE_H
#define MUSTER_SERVER_CARE_H

#include <jansson.h>

#include "base/merr.h"
#include "scheduler/diagnose/act.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

/* A run of the job failed on the node, by name, in words; so many nodes are suspected of it. */
void care_blame(struct core *c, const struct entry *e, const char *node, enum act_class class_, size_t suspects,
                const char *why);

/* Its hardware says so itself; milli: thousandths of an incident. */
void care_accuse(struct core *c, struct node *n, int milli, const char *why);

/* The node is lost: perhaps with others, by what they share. It is heard of again. */
void care_lost(struct core *c, struct node *n);
void care_back(struct core *c, struct node *n);

/* Somebody takes it out, for a reason (may be ""), or has looked and lets it back. */
void care_hold(struct core *c, struct node *n, const char *actor, const char *reason);
void care_forgive(struct core *c, struct node *n, const char *actor);

/* "health" and "test" of a registration or a report. */
void care_report(struct core *c, struct node *n, const json_t *body);

/* Let its agent test it. Returns 0; -EBUSY: a test is under way, or no device is idle; -ENOTCONN: it is silent. */
int care_test(struct core *c, struct node *n, const char *actor, struct merr *err);

/* What time does to all nodes. */
void care_tick(struct core *c);

#endif
