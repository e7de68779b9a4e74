/* memory - what a rank of a layout will hold, in bytes
 *
 * The same count that a rank makes before its first step (worker/engine/train/fit.h), from the sizes alone; a test
 * holds both against each other, number by number. Rounding, padding and scratch are in it. Of codecs between replicas
 * that work leaf by leaf (plan_job.dp_keyed) it is an upper bound.
 */
#ifndef MUSTER_SCHEDULER_PLAN_MEMORY_H
#define MUSTER_SCHEDULER_PLAN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/plan/shape.h"

#define PLAN_TENSOR_BLOCK 2048                  /* elements that a tensor's place is a multiple of */
#define PLAN_HEAD_ROWS 512                      /* tokens whose logits are made at a time */
#define PLAN_PROGRAM_BYTES ((uint64_t)24 << 20) /* code, libraries, tables: what a model of no size takes */
#define PLAN_RING_BYTES ((uint64_t)64 << 20)    /* most that checkpoints wait in */
#define PLAN_RING_SLOT ((uint64_t)4 << 20)      /* of which it is made */

#define PLAN_EXCHANGE_FLOATS ((size_t)3 << 20) /* of each gradient of another replica that has room at its owner */

#define PLAN_TILE_BYTES ((uint64_t)4 << 20) /* of masters, or of a moment, of an optimizer in files */
#define PLAN_TILES 4                        /* of all three, in memory at once */

/* Bytes of masters, or of a moment, of so many parameters in files: whole chunks of a checkpoint. */
static inline uint64_t plan_store_plane(uint64_t parameters)
{
    const uint64_t chunk = UINT64_C(1) << 20;
    uint64_t bytes = (parameters * sizeof(float) + chunk - 1) / chunk * chunk;

    return bytes > 0 ? bytes : chunk;
}

/* What an optimizer in files takes of memory for them. */
static inline uint64_t plan_store_bytes(uint64_t parameters)
{
    uint64_t plane = plan_store_plane(parameters), tile = plane < PLAN_TILE_BYTES ? plane : PLAN_TILE_BYTES;
    uint64_t tiles = (plane + tile - 1) / tile;

    return 3 * tile * (tiles < PLAN_TILES ? tiles : PLAN_TILES);
}

struct plan_memory {
    uint64_t weights, gradients, optimizer, activations, rest;
};

static inline uint64_t plan_memory_all(const struct plan_memory *m)
{
    return m->weights + m->gradients + m->optimizer + m->activations + m->rest;
}

/* What checkpoints of so many weights, split over so many replicas, wait in: two of them at once, of each the weights
 * in whole slots and the optimizer's moments in others. */
static inline uint64_t plan_ring_bytes(uint64_t weights, int replicas)
{
    uint64_t first = weights * sizeof(float), moments = 2 * first / (uint64_t)replicas;
    uint64_t slots = (first + PLAN_RING_SLOT - 1) / PLAN_RING_SLOT + (moments + PLAN_RING_SLOT - 1) / PLAN_RING_SLOT;
    uint64_t both = 2 * slots * PLAN_RING_SLOT;

    return both < PLAN_RING_BYTES ? both : PLAN_RING_BYTES;
}

/* Most buffers for gradients that a replica with leaves [begin, end) uses at once (worker/engine/optim/tree.h). */
int plan_leaf_buffers(int begin, int end);

/* Elements of the weights and of one gradient of pipeline rank r. */
void plan_elements(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *cut, int r,
                   size_t *ret_weights, size_t *ret_gradients);

/* Whether replicas hold weights in bf16 alone, but for those they update. */
static inline bool plan_narrow(const struct plan_job *job)
{
    return job->bf16 && job->zero && !job->dp_coded && !job->dp_keyed;
}

/* Bytes of the rank at pipeline place r in the replica (-1: in whichever needs most). slots: activation slots of each
 * of its chunks, as plan_slots() has them. */
void plan_memory_of(const struct plan_job *job, const struct plan_shape *shape, const struct plan_cut *cut, int r,
                    int replica, const int *slots, struct plan_memory *ret);

/* Activation slots of a chunk of pipeline rank r, whose replica runs s; forward: evaluation, NULL: none. */
int plan_slots(const struct schedule *s, const struct schedule *forward, int r, int chunk);

#endif
