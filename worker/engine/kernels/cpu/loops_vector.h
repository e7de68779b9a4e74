/* loops_vector - vectors of LANES floats for loops_body.h: loads, choices, steps over an array, the exponential; and
 * vectors of eight, which hold sums
 *
 * The including file may set LANES to 16, for AVX-512. A sum is taken in eight lanes whatever LANES is, so that it has
 * the same order and bits. Written with the compilers' vector extension, which lowers them to what the processor has.
 * All of it is inlined.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_LOOPS_VECTOR_H
#define MUSTER_WORKER_KERNELS_CPU_LOOPS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifndef LANES
#define LANES 8
#endif

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef float v8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef double v4d __attribute__((vector_size(32)));

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef float vf_at __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* i runs over 0, LANES, 2·LANES ... < n; m is how many of the lanes are there. EACH8: the same for eight. */
#define EACH_OF(lanes, i, m, n)                                                                                        \
    for (int i = 0, m; i < (n) && (m = (n)-i < (lanes) ? (n)-i : (lanes), true); i += (lanes))
#define EACH(i, m, n) EACH_OF(LANES, i, m, n)
#define EACH8(i, m, n) EACH_OF(8, i, m, n)

/* step(i, w, k, ...) for i = 0 .. n-1 in order: w vectors of k numbers from i on, WIDE whole ones while there are so
 * many, then as many as make STEADY numbers. What waits for itself, such as an exponential, is written for w of them
 * side by side. */
#define WIDE 4
#define STEADY 32
#define IN_STEPS(n, step, ...)                                                                                         \
    do {                                                                                                               \
        int i_ = 0, n_ = (n);                                                                                          \
        for (; i_ + WIDE * LANES <= n_; i_ += WIDE * LANES)                                                            \
            step(i_, WIDE, LANES, __VA_ARGS__);                                                                        \
        for (; STEADY < WIDE * LANES && i_ + STEADY <= n_; i_ += STEADY)                                               \
            step(i_, STEADY / LANES, LANES, __VA_ARGS__);                                                              \
        for (; i_ < n_; i_ += LANES)                                                                                   \
            step(i_, 1, n_ - i_ < LANES ? n_ - i_ : LANES, __VA_ARGS__);                                               \
    } while (0)
#define SIDE_BY_SIDE(j, w) _Pragma("GCC unroll 4") for (int j = 0; j < (w); j++)
#define STEP static inline __attribute__((always_inline)) void

/* --- eight lanes ----------------------------------------------------------------------------------------------- */

#ifdef __AVX2__
static inline __m256i first_lanes(int m)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

static inline v8 load8(const float *p, int m)
{
    if (m == 8)
        return *(const v8_at *)p;
#ifdef __AVX2__ /* by a mask: a copy through the stack slows the whole vectors down too */
    return (v8)_mm256_maskload_ps(p, first_lanes(m));
#else
    v8 v = {0};

    memcpy(&v, p, (size_t)m * sizeof(*p));
    return v;
#endif
}

/* The first m lanes of v, 0 in the rest. */
static inline v8 only8(v8 v, int m)
{
    const v8i lane = {0, 1, 2, 3, 4, 5, 6, 7};

    return m == 8 ? v : (v8)((v8i)v & (lane < m));
}

static inline float sum_of(v8 v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* --- LANES of them --------------------------------------------------------------------------------------------- */

static inline vf all(float x)
{
    return x - (vf){0}; /* and not a sum: -0 stays -0 */
}

static inline vf choose(vi mask, vf yes, vf no)
{
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

#if LANES == 8
#define EIGHTS 1

static inline v8 eight_of(vf v, int i)
{
    (void)i;
    return v;
}

static inline vf load(const float *p, int m)
{
    return load8(p, m);
}

static inline void store(float *p, vf v, int m)
{
    if (m == LANES) {
        *(vf_at *)p = v;
        return;
    }
#ifdef __AVX2__
    _mm256_maskstore_ps(p, first_lanes(m), (__m256)v);
#else
    memcpy(p, &v, (size_t)m * sizeof(*p));
#endif
}

/* The first m lanes of v, `other` in the rest. */
static inline vf only(vf v, int m, float other)
{
    const vi lane = {0, 1, 2, 3, 4, 5, 6, 7};

    return m == LANES ? v : choose(lane < m, v, all(other));
}
#else
#define EIGHTS 2

/* Lanes 8·i on. */
static inline v8 eight_of(vf v, int i)
{
    return i ? (v8)_mm512_extractf32x8_ps((__m512)v, 1) : (v8)_mm512_castps512_ps256((__m512)v);
}

static inline __mmask16 first_of_sixteen(int m)
{
    return (__mmask16)((1u << m) - 1);
}

static inline vf load(const float *p, int m)
{
    if (m == LANES)
        return *(const vf_at *)p;
    return (vf)_mm512_maskz_loadu_ps(first_of_sixteen(m), p);
}

static inline void store(float *p, vf v, int m)
{
    if (m == LANES)
        *(vf_at *)p = v;
    else
        _mm512_mask_storeu_ps(p, first_of_sixteen(m), (__m512)v);
}

/* The first m lanes of v, `other` in the rest. */
static inline vf only(vf v, int m, float other)
{
    return m == LANES ? v : (vf)_mm512_mask_blend_ps(first_of_sixteen(m), _mm512_set1_ps(other), (__m512)v);
}
#endif

/* x no lower than least and no higher than most; NaN stays NaN. */
static inline vf within(vf x, float least, float most)
{
#if LANES == 16
    return (vf)_mm512_min_ps(_mm512_set1_ps(most), _mm512_max_ps(_mm512_set1_ps(least), (__m512)x));
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps(_mm256_set1_ps(most), _mm256_max_ps(_mm256_set1_ps(least), (__m256)x));
#else
    vf low = choose(x < all(least), all(least), x);

    return choose(low > all(most), all(most), low);
#endif
}

static inline vf larger(vf x, vf than)
{
#if LANES == 16
    return (vf)_mm512_max_ps((__m512)x, (__m512)than);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)x, (__m256)than);
#else
    return choose(x > than, x, than);
#endif
}

static inline float max_of(vf v)
{
    float max = v[0];

    for (int i = 1; i < LANES; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

/* y = e^x within 2 ulp: x = n ln 2 + r, a polynomial in r, n into the exponent. x is cut to [-87.3, 88.3], so the
 * result is never quite 0 (1.2e-38) nor infinite (2.2e38): nobody here can tell the difference. NaN stays NaN. */
STEP exp_wide(const vf *x, vf *y, int w)
{
    const vf round = all(12582912.0f); /* 1.5 · 2^23: adding it leaves a whole number, in the low bits */
    vf shifted[WIDE], r[WIDE], p[WIDE];

    SIDE_BY_SIDE(j, w)
    {
        r[j] = within(x[j], -87.3f, 88.3f);
        shifted[j] = r[j] * all(1.44269504f) + round;
    }
    SIDE_BY_SIDE(j, w)
    r[j] -= (shifted[j] - round) * all(0.693359375f);
    SIDE_BY_SIDE(j, w)
    r[j] -= (shifted[j] - round) * all(-2.12194440e-4f);
    SIDE_BY_SIDE(j, w)
    p[j] = all(1.9875691500e-4f) * r[j] + all(1.3981999507e-3f);
    SIDE_BY_SIDE(j, w)
    p[j] = p[j] * r[j] + all(8.3334519073e-3f);
    SIDE_BY_SIDE(j, w)
    p[j] = p[j] * r[j] + all(4.1665795894e-2f);
    SIDE_BY_SIDE(j, w)
    p[j] = p[j] * r[j] + all(1.6666665459e-1f);
    SIDE_BY_SIDE(j, w)
    p[j] = p[j] * r[j] + all(5.0000001201e-1f);
    SIDE_BY_SIDE(j, w)
    p[j] = p[j] * r[j] * r[j] + r[j] + all(1.0f);
    SIDE_BY_SIDE(j, w)
    y[j] = p[j] * (vf)(((vu)shifted[j] << 23) + (127u << 23));
}

static inline float exp1(float x)
{
    vf v = all(x);

    exp_wide(&v, &v, 1);
    return v[0];
}

#endif
