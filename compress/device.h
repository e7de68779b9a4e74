/* device - a GPU as those see it who move bytes to, from and between GPUs: memory and a queue of work
 *
 * Work is queued in order and runs by itself; a queue does not wait for the kernels of a stream, nor they for it. It is
 * used by one thread at a time. The code for GPUs offers the table (kernels.h, device); tests have one of their own on
 * host memory.
 */
#ifndef MUSTER_COMPRESS_DEVICE_H
#define MUSTER_COMPRESS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define DEVICE_ID_BYTES 16
#define DEVICE_CALM_US 5000000 /* of waiting for a queue that is done with: what it still holds then stays taken */

struct codec_cuda; /* codec_cuda.h */
struct device_queue;
struct device_mark; /* a place in a queue */

struct device_id {
    unsigned char gpu[DEVICE_ID_BYTES]; /* of the GPU, or of the slice of one (MIG) that is all there is of it here */
    uint64_t card; /* the same for all slices of a card of one machine: of its place on the bus and of the machine */
};

struct device_about { /* versions: thousands of the major, tens of the minor number */
    char name[64];
    int driver, runtime;          /* what the driver takes at most; what this was built with */
    int major, minor;             /* compute capability */
    bool managed;                 /* the host may touch its memory while it computes */
    uint64_t free, total, shared; /* bytes; shared: of its shared memory, for a block of threads */
};

enum device_memory {
    DEVICE_LOCAL,  /* of the GPU: not for the host to look at */
    DEVICE_PINNED, /* of the host, where copies need not wait for pages */
};

enum device_type { DEVICE_U8, DEVICE_I64, DEVICE_F32, DEVICE_F64 };

/* out[i] = the sum (or maximum) of n vectors, folded in order; integers wrap. Vector v is at own when v == index, else
 * at rest + v * stride bytes. out may be own. */
struct device_fold {
    enum device_type type;
    bool max;
    int n, index;
    const void *own, *rest;
    size_t stride, count;
    void *out;
};

/* Calls that return int give 0 or a negative errno with words in err: -ENOMEM, -ENODEV (no driver, no GPU), -EIO. Those
 * that wait for what is queued do so for DEVICE_CALM_US at most: what a hung GPU may still touch is not freed then. */
struct device_ops {
    const struct codec_cuda *codecs; /* calls of codecs take a queue's native stream; NULL: there are none */

    /* Bytes of a GPU's memory: what nobody has taken now, and all. */
    int (*room)(int ordinal, uint64_t *ret_free, uint64_t *ret_total, struct merr *err);

    int (*about)(int ordinal, struct device_about *ret, struct merr *err);

    int (*open)(int ordinal, struct device_queue **ret, struct merr *err);
    void (*close)(struct device_queue *q); /* waits for what is queued; NULL is fine */

    /* The same for whoever looks at the same GPU (or slice of one), different for others. */
    void (*id)(const struct device_queue *q, struct device_id *ret);
    void *(*native)(const struct device_queue *q); /* the cudaStream_t */
    bool (*holds)(const void *p);                  /* whether GPUs may read and write there, by NCCL too */

    int (*alloc)(struct device_queue *q, enum device_memory kind, size_t bytes, void **ret, struct merr *err);
    void (*free)(struct device_queue *q, enum device_memory kind, void *p); /* waits for what is queued */

    /* Pin memory of the host that is there, whole pages of it; unpin waits for what is queued. */
    int (*pin)(struct device_queue *q, void *p, size_t bytes, struct merr *err);
    void (*unpin)(struct device_queue *q, void *p);

    /* Queued; with host memory that is not pinned on either side it may wait. */
    int (*copy)(struct device_queue *q, void *dst, const void *src, size_t bytes, struct merr *err);
    int (*fold)(struct device_queue *q, const struct device_fold *f, struct merr *err);

    int (*done)(struct device_queue *q, struct merr *err); /* 1: all that is queued has run; 0: not yet */
    /* What runs on q does not end, and nobody can end it: from now on nothing of the GPU is freed or waited for, which
     * would not end either, nor when the process exits. */
    void (*lose)(struct device_queue *q);

    /* A mark is reached once all that was queued before it has run. It may be set again, and any thread may look. */
    int (*mark_new)(struct device_queue *q, struct device_mark **ret, struct merr *err);
    void (*mark_free)(struct device_mark *m); /* NULL is fine */
    int (*mark)(struct device_queue *q, struct device_mark *m, struct merr *err);
    /* What is queued on q from now on runs after all that m, of any queue of this GPU, now marks. */
    int (*follow)(struct device_queue *q, struct device_mark *m, struct merr *err);
    int (*reached)(struct device_mark *m, struct merr *err);                  /* 1, or 0: not yet */
    int (*await)(struct device_mark *m, int64_t within_us, struct merr *err); /* until it is; -ETIMEDOUT: it was not */
};

#endif
