#include "worker/kernels/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)

int host_alloc(size_t bytes, void **ret, struct merr *err)
{
    size_t align = bytes >= 2 * HUGE_BYTES ? HUGE_BYTES : 64;
    void *p;

    if (posix_memalign(&p, align, bytes > 0 ? bytes : 1) != 0)
        return merr_set(err, -ENOMEM, "no memory for %zu bytes of tensors; use a smaller micro-batch or more devices",
                        bytes);
    if (align == HUGE_BYTES)
        (void)madvise(p, bytes & ~(HUGE_BYTES - 1), MADV_HUGEPAGE); /* a hint; ordinary pages work as well */
    memset(p, 0, bytes > 0 ? bytes : 1);
    *ret = p;
    return 0;
}

void host_free(void *p)
{
    int saved = errno;

    free(p);
    errno = saved;
}
