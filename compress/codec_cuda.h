/* codec_cuda - the codecs of codec.h on a GPU: the same blocks, bit for bit
 *
 * Raw values, blocks and reports are in device memory, blocks at multiples of 16 bytes. Every call is queued on a
 * stream (a cudaStream_t; NULL is the default one) and returns at once. What a call would return on the processor,
 * flags and the words about a bad block, gathers in its report, which is fetched at the end. After a call that failed,
 * those that follow it with the same report do nothing, and their output is unspecified. Kernels run on the calling
 * thread's current GPU, which must be the stream's.
 *
 * Each call returns 0, or -EINVAL (a pointer or a number that cannot be), -EIO (the device failed), with words in err.
 */
#ifndef MUSTER_COMPRESS_CODEC_CUDA_H
#define MUSTER_COMPRESS_CODEC_CUDA_H

#include "compress/codec.h"

#define CODEC_CUDA_PARTS_MAX 64 /* blocks of one reduction */

struct codec_cuda_report;

struct codec_cuda_fault { /* of the call that failed first */
    uint64_t tag;         /* as it was when the call was made */
    size_t block;         /* of a reduction's, the bad one; else 0 */
};

struct codec_cuda {
    /* A report without flags or faults. -ENOMEM */
    int (*report_new)(struct codec_cuda_report **ret, struct merr *err);
    void (*report_free)(struct codec_cuda_report *r);
    /* A number of the caller's for the calls from now on, at first 0. */
    void (*report_tag)(struct codec_cuda_report *r, uint64_t tag);

    /* The arguments are those of codec_encode, codec_decode, ... ; parts->blocks itself is host memory. */
    int (*encode)(void *stream, const struct codec *c, const struct codec_site *site, enum codec_type type,
                  const void *in, size_t count, void *block, struct codec_cuda_report *r, struct merr *err);
    int (*encode_difference)(void *stream, const struct codec *c, const struct codec_site *site, const float *master,
                             enum codec_type type, const void *replica, size_t count, void *block,
                             struct codec_cuda_report *r, struct merr *err);
    int (*decode)(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type, void *out,
                  size_t count, struct codec_cuda_report *r, struct merr *err);
    int (*decode_add)(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type,
                      void *replica, size_t count, struct codec_cuda_report *r, struct merr *err);
    int (*decode_reduce)(void *stream, const struct codec *c, const struct codec_parts *parts, enum codec_type type,
                         void *out, size_t count, struct codec_cuda_report *r, struct merr *err);
    int (*decode_reduce_encode)(void *stream, const struct codec *c, const struct codec_parts *parts,
                                const struct codec *to, const struct codec_site *site, void *block, size_t count,
                                struct codec_cuda_report *r, struct merr *err);

    /* Queue that what calls report comes here, and a fresh report takes its place. */
    int (*fetch)(void *stream, struct codec_cuda_report *r, struct merr *err);
    /* Once that has run: OR the flags of all calls between the last two fetches into *ret_flags. Does not wait.
     * -EBADMSG: a block was bad; err says what is wrong with it, as the processor would, *ret_fault (unless NULL)
     * which it was. */
    int (*collect)(struct codec_cuda_report *r, uint32_t *ret_flags, struct codec_cuda_fault *ret_fault,
                   struct merr *err);
};

#endif
