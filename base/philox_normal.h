/* philox_normal - normal deviates for philox.c, included by one file for each build; there is no guard
 *
 * Box-Muller in double for four pairs at once, without a library's logarithm and sine: a model of 10^8 weights
 * starts in a second, and with the same bits on every processor (no build of it may fuse a multiplication with an
 * addition). Errors are below 1e-12, a float's half ulp is 6e-8. */
#include <math.h>

#include "base/philox.h"

#ifdef __x86_64__
void philox_normal8_avx2(const uint32_t key[2], uint64_t index, float ret[8]); /* only where the processor has AVX2 */
#endif

typedef double v4d __attribute__((vector_size(32)));
typedef int64_t v4l __attribute__((vector_size(32)));

/* Words as numbers in (0, 1), an odd multiple of 2^-33 each: the logarithm never sees 0. */
static inline v4d open_unit(const uint32_t w[4])
{
    const v4l words = {w[0], w[1], w[2], w[3]}, exponent = (v4l){1, 1, 1, 1} * 0x4330000000000000;

    /* below the exponent of 2^52 a word is its own mantissa */
    return ((v4d)(words | exponent) - (0x1p52 - 0.5)) * 0x1p-32;
}

static inline v4d choose(v4l mask, v4d yes, v4d no)
{
    return (v4d)(((v4l)yes & mask) | ((v4l)no & ~mask));
}

/* ln u = e ln 2 + ln m with m in [0.71, 1.41], ln m = 2 artanh((m - 1) / (m + 1)). */
static inline v4d log4(v4d u)
{
    const v4l one = (v4l){1, 1, 1, 1} * 0x3FF0000000000000, exponent = (v4l){1, 1, 1, 1} * 0x4330000000000000;
    v4l bits = (v4l)u;
    v4d m = (v4d)((bits & 0x000FFFFFFFFFFFFF) | one), s, z, p;
    v4d e = (v4d)((bits >> 52) | exponent) - (0x1p52 + 1023);
    v4l high = m > 1.4142135623730951;

    m = choose(high, m * 0.5, m);
    e = choose(high, e + 1.0, e);
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    p = z * (1.0 / 17) + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return e * 0.69314718055994531 + 2.0 * (s + s * z * p);
}

/* cos and sin of 2 pi v: the nearest quarter turn, and series for the rest of at most an eighth. */
static inline void turn4(v4d v, v4d *ret_cos, v4d *ret_sin)
{
    const double whole = 0x1.8p52; /* adding it leaves a whole number, in the low bits */
    v4d shifted = v * 4.0 + whole, x = (v - (shifted - whole) * 0.25) * 6.283185307179586, z = x * x, s, c;
    v4l quarter = (v4l)shifted & 3, odd = (quarter & 1) != 0;

    s = z * (1.0 / 6227020800) - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = x + x * z * s;
    c = z * (-1.0 / 87178291200) + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    *ret_cos = choose(odd, s, c);
    *ret_cos = choose((quarter == 1) | (quarter == 2), -*ret_cos, *ret_cos);
    *ret_sin = choose(odd, c, s);
    *ret_sin = choose(quarter >= 2, -*ret_sin, *ret_sin);
}

/* The pairs of words (w0[i], w1[i]). */
static inline void normal_pairs(const uint32_t w0[4], const uint32_t w1[4], v4d *ret_a, v4d *ret_b)
{
    v4d r = log4(open_unit(w0)) * -2.0, c, s;

    for (int i = 0; i < 4; i++)
        r[i] = sqrt(r[i]);
    turn4(open_unit(w1), &c, &s);
    *ret_a = r * c;
    *ret_b = r * s;
}

static inline void normal8(const uint32_t key[2], uint64_t index, float ret[8])
{
    uint32_t w0[4], w1[4];
    v4d a, b;

    for (int i = 0; i < 2; i++) {
        uint64_t n = index + (uint64_t)i;
        const uint32_t ctr[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0, 0};
        uint32_t w[4];

        philox4x32(ctr, key, w);
        w0[2 * i] = w[0];
        w1[2 * i] = w[1];
        w0[2 * i + 1] = w[2];
        w1[2 * i + 1] = w[3];
    }
    normal_pairs(w0, w1, &a, &b);
    for (int i = 0; i < 4; i++) {
        ret[2 * i] = (float)a[i];
        ret[2 * i + 1] = (float)b[i];
    }
}
