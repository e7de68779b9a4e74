/* machine_evidence - what the ranks of a run do, gathered for people while they run or wait (evidence.h) */
#ifndef MUSTER_WORKER_AGENT_MACHINE_EVIDENCE_H
#define MUSTER_WORKER_AGENT_MACHINE_EVIDENCE_H

#include "worker/agent/machine_rank.h"

/* What ranks do, for people (evidence.h): gathered on a thread of its own, for budget_us at most; then machine_fd() is
 * readable. NULL: it cannot be. */
struct machine_evidence;
struct machine_evidence *machine_evidence_begin(struct machine *h, struct machine_rank *const *ranks, size_t n,
                                                bool python, int64_t budget_us);
bool machine_evidence_ready(const struct machine_evidence *e); /* NULL is ready */

/* Wait for it, and take it: a new list, by rank, of those that there was time for. *ret_kernel (may be NULL) is new:
 * the kernel's messages, NULL where they are not for users. e is freed; NULL gives NULL. */
json_t *machine_evidence_end(struct machine_evidence *e, char **ret_kernel);

#endif
