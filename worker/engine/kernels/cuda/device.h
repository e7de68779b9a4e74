/* device - what the kernels share: numbers of either type, and sums over a block of threads (C++) */
#ifndef MUSTER_WORKER_KERNELS_CUDA_DEVICE_H
#define MUSTER_WORKER_KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "base/bf16.h"
#include "compress/cuda/launch.h"

#define WARP 32
#define GELU_K 0.7978845608028653559f /* sqrt(2/pi) */
#define GELU_A 0.044715f

struct bf16 {
    uint16_t bits;
};

__device__ inline float get(const float *p)
{
    return *p;
}

__device__ inline float get(const bf16 *p)
{
    return bf16_to_float(p->bits);
}

__device__ inline void put(float *p, float x)
{
    *p = x;
}

__device__ inline void put(bf16 *p, float x)
{
    p->bits = bf16_from_float(x);
}

__device__ inline float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(GELU_K * (x + GELU_A * x * x * x)));
}

struct sum_of {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

struct max_of {
    __device__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

/* x of all threads (a multiple of WARP, 1024 at most) of a block as one, in a fixed order; every thread gets it.
 * room: shared memory of WARP entries, which no other call uses at the same time. */
template <typename T, typename F> __device__ T over_block(T x, F f, T *room)
{
    const int warps = (int)blockDim.x / WARP;

    for (int m = WARP / 2; m > 0; m /= 2)
        x = f(x, __shfl_xor_sync(ALL_LANES, x, m));
    __syncthreads(); /* whoever still reads what the last call left in room */
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = x;
    __syncthreads();
    x = room[0];
    for (int i = 1; i < warps; i++)
        x = f(x, room[i]);
    return x;
}

/* Blocks of threads for n pieces of work; at least one, so that a launch is never empty. */
inline unsigned blocks_for(size_t n, size_t threads)
{
    return n == 0 ? 1 : (unsigned)((n + threads - 1) / threads);
}

#endif
