/* A block to values, or added to a replica. */
#include "compress/cuda/codec_codes.h"
#include "compress/cuda/codec_launch.h"

namespace
{

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

} // namespace

int codec_decode_launch(const struct codec_call *call, unsigned blocks, void *stream)
{
    LAUNCH(decode_kernel, blocks, THREADS, 0, stream, *call);
    return cudaGetLastError();
}
