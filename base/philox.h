/* philox - random numbers by counter: Philox 4x32 with 10 rounds
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); papers/training-engine
 * section 10. A number depends on key and counter alone, never on the order of calls, the rank or the
 * thread: any layout of ranks draws the same ones.
 */
#ifndef MUSTER_BASE_PHILOX_H
#define MUSTER_BASE_PHILOX_H

#include <stdint.h>

#include "base/device.h"

/* Four words for a counter and a key. */
DEVICE_INLINE void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#define PHILOX_SITE_ORDER 0x100 /* of philox_order; the model's sites stay below, the data's others follow */

/* The key of a site: first two words of Philox(counter {site, a, b, 0}, key = seed). */
void philox_key(uint64_t seed, uint32_t site, uint32_t a, uint32_t b, uint32_t ret_key[2]);

/* A word as a float in [0, 1): its upper 24 bits, exact. */
DEVICE_INLINE float philox_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Two words as two standard normal deviates (Box-Muller in double); the same bits on every processor. */
void philox_normal2(uint32_t w0, uint32_t w1, float ret[2]);

/* Of the eight words of counters {index, 0, 0} and {index + 1, 0, 0}, index in two words: four pairs as above. */
void philox_normal8(const uint32_t key[2], uint64_t index, float ret[8]);

/* Position of index i (< n) under a keyed permutation of 0..n-1: a four-round Feistel network on
 * ceil(log2 n) bits with cycle walking. Exact for any n >= 1; O(1) memory. */
uint64_t philox_permute(uint64_t i, uint64_t n, const uint32_t key[2]);

/* The index, below n, of what has this number in an order that is shuffled anew for each epoch of n. Part of every
 * run's meaning. */
uint64_t philox_order(uint64_t seed, uint64_t number, uint64_t n);

#endif
