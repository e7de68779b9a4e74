/* vector_avx512 - vector.h for sixteen floats: AVX-512 F, BW, DQ and VL */
#ifndef MUSTER_COMPRESS_VECTOR_AVX512_H
#define MUSTER_COMPRESS_VECTOR_AVX512_H

#include <immintrin.h>

#define LANES 16
#define MM(operation) _mm512_##operation
typedef __m512i mm;
typedef __m256i mm_half;

#include "compress/vector.h"

/* --- parts ------------------------------------------------------------------------------------------------------- */

INLINE mm_half low_half(mm x)
{
    return _mm512_castsi512_si256(x);
}

INLINE mm_half high_half(mm x)
{
    return _mm512_extracti64x4_epi64(x, 1);
}

INLINE __m128i quarter_at(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE mm words_in_order(mm x)
{
    const vi order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};

    return _mm512_permutexvar_epi32((mm)order, x);
}

INLINE mm longs_in_order(mm x)
{
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), x);
}

/* --- numbers ----------------------------------------------------------------------------------------------------- */

INLINE uint32_t largest_of(vu x)
{
    return _mm512_reduce_max_epu32((mm)x);
}

INLINE vu where_less(vf x, float y, vu yes, vu no)
{
    __mmask16 less = _mm512_cmp_ps_mask(x, _mm512_set1_ps(y), _CMP_LT_OQ);

    return (vu)_mm512_mask_blend_epi32(less, (mm)no, (mm)yes);
}

INLINE int is_any_set(vb x)
{
    return _mm512_test_epi32_mask((mm)x, (mm)x) != 0;
}

INLINE vi floor_of(vf x)
{
    return (vi)_mm512_cvt_roundps_epi32(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* As vector_avx2.h has it. */
INLINE vf wht_within(vf x)
{
    const vf s1 = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1};
    const vf s2 = {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1};
    const vf s4 = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
    const vf s8 = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};

    x = _mm512_fmadd_ps(x, s1, _mm512_permute_ps(x, 0xB1));
    x = _mm512_fmadd_ps(x, s2, _mm512_permute_ps(x, 0x4E));
    x = _mm512_fmadd_ps(x, s4, _mm512_shuffle_f32x4(x, x, 0xB1));
    return _mm512_fmadd_ps(x, s8, _mm512_shuffle_f32x4(x, x, 0x4E));
}

/* The partner's value plus one's own, less it in the upper of the two. */
INLINE mm stage(mm partner, mm own, __mmask32 upper)
{
    return _mm512_mask_sub_epi16(_mm512_add_epi16(partner, own), upper, partner, own);
}

INLINE vs wht_shorts_within(vs x)
{
    mm y = (mm)x;

    y = stage(_mm512_rol_epi32(y, 16), y, 0xAAAAAAAA);
    y = stage(_mm512_shuffle_epi32(y, 0xB1), y, 0xCCCCCCCC);
    y = stage(_mm512_shuffle_epi32(y, 0x4E), y, 0xF0F0F0F0);
    y = stage(_mm512_shuffle_i32x4(y, y, 0xB1), y, 0xFF00FF00);
    return (vs)stage(_mm512_shuffle_i32x4(y, y, 0x4E), y, 0xFFFF0000);
}

/* --- three bytes each -------------------------------------------------------------------------------------------- */

#define TWELVE_WORDS 0x0FFF /* 48 bytes */

INLINE vu triples_at(const uint8_t *p)
{
    const vi threes = {0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11};
    const __m128i spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    mm w = _mm512_permutexvar_epi32((mm)threes, _mm512_maskz_loadu_epi32(TWELVE_WORDS, p));

    return (vu)_mm512_shuffle_epi8(w, _mm512_broadcast_i32x4(spread));
}

INLINE void store_triples(uint8_t *p, vu x)
{
    const vi threes = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14};
    const __m128i gather = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    mm w = _mm512_shuffle_epi8((mm)x, _mm512_broadcast_i32x4(gather));

    _mm512_mask_storeu_epi32(p, TWELVE_WORDS, _mm512_permutexvar_epi32((mm)threes, w));
}

/* --- words of random bits ---------------------------------------------------------------------------------------- */

INLINE vl xor3(vl x, vl y, vl z)
{
    return (vl)_mm512_ternarylogic_epi64((mm)x, (mm)y, (mm)z, 0x96);
}

INLINE vl joined(vl low, vl high)
{
    return (vl)_mm512_mask_shuffle_epi32((mm)low, 0xAAAA, (mm)high, _MM_PERM_CCAA);
}

INLINE vl block_order(void)
{
    return (vl){0, 4, 1, 5, 2, 6, 3, 7};
}

#endif
