/* proofs - of a report, only what is of runs that its node was given is stored
 *
 * Such is the run that is live and has a rank or a source node there, and every run whose proof (agent_rights.h) comes
 * with the report. What is of others is put aside before anything is stored, and acknowledged, so that it is not sent
 * for ever: an agent of an older version has no proofs of runs that are over.
 */
#ifndef MUSTER_SERVER_PROOFS_H
#define MUSTER_SERVER_PROOFS_H

#include <jansson.h>

#include "api/protocol/report.h"
#include "server/cluster/node.h"

struct core;

/* Put aside the pieces of a report's body that are not proven. Returns how many there were. */
size_t proofs_check(struct core *c, const struct node *n, json_t *body);

/* Add acknowledgements for them. 0 or -ENOMEM. */
int proofs_acknowledge(const json_t *body, struct report_acks *acks);

#endif
