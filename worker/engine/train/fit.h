/* fit - whether what a rank will allocate fits into its node and its GPU, said before the first step */
#ifndef MUSTER_WORKER_TRAIN_FIT_H
#define MUSTER_WORKER_TRAIN_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/snapshot/capacity.h"

#define FIT_GPU_BYTES ((uint64_t)128 << 20) /* that kernels and calls of groups work in on a GPU */

struct fit { /* bytes one rank will hold */
    uint64_t weights, gradients, optimizer, activations;
    uint64_t activations_least; /* with parallel.recompute full */
    uint64_t rest;              /* the program, the rings of checkpoints, what kernels work in */
};

static inline uint64_t fit_all(const struct fit *f)
{
    return f->weights + f->gradients + f->optimizer + f->activations + f->rest;
}

/* ranks: how many need as much of have. whose that is: "this node", "its GPU". Returns 0; -EINVAL when they need more
 * than there is in all, -ENOMEM when more than is free; err says how much is lacking, for what, and what would help. */
int fit_check(const struct fit *need, int ranks, const struct capacity *have, const char *whose, struct merr *err);

#endif
