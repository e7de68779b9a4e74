/* gpus - the node's GPUs, looked after by a thread: samples each second, and what ails them
 *
 * A GPU is ill when the driver has lost it or an error was reported that its next user would meet again; it stays so
 * until the agent is started anew, since only a reset by the operator repairs it.
 */
#ifndef MUSTER_WORKER_AGENT_GPUS_H
#define MUSTER_WORKER_AGENT_GPUS_H

#include <stdbool.h>

#include "base/merr.h"
#include "worker/agent/nvml.h"

#define GPUS_WHY_MAX 120

struct gpus;

/* As nvml_open. A thread starts with the first gpus_watch. */
int gpus_open(struct gpus **ret, struct merr *err);
void gpus_close(struct gpus *g); /* NULL is fine */

int gpus_count(const struct gpus *g); /* 0 for NULL */
const struct nvml_gpu *gpus_at(const struct gpus *g, int i);

/* Begin to look after them. Returns 0 once each has been sampled. */
int gpus_watch(struct gpus *g, struct merr *err);

/* The newest sample of GPU i; why: what ails it, "" when it is well. Does not block. */
void gpus_sample(struct gpus *g, int i, struct nvml_sample *ret, char why[GPUS_WHY_MAX]);

/* What an Xid error says of the GPU itself; NULL when it only tells of the program that ran. */
const char *gpus_xid_meaning(unsigned int xid);

#endif
