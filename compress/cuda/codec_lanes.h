/* codec_lanes - the values of a group in the hands of its threads: raw, transformed, multiplied (C++)
 *
 * A thread holds eight neighbouring values; a group is 8, 16 or 32 neighbouring threads of a warp, or (qwd*) all 256 of
 * a block. Eight values are one block of Philox and a whole number of bytes in any width. Groups, and a group's sums,
 * run in the order of group_plain.c; compiled without contraction.
 *
 * Every thread goes through every shuffle, also those whose group is short or absent: they hold zeros.
 */
#ifndef MUSTER_COMPRESS_CUDA_CODEC_LANES_H
#define MUSTER_COMPRESS_CUDA_CODEC_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "compress/cuda/codec_call.h"
#include "compress/cuda/launch.h"

#define VALUES 8
#define THREADS 256
#define WARP 32

/* --- who holds what ----------------------------------------------------------------------------------------------- */

struct spot {
    size_t group;    /* its number */
    size_t at;       /* of the run's values, the first of this thread */
    int lanes, lane; /* threads of a group; this one's number in it */
    int mine;        /* values this thread has, 0..8 */
    int n;           /* values the group has, 0: there is no such group */
    bool whole;
};

__device__ inline spot find_spot(const codec &c, uint64_t count)
{
    spot s;
    size_t start;

    s.lanes = c.group / VALUES;
    s.lane = (int)threadIdx.x % s.lanes;
    s.group = (size_t)blockIdx.x * (size_t)(THREADS / s.lanes) + threadIdx.x / (unsigned)s.lanes;
    start = s.group * c.group;
    s.n = start >= count ? 0 : count - start < c.group ? (int)(count - start) : c.group;
    s.whole = s.n == c.group;
    s.at = start + (size_t)(s.lane * VALUES);
    s.mine = s.n - s.lane * VALUES;
    s.mine = s.mine < 0 ? 0 : s.mine > VALUES ? VALUES : s.mine;
    return s;
}

/* The largest of x over the group's threads. */
__device__ inline float largest_of_group(const spot &s, float x)
{
    __shared__ float warp_max[THREADS / WARP];

    for (int m = (s.lanes < WARP ? s.lanes : WARP) / 2; m > 0; m /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, m));
    if (s.lanes <= WARP) /* the same for all threads */
        return x;
    __syncthreads(); /* the array may still be read by the last call's threads */
    if (threadIdx.x % WARP == 0)
        warp_max[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++)
        x = fmaxf(x, warp_max[i]);
    return x;
}

/* --- raw values --------------------------------------------------------------------------------------------------- */

__device__ inline bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

__device__ inline void load_f32(const float *from, int mine, float y[VALUES])
{
    if (mine == VALUES && is_aligned(from)) {
        const float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];

        y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w;
        y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
        return;
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] = v < mine ? from[v] : 0;
}

__device__ inline void load_bf16(const uint16_t *from, int mine, uint16_t h[VALUES])
{
    if (mine == VALUES && is_aligned(from)) {
        const uint4 a = *(const uint4 *)from;
        const uint32_t w[4] = {a.x, a.y, a.z, a.w};

#pragma unroll
        for (int v = 0; v < VALUES; v++)
            h[v] = (uint16_t)(w[v / 2] >> (16 * (v % 2)));
        return;
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        h[v] = v < mine ? from[v] : 0;
}

__device__ inline void load_values(codec_type type, const void *in, const spot &s, float y[VALUES])
{
    uint16_t h[VALUES];

    if (type == CODEC_F32) {
        load_f32((const float *)in + s.at, s.mine, y);
        return;
    }
    load_bf16((const uint16_t *)in + s.at, s.mine, h);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] = bf16_to_float(h[v]);
}

__device__ inline void store_bf16(uint16_t *to, int mine, const uint16_t h[VALUES])
{
    if (mine == VALUES && is_aligned(to)) {
        uint32_t w[4];

#pragma unroll
        for (int k = 0; k < 4; k++)
            w[k] = (uint32_t)h[2 * k] | (uint32_t)h[2 * k + 1] << 16;
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
        return;
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (v < mine)
            to[v] = h[v];
}

__device__ inline void store_values(codec_type type, void *out, const spot &s, const float y[VALUES])
{
    float *to = (float *)out + s.at;
    uint16_t h[VALUES];

    if (type == CODEC_BF16) {
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            h[v] = (uint16_t)(bf16_round_bits(group_bits(y[v])) >> 16);
        store_bf16((uint16_t *)out + s.at, s.mine, h);
    } else if (s.mine == VALUES && is_aligned(to)) {
        ((float4 *)to)[0] = make_float4(y[0], y[1], y[2], y[3]);
        ((float4 *)to)[1] = make_float4(y[4], y[5], y[6], y[7]);
    } else {
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            if (v < s.mine)
                to[v] = y[v];
    }
}

/* --- transforms --------------------------------------------------------------------------------------------------- */

/* Unnormalised Walsh-Hadamard transform of runs of width values, stages from 1 up, as the format has it. */
template <typename T> __device__ inline void wht(T y[VALUES], int lane, int width)
{
#pragma unroll
    for (int h = 1; h < VALUES; h *= 2)
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            if (!(v & h)) {
                const T a = y[v], b = y[v + h];

                y[v] = a + b;
                y[v + h] = a - b;
            }
    for (int m = 1; m < width / VALUES; m *= 2)
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            const T other = __shfl_xor_sync(ALL_LANES, y[v], m);

            y[v] = lane & m ? other - y[v] : y[v] + other;
        }
}

/* The transform where the group is whole; else y stays. */
template <typename T> __device__ inline void transform_whole(const codec &c, const spot &s, T y[VALUES])
{
    T t[VALUES];

    if (c.transform == TRANSFORM_NONE) /* the same for all threads */
        return;
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        t[v] = y[v];
    wht(t, s.lane, (int)group_width(&c));
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] = s.whole ? t[v] : y[v];
}

__device__ inline void sign_whole(const codec &c, const spot &s, float y[VALUES])
{
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (c.transform == TRANSFORM_RHT && s.whole && group_sign((size_t)(s.lane * VALUES + v)))
            y[v] = -y[v];
}

/* Values become coefficients but for a factor, which is returned. */
__device__ inline float to_coefficients(const codec &c, const spot &s, float y[VALUES])
{
    sign_whole(c, s, y);
    transform_whole(c, s, y);
    return !s.whole ? 1 : c.transform == TRANSFORM_H32 ? 0x1p-5f : group_norm(&c);
}

__device__ inline void multiply(float y[VALUES], float by)
{
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] *= by;
}

__device__ inline float largest(const spot &s, const float y[VALUES])
{
    float amax = 0;

#pragma unroll
    for (int v = 0; v < VALUES; v++)
        amax = fmaxf(amax, fabsf(y[v]));
    return largest_of_group(s, amax);
}

/* 0 for what is not finite. Returns flags. */
__device__ inline uint32_t clean(float y[VALUES])
{
    uint32_t flags = 0;

#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (!group_is_finite(y[v])) {
            y[v] = 0;
            flags = CODEC_NONFINITE;
        }
    return flags;
}

#endif
