/* codec - lossy coding of runs of floats into blocks of a size known beforehand, for the wire
 *
 * Sources: TACO (arXiv 2604.24088), SDP4Bit (arXiv 2410.15526), ZeRO++ (arXiv 2306.10209). A block holds everything
 * that its decoding needs; each part is padded with zeros to a multiple of 16 bytes:
 *
 *   | codes | scales | u32 flags | u8 codec | u8 version | u16 0 | u64 count |
 *
 * Values are coded in groups that share a scale. The codecs (n-bit codes never use their most negative value):
 *
 *   r8 r6 r4       Hadamard transform of 128 values with random signs, integers, nearest; scale bf16, rounded up
 *   g8 g4          groups of 128, integers, nearest; scale f32
 *   hs8 hs4        Hadamard transform of 32 values, groups of 128, integers, stochastic rounding; scale f32
 *   qwd8 qwd4      groups of 2048, integers, stochastic rounding; scale f32. For differences of weights
 *   t8 t8-g64 t8-g256 t8-e5m2   TACO: Hadamard transform of a group of 128, 64, 256, 256 values, FP8 (E4M3, E5M2 for
 *                  the last), nearest; one scale f32
 *   t8-paper       t8 with TACO's two scales and its order of operations
 *
 * The last group of a run may be short; it is then coded without a transform. Numbers that are not finite
 * are coded as 0 and raise CODEC_NONFINITE in the block's flags: the trainer must hear of it. So do numbers beyond what
 * a scale can express (about 3e37). A run of zeros decodes to zeros.
 *
 * Reductions add in f32 in the order of the blocks, so equal input gives equal bits. Everything here gives the same
 * bits with AVX-512, with AVX2 and without. Nothing here keeps state: any thread may code anything at any time.
 */
#ifndef MUSTER_COMPRESS_CODEC_H
#define MUSTER_COMPRESS_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define CODEC_COUNT_MAX (UINT64_C(1) << 36) /* values in a block */

enum codec_type { CODEC_F32, CODEC_BF16 }; /* of raw values */

#define CODEC_NONFINITE 1u /* flag: some value was not finite, or too large, and was coded as another */

struct codec;

/* The place of a run of values: the random bits of a value depend on it and on the value's index alone. The rounding of
 * two runs of one tensor is the same unless step, micro or offset differ. */
struct codec_site {
    uint64_t seed; /* the job's */
    uint32_t tensor, step, micro;
    uint64_t offset; /* index in the tensor of the run's first value */
};

/* The codec of a name, which lives for ever. -EINVAL: no such codec, -ENOTSUP: known, but not in this table; err says
 * which names there are. */
int codec_by_name(const char *name, const struct codec **ret, struct merr *err);

/* The i-th codec of the table, or NULL behind its end. For tests and benchmarks. */
const struct codec *codec_at(size_t i);

unsigned codec_id(const struct codec *c); /* never changes its meaning */
const char *codec_name(const struct codec *c);
size_t codec_group(const struct codec *c);      /* values that share a scale; cut runs at multiples of it */
int codec_is_stochastic(const struct codec *c); /* does encoding need a site? */

/* Bytes of the block of count (at most CODEC_COUNT_MAX) values. */
size_t codec_size(const struct codec *c, size_t count);

/* Encode count values into codec_size bytes of block. site: may be NULL unless the codec is stochastic. Returns the
 * flags of the block. */
uint32_t codec_encode(const struct codec *c, const struct codec_site *site, enum codec_type type, const void *in,
                      size_t count, void *block);

/* Decode a block of len bytes from outside into count values. Returns 0 and ORs the block's flags into *ret_flags, or
 *   -EBADMSG  it is no block of this codec for count values: err says what is wrong with it; out is unspecified
 */
int codec_decode(const struct codec *c, const void *block, size_t len, enum codec_type type, void *out, size_t count,
                 uint32_t *ret_flags, struct merr *err);

/* What is reduced: n blocks of len bytes each, added in their order. One of them may be NULL: there, the raw values own
 * are added, uncoded. */
struct codec_parts {
    const void *const *blocks;
    size_t n, len;
    const void *own;
    enum codec_type own_type;
};

/* Sum of the parts into count values. As codec_decode; err names the block. A sum that is not finite because own is
 * not, raises the flag. */
int codec_decode_reduce(const struct codec *c, const struct codec_parts *parts, enum codec_type type, void *out,
                        size_t count, uint32_t *ret_flags, struct merr *err);

/* The same, encoded again with codec to into codec_size(to, count) bytes of block, which carries all flags; nothing is
 * transformed on the way. As codec_decode, or
 *   -EINVAL  c and to do not share transform and group
 */
int codec_decode_reduce_encode(const struct codec *c, const struct codec_parts *parts, const struct codec *to,
                               const struct codec_site *site, void *block, size_t count, uint32_t *ret_flags,
                               struct merr *err);

/* The closed loop of qWD: encode the difference between the master and the replica that everybody holds (not the
 * master before), then add the decoded difference to every replica, the owner's too. With a bf16 replica the master is
 * first rounded to bf16, and difference and sum are taken in bf16, so that all replicas stay equal bit for bit. */
uint32_t codec_encode_difference(const struct codec *c, const struct codec_site *site, const float *master,
                                 enum codec_type type, const void *replica, size_t count, void *block);

/* Add a block of differences to the replica. As codec_decode, but the replica is changed only on success. */
int codec_decode_add(const struct codec *c, const void *block, size_t len, enum codec_type type, void *replica,
                     size_t count, uint32_t *ret_flags, struct merr *err);

/* Which code runs from now on: "plain", "avx2", "avx512", or NULL for the fastest here. For tests and benchmarks.
 * -EINVAL: no such path on this processor. */
int codec_use(const char *path);

/* Name of the path in use. Likewise. */
const char *codec_path(void);

/* The i-th path of this processor, the fastest first and "plain" last, or NULL behind it. Likewise. */
const char *codec_path_at(size_t i);

#endif
