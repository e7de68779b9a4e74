/* carve - places in one arena, handed out in order; without memory behind it, it only counts */
#ifndef MUSTER_WORKER_MODEL_CARVE_H
#define MUSTER_WORKER_MODEL_CARVE_H

#include <stddef.h>

#include "worker/engine/kernels/kernels.h"

struct carve {
    float *base; /* NULL: only count */
    size_t at;   /* floats so far */
};

static inline float *carve_floats(struct carve *c, size_t n)
{
    float *p = c->base ? c->base + c->at : NULL;

    c->at += (n + 15) / 16 * 16;
    return p;
}

static inline void *carve_typed(struct carve *c, enum kern_type type, size_t n)
{
    return carve_floats(c, (n * kern_size(type) + sizeof(float) - 1) / sizeof(float));
}

#endif
