#include "compress/group.h"

/* Whole groups of ordinary numbers, eight floats at a time, in the order of group_plain.c: the same bits. */
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 bits8(uint32_t u)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32((int)u));
}

INLINE __m256 abs8(__m256 x)
{
    return _mm256_and_ps(x, bits8(0x7FFFFFFF));
}

/* --- bf16 -------------------------------------------------------------------------------------------------------- */

static void widen(const uint16_t *in, float *out, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(in + i)));

        _mm256_storeu_si256((__m256i *)(out + i), _mm256_slli_epi32(x, 16));
    }
    for (; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

INLINE __m256i rounded(const float *in)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)in);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));

    return _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
}

static void narrow(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        __m256i x = _mm256_packus_epi32(rounded(in + i), rounded(in + i + 8));

        _mm256_storeu_si256((__m256i *)(out + i), _mm256_permute4x64_epi64(x, 0xD8));
    }
    for (; i < n; i++)
        out[i] = (uint16_t)(bf16_round_bits(group_bits(in[i])) >> 16);
}

/* The compiler makes vectors of these. */
static void subtract(const float *master, const uint16_t *replica, float *out, size_t n)
{
    group_subtract(master, replica, out, n);
}

static void add_rounded(const float *d, uint16_t *replica, size_t n)
{
    group_add_rounded(d, replica, n);
}

/* --- transform of floats ----------------------------------------------------------------------------------------- */

/* Stages 1, 2 and 4, within a vector: the partner's value plus one's own, negated in the upper of the two. A product
 * with one or minus one is exact, so each sum is rounded once, as in group_plain.c. */
INLINE __m256 wht8(__m256 x)
{
    const __m256 s1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1), s2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256 s4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);

    x = _mm256_fmadd_ps(x, s1, _mm256_permute_ps(x, 0xB1));
    x = _mm256_fmadd_ps(x, s2, _mm256_permute_ps(x, 0x4E));
    return _mm256_fmadd_ps(x, s4, _mm256_permute2f128_ps(x, x, 1));
}

INLINE void butterfly(__m256 *a, __m256 *b)
{
    __m256 x = *a;

    *a = _mm256_add_ps(x, *b);
    *b = _mm256_sub_ps(x, *b);
}

/* The sign bits of TRANSFORM_RHT: group_sign of entries 0..127. */
#define S(w, i) (((w) >> (i) & 1) << 31)
#define S8(w, i) S(w, i), S(w, i + 1), S(w, i + 2), S(w, i + 3), S(w, i + 4), S(w, i + 5), S(w, i + 6), S(w, i + 7)
#define S32(w) S8(w, 0), S8(w, 8), S8(w, 16), S8(w, 24)
static const uint32_t signs[128] __attribute__((aligned(32))) = {
    S32(0x7F4A7C15u), S32(0x9E3779B9u), S32(0xD192ED03u), S32(0xD1B54A32u),
};

INLINE __m256i sign8(size_t i)
{
    return _mm256_load_si256((const __m256i *)(signs + i));
}

/* Largest of eight magnitudes, as bits: what is not finite has more than the largest number. */
INLINE uint32_t largest(__m256i m)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));

    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4E));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

INLINE __m256i higher(__m256i m, __m256 x)
{
    return _mm256_max_epi32(m, _mm256_castps_si256(abs8(x)));
}

INLINE uint32_t magnitude(const float *v, size_t n)
{
    __m256i m = _mm256_setzero_si256(), m2 = m;

    for (size_t i = 0; i < n; i += 16) {
        m = higher(m, _mm256_loadu_ps(v + i));
        m2 = higher(m2, _mm256_loadu_ps(v + i + 8));
    }
    return largest(_mm256_max_epi32(m, m2));
}

/* Transform n (a multiple of 32, a power of two) values of in, unnormalised, into y (may be in). Returns magnitudes,
 * the largest of which is the largest of y, and at least that of in: if it is ordinary, all was. */
INLINE __m256i wht_floats(const float *in, float *y, size_t n, int random_signs)
{
    const size_t base = n < 64 ? n : 64, vectors = base / 8;
    __m256i m = _mm256_setzero_si256();
    __m256 v[8];

    for (size_t b = 0; b < n; b += base) {
        for (size_t k = 0; k < vectors; k++) {
            v[k] = _mm256_loadu_ps(in + b + 8 * k);
            if (random_signs)
                v[k] = _mm256_xor_ps(v[k], _mm256_castsi256_ps(sign8(b + 8 * k)));
            v[k] = wht8(v[k]);
        }
        for (size_t k = 0; k < vectors; k += 2)
            butterfly(&v[k], &v[k + 1]);
        for (size_t k = 0; k < vectors; k += 4) {
            butterfly(&v[k], &v[k + 2]);
            butterfly(&v[k + 1], &v[k + 3]);
        }
        for (size_t k = 0; vectors == 8 && k < 4; k++)
            butterfly(&v[k], &v[k + 4]);
        for (size_t k = 0; k < vectors; k++) {
            _mm256_storeu_ps(y + b + 8 * k, v[k]);
            if (n == base)
                m = higher(m, v[k]);
        }
    }
    for (size_t h = base; h < n; h *= 2)
        for (size_t i = 0; i < n; i += 2 * h)
            for (size_t j = i; j < i + h; j += 8) {
                __m256 a = _mm256_loadu_ps(y + j), c = _mm256_loadu_ps(y + j + h);

                butterfly(&a, &c);
                _mm256_storeu_ps(y + j, a);
                _mm256_storeu_ps(y + j + h, c);
                if (2 * h == n)
                    m = higher(higher(m, a), c);
            }
    return m;
}

static int is_ordinary(uint32_t bits)
{
    return bits == 0 || (bits >= group_bits(GROUP_SMALL) && bits <= group_bits(GROUP_LARGE));
}

/* Coefficients of a group but for *ret_norm, in y or where they are. Returns the bits of their largest magnitude, also
 * without norm. */
INLINE uint32_t transform(const struct codec *c, const float *v, float *y, const float **ret, float *ret_norm)
{
    __m256i m = _mm256_setzero_si256();

    *ret = y;
    *ret_norm = c->transform == TRANSFORM_H32 ? 0x1p-5f : group_norm(c);
    if (c->transform == TRANSFORM_RHT)
        return largest(wht_floats(v, y, 128, 1));
    if (c->transform == TRANSFORM_H)
        return largest(c->group == 128 ? wht_floats(v, y, 128, 0) : wht_floats(v, y, c->group, 0));
    if (c->transform == TRANSFORM_H32) {
        for (size_t i = 0; i < c->group; i += 32)
            m = _mm256_max_epi32(m, wht_floats(v + i, y + i, 32, 0));
        return largest(m);
    }
    *ret = v;
    return magnitude(v, c->group);
}

/* --- chance ------------------------------------------------------------------------------------------------------ */

/* Numbers in (0, 1) of eight halves of words: as the last bits of a number from 128 on, and half a bit. */
INLINE __m256 unit8(__m128i halves)
{
    __m256i x = _mm256_or_si256(_mm256_cvtepu16_epi32(halves), _mm256_castps_si256(_mm256_set1_ps(128)));

    return _mm256_sub_ps(_mm256_castsi256_ps(x), _mm256_set1_ps(128 - 0x1p-17f));
}

#define PHILOX_M0 0xD2511F53u /* base/philox.h */
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* Four blocks of Philox, a 64-bit lane each. Only the low half of a lane counts: that is what a product takes, so what
 * is above may be anything. */
struct philox4 {
    __m256i c0, c1, c2, c3;
};

INLINE void philox_round(struct philox4 *p, __m256i k0, __m256i k1)
{
    const __m256i m0 = _mm256_set1_epi64x(PHILOX_M0), m1 = _mm256_set1_epi64x(PHILOX_M1);
    __m256i p0 = _mm256_mul_epu32(p->c0, m0), p1 = _mm256_mul_epu32(p->c2, m1);

    p->c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(p->c1, k0));
    p->c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(p->c3, k1));
    p->c1 = p1;
    p->c3 = p0;
}

/* Blocks from block on, which differ in their third word alone, after two rounds: what the others make in the first is
 * the same for all, and so is one product of the second. */
INLINE struct philox4 philox_start(const struct group_chance *chance, uint64_t block)
{
    /* In this order blocks leave the transposition below in the order of values. */
    const __m256i lanes = _mm256_setr_epi64x(0, 2, 1, 3);
    const uint64_t p0 = (uint64_t)PHILOX_M0 * chance->step;
    const uint64_t q1 = (uint64_t)PHILOX_M1 * ((uint32_t)(p0 >> 32) ^ (uint32_t)(block >> 32) ^ chance->key[1]);
    const uint32_t k0 = chance->key[0] + PHILOX_W0, k1 = chance->key[1] + PHILOX_W1;
    __m256i third = _mm256_add_epi64(_mm256_set1_epi64x((long long)block), lanes);
    __m256i p1 = _mm256_mul_epu32(third, _mm256_set1_epi64x(PHILOX_M1));
    __m256i first = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_set1_epi64x(chance->micro ^ chance->key[0]));
    __m256i q0 = _mm256_mul_epu32(first, _mm256_set1_epi64x(PHILOX_M0));

    return (struct philox4){ _mm256_xor_si256(p1, _mm256_set1_epi64x((uint32_t)(q1 >> 32) ^ k0)),
                             _mm256_set1_epi64x((uint32_t)q1),
                             _mm256_xor_si256(_mm256_srli_epi64(q0, 32), _mm256_set1_epi64x((uint32_t)p0 ^ k1)), q0 };
}

INLINE void philox_units(const struct philox4 *p, __m256 u[4])
{
    __m256i w01 = _mm256_blend_epi32(p->c0, _mm256_slli_epi64(p->c1, 32), 0xAA);
    __m256i w23 = _mm256_blend_epi32(p->c2, _mm256_slli_epi64(p->c3, 32), 0xAA);
    __m256i lo = _mm256_unpacklo_epi64(w01, w23), hi = _mm256_unpackhi_epi64(w01, w23);

    u[0] = unit8(_mm256_castsi256_si128(lo));
    u[1] = unit8(_mm256_extracti128_si256(lo, 1));
    u[2] = unit8(_mm256_castsi256_si128(hi));
    u[3] = unit8(_mm256_extracti128_si256(hi, 1));
}

/* Numbers in (0, 1) of 128 values from index (a multiple of 128) on: four blocks of four, so that none waits for its
 * products. */
INLINE void draw128(const struct group_chance *chance, uint64_t index, __m256 u[16])
{
    __m256i k0 = _mm256_set1_epi64x(chance->key[0] + 2 * PHILOX_W0);
    __m256i k1 = _mm256_set1_epi64x(chance->key[1] + 2 * PHILOX_W1);
    struct philox4 a = philox_start(chance, index / 8), b = philox_start(chance, index / 8 + 4);
    struct philox4 c = philox_start(chance, index / 8 + 8), d = philox_start(chance, index / 8 + 12);

    for (int round = 2; round < 10; round++) {
        philox_round(&a, k0, k1);
        philox_round(&b, k0, k1);
        philox_round(&c, k0, k1);
        philox_round(&d, k0, k1);
        k0 = _mm256_add_epi32(k0, _mm256_set1_epi64x(PHILOX_W0));
        k1 = _mm256_add_epi32(k1, _mm256_set1_epi64x(PHILOX_W1));
    }
    philox_units(&a, u);
    philox_units(&b, u + 4);
    philox_units(&c, u + 8);
    philox_units(&d, u + 12);
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

/* FP8 codes of eight numbers. */
INLINE __m256i fp8_codes(__m256 t, enum fp8_kind kind)
{
    const int shift = kind == FP8_E4M3 ? 20 : 21, rebias = kind == FP8_E4M3 ? 960 : 448;
    const float max = kind == FP8_E4M3 ? FP8_E4M3_MAX : FP8_E5M2_MAX, least = kind == FP8_E4M3 ? 0x1p-6f : 0x1p-14f;
    const float per = kind == FP8_E4M3 ? 0x1p9f : 0x1p16f;
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(t), 24), _mm256_set1_epi32(0x80));
    __m256 a = _mm256_min_ps(abs8(t), _mm256_set1_ps(max)), small = _mm256_cmp_ps(a, _mm256_set1_ps(least), _CMP_LT_OQ);
    __m256i u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, shift), _mm256_set1_epi32(1));
    __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(a, _mm256_set1_ps(per)));

    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (shift - 1)) - 1)));
    u = _mm256_sub_epi32(_mm256_srli_epi32(u, shift), _mm256_set1_epi32(rebias));
    return _mm256_or_si256(sign, _mm256_blendv_epi8(u, low, _mm256_castps_si256(small)));
}

/* The numbers of eight FP8 codes. */
INLINE __m256 fp8_floats(__m256i code, enum fp8_kind kind)
{
    const int shift = kind == FP8_E4M3 ? 20 : 21, rebias = kind == FP8_E4M3 ? 960 : 448;
    const int mantissa = kind == FP8_E4M3 ? 7 : 3;
    const float per = kind == FP8_E4M3 ? 0x1p-9f : 0x1p-16f;
    __m256i mag = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
    __m256i u = _mm256_slli_epi32(_mm256_add_epi32(mag, _mm256_set1_epi32(rebias)), shift);
    __m256 low = _mm256_mul_ps(_mm256_cvtepi32_ps(mag), _mm256_set1_ps(per));
    __m256i normal = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32(mantissa));

    u = _mm256_blendv_epi8(_mm256_castps_si256(low), u, normal);
    return _mm256_castsi256_ps(_mm256_or_si256(u, sign));
}

/* 32 bytes of four vectors of codes. */
INLINE __m256i bytes32(__m256i a, __m256i b, __m256i c, __m256i d, int is_unsigned)
{
    __m256i x = _mm256_packs_epi32(a, b), y = _mm256_packs_epi32(c, d);

    x = is_unsigned ? _mm256_packus_epi16(x, y) : _mm256_packs_epi16(x, y);
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Store 32 integers in 32, 24 or 16 bytes. */
INLINE void pack32(__m256i q, unsigned bits, uint8_t *to)
{
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)to, q);
    } else if (bits == 6) {
        const __m256i gather = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                                0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        __m128i low, high;

        q = _mm256_and_si256(q, _mm256_set1_epi8(0x3F));
        q = _mm256_maddubs_epi16(q, _mm256_set1_epi16(0x4001));          /* pairs: low + 64 high */
        q = _mm256_madd_epi16(q, _mm256_set1_epi32(0x10000000 | 0x0001)); /* fours: low + 4096 high */
        q = _mm256_shuffle_epi8(q, gather);
        low = _mm256_castsi256_si128(q);
        high = _mm256_extracti128_si256(q, 1);
        _mm_storeu_si128((__m128i *)to, _mm_or_si128(low, _mm_slli_si128(high, 12))); /* 12 bytes and 4 of the rest */
        _mm_storel_epi64((__m128i *)(to + 16), _mm_srli_si128(high, 4));
    } else {
        q = _mm256_and_si256(q, _mm256_set1_epi8(0x0F));
        q = _mm256_maddubs_epi16(q, _mm256_set1_epi16(0x0110)); /* pairs: 16 low + high */
        q = _mm256_permute4x64_epi64(_mm256_packus_epi16(q, q), 0xD8);
        _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(q));
    }
}

/* The reverse. */
INLINE __m256i unpack32(const uint8_t *from, unsigned bits)
{
    if (bits == 8)
        return _mm256_loadu_si256((const __m256i *)from);
    if (bits == 6) {
        const __m256i spread = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                                4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
        __m256i q, w = _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(from + 8)),
                                        _mm_loadu_si128((const __m128i *)from)); /* the middle twice: 24 bytes */

        w = _mm256_shuffle_epi8(w, spread);
        q = _mm256_and_si256(w, _mm256_set1_epi32(0x3F));
        q = _mm256_or_si256(q, _mm256_and_si256(_mm256_slli_epi32(w, 2), _mm256_set1_epi32(0x3F00)));
        q = _mm256_or_si256(q, _mm256_and_si256(_mm256_slli_epi32(w, 4), _mm256_set1_epi32(0x3F0000)));
        q = _mm256_or_si256(q, _mm256_and_si256(_mm256_slli_epi32(w, 6), _mm256_set1_epi32(0x3F000000)));
        return _mm256_sub_epi8(_mm256_xor_si256(q, _mm256_set1_epi8(0x20)), _mm256_set1_epi8(0x20));
    }
    __m128i x = _mm_loadu_si128((const __m128i *)from), mask = _mm_set1_epi8(0x0F);
    __m128i even = _mm_and_si128(_mm_srli_epi16(x, 4), mask), odd = _mm_and_si128(x, mask);
    __m256i q = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));

    return _mm256_sub_epi8(_mm256_xor_si256(q, _mm256_set1_epi8(0x08)), _mm256_set1_epi8(0x08));
}

/* Codes of n numbers times inv. */
INLINE void put_codes(const struct codec *c, unsigned bits, int stochastic, const struct group_chance *chance,
                      uint64_t at, const float *y, float inv, uint8_t *codes)
{
    const __m256i top = _mm256_set1_epi8((char)group_levels(c)), bottom = _mm256_set1_epi8((char)-group_levels(c));
    const __m256 by = _mm256_set1_ps(inv);
    __m256i q[4], all;
    __m256 u[16];

    for (size_t i = 0; i < c->group; i += 32, codes += 4 * bits) {
        if (stochastic && i % 128 == 0)
            draw128(chance, chance->offset + at + i, u);
        for (size_t k = 0; k < 4; k++) {
            __m256 t = _mm256_mul_ps(_mm256_loadu_ps(y + i + 8 * k), by);

            if (c->fp8) {
                q[k] = fp8_codes(t, (enum fp8_kind)c->kind);
                continue;
            }
            if (stochastic)
                t = _mm256_floor_ps(_mm256_add_ps(t, u[i % 128 / 8 + k]));
            q[k] = _mm256_cvtps_epi32(t); /* the nearest is within the scale */
        }
        all = bytes32(q[0], q[1], q[2], q[3], c->fp8);
        if (stochastic)
            all = _mm256_max_epi8(_mm256_min_epi8(all, top), bottom);
        pack32(all, bits, codes);
    }
}

/* --- the table --------------------------------------------------------------------------------------------------- */

INLINE void codes_and_scale(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *y,
                            float amax, float norm, uint8_t *codes, uint8_t *scales)
{
    float s;

    (void)group_scale_write(c, amax * norm, 1, scales, &s);
    if (c->bits == 8)
        put_codes(c, 8, c->stochastic, chance, at, y, norm / s, codes);
    else if (c->bits == 6)
        put_codes(c, 6, 0, chance, at, y, norm / s, codes);
    else
        put_codes(c, 4, c->stochastic, chance, at, y, norm / s, codes);
}

/* Two-scale blocks are for comparison, 6 bits are never stochastic, and chance comes 128 numbers at a time. */
static int is_for_plain(const struct codec *c, const struct group_chance *chance, uint64_t at)
{
    return c->scale == SCALE_PAPER || (c->stochastic && (c->bits == 6 || (chance->offset + at) % 128));
}

static int encode(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *v,
                  uint8_t *codes, uint8_t *scales)
{
    float room[GROUP_MAX], norm;
    const float *y;
    uint32_t bits;

    if (is_for_plain(c, chance, at))
        return 1;
    bits = transform(c, v, room, &y, &norm);
    if (!is_ordinary(bits))
        return 1;
    codes_and_scale(c, chance, at, y, group_float(bits), norm, codes, scales);
    return 0;
}

static int quantise(const struct codec *c, const struct group_chance *chance, uint64_t at, const float *sum,
                    uint8_t *codes, uint8_t *scales)
{
    uint32_t bits = magnitude(sum, c->group);

    if (!is_ordinary(bits) || is_for_plain(c, chance, at))
        return 1;
    codes_and_scale(c, chance, at, sum, group_float(bits), 1, codes, scales);
    return 0;
}

/* Stages 1, 2, 4 and 8 of sixteen integers. */
INLINE __m256i wht16(__m256i x)
{
    const __m256i swap1 = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13,
                                           2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    const __m256i s1 = _mm256_set1_epi32((int)0xFFFF0001);
    const __m256i s2 = _mm256_set1_epi64x((long long)0xFFFFFFFF00010001ull);
    const __m256i s4 = _mm256_setr_epi16(1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1);
    const __m256i s8 = _mm256_setr_epi16(1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1);

    x = _mm256_add_epi16(_mm256_shuffle_epi8(x, swap1), _mm256_sign_epi16(x, s1));
    x = _mm256_add_epi16(_mm256_shuffle_epi32(x, 0xB1), _mm256_sign_epi16(x, s2));
    x = _mm256_add_epi16(_mm256_shuffle_epi32(x, 0x4E), _mm256_sign_epi16(x, s4));
    return _mm256_add_epi16(_mm256_permute2x128_si256(x, x, 1), _mm256_sign_epi16(x, s8));
}

INLINE void store8(__m128i q, __m256 by, __m256i sign, float *out)
{
    __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(q)), by);

    _mm256_storeu_ps(out, _mm256_xor_ps(x, _mm256_castsi256_ps(sign)));
}

/* Sums of at most 128 integers of 8 bits fit 16: exact, in any order. Transforms run of width 1, 32 or 128. */
INLINE int decode_integers(const struct codec *c, unsigned bits, size_t width, const uint8_t *codes, float by,
                           float *out)
{
    const __m256i never = _mm256_set1_epi8((char)(-(1 << (bits - 1))));
    const size_t step = width < 32 ? 32 : width, vectors = step / 16;
    __m256i bad = _mm256_setzero_si256(), v[8], none = _mm256_setzero_si256();

    for (size_t i = 0; i < c->group; i += step, out += step) {
        for (size_t k = 0; k < vectors; k += 2, codes += 4 * bits) {
            __m256i q = unpack32(codes, bits);

            bad = _mm256_or_si256(bad, _mm256_cmpeq_epi8(q, never));
            v[k] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
            v[k + 1] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
        }
        for (size_t k = 0; width > 1 && k < vectors; k++)
            v[k] = wht16(v[k]);
        for (size_t h = 1; width > 1 && h < vectors; h *= 2)
            for (size_t k = 0; k < vectors; k++)
                if (!(k & h)) {
                    __m256i a = v[k];

                    v[k] = _mm256_add_epi16(a, v[k + h]);
                    v[k + h] = _mm256_sub_epi16(a, v[k + h]);
                }
        for (size_t k = 0; k < vectors; k++) {
            __m256i lo = width == 128 ? sign8(16 * k) : none, hi = width == 128 ? sign8(16 * k + 8) : none;

            store8(_mm256_castsi256_si128(v[k]), _mm256_set1_ps(by), lo, out + 16 * k);
            store8(_mm256_extracti128_si256(v[k], 1), _mm256_set1_ps(by), hi, out + 16 * k + 8);
        }
    }
    return !_mm256_testz_si256(bad, bad);
}

INLINE int decode_width(const struct codec *c, unsigned bits, const uint8_t *codes, float by, float *out)
{
    return c->transform == TRANSFORM_RHT   ? decode_integers(c, bits, 128, codes, by, out)
           : c->transform == TRANSFORM_H32 ? decode_integers(c, bits, 32, codes, by, out)
                                           : decode_integers(c, bits, 1, codes, by, out);
}

/* Numbers of n FP8 codes. */
INLINE int fp8_unpack(const struct codec *c, const uint8_t *codes, float *out)
{
    const enum fp8_kind kind = (enum fp8_kind)c->kind;
    const __m256i last = _mm256_set1_epi32(kind == FP8_E4M3 ? 0x7E : 0x7B), mask = _mm256_set1_epi32(0x7F);
    __m256i bad = _mm256_setzero_si256();

    for (size_t i = 0; i < c->group; i += 8) {
        __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(codes + i)));

        bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(_mm256_and_si256(code, mask), last));
        _mm256_storeu_ps(out + i, fp8_floats(code, kind));
    }
    return !_mm256_testz_si256(bad, bad);
}

static int decode(const struct codec *c, const uint8_t *codes, struct group_scales s, float *out, int *ret_bad)
{
    const float *y;
    float norm = group_norm(c);

    if (c->scale == SCALE_PAPER || s.s > GROUP_LARGE)
        return 1;
    if (!c->fp8) {
        *ret_bad = c->bits == 8   ? decode_width(c, 8, codes, s.s * norm, out)
                   : c->bits == 6 ? decode_width(c, 6, codes, s.s * norm, out)
                                  : decode_width(c, 4, codes, s.s * norm, out);
        return 0;
    }
    *ret_bad = fp8_unpack(c, codes, out);
    if (*ret_bad)
        return 0;
    (void)transform(c, out, out, &y, &norm);
    for (size_t i = 0; i < c->group; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(out + i), _mm256_set1_ps(norm * s.s)));
    return 0;
}

INLINE int add_integers(const struct codec *c, unsigned bits, const uint8_t *codes, float s, float *sum)
{
    const __m256i never = _mm256_set1_epi8((char)(-(1 << (bits - 1))));
    __m256i bad = _mm256_setzero_si256();
    int8_t q[32];

    for (size_t i = 0; i < c->group; i += 32, codes += 4 * bits) {
        __m256i v = unpack32(codes, bits);

        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi8(v, never));
        _mm256_storeu_si256((__m256i *)q, v);
        for (size_t k = 0; k < 32; k += 8) {
            __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(q + k))));

            x = _mm256_add_ps(_mm256_loadu_ps(sum + i + k), _mm256_mul_ps(_mm256_set1_ps(s), x));
            _mm256_storeu_ps(sum + i + k, x);
        }
    }
    return !_mm256_testz_si256(bad, bad);
}

static int add(const struct codec *c, const uint8_t *codes, struct group_scales s, float *sum, int *ret_bad)
{
    float room[GROUP_MAX];

    if (c->scale == SCALE_PAPER)
        return 1;
    if (!c->fp8) {
        *ret_bad = c->bits == 8   ? add_integers(c, 8, codes, s.s, sum)
                   : c->bits == 6 ? add_integers(c, 6, codes, s.s, sum)
                                  : add_integers(c, 4, codes, s.s, sum);
        return 0;
    }
    *ret_bad = fp8_unpack(c, codes, room);
    for (size_t i = 0; i < c->group; i += 8)
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), _mm256_mul_ps(_mm256_set1_ps(s.s),
                                                                                        _mm256_loadu_ps(room + i))));
    return 0;
}

static int add_own(const struct codec *c, const float *v, float *sum)
{
    float room[GROUP_MAX], norm;
    const float *y;

    if (!is_ordinary(transform(c, v, room, &y, &norm)))
        return 1;
    for (size_t i = 0; i < c->group; i += 8)
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), _mm256_mul_ps(_mm256_set1_ps(norm),
                                                                                        _mm256_loadu_ps(y + i))));
    return 0;
}

static int finish(const struct codec *c, float *sum)
{
    __m256 norm = _mm256_set1_ps(group_norm(c));

    if (magnitude(sum, c->group) > group_bits(GROUP_LARGE))
        return 1;
    if (c->transform == TRANSFORM_H32) {
        for (size_t i = 0; i < c->group; i += 32)
            (void)wht_floats(sum + i, sum + i, 32, 0);
    } else if (c->transform != TRANSFORM_NONE) {
        (void)wht_floats(sum, sum, c->group, 0);
        for (size_t i = 0; i < c->group; i += 8) {
            __m256 x = _mm256_mul_ps(_mm256_loadu_ps(sum + i), norm);

            if (c->transform == TRANSFORM_RHT)
                x = _mm256_xor_ps(x, _mm256_castsi256_ps(sign8(i)));
            _mm256_storeu_ps(sum + i, x);
        }
    }
    return 0;
}

const struct group_ops group_avx2 = {
    .name = "avx2",
    .widen = widen,
    .narrow = narrow,
    .subtract = subtract,
    .add_rounded = add_rounded,
    .encode = encode,
    .decode = decode,
    .add = add,
    .add_own = add_own,
    .finish = finish,
    .quantise = quantise,
};
#else
typedef int group_avx2_is_empty;
#endif
