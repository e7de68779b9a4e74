/* vector_avx2 - vector.h for eight floats: AVX2 and FMA */
#ifndef MUSTER_COMPRESS_VECTOR_AVX2_H
#define MUSTER_COMPRESS_VECTOR_AVX2_H

#include <immintrin.h>

#define LANES 8
#define MM(operation) _mm256_##operation
typedef __m256i mm;
typedef __m128i mm_half;

#include "compress/vector.h"

/* --- parts ------------------------------------------------------------------------------------------------------- */

INLINE mm_half low_half(mm x)
{
    return _mm256_castsi256_si128(x);
}

INLINE mm_half high_half(mm x)
{
    return _mm256_extracti128_si256(x, 1);
}

INLINE __m128i quarter_at(const void *p)
{
    return _mm_loadl_epi64(p);
}

INLINE mm words_in_order(mm x)
{
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE mm longs_in_order(mm x)
{
    return _mm256_permute4x64_epi64(x, 0xD8);
}

/* --- numbers ----------------------------------------------------------------------------------------------------- */

INLINE uint32_t largest_of(vu x)
{
    __m128i a = _mm_max_epu32(low_half((mm)x), high_half((mm)x));

    a = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0x4E));
    a = _mm_max_epu32(a, _mm_shuffle_epi32(a, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

INLINE vu where_less(vf x, float y, vu yes, vu no)
{
    mm less = (mm)_mm256_cmp_ps(x, _mm256_set1_ps(y), _CMP_LT_OQ);

    return (vu)_mm256_blendv_epi8((mm)no, (mm)yes, less);
}

INLINE int is_any_set(vb x)
{
    return !_mm256_testz_si256((mm)x, (mm)x);
}

INLINE vi floor_of(vf x)
{
    return (vi)_mm256_cvtps_epi32(_mm256_floor_ps(x));
}

/* The partner's value plus one's own, negated in the upper of the two: a product with one or minus one is exact. */
INLINE vf wht_within(vf x)
{
    const vf s1 = {1, -1, 1, -1, 1, -1, 1, -1}, s2 = {1, 1, -1, -1, 1, 1, -1, -1};
    const vf s4 = {1, 1, 1, 1, -1, -1, -1, -1};

    x = _mm256_fmadd_ps(x, s1, _mm256_permute_ps(x, 0xB1));
    x = _mm256_fmadd_ps(x, s2, _mm256_permute_ps(x, 0x4E));
    return _mm256_fmadd_ps(x, s4, _mm256_permute2f128_ps(x, x, 1));
}

INLINE vs wht_shorts_within(vs x)
{
    const vb swap1 = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13,
                      2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
    const vs s1 = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1};
    const vs s2 = {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1};
    const vs s4 = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
    const vs s8 = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
    mm y = (mm)x;

    y = _mm256_add_epi16(_mm256_shuffle_epi8(y, (mm)swap1), _mm256_sign_epi16(y, (mm)s1));
    y = _mm256_add_epi16(_mm256_shuffle_epi32(y, 0xB1), _mm256_sign_epi16(y, (mm)s2));
    y = _mm256_add_epi16(_mm256_shuffle_epi32(y, 0x4E), _mm256_sign_epi16(y, (mm)s4));
    return (vs)_mm256_add_epi16(_mm256_permute2x128_si256(y, y, 1), _mm256_sign_epi16(y, (mm)s8));
}

/* --- three bytes each -------------------------------------------------------------------------------------------- */

INLINE vu triples_at(const uint8_t *p)
{
    const vb spread = {0, 1, 2, -1, 3, 4, 5, -1, 6,  7,  8,  -1, 9,  10, 11, -1,
                       4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1};
    mm w = _mm256_set_m128i(half_at(p + 8), half_at(p)); /* the middle twice: 24 bytes */

    return (vu)_mm256_shuffle_epi8(w, (mm)spread);
}

INLINE void store_triples(uint8_t *p, vu x)
{
    const vb gather = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                       0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1};
    mm w = _mm256_shuffle_epi8((mm)x, (mm)gather);

    _mm_storeu_si128((__m128i *)p, _mm_or_si128(low_half(w), _mm_slli_si128(high_half(w), 12))); /* 12 bytes and 4 */
    _mm_storel_epi64((__m128i *)(p + 16), _mm_srli_si128(high_half(w), 4));
}

/* --- words of random bits ---------------------------------------------------------------------------------------- */

INLINE vl xor3(vl x, vl y, vl z)
{
    return x ^ (y ^ z);
}

INLINE vl joined(vl low, vl high)
{
    return (vl)_mm256_blend_epi32((mm)low, (mm)(high << 32), 0xAA);
}

INLINE vl block_order(void)
{
    return (vl){0, 2, 1, 3};
}

#endif
