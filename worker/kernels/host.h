/* host - memory of the kernel tables that compute on the processor */
#ifndef MUSTER_WORKER_KERNELS_HOST_H
#define MUSTER_WORKER_KERNELS_HOST_H

#include <stddef.h>

#include "base/merr.h"

/* bytes (may be 0) of zeroes, 64-byte aligned, every page touched; large areas ask for huge pages. Freed by
 * host_free. Returns 0 or -ENOMEM. */
int host_alloc(size_t bytes, void **ret, struct merr *err);
void host_free(void *p);

#endif
