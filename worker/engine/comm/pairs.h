/* pairs - how fast the nodes of a run reach each other, each two of them: short measurements before work begins
 *
 * Both send at once, as rings do, what grows until the pair's time is up: PAIRS_PAIR_US, of many nodes PAIRS_ALL_US in
 * all; and at most PAIRS_BYTES each way. Pairs are measured side by side, so a node is busy with one other at a time.
 */
#ifndef MUSTER_WORKER_COMM_PAIRS_H
#define MUSTER_WORKER_COMM_PAIRS_H

#include "worker/engine/comm/comm.h"

#define PAIRS_PAIR_US 50000
#define PAIRS_ALL_US 1000000
#define PAIRS_BYTES (11u << 20)

/* The member that member i of n meets in round k: in pairs_rounds(n) rounds each meets each once. -1: none. */
int pairs_partner(int n, int i, int k);
int pairs_rounds(int n);

/* ret[i]: bytes a second to member i and back at once, the same on both sides; 0 for this member itself. One member of
 * each node, which all call this together. */
int pairs_measure(struct comm_group *g, double *ret, struct merr *err);

#endif
