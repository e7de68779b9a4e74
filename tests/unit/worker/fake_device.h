/* fake_device - a GPU of host memory, for tests of those who move bytes to and from GPUs
 *
 * Its number is its id. Work is done at once; a test may say that it never is, or which call of all is to fail.
 */
#ifndef MUSTER_TESTS_UNIT_WORKER_FAKE_DEVICE_H
#define MUSTER_TESTS_UNIT_WORKER_FAKE_DEVICE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compress/codec_cuda.h"
#include "compress/device.h"
#include "worker/engine/comm/reduce.h"

struct device_queue {
    int ordinal;
};

static bool fake_device_stuck, fake_device_host; /* nothing is ever done; all memory is the host's */
static bool fake_device_sliced;                  /* all are slices of one card */
static int fake_device_fail;                     /* so many more calls, then one fails; 0: none does */
static int fake_device_follows;                  /* waits of one queue for another so far */
static int fake_device_lost;                     /* times that a queue was given up */
static int fake_codec_calls;
static int64_t fake_codec_us;    /* that each call of a codec takes */
static int64_t fake_device_busy; /* until then */

static int fake_turn(struct merr *err)
{
    return fake_device_fail > 0 && --fake_device_fail == 0 ? merr_set(err, -EIO, "the fake GPU failed") : 0;
}

static int fake_open(int ordinal, struct device_queue **ret, struct merr *err)
{
    if (fake_turn(err) < 0)
        return -EIO;
    *ret = malloc(sizeof(**ret));
    (*ret)->ordinal = ordinal;
    return 0;
}

static void fake_close(struct device_queue *q)
{
    free(q);
}

static void fake_id(const struct device_queue *q, struct device_id *ret)
{
    memset(ret->gpu, q->ordinal, sizeof(ret->gpu));
    ret->card = fake_device_sliced ? 1 : 1 + (uint64_t)q->ordinal;
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
    if (fake_turn(err) < 0)
        return -EIO;
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
    if (fake_turn(err) < 0)
        return -EIO;
    memmove(dst, src, bytes);
    return 0;
}

static int fake_fold(struct device_queue *q, const struct device_fold *f, struct merr *err)
{
    static const enum comm_type type[] = {
        [DEVICE_U8] = COMM_U8, [DEVICE_I64] = COMM_I64, [DEVICE_F32] = COMM_F32, [DEVICE_F64] = COMM_F64};
    const void *src[64];

    (void)q;
    if (fake_turn(err) < 0)
        return -EIO;
    for (int i = 0; i < f->n; i++)
        src[i] = i == f->index ? f->own : (const char *)f->rest + (size_t)i * f->stride;
    reduce_fold(f->out, src, f->n, f->count, type[f->type], f->max ? COMM_MAX : COMM_SUM);
    return 0;
}

static int fake_done(struct device_queue *q, struct merr *err)
{
    (void)q;
    return fake_turn(err) < 0 ? -EIO : !fake_device_stuck && clock_mono_us() >= fake_device_busy;
}

static void fake_lose(struct device_queue *q)
{
    (void)q;
    fake_device_lost++;
}

static int fake_mark_new(struct device_queue *q, struct device_mark **ret, struct merr *err)
{
    (void)q;
    if (fake_turn(err) < 0)
        return -EIO;
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
    return fake_turn(err);
}

static int fake_follow(struct device_queue *q, struct device_mark *m, struct merr *err)
{
    (void)q;
    (void)m;
    fake_device_follows++;
    return fake_turn(err);
}

static int fake_reached(struct device_mark *m, struct merr *err)
{
    (void)m;
    (void)err;
    return !fake_device_stuck;
}

/* --- codecs: the processor's ---------------------------------------------------------------------- */

struct codec_cuda_report {
    uint64_t tag;
    uint32_t flags;
    int code; /* of the first call that failed, and what follows */
    struct codec_cuda_fault fault;
    struct merr why;
    struct codec_cuda_report *fetched; /* as it was then */
};

static int fake_report_new(struct codec_cuda_report **ret, struct merr *err)
{
    if (fake_turn(err) < 0)
        return -EIO;
    *ret = calloc(1, sizeof(**ret));
    (*ret)->fetched = calloc(1, sizeof(**ret));
    return 0;
}

static void fake_report_free(struct codec_cuda_report *r)
{
    if (r)
        free(r->fetched);
    free(r);
}

static void fake_report_tag(struct codec_cuda_report *r, uint64_t tag)
{
    r->tag = tag;
}

/* Whether the call is made; after one that failed none is. */
static bool fake_codec_runs(const struct codec_cuda_report *r)
{
    int64_t now = clock_mono_us();

    fake_codec_calls++;
    fake_device_busy = (fake_device_busy > now ? fake_device_busy : now) + fake_codec_us;
    return r->code == 0;
}

static void fake_codec_ran(struct codec_cuda_report *r, int code)
{
    size_t block = 0;

    if (code == 0)
        return;
    (void)sscanf(r->why.text, "block %zu of", &block);
    r->code = code;
    r->fault = (struct codec_cuda_fault){.tag = r->tag, .block = block};
}

static int fake_encode(void *stream, const struct codec *c, const struct codec_site *site, enum codec_type type,
                       const void *in, size_t count, void *block, struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        r->flags |= codec_encode(c, site, type, in, count, block);
    return 0;
}

static int fake_encode_difference(void *stream, const struct codec *c, const struct codec_site *site,
                                  const float *master, enum codec_type type, const void *replica, size_t count,
                                  void *block, struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        r->flags |= codec_encode_difference(c, site, master, type, replica, count, block);
    return 0;
}

static int fake_decode(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type,
                       void *out, size_t count, struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        fake_codec_ran(r, codec_decode(c, block, len, type, out, count, &r->flags, &r->why));
    return 0;
}

static int fake_decode_add(void *stream, const struct codec *c, const void *block, size_t len, enum codec_type type,
                           void *replica, size_t count, struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        fake_codec_ran(r, codec_decode_add(c, block, len, type, replica, count, &r->flags, &r->why));
    return 0;
}

static int fake_decode_reduce(void *stream, const struct codec *c, const struct codec_parts *parts,
                              enum codec_type type, void *out, size_t count, struct codec_cuda_report *r,
                              struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        fake_codec_ran(r, codec_decode_reduce(c, parts, type, out, count, &r->flags, &r->why));
    return 0;
}

static int fake_decode_reduce_encode(void *stream, const struct codec *c, const struct codec_parts *parts,
                                     const struct codec *to, const struct codec_site *site, void *block, size_t count,
                                     struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    if (fake_codec_runs(r))
        fake_codec_ran(r, codec_decode_reduce_encode(c, parts, to, site, block, count, &r->flags, &r->why));
    return 0;
}

static int fake_fetch(void *stream, struct codec_cuda_report *r, struct merr *err)
{
    (void)stream;
    if (fake_turn(err) < 0)
        return -EIO;
    *r->fetched = *r;
    *r = (struct codec_cuda_report){.tag = r->tag, .fetched = r->fetched};
    return 0;
}

static int fake_collect(struct codec_cuda_report *r, uint32_t *ret_flags, struct codec_cuda_fault *ret_fault,
                        struct merr *err)
{
    const struct codec_cuda_report *o = r->fetched;

    *ret_flags |= o->flags;
    *ret_fault = o->fault;
    return o->code < 0 ? merr_set(err, o->code, "%s", o->why.text) : 0;
}

static const struct codec_cuda fake_codecs = {
    .report_new = fake_report_new,
    .report_free = fake_report_free,
    .report_tag = fake_report_tag,
    .encode = fake_encode,
    .encode_difference = fake_encode_difference,
    .decode = fake_decode,
    .decode_add = fake_decode_add,
    .decode_reduce = fake_decode_reduce,
    .decode_reduce_encode = fake_decode_reduce_encode,
    .fetch = fake_fetch,
    .collect = fake_collect,
};

static const struct device_ops fake_device = {.codecs = &fake_codecs,
                                              .open = fake_open,
                                              .close = fake_close,
                                              .id = fake_id,
                                              .native = fake_native,
                                              .holds = fake_holds,
                                              .alloc = fake_alloc,
                                              .free = fake_free,
                                              .copy = fake_copy,
                                              .fold = fake_fold,
                                              .done = fake_done,
                                              .lose = fake_lose,
                                              .mark_new = fake_mark_new,
                                              .mark_free = fake_mark_free,
                                              .mark = fake_mark,
                                              .follow = fake_follow,
                                              .reached = fake_reached};

#endif
