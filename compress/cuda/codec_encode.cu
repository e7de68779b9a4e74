/* Values, or differences to a replica, to a block. */
#include "compress/cuda/codec_codes.h"
#include "compress/cuda/codec_launch.h"

namespace
{

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

} // namespace

int codec_encode_launch(const struct codec_call *call, unsigned blocks, void *stream)
{
    LAUNCH(encode_kernel, blocks, THREADS, 0, stream, *call);
    return cudaGetLastError();
}
