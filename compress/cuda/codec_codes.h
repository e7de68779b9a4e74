/* codec_codes - codes and scales of a group, to and from a block, and how values become codes (C++) */
#ifndef MUSTER_COMPRESS_CUDA_CODEC_CODES_H
#define MUSTER_COMPRESS_CUDA_CODEC_CODES_H

#include "compress/cuda/codec_lanes.h"

/* --- codes -------------------------------------------------------------------------------------------------------- */

struct block_parts {
    const uint8_t *codes, *scales;
};

__device__ inline block_parts parts_of(const codec &c, const void *block, uint64_t count, const spot &s)
{
    block_parts p;

    p.codes = (const uint8_t *)block + s.group * group_codes_bytes(&c, c.group) + (size_t)(s.lane * c.bits);
    p.scales = (const uint8_t *)block + (group_codes_bytes(&c, count) + 15) / 16 * 16 + s.group * group_scale_bytes(&c);
    return p;
}

/* This thread's codes, packed: c.bits bytes. */
__device__ inline uint64_t load_codes(const codec &c, const uint8_t *from, int mine)
{
    uint64_t w = 0;

    if (mine < VALUES) {
        for (int i = 0; i < (int)group_codes_bytes(&c, (size_t)mine); i++)
            w |= (uint64_t)from[i] << (8 * i);
    } else if (c.bits == 8) {
        w = *(const uint64_t *)from;
    } else if (c.bits == 6) {
        const uint16_t *h = (const uint16_t *)from;

        w = (uint64_t)h[0] | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 32;
    } else {
        w = *(const uint32_t *)from;
    }
    return w;
}

__device__ inline void store_codes(const codec &c, uint8_t *to, int mine, uint64_t w)
{
    if (mine < VALUES) {
        for (int i = 0; i < (int)group_codes_bytes(&c, (size_t)mine); i++)
            to[i] = (uint8_t)(w >> (8 * i));
    } else if (c.bits == 8) {
        *(uint64_t *)to = w;
    } else if (c.bits == 6) {
        uint16_t *h = (uint16_t *)to;

        h[0] = (uint16_t)w;
        h[1] = (uint16_t)(w >> 16);
        h[2] = (uint16_t)(w >> 32);
    } else {
        *(uint32_t *)to = (uint32_t)w;
    }
}

/* Where code v is in the packed word: of two 4-bit codes, the first is the upper one. */
__device__ inline int shift_of(const codec &c, int v)
{
    return c.bits == 4 ? 4 * (v ^ 1) : c.bits * v;
}

/* Random numbers of this thread's values. */
__device__ inline void draw(const group_chance &chance, const spot &s, float u[VALUES])
{
    const uint64_t index = chance.offset + s.at;
    const int skip = (int)(index % 8); /* the same for all threads */
    uint32_t w[4], next[4];

    group_draw(&chance, index, w);
    if (skip == 0) {
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            u[v] = group_chance_of(w[v / 2] >> (16 * (v % 2)));
        return;
    }
    group_draw(&chance, index + 8, next);
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const int half = skip + v;
        const uint32_t word = half < 8 ? w[half / 2 % 4] : next[half / 2 % 4];

        u[v] = group_chance_of(word >> (16 * (half % 2)));
    }
}

/* Store the codes of coefficients times inv. */
__device__ inline void put_codes(const codec &c, const group_chance &chance, const spot &s, const float y[VALUES],
                                 float inv, uint8_t *codes)
{
    float u[VALUES];
    uint64_t w = 0;

    if (c.stochastic)
        draw(chance, s, u);
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const float t = y[v] * inv;
        uint32_t q = c.fp8          ? fp8_encode(t, (fp8_kind)c.kind)
                     : c.stochastic ? (uint32_t)group_by_chance(&c, t, u[v])
                                    : (uint32_t)group_nearest(&c, t);

        if (v < s.mine)
            w |= (uint64_t)(q & ((1u << c.bits) - 1)) << shift_of(c, v);
    }
    store_codes(c, codes, s.mine, w);
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

__device__ inline void store_scales(const codec &c, const spot &s, uint8_t *scales, float scale, float alpha)
{
    if (s.lane != 0 || s.n == 0)
        return;
    if (c.scale == SCALE_BF16)
        *(uint16_t *)scales = (uint16_t)(group_bits(scale) >> 16);
    else
        ((float *)scales)[0] = scale;
    if (c.scale == SCALE_PAPER)
        ((float *)scales)[1] = alpha;
}

__device__ inline group_scales load_scales(const codec &c, const spot &s, const uint8_t *scales)
{
    group_scales r;

    r.s = r.alpha = 1;
    if (s.n == 0)
        return r;
    r.s = c.scale == SCALE_BF16 ? bf16_to_float(*(const uint16_t *)scales) : ((const float *)scales)[0];
    if (c.scale == SCALE_PAPER)
        r.alpha = ((const float *)scales)[1];
    return r;
}

/* --- encode ------------------------------------------------------------------------------------------------------- */

/* TACO's first scale: squares are added up in eight sums, value i to sum i % 8, in order. */
__device__ inline float paper_alpha(const codec &c, const spot &s, const float y[VALUES])
{
    const int first = (int)threadIdx.x % WARP / s.lanes * s.lanes;
    float part[VALUES];

#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const float square = y[v] * y[v];

        part[v] = 0;
        for (int lane = 0; lane < s.lanes; lane++)
            part[v] += __shfl_sync(ALL_LANES, square, first + lane);
    }
#pragma unroll
    for (int k = VALUES / 2; k > 0; k /= 2)
#pragma unroll
        for (int i = 0; i < k; i++)
            part[i] += part[i + k];
    return group_paper_alpha(&c, part[0] / (float)(s.n > 0 ? s.n : 1));
}

__device__ inline void paper_encode(const codec &c, const spot &s, float alpha, const float y[VALUES], uint8_t *codes,
                                    uint8_t *scales)
{
    const float target = group_target(&c), scale = group_paper_scale(&c, largest(s, y));
    uint64_t w = 0;

    store_scales(c, s, scales, scale, alpha);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (v < s.mine)
            w |= (uint64_t)fp8_encode(group_clamp(y[v] / scale, -target, target), (fp8_kind)c.kind) << (8 * v);
    store_codes(c, codes, s.mine, w);
}

/* Code values (raw), or coefficients times pre (not raw). Returns flags. */
__device__ inline uint32_t encode_group(const codec &c, const group_chance &chance, const spot &s, float y[VALUES],
                                        bool raw, float pre, void *block, uint64_t count)
{
    const block_parts p = parts_of(c, block, count, s);
    uint8_t *codes = (uint8_t *)p.codes, *scales = (uint8_t *)p.scales;
    uint32_t flags;
    float by, norm = 1, scale, stored;

    if (c.scale == SCALE_PAPER) {
        multiply(y, 1 / pre);
        flags = clean(y);
        by = paper_alpha(c, s, y);
        multiply(y, by);
        if (raw) {
            norm = to_coefficients(c, s, y);
            multiply(y, norm);
        }
        paper_encode(c, s, by, y, codes, scales);
        return flags;
    }
    flags = clean(y);
    by = group_power(largest(s, y));
    multiply(y, by);
    if (raw)
        norm = to_coefficients(c, s, y);
    stored = group_scale_for(&c, largest(s, y) * norm, pre * by, &scale, &flags);
    store_scales(c, s, scales, stored, 1);
    put_codes(c, chance, s, y, norm / scale, codes);
    return s.n > 0 ? flags : 0;
}

__device__ inline void raise_flags(const codec_call &k, uint32_t flags)
{
    if (flags) {
        atomicOr((unsigned int *)((uint8_t *)k.out + k.out_bytes - CALL_TRAILER_BYTES), flags);
        atomicOr(&k.report->flags, flags);
    }
}

/* --- decode ------------------------------------------------------------------------------------------------------- */

__device__ inline void fault(const codec_call &k, uint64_t what)
{
    atomicMin((unsigned long long *)&k.report->fault, (unsigned long long)what);
}

/* The numbers of this thread's codes, whole ones (q) or FP8 (f). Returns 1 when one is such as no encoder writes. */
__device__ inline int unpack(const codec &c, const uint8_t *codes, int mine, int32_t q[VALUES], float f[VALUES])
{
    const uint64_t w = load_codes(c, codes, mine);
    int bad = 0;

#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        /* behind a short run's end, whole bytes may hold anything: it counts for nothing */
        const uint32_t u = v < mine ? (uint32_t)(w >> shift_of(c, v)) & ((1u << c.bits) - 1) : 0;

        bad |= group_code_is_bad(&c, u);
        q[v] = c.fp8 ? 0 : group_integer(&c, u);
        f[v] = c.fp8 ? fp8_decode((uint8_t)u, (fp8_kind)c.kind) : 0;
    }
    return bad;
}

#endif
