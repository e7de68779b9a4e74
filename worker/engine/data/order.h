/* order - in which order a corpus is seen, and what of it is held out: by seed and number alone */
#ifndef MUSTER_WORKER_DATA_ORDER_H
#define MUSTER_WORKER_DATA_ORDER_H

#include <stdint.h>

#include "api/spec.h"

/* The index, below n, of what has this number since the run began: `sequential` is the number modulo n, `shuffle` a
 * permutation of its own for each epoch of n. */
uint64_t order_index(enum data_order order, uint64_t seed, uint64_t number, uint64_t n);

/* Decides whether a document is held out: below share · 2^32 it is. */
uint32_t order_holdout(uint64_t seed, uint64_t document);

#endif
