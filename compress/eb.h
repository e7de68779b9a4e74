/* eb - lossy coding of floats with a hard bound on the error of each, for embedding rows
 *
 * Source: the SZ family; cuSZp's fixed layout (SC'23). A value becomes the whole number q of steps of twice the bound
 * nearest to it. Nothing is predicted: neighbours in weights and embeddings tell nothing of each other. Sizes depend on
 * the values, so receivers must be told them. Values that the bound cannot be kept for (not finite, or more than 2^30
 * steps) are sent as they are, bit for bit.
 *
 *   | "EBND" | u32 version | u64 count | f32 bound | u32 0 | chunks of 65536 values |
 *   chunk: | u32 mode | u32 symbol bytes | u32 raw values |, then
 *   mode 0: a byte w for each 32 values; for each of these, if w > 0: u32 of signs and w words, word j holding bit j of
 *           the 32 magnitudes (value 0 in the top bit); if w = 255: 32 f32
 *   mode 1: q of each value in -126..126, or 127 for a raw one, as a zstd frame made without match search; raw f32
 */
#ifndef MUSTER_COMPRESS_EB_H
#define MUSTER_COMPRESS_EB_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define EB_COUNT_MAX (UINT64_C(1) << 36)

struct eb; /* memory of one thread's encodings and decodings */

enum eb_mode { EB_FIXED, EB_BEST }; /* mode 0 alone: fast; the smaller of both for each chunk */

/* NULL when memory is short. */
struct eb *eb_new(void);
void eb_free(struct eb *e);

/* The most bytes that count (at most EB_COUNT_MAX) values can take. */
size_t eb_size_max(size_t count);

/* Encode count values with errors of at most bound into out, which has room for eb_size_max(count). Returns 0 and the
 * length in *ret_len, or -EINVAL: bound is no positive finite number whose half and double are such too. */
int eb_encode(struct eb *e, enum eb_mode mode, float bound, const float *in, size_t count, void *out, size_t *ret_len,
              struct merr *err);

/* Decode len bytes from outside into count values. Returns 0, or -EBADMSG: they are no such encoding of count values;
 * out is then unspecified. */
int eb_decode(struct eb *e, const void *in, size_t len, float *out, size_t count, struct merr *err);

/* How much an embedding table's error matters. */
enum eb_class { EB_LOW, EB_MEDIUM, EB_HIGH };

/* The bound of a table at a step (from 0) of steps: 0.05, 0.03 or 0.01 of the root mean square of its values by class;
 * in the first tenth of the steps it falls linearly to that from its double. */
float eb_bound_at(enum eb_class class, float rms, uint64_t step, uint64_t steps);

#endif
