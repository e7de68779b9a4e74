/* vector - vectors of LANES floats for the loops of group_body.h, at the width of the file that includes them
 *
 * The compilers' vector extension does arithmetic, the rest are the processor's instructions: first those that AVX2 and
 * AVX-512 name alike, then those that vector_avx2.h, for eight lanes, and vector_avx512.h, for sixteen, define each in
 * its way. Include one of these two instead of this. All of it is inlined.
 */
#ifndef MUSTER_COMPRESS_VECTOR_H
#define MUSTER_COMPRESS_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define VECTOR_BYTES (4 * LANES)

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vl __attribute__((vector_size(VECTOR_BYTES))); /* half as many long ones */
typedef int16_t vs __attribute__((vector_size(VECTOR_BYTES)));  /* twice as many short ones */
typedef uint16_t vw __attribute__((vector_size(VECTOR_BYTES)));
typedef int8_t vb __attribute__((vector_size(VECTOR_BYTES))); /* four times as many bytes */

/* A vector in memory, anywhere. */
typedef float vf_at __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
typedef int8_t vb_at __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

/* --- what differs: vector_avx2.h, vector_avx512.h ---------------------------------------------------------------- */

INLINE mm_half low_half(mm x);
INLINE mm_half high_half(mm x);
INLINE __m128i quarter_at(const void *p); /* VECTOR_BYTES / 4 bytes, in its lower end */
INLINE mm words_in_order(mm x);           /* the first of each quarter of 128 bits, then the second, ... */
INLINE mm longs_in_order(mm x);           /* likewise with 64 bits */

INLINE uint32_t largest_of(vu x); /* of all lanes */
INLINE vu where_less(vf x, float y, vu yes, vu no);
INLINE int is_any_set(vb x); /* any bit at all? */
INLINE vi floor_of(vf x);    /* the whole number at or below each */

/* The stages of a Walsh-Hadamard transform within a vector: of floats, each sum rounded once, and of integers. */
INLINE vf wht_within(vf x);
INLINE vs wht_shorts_within(vs x);

INLINE vu triples_at(const uint8_t *p);      /* LANES times three bytes, as words; reads no more */
INLINE void store_triples(uint8_t *p, vu x); /* the lower three bytes of each; writes no more */

INLINE vl xor3(vl x, vl y, vl z);
INLINE vl joined(vl low, vl high); /* the lower half of either */
INLINE vl block_order(void);       /* which block of random bits a lane has, for split_blocks */

/* --- numbers ----------------------------------------------------------------------------------------------------- */

INLINE vf load(const float *p)
{
    return *(const vf_at *)p;
}

INLINE void store(float *p, vf x)
{
    *(vf_at *)p = x;
}

INLINE vi nearest_of(vf x) /* ties to even */
{
    return (vi)MM(cvtps_epi32)(x);
}

INLINE vf smaller_of(vf x, float y)
{
    return MM(min_ps)(x, MM(set1_ps)(y));
}

INLINE vu larger_of(vu x, vu y)
{
    return (vu)MM(max_epu32)((mm)x, (mm)y);
}

INLINE vb clamp_bytes(vb x, int8_t low, int8_t high)
{
    mm y = MM(min_epi8)((mm)x, MM(set1_epi8)(high));

    return (vb)MM(max_epi8)(y, MM(set1_epi8)(low));
}

/* --- widths ------------------------------------------------------------------------------------------------------ */

INLINE mm_half half_at(const void *p)
{
    mm_half x;

    memcpy(&x, p, sizeof(x));
    return x;
}

INLINE vu bytes_at(const uint8_t *p)
{
    return (vu)MM(cvtepu8_epi32)(quarter_at(p));
}

INLINE vi integers_at(const int8_t *p)
{
    return (vi)MM(cvtepi8_epi32)(quarter_at(p));
}

INLINE vw wide_bytes_at(const uint8_t *p)
{
    return (vw)MM(cvtepu8_epi16)(half_at(p));
}

INLINE vu halves_at(const uint16_t *p)
{
    return (vu)MM(cvtepu16_epi32)(half_at(p));
}

/* Words below 65536. */
INLINE void store_halves(uint16_t *p, vu x, vu y)
{
    *(vb_at *)p = (vb)longs_in_order(MM(packus_epi32)((mm)x, (mm)y));
}

/* The lower half, the upper half. */
INLINE void shorts_of(vb x, vs ret[2])
{
    ret[0] = (vs)MM(cvtepi8_epi16)(low_half((mm)x));
    ret[1] = (vs)MM(cvtepi8_epi16)(high_half((mm)x));
}

INLINE void floats_of(vs x, vf ret[2])
{
    ret[0] = MM(cvtepi32_ps)(MM(cvtepi16_epi32)(low_half((mm)x)));
    ret[1] = MM(cvtepi32_ps)(MM(cvtepi16_epi32)(high_half((mm)x)));
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

/* Each as the nearest number of 8 bits. */
INLINE vb bytes_of(const vi x[4], int is_unsigned)
{
    mm a = MM(packs_epi32)((mm)x[0], (mm)x[1]), b = MM(packs_epi32)((mm)x[2], (mm)x[3]);

    return (vb)words_in_order(is_unsigned ? MM(packus_epi16)(a, b) : MM(packs_epi16)(a, b));
}

/* The lower 6 bits of each, four in three bytes. */
INLINE void store_sixes(uint8_t *p, vb x)
{
    mm q = MM(maddubs_epi16)((mm)(x & 0x3F), MM(set1_epi16)(0x4001)); /* pairs: low + 64 high */

    store_triples(p, (vu)MM(madd_epi16)(q, MM(set1_epi32)(0x10000000 | 0x0001))); /* fours: low + 4096 high */
}

/* The lower 4 bits of each, of two the first above. */
INLINE void store_nibbles(uint8_t *p, vb x)
{
    mm q = MM(maddubs_epi16)((mm)(x & 0x0F), MM(set1_epi16)(0x0110)); /* pairs: 16 low + high */
    mm_half all = low_half(longs_in_order(MM(packus_epi16)(q, q)));

    memcpy(p, &all, sizeof(all));
}

/* --- words of random bits ---------------------------------------------------------------------------------------- */

/* Of the lower half of each lane. */
INLINE vl product(vl x, uint32_t y)
{
    return (vl)MM(mul_epu32)((mm)x, (mm)((vl){0} + (uint64_t)y));
}

/* Blocks of eight half-words, of which each lane of front and back has one's first and last four: all in turn. */
INLINE void split_blocks(vl front, vl back, vu ret[4])
{
    mm lo = MM(unpacklo_epi64)((mm)front, (mm)back), hi = MM(unpackhi_epi64)((mm)front, (mm)back);

    ret[0] = (vu)MM(cvtepu16_epi32)(low_half(lo));
    ret[1] = (vu)MM(cvtepu16_epi32)(high_half(lo));
    ret[2] = (vu)MM(cvtepu16_epi32)(low_half(hi));
    ret[3] = (vu)MM(cvtepu16_epi32)(high_half(hi));
}

#endif
