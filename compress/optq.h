/* optq - lossy coding of AdamW's two moments, with a bound on the error of the update that they make
 *
 * AdamW uses m and v through m / sqrt(v) alone, so that is what is kept. v becomes the nearest whole power of
 * (1 + rho)^2, which is wrong by rho of it at most; m / sqrt(v) becomes the nearest whole number of steps of 2 eb, so
 * an update is wrong by eb of the learning rate at most. The scheme is Muster's own. Never code what was decoded:
 * errors would add up. What that cannot be kept for (v not positive and finite, m not finite) comes back bit for bit; v
 * of 0 is 0 again. Both moments of a run of elements are needed to code either, and sizes depend on the values. The
 * same bytes give the same values everywhere: powers are products, not exp2().
 *
 *   | "OPTQ" | u32 version | u64 count | f32 rho | f32 eb | chunks of 65536 elements: numbers of v, numbers of m |
 *   numbers: | u32 shift | i32 base | u32 high bytes | u32 low bytes | u32 wide | u32 raw |,
 *            then high symbols, low symbols, wide numbers as i32, raw values as f32
 *
 * A number in base .. base + (125 << shift) - 1 is base + (high << shift | low); high symbols 125 .. 127 stand for v of
 * 0, for a wide number and for a raw value. Symbols are zstd frames made without match search; those of shift 0 have no
 * low symbols.
 */
#ifndef MUSTER_COMPRESS_OPTQ_H
#define MUSTER_COMPRESS_OPTQ_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define OPTQ_COUNT_MAX (UINT64_C(1) << 36)

struct optq_bounds {
    float rho; /* relative error of v, 0.001 .. 0.5; 0.01 is usual */
    float eb;  /* error of m / sqrt(v), 2^-20 .. 1; 2^-7 is usual */
};

struct optq; /* memory of one thread's encodings and decodings */

/* NULL when memory is short. */
struct optq *optq_new(void);
void optq_free(struct optq *o);

/* 0, or -EINVAL with words: a bound is out of its range. */
int optq_check_bounds(const struct optq_bounds *bounds, struct merr *err);

/* The most bytes that the moments of count (at most OPTQ_COUNT_MAX) elements can take. */
size_t optq_size_max(size_t count);

/* Encode the moments of count elements into out, which has room for optq_size_max(count). Returns 0 and the length in
 * *ret_len, or -EINVAL: a bound is out of its range. */
int optq_encode(struct optq *o, const struct optq_bounds *bounds, const float *m, const float *v, size_t count,
                void *out, size_t *ret_len, struct merr *err);

/* Decode len bytes from outside into the moments of count elements. Returns 0, or -EBADMSG: they are no such encoding
 * of count elements; m and v are then unspecified. */
int optq_decode(struct optq *o, const void *in, size_t len, float *m, float *v, size_t count, struct merr *err);

#endif
