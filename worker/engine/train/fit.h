/* fit - whether what a rank will allocate fits into its node and its GPU, said before the first step */
#ifndef MUSTER_WORKER_TRAIN_FIT_H
#define MUSTER_WORKER_TRAIN_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/snapshot/capacity.h"

/* On a GPU, before anything has been measured there: what queues, graphs and calls of groups work in; cuBLASLt's code
 * with its workspace; and NCCL's buffers of one communicator. */
#define FIT_HEAD_LEAST 512
#define FIT_HEAD_MOST 65536
#define FIT_HEAD_BYTES ((uint64_t)2 << 30)
#define FIT_GPU_BYTES ((uint64_t)128 << 20)
#define FIT_PRODUCTS_BYTES ((uint64_t)192 << 20)
#define FIT_COMMUNICATOR_BYTES ((uint64_t)64 << 20)

struct fit { /* bytes one rank will hold */
    uint64_t weights, gradients, optimizer, activations;
    uint64_t activations_least; /* with parallel.recompute full */
    uint64_t rest;              /* the program, the rings of checkpoints, what kernels work in */
};

static inline uint64_t fit_all(const struct fit *f)
{
    return f->weights + f->gradients + f->optimizer + f->activations + f->rest;
}

/* What kernels and libraries work in on a GPU: floats of the largest workspace of a call, which is made half as large
 * again, and communicators of NCCL. */
static inline uint64_t fit_gpu_rest(uint64_t work_floats, int communicators)
{
    return FIT_GPU_BYTES + FIT_PRODUCTS_BYTES + work_floats * sizeof(float) * 3 / 2 +
           (uint64_t)communicators * FIT_COMMUNICATOR_BYTES;
}

/* Tokens whose logits a GPU of so much memory makes at a time: each time, the gradient of the head's weights is read
 * and written. A power of two from FIT_HEAD_LEAST on, for logits of f32 in at most FIT_HEAD_BYTES and a 64th of the
 * memory: with gradients of bf16 2.4 % of it, within what plans leave free. */
int fit_head_rows(uint64_t gpu_bytes, int vocab);

/* ranks: how many need as much of have. whose that is: "this node", "its GPU". Returns 0; -EINVAL when they need more
 * than there is in all, -ENOMEM when more than is free; err says how much is lacking, for what, and what would help. */
int fit_check(const struct fit *need, int ranks, const struct capacity *have, const char *whose, struct merr *err);

#endif
