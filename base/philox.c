#include "base/philox.h"

#include <assert.h>
#include <math.h>

void philox_key(uint64_t seed, uint32_t site, uint32_t a, uint32_t b, uint32_t ret_key[2])
{
    const uint32_t ctr[4] = { site, a, b, 0 };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t out[4];

    philox4x32(ctr, key, out);
    ret_key[0] = out[0];
    ret_key[1] = out[1];
}

void philox_normal2(uint32_t w0, uint32_t w1, float ret[2])
{
    const double two_pi = 6.283185307179586476925;
    double u = ((double)w0 + 0.5) * 0x1p-32; /* in (0, 1): log never sees 0 */
    double v = ((double)w1 + 0.5) * 0x1p-32;
    double r = sqrt(-2.0 * log(u));

    ret[0] = (float)(r * cos(two_pi * v));
    ret[1] = (float)(r * sin(two_pi * v));
}

uint64_t philox_permute(uint64_t i, uint64_t n, const uint32_t key[2])
{
    unsigned half = 1;

    assert(i < n);
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;

    const uint64_t mask = (UINT64_C(1) << half) - 1;

    /* The network permutes 2^(2 half) >= n values; walking the cycle until the value is below n
     * leaves a permutation of 0..n-1. Fewer than four steps on average. */
    do {
        uint64_t left = i >> half, right = i & mask;

        for (uint32_t round = 0; round < 4; round++) {
            const uint32_t ctr[4] = { (uint32_t)right, (uint32_t)(right >> 32), round, 1 };
            uint32_t out[4];
            uint64_t next;

            philox4x32(ctr, key, out);
            next = left ^ (out[0] & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
