/* group_rules - what one number and one scale of a group become: the same on every processor and on GPUs
 *
 * Only the codecs' own code calls this. Whatever differs between processors (the order in which memory is walked, who
 * holds which value) is not here; whatever decides a bit of a block is. Never contract this arithmetic.
 */
#ifndef MUSTER_COMPRESS_GROUP_RULES_H
#define MUSTER_COMPRESS_GROUP_RULES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bf16.h"
#include "base/device.h"
#include "base/philox.h"
#include "compress/codec.h"
#include "compress/fp8.h"

#define GROUP_MAX 2048
#define GROUP_ALIGNED _Alignas(64)  /* vectors of 512 bits that cross lines of the cache take twice as long */
#define GROUP_VALUE_MAX 0x1.FEp127f /* the largest bf16: what decoding gives at most */
#define GROUP_SCALE_MAX 0x1.FEp127f

/* Beyond these magnitudes a transform could overflow or lose small values: one then works on values multiplied by a
 * power of two. */
#define GROUP_LARGE 0x1p60f
#define GROUP_SMALL 0x1p-60f

#define GROUP_PAPER_LAMBDA 1e-6f
#define GROUP_PAPER_ALPHA_MIN 1e-3f
#define GROUP_PAPER_ALPHA_MAX 1e3f
#define GROUP_PAPER_S_MIN 1e-12f
#define GROUP_PAPER_S_MAX 1e6f

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

DEVICE_INLINE uint32_t group_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

DEVICE_INLINE float group_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

DEVICE_INLINE float group_clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

DEVICE_INLINE int group_is_finite(float x)
{
    return (group_bits(x) & 0x7FFFFFFF) < 0x7F800000;
}

/* What a decoder gives. */
DEVICE_INLINE float group_limit(float x)
{
    return group_clamp(x, -GROUP_VALUE_MAX, GROUP_VALUE_MAX);
}

/* --- of a codec --------------------------------------------------------------------------------------------------- */

DEVICE_INLINE size_t group_scale_bytes(const struct codec *c)
{
    return c->scale == SCALE_BF16 ? 2 : c->scale == SCALE_F32 ? 4 : 8;
}

/* Bytes of the codes of count values. */
DEVICE_INLINE size_t group_codes_bytes(const struct codec *c, size_t count)
{
    return c->bits == 8 ? count : c->bits == 6 ? (count + 3) / 4 * 3 : (count + 1) / 2;
}

DEVICE_INLINE int group_levels(const struct codec *c)
{
    return (1 << (c->bits - 1)) - 1;
}

/* Largest code in units of the scale. */
DEVICE_INLINE float group_target(const struct codec *c)
{
    return !c->fp8 ? (float)group_levels(c) : c->kind == FP8_E4M3 ? FP8_E4M3_MAX : FP8_E5M2_MAX;
}

/* 1 / sqrt(n) for a whole group of r* and t8*, else 1. */
DEVICE_INLINE float group_norm(const struct codec *c)
{
    if (c->transform != TRANSFORM_RHT && c->transform != TRANSFORM_H)
        return 1;
    return c->group == 32    ? 0x1.6a09e6p-3f
           : c->group == 64  ? 0x1p-3f
           : c->group == 128 ? 0x1.6a09e6p-4f
           : c->group == 256 ? 0x1p-4f
                             : 0x1.6a09e6p-5f;
}

/* Values that are transformed together in a whole group; 1: none. */
DEVICE_INLINE size_t group_width(const struct codec *c)
{
    return c->transform == TRANSFORM_NONE ? 1 : c->transform == TRANSFORM_H32 ? 32 : c->group;
}

/* 1 where the random sign of entry i of a transform is minus. */
DEVICE_INLINE int group_sign(size_t i)
{
    const uint64_t word = i / 64 % 2 ? UINT64_C(0xD1B54A32D192ED03) : UINT64_C(0x9E3779B97F4A7C15);

    return (int)(word >> (i % 64) & 1);
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

/* What makes a group whose largest magnitude is amax ordinary, exactly. */
DEVICE_INLINE float group_power(float amax)
{
    return amax > GROUP_LARGE ? 0x1p-64f : amax > 0 && amax < GROUP_SMALL ? 0x1p64f : 1;
}

/* The scale for a largest coefficient amax times pre, not SCALE_PAPER. Returns it as stored, gives it times pre and
 * ORs flags. */
DEVICE_INLINE float group_scale_for(const struct codec *c, float amax, float pre, float *ret_s, uint32_t *flags)
{
    float s = amax / group_target(c);

    if (pre != 1)
        s /= pre;
    if (amax == 0)
        s = 1;
    if (s > GROUP_SCALE_MAX) {
        s = GROUP_SCALE_MAX;
        *flags |= CODEC_NONFINITE;
    }
    if (s == 0)
        s = 0x1p-149f;
    if (c->scale == SCALE_BF16) /* up: no value may clip */
        s = group_float((group_bits(s) + 0xFFFF) & 0xFFFF0000);
    *ret_s = amax == 0 ? 1 : s * pre;
    return s;
}

/* TACO's first scale, of numbers with this mean square. */
DEVICE_INLINE float group_paper_alpha(const struct codec *c, float mean_square)
{
    return group_clamp(group_target(c) / sqrtf(mean_square + GROUP_PAPER_LAMBDA), GROUP_PAPER_ALPHA_MIN,
                       GROUP_PAPER_ALPHA_MAX);
}

/* TACO's second scale, of coefficients of which amax is the largest. */
DEVICE_INLINE float group_paper_scale(const struct codec *c, float amax)
{
    return group_clamp((amax < GROUP_PAPER_S_MIN ? GROUP_PAPER_S_MIN : amax) / group_target(c), GROUP_PAPER_S_MIN,
                       GROUP_PAPER_S_MAX);
}

/* Are these scales such as an encoder writes? */
DEVICE_INLINE int group_scales_ok(const struct codec *c, struct group_scales s)
{
    if (!(s.s > 0) || s.s > GROUP_SCALE_MAX)
        return 0;
    return c->scale != SCALE_PAPER || (s.alpha >= GROUP_PAPER_ALPHA_MIN && s.alpha <= GROUP_PAPER_ALPHA_MAX &&
                                       s.s >= GROUP_PAPER_S_MIN && s.s <= GROUP_PAPER_S_MAX);
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

/* The words of which value index of a tensor has half index % 8. */
DEVICE_INLINE void group_draw(const struct group_chance *chance, uint64_t index, uint32_t words[4])
{
    const uint32_t ctr[4] = {chance->step, chance->micro, (uint32_t)(index / 8), (uint32_t)(index / 8 >> 32)};

    philox4x32(ctr, chance->key, words);
}

/* 16 random bits as a number in (0, 1); the half that is added makes the mean one half. */
DEVICE_INLINE float group_chance_of(uint32_t half)
{
    return ((float)(half & 0xFFFF) + 0.5f) * 0x1p-16f;
}

/* The integer code of t, in units of the scale: to the nearest, or up where chance wills. */
DEVICE_INLINE int group_nearest(const struct codec *c, float t)
{
    return (int)group_clamp(rintf(t), -group_target(c), group_target(c));
}

DEVICE_INLINE int group_by_chance(const struct codec *c, float t, float chance)
{
    return (int)group_clamp(floorf(t + chance), -group_target(c), group_target(c));
}

/* A code of c->bits bits, of which upper ones may be anything, as a number. */
DEVICE_INLINE int32_t group_integer(const struct codec *c, uint32_t code)
{
    const int32_t half = 1 << (c->bits - 1);

    return (int32_t)((code & (uint32_t)(2 * half - 1)) ^ (uint32_t)half) - half;
}

/* 1: no encoder writes this code. */
DEVICE_INLINE int group_code_is_bad(const struct codec *c, uint32_t code)
{
    if (c->fp8)
        return fp8_is_special((uint8_t)code, (enum fp8_kind)c->kind);
    return group_integer(c, code) == -(1 << (c->bits - 1));
}

/* --- differences in bf16 ------------------------------------------------------------------------------------------ */

/* bf16(bf16(master) - replica), or NaN where master or the difference is not finite. */
DEVICE_INLINE float group_difference(float master, uint16_t replica)
{
    uint32_t m = group_bits(master), d = group_bits(group_float(bf16_round_bits(m)) - bf16_to_float(replica));
    int32_t most = (int32_t)(m & 0x7FFFFFFF), other = (int32_t)(d & 0x7FFFFFFF);

    most = other > most ? other : most;
    return group_float(most >= 0x7F800000 ? 0x7FC00000 : bf16_round_bits(d));
}

/* bf16(replica + bf16(d)). */
DEVICE_INLINE uint16_t group_sum_rounded(uint16_t replica, float d)
{
    float sum = bf16_to_float(replica) + group_float(bf16_round_bits(group_bits(d)));

    return (uint16_t)(bf16_round_bits(group_bits(sum)) >> 16);
}

#endif
