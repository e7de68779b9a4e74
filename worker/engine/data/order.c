#include "worker/engine/data/order.h"

#include "base/philox.h"

/* Sites of Philox keys that belong to the data; the model's stay below 0x100. Part of every run's meaning. */
enum { SITE_ORDER = 0x100, SITE_HOLDOUT = 0x101 };

uint64_t order_index(enum data_order order, uint64_t seed, uint64_t number, uint64_t n)
{
    uint64_t epoch = number / n, at = number % n;
    uint32_t key[2];

    if (order == ORDER_SEQUENTIAL)
        return at;
    philox_key(seed, SITE_ORDER, (uint32_t)epoch, (uint32_t)(epoch >> 32), key);
    return philox_permute(at, n, key);
}

uint32_t order_holdout(uint64_t seed, uint64_t document)
{
    const uint32_t ctr[4] = {(uint32_t)document, (uint32_t)(document >> 32), 0, 0};
    uint32_t key[2], word[4];

    philox_key(seed, SITE_HOLDOUT, 0, 0, key);
    philox4x32(ctr, key, word);
    return word[0];
}
