/* host - memory of the kernel tables that compute on the processor */
#ifndef MUSTER_WORKER_KERNELS_HOST_H
#define MUSTER_WORKER_KERNELS_HOST_H

#include <stddef.h>

#include "base/merr.h"

/* bytes (may be 0) of zeroes, 64-byte aligned. Large areas take their pages, huge ones where there are, when they are
 * first written, by the thread that writes. Freed by host_free. Returns 0 or -ENOMEM. */
int host_alloc(size_t bytes, void **ret, struct merr *err);
void host_free(void *p);

/* Have all pages of an area now, as a first write would, and leave its bytes as they are. Many at once cost less than a
 * fault each. A hint: where the kernel cannot, they come when they are written. */
void host_populate(void *at, size_t bytes);

#endif
