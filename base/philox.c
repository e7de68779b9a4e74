#include "base/philox.h"

#include <assert.h>

#include "base/philox_normal.h"

void philox_key(uint64_t seed, uint32_t site, uint32_t a, uint32_t b, uint32_t ret_key[2])
{
    const uint32_t ctr[4] = {site, a, b, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    philox4x32(ctr, key, out);
    ret_key[0] = out[0];
    ret_key[1] = out[1];
}

void philox_normal2(uint32_t w0, uint32_t w1, float ret[2])
{
    const uint32_t u[4] = {w0, w0, w0, w0}, v[4] = {w1, w1, w1, w1};
    v4d a, b;

    normal_pairs(u, v, &a, &b);
    ret[0] = (float)a[0];
    ret[1] = (float)b[0];
}

void philox_normal8(const uint32_t key[2], uint64_t index, float ret[8])
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        philox_normal8_avx2(key, index, ret);
        return;
    }
#endif
    normal8(key, index, ret);
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
            const uint32_t ctr[4] = {(uint32_t)right, (uint32_t)(right >> 32), round, 1};
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

uint64_t philox_order(uint64_t seed, uint64_t number, uint64_t n)
{
    const uint64_t epoch = number / n;
    uint32_t key[2];

    philox_key(seed, PHILOX_SITE_ORDER, (uint32_t)epoch, (uint32_t)(epoch >> 32), key);
    return philox_permute(number % n, n, key);
}
