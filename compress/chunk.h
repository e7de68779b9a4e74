/* chunk - codecs for chunks of tensor bytes, lossless but for moments
 *
 * Source: papers/checkpointing.md section 2.5. In trained weights only the exponent compresses; the mantissa is
 * noise. Filters put equal bytes of all elements side by side (planes, from the most significant byte down);
 * filter 2 first turns each element left by one bit, so that an f32's or bf16's eight exponent bits are one plane.
 * CHUNK_PLANE stores that plane as a zstd frame without match search and the other planes as they are:
 *
 *   | u32 n | zstd frame of plane 0, n bytes | planes 1.. raw | bytes beyond whole elements |
 *
 * A chunk of AdamW's first moments and that of the second moments of the same elements may share the bytes that
 * optq_encode made of both (compress/optq.h): as CHUNK_MOMENT1 they decode to the one, as CHUNK_MOMENT2 to the other.
 */
#ifndef MUSTER_COMPRESS_CHUNK_H
#define MUSTER_COMPRESS_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#define CHUNK_BYTES_MAX (1u << 20)

#define CHUNK_MOMENTS (CHUNK_BYTES_MAX / sizeof(float)) /* elements of coded moments, whatever a chunk has of them */

enum chunk_codec { CHUNK_RAW, CHUNK_ZSTD, CHUNK_LZ4, CHUNK_PLANE, CHUNK_MOMENT1, CHUNK_MOMENT2, CHUNK_CODECS };
enum chunk_filter { CHUNK_NO_FILTER, CHUNK_SHUFFLE, CHUNK_ROTATE };

struct chunk_form { /* how a chunk is stored */
    uint8_t codec, filter;
    uint32_t len; /* stored bytes */
};

struct chunk_coder; /* memory of one thread's encodings and decodings */

/* NULL when memory is short. */
struct chunk_coder *chunk_coder_new(void);
void chunk_coder_free(struct chunk_coder *c);

/* Encode n (1..CHUNK_BYTES_MAX) bytes of elements of esize bytes (1, 2, 4, 8) into out, which has room for n. codec is
 * lossless.
 * is_float: elements are floats. Gives CHUNK_RAW, with out unspecified and len n, when codec would not save 3 %. */
void chunk_encode(struct chunk_coder *c, enum chunk_codec codec, size_t esize, int is_float, const void *in, size_t n,
                  void *out, struct chunk_form *ret);

/* Decode len bytes from outside into exactly n (at most CHUNK_BYTES_MAX) bytes of out. Returns 0, or -EBADMSG for
 * anything that is not such an encoding; out is then unspecified. */
int chunk_decode(struct chunk_coder *c, const struct chunk_form *form, size_t esize, const void *in, void *out,
                 size_t n);

/* Planes of n bytes and back; a tail shorter than an element is copied. rotate: filter 2. */
void chunk_split(size_t esize, int rotate, const void *in, void *out, size_t n);
void chunk_join(size_t esize, int rotate, const void *in, void *out, size_t n);

#endif
