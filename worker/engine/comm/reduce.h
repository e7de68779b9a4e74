/* reduce - fold equally long vectors, element by element, in the order given; private to worker/comm */
#ifndef MUSTER_WORKER_COMM_REDUCE_H
#define MUSTER_WORKER_COMM_REDUCE_H

#include <stddef.h>

#include "worker/engine/comm/comm.h"

/* Bytes of an element; 0: no such type. */
size_t reduce_size(enum comm_type type);

/* dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) … for n >= 1 sources. dst may be one of them, not overlap
 * otherwise. Integers wrap. The maximum of anything and a NaN is a NaN. */
void reduce_fold(void *dst, const void *const *src, int n, size_t count, enum comm_type type, enum comm_op op);

#endif
