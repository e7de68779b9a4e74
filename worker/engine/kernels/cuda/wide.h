/* wide - eight numbers of either type at a time, in accesses of 16 bytes (C++)
 *
 * A thread has several units of eight under way: all of its loads come before its first store, so that memory answers
 * them together. What is left of a call after whole units, and arrays off a boundary of 16 bytes, go one by one.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_WIDE_H
#define MUSTER_WORKER_KERNELS_CUDA_WIDE_H

#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/tensor_core.h"

#define UNIT 8
#define UNIT_THREADS 256
#define UNIT_TURNS 2 /* units of a thread */

template <typename T> struct eight; /* numbers as they came from memory */

template <> struct eight<bf16> {
    uint4 v;

    __device__ void load(const bf16 *p)
    {
        v = *(const uint4 *)p;
    }

    __device__ float at(int i) const
    {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};

        return bf16_to_float((uint16_t)(words[i / 2] >> 16 * (i % 2)));
    }
};

template <> struct eight<float> {
    float4 v[2];

    __device__ void load(const float *p)
    {
        v[0] = ((const float4 *)p)[0];
        v[1] = ((const float4 *)p)[1];
    }

    __device__ float at(int i) const
    {
        const float4 &four = v[i / 4];

        return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
    }
};

__device__ inline void store_eight(bf16 *p, const float x[UNIT])
{
    *(uint4 *)p = make_uint4(two_bf16(x[0], x[1]), two_bf16(x[2], x[3]), two_bf16(x[4], x[5]), two_bf16(x[6], x[7]));
}

__device__ inline void store_eight(float *p, const float x[UNIT])
{
    ((float4 *)p)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)p)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

inline bool is_wide(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* f.load(u, numbers) and f.finish(u, numbers) for all units, f(i) for the numbers of n behind them. */
template <typename F> __global__ void for_units(size_t units, size_t n, F f)
{
    const size_t first = (size_t)blockIdx.x * (UNIT_THREADS * UNIT_TURNS) + threadIdx.x;
    typename F::numbers v[UNIT_TURNS];

    if (first + (size_t)((UNIT_TURNS - 1) * UNIT_THREADS) < units) {
#pragma unroll
        for (int t = 0; t < UNIT_TURNS; t++)
            f.load(first + (size_t)(t * UNIT_THREADS), v[t]);
#pragma unroll
        for (int t = 0; t < UNIT_TURNS; t++)
            f.finish(first + (size_t)(t * UNIT_THREADS), v[t]);
    } else {
#pragma unroll 1
        for (size_t u = first; u < units; u += UNIT_THREADS) {
            f.load(u, v[0]);
            f.finish(u, v[0]);
        }
    }
    if (blockIdx.x == gridDim.x - 1 && units * UNIT + threadIdx.x < n)
        f(units * UNIT + threadIdx.x);
}

#endif
