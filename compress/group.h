/* group - the coding of one group of values, plain and for AVX2 with the same bits; only codec.c and tests call it
 *
 * Coefficients are what a codec quantises: for r* and t8* the orthonormal transform H v / sqrt(n) (r*: of the values
 * with random signs), for hs* H v / 32 on every run of 32 values, else the values themselves.
 */
#ifndef MUSTER_COMPRESS_GROUP_H
#define MUSTER_COMPRESS_GROUP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bf16.h"
#include "compress/codec.h"
#include "compress/fp8.h"

#define GROUP_MAX 2048
#define GROUP_VALUE_MAX 0x1.FEp127f /* the largest bf16: what decoding gives at most */
#define GROUP_SCALE_MAX 0x1.FEp127f

/* Beyond these magnitudes a transform could overflow or lose small values: the plain code then works on values
 * multiplied by a power of two. */
#define GROUP_LARGE 0x1p60f
#define GROUP_SMALL 0x1p-60f

enum group_transform { TRANSFORM_NONE, TRANSFORM_H32, TRANSFORM_RHT, TRANSFORM_H };
enum group_scale { SCALE_BF16, SCALE_F32, SCALE_PAPER }; /* paper: f32 scale, f32 alpha */

struct codec {
    const char *name;
    uint8_t id, bits;
    uint8_t fp8, kind; /* is it FP8, and its fp8_kind */
    uint8_t stochastic;
    uint16_t group;
    enum group_transform transform;
    enum group_scale scale;
};

/* Of the random bits of a run: half i of the stream's words, the low one first, belongs to the tensor's value i. */
struct group_chance {
    uint32_t key[2], step, micro;
    uint64_t offset;
};

struct group_scales { /* as stored in a block, read */
    float s, alpha;
};

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

extern const struct group_ops group_avx2; /* only where the processor has AVX2 */

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

/* Store the scale for a largest coefficient amax times pre, and give it times pre. Returns flags. */
uint32_t group_scale_write(const struct codec *c, float amax, float pre, uint8_t *scales, float *ret_s);

/* 1 where the random sign of entry i of a transform is minus. */
int group_sign(size_t i);

static inline size_t group_scale_bytes(const struct codec *c)
{
    return c->scale == SCALE_BF16 ? 2 : c->scale == SCALE_F32 ? 4 : 8;
}

static inline int group_levels(const struct codec *c)
{
    return (1 << (c->bits - 1)) - 1;
}

/* Largest code in units of the scale. */
static inline float group_target(const struct codec *c)
{
    return !c->fp8 ? (float)group_levels(c) : c->kind == FP8_E4M3 ? FP8_E4M3_MAX : FP8_E5M2_MAX;
}

/* 1 / sqrt(n) for a whole group of r* and t8*, else 1. */
static inline float group_norm(const struct codec *c)
{
    if (c->transform != TRANSFORM_RHT && c->transform != TRANSFORM_H)
        return 1;
    return c->group == 32    ? 0x1.6a09e6p-3f
           : c->group == 64  ? 0x1p-3f
           : c->group == 128 ? 0x1.6a09e6p-4f
           : c->group == 256 ? 0x1p-4f
                             : 0x1.6a09e6p-5f;
}

static inline uint32_t group_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float group_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* out = bf16(bf16(master) - replica), or NaN where master or the difference is not finite. */
static inline void group_subtract(const float *restrict master, const uint16_t *restrict replica,
                                  float *restrict out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t m = group_bits(master[i]);
        uint32_t d = group_bits(group_float(bf16_round_bits(m)) - bf16_to_float(replica[i]));
        int32_t most = (int32_t)(m & 0x7FFFFFFF), other = (int32_t)(d & 0x7FFFFFFF);

        most = other > most ? other : most;
        out[i] = group_float(most >= 0x7F800000 ? 0x7FC00000 : bf16_round_bits(d));
    }
}

/* replica = bf16(replica + bf16(d)). */
static inline void group_add_rounded(const float *restrict d, uint16_t *restrict replica, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = bf16_to_float(replica[i]) + group_float(bf16_round_bits(group_bits(d[i])));

        replica[i] = (uint16_t)(bf16_round_bits(group_bits(sum)) >> 16);
    }
}

#endif
