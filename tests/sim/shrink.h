/* shrink - the fewest faults with which a run still fails
 *
 * Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): halves, quarters
 * and so on are left out as long as the run fails. Each try is a process of its own, so one that crashes counts too.
 */
#ifndef MUSTER_TESTS_SIM_SHRINK_H
#define MUSTER_TESTS_SIM_SHRINK_H

#include "tests/sim/cluster.h"

/* A run in a process of its own. True: it failed; where it says why goes to ret_why (at most size bytes). */
bool shrink_try(const struct cluster_wish *wish, const struct faults_list *f, char *ret_why, size_t size);

/* Make *f smaller, in at most tries runs. It fails before and after. */
void shrink(const struct cluster_wish *wish, struct faults_list *f, int tries);

#endif
