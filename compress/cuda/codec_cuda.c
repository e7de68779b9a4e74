/* What the processor does of a GPU codec's call: look at the arguments, queue the kernels, tell of faults. */
#include "compress/codec_cuda.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>

#include "compress/cuda/backend_parts.h"
#include "compress/cuda/codec_call.h"
#include "compress/cuda/wait.h"
#include "compress/group.h"

struct codec_cuda_report {
    struct codec_outcome *outcome; /* the GPU's */
    struct codec_outcome *here;    /* pinned: what came of it at last, and a fresh one */
    uint64_t tag;
};

enum { FETCHED, FRESH, HERE };

static void report_free(struct codec_cuda_report *r)
{
    int saved = errno;

    if (r && !wait_lost()) {
        (void)cudaFree(r->outcome);
        (void)cudaFreeHost(r->here);
    }
    free(r);
    errno = saved;
}

static int report_new(struct codec_cuda_report **ret, struct merr *err)
{
    struct codec_cuda_report *r = calloc(1, sizeof(*r));
    void *there = NULL, *here = NULL;
    cudaError_t e;

    if (!r)
        return merr_set(err, -ENOMEM, "no memory for a report of codecs on the GPU");
    e = cudaMalloc(&there, sizeof(*r->outcome));
    if (e == cudaSuccess)
        e = cudaHostAlloc(&here, HERE * sizeof(*r->here), cudaHostAllocDefault);
    r->outcome = there;
    r->here = here;
    if (e == cudaSuccess) {
        r->here[FETCHED] = r->here[FRESH] = (struct codec_outcome){.fault = CALL_NO_FAULT};
        e = cudaMemcpy(there, &r->here[FRESH], sizeof(*r->here), cudaMemcpyHostToDevice);
    }
    if (e != cudaSuccess) {
        report_free(r);
        return cuda_failed(err, (int)e, "cannot make a report of codecs on the GPU");
    }
    *ret = r;
    return 0;
}

static void report_tag(struct codec_cuda_report *r, uint64_t tag)
{
    r->tag = tag;
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static int check_pointer(const void *p, size_t align, const char *what, struct merr *err)
{
    if (!p)
        return merr_set(err, -EINVAL, "a GPU codec was given no %s", what);
    if ((uintptr_t)p % align)
        return merr_set(err, -EINVAL, "a GPU codec's %s is not at a multiple of %zu bytes", what, align);
    return 0;
}

static int check_values(const void *p, enum codec_type type, size_t count, const char *what, struct merr *err)
{
    if (count > CODEC_COUNT_MAX)
        return merr_set(err, -EINVAL, "%zu values are beyond a block's limit of %llu", count,
                        (unsigned long long)CODEC_COUNT_MAX);
    return count == 0 ? 0 : check_pointer(p, type == CODEC_BF16 ? 2 : 4, what, err);
}

static int check_block(const void *p, const char *what, struct merr *err)
{
    return check_pointer(p, 16, what, err);
}

static int launch(struct codec_call *call, const struct codec *c, const struct codec *to, size_t count,
                  struct codec_cuda_report *r, void *stream, struct merr *err)
{
    int e;

    if (!r)
        return merr_set(err, -EINVAL, "a GPU codec was given no report");
    call->name = c ? c : to;
    call->c = c ? *c : *to;
    call->to = to ? *to : *c;
    call->count = count;
    call->report = r->outcome;
    call->tag = r->tag;
    call->block_bytes = codec_size(&call->c, count);
    call->out_bytes = to ? codec_size(to, count) : 0;
    e = codec_call_launch(call, stream);
    return e == cudaSuccess ? 0 : cuda_failed(err, e, "cannot run codec %s on the GPU", call->name->name);
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static int encode(void *stream, const struct codec *c, const struct codec_site *site, enum codec_type type,
                  const void *in, size_t count, void *block, struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {.what = CALL_ENCODE, .in_type = type, .in = in, .out = block};

    if (check_values(in, type, count, "values", err) || check_block(block, "block", err))
        return -EINVAL;
    call.chance = group_chance_at(c, site);
    return launch(&call, NULL, c, count, r, stream, err);
}

static int encode_difference(void *stream, const struct codec *c, const struct codec_site *site, const float *master,
                             enum codec_type type, const void *replica, size_t count, void *block,
                             struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {
        .what = CALL_DIFFERENCE, .in_type = CODEC_F32, .out_type = type, .in = master, .other = replica, .out = block};

    if (check_values(master, CODEC_F32, count, "master", err) || check_values(replica, type, count, "replica", err) ||
        check_block(block, "block", err))
        return -EINVAL;
    call.chance = group_chance_at(c, site);
    return launch(&call, NULL, c, count, r, stream, err);
}

static int decode(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type, void *out,
                  size_t count, struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {.what = CALL_DECODE, .out_type = type, .out = out, .n = 1, .blocks = {block}};
    int e = group_size_check(c, len, count, err);

    if (e)
        return e;
    if (check_values(out, type, count, "output", err) || check_block(block, "block", err))
        return -EINVAL;
    return launch(&call, c, NULL, count, r, stream, err);
}

static int decode_add(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type,
                      void *replica, size_t count, struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {.what = CALL_CHECK, .out_type = type, .out = replica, .n = 1, .blocks = {block}};
    int e = group_size_check(c, len, count, err);

    if (e)
        return e;
    if (check_values(replica, type, count, "replica", err) || check_block(block, "block", err))
        return -EINVAL;
    e = launch(&call, c, NULL, count, r, stream, err); /* first: a replica half changed is lost */
    if (e)
        return e;
    call.what = CALL_ADD;
    return launch(&call, c, NULL, count, r, stream, err);
}

static int set_parts(struct codec_call *call, const struct codec *c, const struct codec_parts *parts, size_t count,
                     struct merr *err)
{
    size_t raw = 0;
    int e = group_size_check(c, parts->len, count, err);

    if (e)
        return e;
    if (parts->n > CODEC_CUDA_PARTS_MAX)
        return merr_set(err, -EINVAL, "a GPU adds at most %d blocks in a call, not %zu", CODEC_CUDA_PARTS_MAX,
                        parts->n);
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->blocks[i] && check_block(parts->blocks[i], "block", err))
            return -EINVAL;
        raw += !parts->blocks[i];
        call->blocks[i] = parts->blocks[i];
    }
    if (raw > 1 || (raw == 1 && check_values(parts->own, parts->own_type, count, "own values", err)))
        return merr_set(err, -EINVAL, "one part of a reduction at most is uncoded, and then there are values");
    call->n = (uint32_t)parts->n;
    call->in = raw ? parts->own : NULL;
    call->in_type = parts->own_type;
    return 0;
}

static int decode_reduce(void *stream, const struct codec *c, const struct codec_parts *parts, enum codec_type type,
                         void *out, size_t count, struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {.what = CALL_REDUCE, .out_type = type, .out = out};
    int e = set_parts(&call, c, parts, count, err);

    if (e)
        return e;
    if (check_values(out, type, count, "output", err))
        return -EINVAL;
    return launch(&call, c, NULL, count, r, stream, err);
}

static int decode_reduce_encode(void *stream, const struct codec *c, const struct codec_parts *parts,
                                const struct codec *to, const struct codec_site *site, void *block, size_t count,
                                struct codec_cuda_report *r, struct merr *err)
{
    struct codec_call call = {.what = CALL_REDUCE_ENCODE, .out = block};
    int e = group_share_check(c, to, err);

    if (e == 0)
        e = set_parts(&call, c, parts, count, err);
    if (e)
        return e;
    if (check_block(block, "block", err))
        return -EINVAL;
    call.chance = group_chance_at(to, site);
    return launch(&call, c, to, count, r, stream, err);
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

static int tell_fault(const struct codec_outcome *r, struct codec_cuda_fault *ret, struct merr *err)
{
    size_t block = r->fault & 0xFFFF, g = (size_t)(r->fault >> 17 & ((UINT64_C(1) << 46) - 1));
    uint32_t flags;
    int e;

    if (!(r->fault >> 63))
        e = group_trailer_check(r->c, r->trailer, r->count, &flags, err);
    else
        e = r->fault >> 16 & 1 ? group_bad_code(r->c, g, err) : group_bad_scale(r->c, g, err);
    assert(e == -EBADMSG);
    if (ret)
        *ret = (struct codec_cuda_fault){.tag = r->tag, .block = block};
    return r->blocks > 1 ? merr_prefix(err, e, "block %zu of %zu", block, (size_t)r->blocks) : e;
}

static int fetch(void *stream, struct codec_cuda_report *r, struct merr *err)
{
    cudaError_t e = cudaMemcpyAsync(&r->here[FETCHED], r->outcome, sizeof(*r->here), cudaMemcpyDeviceToHost, stream);

    if (e == cudaSuccess)
        e = cudaMemcpyAsync(r->outcome, &r->here[FRESH], sizeof(*r->here), cudaMemcpyHostToDevice, stream);
    return e == cudaSuccess ? 0 : cuda_failed(err, (int)e, "cannot read what the GPU's codecs report");
}

static int collect(struct codec_cuda_report *r, uint32_t *ret_flags, struct codec_cuda_fault *ret_fault,
                   struct merr *err)
{
    const struct codec_outcome *o = &r->here[FETCHED];

    if (o->fault != CALL_NO_FAULT)
        return tell_fault(o, ret_fault, err);
    *ret_flags |= o->flags;
    return 0;
}

const struct codec_cuda codec_cuda_ops = {
    .report_new = report_new,
    .report_free = report_free,
    .report_tag = report_tag,
    .encode = encode,
    .encode_difference = encode_difference,
    .decode = decode,
    .decode_add = decode_add,
    .decode_reduce = decode_reduce,
    .decode_reduce_encode = decode_reduce_encode,
    .fetch = fetch,
    .collect = collect,
};
