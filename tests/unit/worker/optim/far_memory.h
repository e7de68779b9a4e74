/* far_memory - memory that only the copies of a table of kernels reach, as the processor finds a device's */
#ifndef MUSTER_TESTS_UNIT_WORKER_OPTIM_FAR_MEMORY_H
#define MUSTER_TESTS_UNIT_WORKER_OPTIM_FAR_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/engine/kernels/kernels.h"

#define FAR_BYTES ((size_t)8 << 20)

/* As many pieces as a test has, and no more; of a thread. */
static _Thread_local char *far_piece[4];

static inline void far_open(bool open)
{
    for (size_t i = 0; i < 4 && far_piece[i]; i++)
        if (mprotect(far_piece[i], FAR_BYTES, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
            abort();
}

static inline void *far_new(void)
{
    void *p = mmap(NULL, FAR_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    for (size_t i = 0; p != MAP_FAILED && i < 4; i++)
        if (!far_piece[i]) {
            far_piece[i] = p;
            return p;
        }
    abort();
}

static inline int far_copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err)
{
    (void)s;
    (void)err;
    far_open(true);
    memmove(dst, src, bytes);
    far_open(false);
    return 0;
}

/* The processor's table as if its memory were a device's; `device` is only looked at. */
static inline struct kern_ops far_kernels(void)
{
    static const struct device_ops device;
    struct kern_ops k = *kern_plain();

    k.device = &device;
    k.copy = far_copy;
    return k;
}

static inline void far_end(void)
{
    for (size_t i = 0; i < 4 && far_piece[i]; i++) {
        (void)munmap(far_piece[i], FAR_BYTES);
        far_piece[i] = NULL;
    }
}

#endif
