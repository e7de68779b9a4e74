/* Sums of blocks and own values: their coefficients are added up and transformed once, or encoded again. */
#include "compress/cuda/codec_codes.h"
#include "compress/cuda/codec_launch.h"

namespace
{

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

} // namespace

int codec_reduce_launch(const struct codec_call *call, unsigned blocks, void *stream)
{
    LAUNCH(reduce_kernel, blocks, THREADS, 0, stream, *call);
    return cudaGetLastError();
}
