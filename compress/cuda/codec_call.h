/* codec_call - one call of a GPU codec, as its host code (C) hands it to its kernels (CUDA) */
#ifndef MUSTER_COMPRESS_CUDA_CODEC_CALL_H
#define MUSTER_COMPRESS_CUDA_CODEC_CALL_H

#include <stdint.h>

#include "compress/codec_cuda.h"
#include "compress/group_rules.h"

#define CALL_VERSION 1 /* of blocks, as codec.c writes it */
#define CALL_TRAILER_BYTES 16

/* What went wrong first, as a number of which the smallest counts: in the order in which the processor looks. */
#define CALL_NO_FAULT UINT64_MAX
#define CALL_FAULT_TRAILER(block) ((uint64_t)(block))
#define CALL_FAULT_GROUP(g, is_code, block)                                                                            \
    (UINT64_C(1) << 63 | (uint64_t)(g) << 17 | (uint64_t)(is_code) << 16 | (uint64_t)(block))

struct codec_outcome {     /* of calls with one report; in device memory */
    uint64_t fault;        /* of the call that is described below */
    uint32_t flags;        /* of all calls */
    uint32_t frozen;       /* some earlier call failed: this one does nothing */
    const struct codec *c; /* host memory: not for the device to look into */
    uint64_t count, blocks, tag;
    uint8_t trailer[CALL_TRAILER_BYTES]; /* of the block that failed */
};

enum call_what { CALL_ENCODE, CALL_DIFFERENCE, CALL_DECODE, CALL_CHECK, CALL_ADD, CALL_REDUCE, CALL_REDUCE_ENCODE };

struct codec_call {
    enum call_what what;
    const struct codec *name; /* of c, in host memory */
    struct codec c, to;       /* of blocks read; of the block written */
    struct group_chance chance;
    enum codec_type in_type, out_type;
    uint64_t count;
    const void *in;       /* raw values: of encode, of a difference the master, of a reduction own */
    const void *other;    /* of a difference: the replica, of out_type */
    void *out;            /* raw values, or a block */
    uint64_t block_bytes; /* of each block read */
    uint64_t out_bytes;   /* of the block written */
    uint32_t n;           /* blocks */
    uint64_t tag;
    const uint8_t *blocks[CODEC_CUDA_PARTS_MAX];
    struct codec_outcome *report;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Queue a call's kernels. Returns a cudaError_t. */
int codec_call_launch(const struct codec_call *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif
