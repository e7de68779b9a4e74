/* strangers - processes on a GPU that are of no job here
 *
 * A sample of a GPU is older than what the agent knows of its ranks, and the driver lists a process for a moment after
 * it has ended. So only a sample counts that was taken after the last rank was reaped, and the next one must say the
 * same. Whatever was listed while a rank ran may be the rank's child: it has some seconds to end.
 */
#ifndef MUSTER_WORKER_AGENT_STRANGERS_H
#define MUSTER_WORKER_AGENT_STRANGERS_H

#include <stdbool.h>

#include "worker/agent/nvml.h"

#define STRANGERS_CHILD_US INT64_C(5000000) /* that processes of a rank may outlive it */

struct strangers { /* of a GPU; zeros at first */
    bool in_use;
    int64_t used_us; /* when it was found without a rank for the first time */
    int64_t seen_us; /* of the first sample in a row with a stranger; 0: none */
    pid_t ours[NVML_PROCESSES_MAX];
    int n_ours;
};

/* A process of nobody here that this sample and one before it show, or 0. in_use: a rank of ours has the GPU;
 * allowed: so many processes of ours wait there for a rank to become. All times are monotonic. */
pid_t strangers_find(struct strangers *v, const struct nvml_sample *s, bool in_use, int allowed, int64_t now_us);

#endif
