/* gpus - the node's GPUs, looked after by a thread: samples each second, and what ails them
 *
 * A GPU is ill when the driver has lost it or an error was reported that its next user would meet again (xid.h); it
 * stays so until the agent is started anew, since only a reset by the operator repairs it.
 */
#ifndef MUSTER_WORKER_AGENT_GPUS_H
#define MUSTER_WORKER_AGENT_GPUS_H

#include <stdbool.h>

#include "base/merr.h"
#include "worker/agent/nvml.h"
#include "worker/agent/xid.h"

#define GPUS_WHY_MAX 120

struct gpus;

/* As nvml_open. A thread starts with the first gpus_watch. */
int gpus_open(struct gpus **ret, struct merr *err);
void gpus_close(struct gpus *g); /* NULL is fine */

int gpus_count(const struct gpus *g); /* 0 for NULL */
const struct nvml_gpu *gpus_at(const struct gpus *g, int i);

/* As nvml_keep, before gpus_watch(). */
int gpus_keep(struct gpus *g, const char *list, struct merr *err);

/* Begin to look after them. Returns 0 once each has been sampled. */
int gpus_watch(struct gpus *g, struct merr *err);

/* The newest sample of GPU i; why: what ails it, "" when it is well. Does not block. */
void gpus_sample(struct gpus *g, int i, struct nvml_sample *ret, char why[GPUS_WHY_MAX]);

/* Sample soon, for something has changed. */
void gpus_hurry(struct gpus *g);

struct gpus_finding {
    unsigned int code; /* of an Xid error; 0: it is something else */
    enum xid_level level;
    int blame; /* thousandths of an incident that it is evidence against the node */
    bool node; /* the whole node is at fault */
    char what[GPUS_WHY_MAX];
};

/* What was found of GPU i last, and how long ago. False: nothing of late. Of findings of a few seconds it is the first
 * one that counts. */
bool gpus_found(struct gpus *g, int i, struct gpus_finding *ret, int64_t *ret_age_us);

/* Judge a sample, taken at now_us (monotonic): for tests, which have no hours to wait. */
void gpus_judge(struct gpus *g, int i, const struct nvml_sample *s, int64_t now_us);

/* Where to read the kernel's log, before gpus_watch(): Xid errors that the driver tells nowhere else. */
void gpus_kernel_log(struct gpus *g, const char *path);

#endif
