/* loops_vector - vectors of eight floats for loops_body.h: loads, choices, steps over an array, the exponential
 *
 * Written with the compilers' vector extension, which lowers them to what the processor has. All of it is inlined.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_LOOPS_VECTOR_H
#define MUSTER_WORKER_KERNELS_CPU_LOOPS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef float v8_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef double v4d __attribute__((vector_size(32)));

#define LANES 8
/* i runs over 0, 8, 16 ... < n; m is how many of the eight lanes are there. */
#define EACH(i, m, n) for (int i = 0, m; i < (n) && (m = (n) - i < LANES ? (n) - i : LANES, true); i += LANES)

#ifdef __AVX2__
static inline __m256i first_lanes(int m)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(m), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/* step(i, w, k, ...) for i = 0 .. n-1 in order: w vectors of k numbers from i on, WIDE whole ones while there are so
 * many. What waits for itself, such as an exponential, is written for w of them side by side. */
#define WIDE 4
#define IN_STEPS(n, step, ...) do { \
        int i_ = 0, n_ = (n); \
        for (; i_ + WIDE * LANES <= n_; i_ += WIDE * LANES) \
            step(i_, WIDE, LANES, __VA_ARGS__); \
        for (; i_ < n_; i_ += LANES) \
            step(i_, 1, n_ - i_ < LANES ? n_ - i_ : LANES, __VA_ARGS__); \
    } while (0)
#define SIDE_BY_SIDE(j, w) _Pragma("GCC unroll 4") for (int j = 0; j < (w); j++)
#define STEP static inline __attribute__((always_inline)) void

static inline v8 load(const float *p, int m)
{
    if (m == LANES)
        return *(const v8_at *)p;
#ifdef __AVX2__ /* by a mask: a copy through the stack slows the whole vectors down too */
    return (v8)_mm256_maskload_ps(p, first_lanes(m));
#else
    v8 v = { 0 };

    memcpy(&v, p, (size_t)m * sizeof(*p));
    return v;
#endif
}

static inline void store(float *p, v8 v, int m)
{
    if (m == LANES) {
        *(v8_at *)p = v;
        return;
    }
#ifdef __AVX2__
    _mm256_maskstore_ps(p, first_lanes(m), (__m256)v);
#else
    memcpy(p, &v, (size_t)m * sizeof(*p));
#endif
}

static inline v8 all(float x)
{
    return (v8){ x, x, x, x, x, x, x, x };
}

static inline v8 choose(v8i mask, v8 yes, v8 no)
{
    return (v8)(((v8i)yes & mask) | ((v8i)no & ~mask));
}

/* The first m lanes of v, `other` in the rest. */
static inline v8 only(v8 v, int m, float other)
{
    const v8i lane = { 0, 1, 2, 3, 4, 5, 6, 7 };

    return m == LANES ? v : choose(lane < m, v, all(other));
}

static inline float sum_of(v8 v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline float max_of(v8 v)
{
    float max = v[0];

    for (int i = 1; i < LANES; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

/* x no lower than least and no higher than most; NaN stays NaN. */
static inline v8 within(v8 x, float least, float most)
{
#ifdef __AVX2__
    return (v8)_mm256_min_ps(_mm256_set1_ps(most), _mm256_max_ps(_mm256_set1_ps(least), (__m256)x));
#else
    v8 low = choose(x < all(least), all(least), x);

    return choose(low > all(most), all(most), low);
#endif
}

static inline v8 larger(v8 x, v8 than)
{
#ifdef __AVX2__
    return (v8)_mm256_max_ps((__m256)x, (__m256)than);
#else
    return choose(x > than, x, than);
#endif
}

/* y = e^x within 2 ulp: x = n ln 2 + r, a polynomial in r, n into the exponent. x is cut to [-87.3, 88.3], so the
 * result is never quite 0 (1.2e-38) nor infinite (2.2e38): nobody here can tell the difference. NaN stays NaN. */
STEP exp_wide(const v8 *x, v8 *y, int w)
{
    const v8 round = all(12582912.0f); /* 1.5 · 2^23: adding it leaves a whole number, in the low bits */
    v8 shifted[WIDE], r[WIDE], p[WIDE];

    SIDE_BY_SIDE(j, w) {
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
        y[j] = p[j] * (v8)(((v8u)shifted[j] << 23) + (127u << 23));
}

static inline float exp1(float x)
{
    v8 v = all(x);

    exp_wide(&v, &v, 1);
    return v[0];
}

#endif
