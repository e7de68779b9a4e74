/* group - the coding of one group of values, plain and by vectors with the same bits; only codec.c and tests call it
 *
 * Coefficients are what a codec quantises: for r* and t8* the orthonormal transform H v / sqrt(n) (r*: of the values
 * with random signs), for hs* H v / 32 on every run of 32 values, else the values themselves.
 */
#ifndef MUSTER_COMPRESS_GROUP_H
#define MUSTER_COMPRESS_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "compress/group_rules.h"
#include "compress/le.h"

/* Each function returns 0, or 1 without effect when the numbers are not ordinary and group_plain_* must take over.
 * All work on a whole group but the first four. */
struct group_ops {
    const char *name;
    void (*widen)(const uint16_t *in, float *out, size_t n);
    void (*narrow)(const float *in, uint16_t *out, size_t n); /* nearest, ties to even; no NaN */
    void (*subtract)(const float *master, const uint16_t *replica, float *out, size_t n);
    void (*add_rounded)(const float *d, uint16_t *replica, size_t n);
    int (*encode)(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *v, uint8_t *codes,
                  uint8_t *scales);
    int (*decode)(const struct codec *c, const uint8_t *codes, struct group_scales s, float *out, int *ret_bad);
    int (*add)(const struct codec *c, const uint8_t *codes, struct group_scales s, float *sum, int *ret_bad);
    int (*add_own)(const struct codec *c, const float *v, float *sum);
    int (*finish)(const struct codec *c, float *sum);
    int (*quantise)(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *sum,
                    uint8_t *codes, uint8_t *scales);
};

extern const struct group_ops group_avx2;   /* only where the processor has AVX2 and FMA */
extern const struct group_ops group_avx512; /* only where it has AVX-512 F, BW, DQ and VL */

/* --- the twin: groups of any length up to c->group, any numbers ----------------------------------------------- */

/* Encode n values, the first of which is value at of the run. Returns flags. */
uint32_t group_plain_encode(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *v,
                            size_t n, uint8_t *codes, uint8_t *scales);

/* Returns 0, or -1: some code is never written by an encoder. */
int group_plain_decode(const struct codec *c, const uint8_t *codes, struct group_scales s, float *out, size_t n);

/* Add coefficients times pre (a power of two) to sum. As group_plain_decode. */
int group_plain_add(const struct codec *c, const uint8_t *codes, struct group_scales s, float pre, float *sum,
                    size_t n);

/* Add the coefficients of raw values times pre to sum. Returns flags. */
uint32_t group_plain_add_own(const struct codec *c, const float *v, float pre, float *sum, size_t n);

/* Coefficients times pre become values. */
void group_plain_finish(const struct codec *c, float pre, float *sum, size_t n);

/* Quantise coefficients times pre. Returns flags. */
uint32_t group_plain_quantise(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *sum,
                              float pre, size_t n, uint8_t *codes, uint8_t *scales);

/* --- shared ------------------------------------------------------------------------------------------------------ */

/* Read a group's scales. Returns 0, or -1 when no encoder writes such. */
int group_scales_read(const struct codec *c, const uint8_t *scales, struct group_scales *ret);

/* Store the scale, not SCALE_PAPER, for a largest coefficient amax times pre, and give it times pre. Returns flags. */
static inline uint32_t group_scale_write(const struct codec *c, float amax, float pre, uint8_t *scales, float *ret_s)
{
    uint32_t flags = 0;
    float s = group_scale_for(c, amax, pre, ret_s, &flags);

    if (c->scale == SCALE_BF16)
        le_put(scales, group_bits(s) >> 16, 2);
    else
        le_put(scales, group_bits(s), 4);
    return flags;
}

/* --- blocks: of codec.c, for whoever else reads and writes them --------------------------------------------------- */

/* Where the random bits of a run come from; nowhere unless c is stochastic. */
struct group_chance group_chance_at(const struct codec *c, const struct codec_site *site);

/* Can a block of count values have len bytes? 0 or -EBADMSG. */
int group_size_check(const struct codec *c, size_t len, size_t count, struct merr *err);

/* Does a block's end say that it is count values of c? Gives its flags, or -EBADMSG. */
int group_trailer_check(const struct codec *c, const uint8_t trailer[16], size_t count, uint32_t *ret_flags,
                        struct merr *err);

/* Can sums of c's coefficients be encoded as to? 0 or -EINVAL. */
int group_share_check(const struct codec *c, const struct codec *to, struct merr *err);

/* -EBADMSG, with words. */
int group_bad_scale(const struct codec *c, size_t g, struct merr *err);
int group_bad_code(const struct codec *c, size_t g, struct merr *err);

/* group_difference and group_sum_rounded of n values. */
static inline void group_subtract(const float *restrict master, const uint16_t *restrict replica, float *restrict out,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = group_difference(master[i], replica[i]);
}

static inline void group_add_rounded(const float *restrict d, uint16_t *restrict replica, size_t n)
{
    for (size_t i = 0; i < n; i++)
        replica[i] = group_sum_rounded(replica[i], d[i]);
}

#endif
