/* ulpd - lossless differences of bf16 weights, for pushing them to those who hold an older version
 *
 * A step changes most weights by a few units in the last place (ulp), or not at all: the difference of two bf16
 * numbers, counted in the numbers between them, is small and costs a few bits. Versions are named by the hashes of
 * their bits: a difference is refused where another base is held, and its result is checked.
 *
 *   | "ULPD" | u32 version | u64 count | u64 hash of base | u64 hash of values | chunks of 131072 values |
 *   chunk: | u32 mode | u32 map bytes | u32 symbol bytes | u32 escapes | map | symbols | escaped values |
 *
 * Modes: 0 all equal; 1 a symbol each; 2 a map with a bit for each that changed, symbols for those; 3 the values as
 * they are. A symbol is the difference in -126..126, or 127: the value follows as it is. Map and symbols are zstd
 * frames made without match search: the entropy coder is all that is wanted.
 */
#ifndef MUSTER_COMPRESS_ULPD_H
#define MUSTER_COMPRESS_ULPD_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define ULPD_COUNT_MAX (UINT64_C(1) << 36)

struct ulpd; /* memory of one thread's encodings and decodings */

/* NULL when memory is short. */
struct ulpd *ulpd_new(void);
void ulpd_free(struct ulpd *u);

/* The most bytes that count (at most ULPD_COUNT_MAX) values can take. */
size_t ulpd_bound(size_t count);

/* Encode values as differences to base into out, which has room for ulpd_bound(count). Returns bytes. Any bits are
 * given back, NaN and -0 too. */
size_t ulpd_encode(struct ulpd *u, const uint16_t *base, const uint16_t *values, size_t count, void *out);

/* Decode len bytes from outside into count values of out, which is not base. Returns 0, or
 *   -ESTALE   they belong to another base: ask for whole values
 *   -EBADMSG  they are no such encoding of count values, or damaged
 * with out unspecified. */
int ulpd_decode(struct ulpd *u, const uint16_t *base, const void *in, size_t len, uint16_t *out, size_t count,
                struct merr *err);

#endif
