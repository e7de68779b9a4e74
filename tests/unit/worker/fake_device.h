/* fake_device - a GPU of host memory, for tests of those who move bytes to and from GPUs
 *
 * Its number is its id. Work is done at once; a test may say that it never is.
 */
#ifndef MUSTER_TESTS_UNIT_WORKER_FAKE_DEVICE_H
#define MUSTER_TESTS_UNIT_WORKER_FAKE_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "compress/device.h"
#include "worker/comm/reduce.h"

struct device_queue {
    int ordinal;
};

static bool fake_device_stuck, fake_device_host; /* nothing is ever done; all memory is the host's */

static int fake_open(int ordinal, struct device_queue **ret, struct merr *err)
{
    (void)err;
    *ret = malloc(sizeof(**ret));
    (*ret)->ordinal = ordinal;
    return 0;
}

static void fake_close(struct device_queue *q)
{
    free(q);
}

static void fake_id(const struct device_queue *q, unsigned char ret[DEVICE_ID_BYTES])
{
    memset(ret, q->ordinal, DEVICE_ID_BYTES);
}

static void *fake_native(const struct device_queue *q)
{
    (void)q;
    return NULL;
}

static bool fake_holds(const void *p)
{
    (void)p;
    return !fake_device_host;
}

static int fake_alloc(struct device_queue *q, enum device_memory kind, size_t bytes, void **ret, struct merr *err)
{
    (void)q;
    (void)kind;
    (void)err;
    *ret = malloc(bytes);
    return 0;
}

static void fake_free(struct device_queue *q, enum device_memory kind, void *p)
{
    (void)q;
    (void)kind;
    free(p);
}

static int fake_copy(struct device_queue *q, void *dst, const void *src, size_t bytes, struct merr *err)
{
    (void)q;
    (void)err;
    memmove(dst, src, bytes);
    return 0;
}

static int fake_fold(struct device_queue *q, const struct device_fold *f, struct merr *err)
{
    static const enum comm_type type[] = {[DEVICE_U8] = COMM_U8, [DEVICE_I64] = COMM_I64, [DEVICE_F32] = COMM_F32,
                                          [DEVICE_F64] = COMM_F64};
    const void *src[64];

    (void)q;
    (void)err;
    for (int i = 0; i < f->n; i++)
        src[i] = i == f->index ? f->own : (const char *)f->rest + (size_t)i * f->stride;
    reduce_fold(f->out, src, f->n, f->count, type[f->type], f->max ? COMM_MAX : COMM_SUM);
    return 0;
}

static int fake_done(struct device_queue *q, struct merr *err)
{
    (void)q;
    (void)err;
    return !fake_device_stuck;
}

static int fake_wait(struct device_queue *q, struct merr *err)
{
    (void)q;
    (void)err;
    return 0;
}

static int fake_mark_new(struct device_queue *q, struct device_mark **ret, struct merr *err)
{
    (void)q;
    (void)err;
    *ret = malloc(1);
    return 0;
}

static void fake_mark_free(struct device_mark *m)
{
    free(m);
}

static int fake_mark(struct device_queue *q, struct device_mark *m, struct merr *err)
{
    (void)q;
    (void)m;
    (void)err;
    return 0;
}

static int fake_reached(struct device_mark *m, struct merr *err)
{
    (void)m;
    (void)err;
    return !fake_device_stuck;
}

static const struct device_ops fake_device = {.open = fake_open, .close = fake_close, .id = fake_id,
                                              .native = fake_native, .holds = fake_holds, .alloc = fake_alloc,
                                              .free = fake_free, .copy = fake_copy, .fold = fake_fold,
                                              .done = fake_done, .wait = fake_wait, .mark_new = fake_mark_new,
                                              .mark_free = fake_mark_free, .mark = fake_mark,
                                              .reached = fake_reached};

#endif
