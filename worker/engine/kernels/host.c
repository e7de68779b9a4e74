#include "worker/engine/kernels/host.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define LINE_BYTES ((size_t)64)
#define PAGE_BYTES ((size_t)4096)

/* calloc knows which of its memory is fresh from the kernel and leaves that alone: what is not yet used is not there
 * yet, and nothing is cleared twice. Just before the aligned area stands what free wants back. */
int host_alloc(size_t bytes, void **ret, struct merr *err)
{
    size_t align = bytes >= 2 * HUGE_BYTES ? HUGE_BYTES : LINE_BYTES;
    void *whole = bytes <= SIZE_MAX - align ? calloc(1, bytes + align) : NULL;
    uintptr_t at;

    if (!whole)
        return merr_set(err, -ENOMEM, "no memory for %zu bytes of tensors; use a smaller micro-batch or more devices",
                        bytes);
    at = ((uintptr_t)whole + sizeof(void *) + align - 1) & ~(uintptr_t)(align - 1);
    ((void **)at)[-1] = whole;
    if (align == HUGE_BYTES)
        (void)madvise((void *)at, bytes & ~(HUGE_BYTES - 1), MADV_HUGEPAGE); /* a hint: ordinary pages work as well */
    *ret = (void *)at;
    return 0;
}

void host_free(void *p)
{
    int saved = errno;

    if (p)
        free(((void **)p)[-1]);
    errno = saved;
}

void host_populate(void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at & ~(uintptr_t)(PAGE_BYTES - 1);
    int saved = errno;

#ifdef MADV_POPULATE_WRITE
    if (bytes > 0)
        (void)madvise((void *)from, bytes + ((uintptr_t)at - from), MADV_POPULATE_WRITE);
#else
    (void)from;
    (void)bytes;
#endif
    errno = saved;
}
