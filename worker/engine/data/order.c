#include "worker/engine/data/order.h"

#include "base/philox.h"

enum { SITE_HOLDOUT = PHILOX_SITE_ORDER + 1 }; /* part of every run's meaning */

uint64_t order_index(enum data_order order, uint64_t seed, uint64_t number, uint64_t n)
{
    return order == ORDER_SEQUENTIAL ? number % n : philox_order(seed, number, n);
}

uint32_t order_holdout(uint64_t seed, uint64_t document)
{
    const uint32_t ctr[4] = {(uint32_t)document, (uint32_t)(document >> 32), 0, 0};
    uint32_t key[2], word[4];

    philox_key(seed, SITE_HOLDOUT, 0, 0, key);
    philox4x32(ctr, key, word);
    return word[0];
}
