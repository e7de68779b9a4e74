/* The codecs as kernels. A thread holds eight neighbouring values; a group is 8, 16 or 32 neighbouring threads of a
 * warp, or (qwd*) all 256 of a block. Eight values are one block of Philox and a whole number of bytes in any width.
 * Groups, and a group's sums, run in the order of group_plain.c; compiled without contraction.
 *
 * Every thread goes through every shuffle, also those whose group is short or absent: they hold zeros. */
#include <stddef.h>
#include <stdint.h>

#include "compress/cuda/codec_call.h"
#include "compress/cuda/launch.h"

#define VALUES 8
#define THREADS 256
#define WARP 32

namespace {

/* --- who holds what ----------------------------------------------------------------------------------------------- */

struct spot {
    size_t group;       /* its number */
    size_t at;          /* of the run's values, the first of this thread */
    int lanes, lane;    /* threads of a group; this one's number in it */
    int mine;           /* values this thread has, 0..8 */
    int n;              /* values the group has, 0: there is no such group */
    bool whole;
};

__device__ spot find_spot(const codec &c, uint64_t count)
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
__device__ float largest_of_group(const spot &s, float x)
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

__device__ bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

__device__ void load_f32(const float *from, int mine, float y[VALUES])
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

__device__ void load_bf16(const uint16_t *from, int mine, uint16_t h[VALUES])
{
    if (mine == VALUES && is_aligned(from)) {
        const uint4 a = *(const uint4 *)from;
        const uint32_t w[4] = { a.x, a.y, a.z, a.w };

#pragma unroll
        for (int v = 0; v < VALUES; v++)
            h[v] = (uint16_t)(w[v / 2] >> (16 * (v % 2)));
        return;
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        h[v] = v < mine ? from[v] : 0;
}

__device__ void load_values(codec_type type, const void *in, const spot &s, float y[VALUES])
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

__device__ void store_bf16(uint16_t *to, int mine, const uint16_t h[VALUES])
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

__device__ void store_values(codec_type type, void *out, const spot &s, const float y[VALUES])
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
template <typename T> __device__ void wht(T y[VALUES], int lane, int width)
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
template <typename T> __device__ void transform_whole(const codec &c, const spot &s, T y[VALUES])
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

__device__ void sign_whole(const codec &c, const spot &s, float y[VALUES])
{
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (c.transform == TRANSFORM_RHT && s.whole && group_sign((size_t)(s.lane * VALUES + v)))
            y[v] = -y[v];
}

/* Values become coefficients but for a factor, which is returned. */
__device__ float to_coefficients(const codec &c, const spot &s, float y[VALUES])
{
    sign_whole(c, s, y);
    transform_whole(c, s, y);
    return !s.whole ? 1 : c.transform == TRANSFORM_H32 ? 0x1p-5f : group_norm(&c);
}

__device__ void multiply(float y[VALUES], float by)
{
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] *= by;
}

__device__ float largest(const spot &s, const float y[VALUES])
{
    float amax = 0;

#pragma unroll
    for (int v = 0; v < VALUES; v++)
        amax = fmaxf(amax, fabsf(y[v]));
    return largest_of_group(s, amax);
}

/* 0 for what is not finite. Returns flags. */
__device__ uint32_t clean(float y[VALUES])
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

/* --- codes -------------------------------------------------------------------------------------------------------- */

struct block_parts {
    const uint8_t *codes, *scales;
};

__device__ block_parts parts_of(const codec &c, const void *block, uint64_t count, const spot &s)
{
    block_parts p;

    p.codes = (const uint8_t *)block + s.group * group_codes_bytes(&c, c.group) + (size_t)(s.lane * c.bits);
    p.scales = (const uint8_t *)block + (group_codes_bytes(&c, count) + 15) / 16 * 16 +
               s.group * group_scale_bytes(&c);
    return p;
}

/* This thread's codes, packed: c.bits bytes. */
__device__ uint64_t load_codes(const codec &c, const uint8_t *from, int mine)
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

__device__ void store_codes(const codec &c, uint8_t *to, int mine, uint64_t w)
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
__device__ int shift_of(const codec &c, int v)
{
    return c.bits == 4 ? 4 * (v ^ 1) : c.bits * v;
}

/* Random numbers of this thread's values. */
__device__ void draw(const group_chance &chance, const spot &s, float u[VALUES])
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
__device__ void put_codes(const codec &c, const group_chance &chance, const spot &s, const float y[VALUES], float inv,
                          uint8_t *codes)
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

__device__ void store_scales(const codec &c, const spot &s, uint8_t *scales, float scale, float alpha)
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

__device__ group_scales load_scales(const codec &c, const spot &s, const uint8_t *scales)
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
__device__ float paper_alpha(const codec &c, const spot &s, const float y[VALUES])
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

__device__ void paper_encode(const codec &c, const spot &s, float alpha, const float y[VALUES], uint8_t *codes,
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
__device__ uint32_t encode_group(const codec &c, const group_chance &chance, const spot &s, float y[VALUES], bool raw,
                                 float pre, void *block, uint64_t count)
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

__device__ void raise_flags(const codec_call &k, uint32_t flags)
{
    if (flags) {
        atomicOr((unsigned int *)((uint8_t *)k.out + k.out_bytes - CALL_TRAILER_BYTES), flags);
        atomicOr(&k.report->flags, flags);
    }
}

__global__ void encode_kernel(const __grid_constant__ codec_call k)
{
    const spot s = find_spot(k.to, k.count);
    float y[VALUES];
    uint16_t h[VALUES];

    if (k.report->frozen)
        return;
    load_values(k.in_type, k.in, s, y);
    if (k.what == CALL_DIFFERENCE && k.out_type == CODEC_BF16) {
        load_bf16((const uint16_t *)k.other + s.at, s.mine, h);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            y[v] = group_difference(y[v], h[v]);
    } else if (k.what == CALL_DIFFERENCE) {
        float r[VALUES];

        load_f32((const float *)k.other + s.at, s.mine, r);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            y[v] = y[v] - r[v];
    }
    raise_flags(k, encode_group(k.to, k.chance, s, y, true, 1, k.out, k.count));
}

/* --- decode ------------------------------------------------------------------------------------------------------- */

__device__ void fault(const codec_call &k, uint64_t what)
{
    atomicMin((unsigned long long *)&k.report->fault, (unsigned long long)what);
}

/* The numbers of this thread's codes, whole ones (q) or FP8 (f). Returns 1 when one is such as no encoder writes. */
__device__ int unpack(const codec &c, const uint8_t *codes, int mine, int32_t q[VALUES], float f[VALUES])
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

__device__ void decode_group(const codec_call &k, const spot &s, float y[VALUES])
{
    const codec &c = k.c;
    const block_parts p = parts_of(c, k.blocks[0], k.count, s);
    const group_scales scale = load_scales(c, s, p.scales);
    int32_t q[VALUES];
    float norm;

    if (!group_scales_ok(&c, scale))
        fault(k, CALL_FAULT_GROUP(s.group, 0, 0));
    if (unpack(c, p.codes, s.mine, q, y))
        fault(k, CALL_FAULT_GROUP(s.group, 1, 0));
    if (!c.fp8) { /* whole numbers are transformed as such, exactly, then multiplied once */
        const float by = s.whole ? scale.s * group_norm(&c) : scale.s;

        transform_whole(c, s, q);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            y[v] = (float)q[v] * by;
        sign_whole(c, s, y);
    } else if (c.scale == SCALE_PAPER) {
        multiply(y, scale.s);
        norm = to_coefficients(c, s, y);
        multiply(y, norm);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            y[v] /= scale.alpha;
    } else {
        norm = to_coefficients(c, s, y);
        multiply(y, norm * scale.s);
    }
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        y[v] = group_limit(y[v]);
}

__device__ void add_to_replica(const codec_call &k, const spot &s, float y[VALUES])
{
    uint16_t h[VALUES];
    float r[VALUES];

    if (k.out_type == CODEC_BF16) {
        load_bf16((const uint16_t *)k.out + s.at, s.mine, h);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            h[v] = group_sum_rounded(h[v], y[v]);
        store_bf16((uint16_t *)k.out + s.at, s.mine, h);
        return;
    }
    load_f32((const float *)k.out + s.at, s.mine, r);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        r[v] += y[v];
    store_values(CODEC_F32, k.out, s, r);
}

__global__ void decode_kernel(const __grid_constant__ codec_call k)
{
    const spot s = find_spot(k.c, k.count);
    float y[VALUES];

    if (k.report->frozen || (k.what == CALL_ADD && k.report->fault != CALL_NO_FAULT))
        return;
    decode_group(k, s, y);
    if (k.what == CALL_ADD)
        add_to_replica(k, s, y);
    else if (k.what == CALL_DECODE)
        store_values(k.out_type, k.out, s, y);
}

/* --- reduce ------------------------------------------------------------------------------------------------------- */

/* The power of two with which this group's numbers are added: 1 but for huge ones. Tells of scales that are none. */
__device__ float power_of_sum(const codec_call &k, const spot &s, const float own[VALUES])
{
    float pre = 1, amax = 0;

    for (uint32_t i = 0; i < k.n; i++) {
        if (!k.blocks[i])
            continue;
        const group_scales scale = load_scales(k.c, s, parts_of(k.c, k.blocks[i], k.count, s).scales);

        if (!group_scales_ok(&k.c, scale))
            fault(k, CALL_FAULT_GROUP(s.group, 0, i));
        if (scale.s > GROUP_LARGE * scale.alpha)
            pre = 0x1p-64f;
    }
    if (!k.in)
        return pre;
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        amax = fmaxf(amax, group_is_finite(own[v]) ? fabsf(own[v]) : 0);
    return largest_of_group(s, amax) > GROUP_LARGE ? 0x1p-64f : pre;
}

__device__ void add_block(const codec_call &k, const spot &s, uint32_t i, float pre, float sum[VALUES])
{
    const block_parts p = parts_of(k.c, k.blocks[i], k.count, s);
    const group_scales scale = load_scales(k.c, s, p.scales);
    const float by = scale.s * pre;
    int32_t q[VALUES];
    float f[VALUES];

    if (unpack(k.c, p.codes, s.mine, q, f))
        fault(k, CALL_FAULT_GROUP(s.group, 1, i));
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        if (k.c.scale == SCALE_PAPER)
            sum[v] += scale.s * f[v] / scale.alpha * pre;
        else
            sum[v] += by * (k.c.fp8 ? f[v] : (float)q[v]);
    }
}

/* The coefficients of a group, added up times the power that is returned. */
__device__ float sum_group(const codec_call &k, const spot &s, float sum[VALUES], uint32_t *flags)
{
    float own[VALUES], pre, norm;

#pragma unroll
    for (int v = 0; v < VALUES; v++)
        sum[v] = own[v] = 0;
    if (k.in)
        load_values(k.in_type, k.in, s, own);
    pre = power_of_sum(k, s, own);
    for (uint32_t i = 0; i < k.n; i++) {
        if (k.blocks[i]) {
            add_block(k, s, i, pre, sum);
            continue;
        }
        *flags |= clean(own);
        multiply(own, pre);
        norm = to_coefficients(k.c, s, own);
#pragma unroll
        for (int v = 0; v < VALUES; v++)
            sum[v] += norm * own[v];
    }
    return pre;
}

__global__ void reduce_kernel(const __grid_constant__ codec_call k)
{
    const spot s = find_spot(k.c, k.count);
    uint32_t flags = 0;
    float sum[VALUES], pre, norm;

    if (k.report->frozen)
        return;
    pre = sum_group(k, s, sum, &flags);
    if (k.what == CALL_REDUCE_ENCODE) {
        raise_flags(k, flags | encode_group(k.to, k.chance, s, sum, false, pre, k.out, k.count));
        return;
    }
    norm = s.whole ? group_norm(&k.c) : 1;
    transform_whole(k.c, s, sum);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        sum[v] = sum[v] * norm / pre;
    sign_whole(k.c, s, sum);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        sum[v] = group_limit(sum[v]);
    store_values(k.out_type, k.out, s, sum);
    if (flags)
        atomicOr(&k.report->flags, flags);
}

/* --- before each call --------------------------------------------------------------------------------------------- */

/* Does this trailer say count values of c? Gives its flags. */
__device__ bool trailer_ok(const codec &c, const uint8_t *t, uint64_t count, uint32_t *flags)
{
    const uint32_t f = *(const uint32_t *)t;

    *flags |= f;
    return t[4] == c.id && t[5] == CALL_VERSION && t[6] == 0 && t[7] == 0 && !(f & ~CODEC_NONFINITE) &&
           *(const uint64_t *)(t + 8) == count;
}

/* Describe the call in its report, look at the trailers of what is read, prepare padding and trailer of what is
 * written. One thread. */
__global__ void open_kernel(const __grid_constant__ codec_call k)
{
    struct codec_cuda_report *r = k.report;
    uint32_t flags = 0;

    r->frozen = r->fault != CALL_NO_FAULT;
    if (r->frozen)
        return;
    r->c = k.name;
    r->count = k.count;
    r->blocks = k.n;
    for (uint32_t i = 0; i < k.n; i++) {
        const uint8_t *t = k.blocks[i] ? k.blocks[i] + k.block_bytes - CALL_TRAILER_BYTES : NULL;

        if (!t || trailer_ok(k.c, t, k.count, &flags))
            continue;
        r->fault = CALL_FAULT_TRAILER(i);
        r->frozen = 1;
        for (int b = 0; b < CALL_TRAILER_BYTES; b++)
            r->trailer[b] = t[b];
        return;
    }
    r->flags |= flags;
    if (k.out_bytes == 0)
        return;
    uint8_t *out = (uint8_t *)k.out, *trailer = out + k.out_bytes - CALL_TRAILER_BYTES;
    const size_t codes = group_codes_bytes(&k.to, k.count), scales_at = (codes + 15) / 16 * 16;
    const size_t scales = (k.count + k.to.group - 1) / k.to.group * group_scale_bytes(&k.to);

    for (uint8_t *p = out + codes; p < out + scales_at; p++)
        *p = 0;
    for (uint8_t *p = out + scales_at + scales; p < trailer; p++)
        *p = 0;
    *(uint32_t *)trailer = flags;
    trailer[4] = k.to.id;
    trailer[5] = CALL_VERSION;
    trailer[6] = trailer[7] = 0;
    *(uint64_t *)(trailer + 8) = k.count;
}

} // namespace

int codec_call_launch(const struct codec_call *call, void *stream)
{
    const codec_call k = *call;
    const bool writes = k.out_bytes > 0;
    const size_t group = writes ? k.to.group : k.c.group, groups = (k.count + group - 1) / group;
    const size_t per_block = THREADS / (group / VALUES);
    const unsigned blocks = (unsigned)((groups + per_block - 1) / per_block);

    if (k.what != CALL_ADD) /* which goes on with the call that checked */
        LAUNCH(open_kernel, 1, 1, 0, stream, k);
    if (blocks > 0 && (k.what == CALL_ENCODE || k.what == CALL_DIFFERENCE))
        LAUNCH(encode_kernel, blocks, THREADS, 0, stream, k);
    else if (blocks > 0 && (k.what == CALL_REDUCE || k.what == CALL_REDUCE_ENCODE))
        LAUNCH(reduce_kernel, blocks, THREADS, 0, stream, k);
    else if (blocks > 0)
        LAUNCH(decode_kernel, blocks, THREADS, 0, stream, k);
    return cudaGetLastError();
}
