/* What comes before the kernels of a call, and which of them it takes. */
#include "compress/cuda/codec_lanes.h"
#include "compress/cuda/codec_launch.h"

namespace
{

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
    struct codec_outcome *r = k.report;
    uint32_t flags = 0;

    r->frozen = r->fault != CALL_NO_FAULT;
    if (r->frozen)
        return;
    r->c = k.name;
    r->count = k.count;
    r->blocks = k.n;
    r->tag = k.tag;
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
    if (blocks == 0)
        return cudaGetLastError();
    if (k.what == CALL_ENCODE || k.what == CALL_DIFFERENCE)
        return codec_encode_launch(call, blocks, stream);
    if (k.what == CALL_REDUCE || k.what == CALL_REDUCE_ENCODE)
        return codec_reduce_launch(call, blocks, stream);
    return codec_decode_launch(call, blocks, stream);
}
