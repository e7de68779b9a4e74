/* lower - load into the memory of a GPU: half of a buffer is read, then copied while the other half is read */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/try.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/buffer.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/read/lift.h"

#define HALVES 2
#define HALF_BYTES ((size_t)16 << 20)
#define PARTS_MAX 1024 /* of a half */
#define ALIGN 64u

struct lower {
    struct mck *c;
    struct lift *lift;
    char *memory;
    int half;    /* that is being filled */
    size_t used; /* of it */
    struct mck_buffer part[PARTS_MAX];
    void *to[PARTS_MAX];
    size_t parts;
    size_t copies[HALVES]; /* under way from each */
};

/* Copies end in order: those from one half before those from the other. */
static int end_copies(struct lower *w, int half, struct merr *err)
{
    for (; w->copies[half] > 0; w->copies[half]--)
        TRY(lift_end(w->lift, err));
    return 0;
}

/* A copy more from this half: the lift may want an older one ended before. */
static int begin_copy(struct lower *w, size_t i, struct merr *err)
{
    int other = (w->half + 1) % HALVES, oldest = w->copies[other] > 0 ? other : w->half;

    if (lift_under_way(w->lift) == LIFT_DEPTH) {
        w->copies[oldest]--;
        TRY(lift_end(w->lift, err));
    }
    TRY(lift_begin(w->lift, w->to[i], w->part[i].data, mck_buffer_bytes(&w->part[i]), err));
    w->copies[w->half]++;
    return 0;
}

/* Read what this half is for, start its copies, and go on with the other half. */
static int flush(struct lower *w, struct merr *err)
{
    if (w->parts)
        TRY(mck_load(w->c, w->part, w->parts, err));
    for (size_t i = 0; i < w->parts; i++)
        TRY(begin_copy(w, i, err));
    w->parts = 0;
    w->used = 0;
    w->half = (w->half + 1) % HALVES;
    return end_copies(w, w->half, err);
}

/* Elements [at, end) of a buffer, counted as its sub_begin is; what fits. */
static uint64_t add_part(struct lower *w, const struct mck_buffer *b, uint64_t begin, uint64_t at, uint64_t end)
{
    size_t size = dtype_size((int)b->dtype);
    uint64_t fit = (HALF_BYTES - w->used) / size, n = end - at < fit ? end - at : fit;
    struct mck_buffer *p = &w->part[w->parts];

    *p = *b;
    p->sub_begin = at;
    p->sub_end = at + n;
    p->data = w->memory + (size_t)w->half * HALF_BYTES + w->used;
    w->to[w->parts++] = (char *)b->data + (at - begin) * size;
    w->used += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return n;
}

static int lower_buffer(struct lower *w, const struct mck_buffer *b, struct merr *err)
{
    uint64_t begin, end, at;
    struct box box;

    TRY(buffer_check(b, err));
    buffer_range(b, &box, &begin, &end);
    for (at = begin; at < end;) {
        if (w->used >= HALF_BYTES || w->parts == PARTS_MAX)
            TRY(flush(w, err));
        else
            at += add_part(w, b, begin, at, end);
    }
    return 0;
}

static int lower_all(struct lower *w, const struct mck_buffer *bufs, size_t n, struct merr *err)
{
    for (size_t i = 0; i < n; i++)
        TRY(lift_holds(w->lift, bufs[i].data) ? lower_buffer(w, &bufs[i], err) : mck_load(w->c, &bufs[i], 1, err));
    for (int i = 0; i < HALVES; i++)
        TRY(flush(w, err));
    return 0;
}

int mck_load_on(struct mck *c, const struct mck_buffer *bufs, size_t n, const struct device_ops *device, int ordinal,
                struct merr *err)
{
    struct lower *w;
    int r;

    if (!device)
        return mck_load(c, bufs, n, err);
    w = calloc(1, sizeof(*w));
    if (!w)
        return merr_set(err, -ENOMEM, "no memory to load onto a GPU");
    w->c = c;
    w->memory = mmap(NULL, HALVES * HALF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->memory == MAP_FAILED) {
        free(w);
        return merr_set(err, -ENOMEM, "no memory to load %zu MiB at a time onto a GPU", HALVES * HALF_BYTES >> 20);
    }
    r = lift_new(device, ordinal, w->memory, HALVES * HALF_BYTES, &w->lift, err);
    if (r == 0)
        r = lower_all(w, bufs, n, err);
    lift_free(w->lift);
    (void)munmap(w->memory, HALVES * HALF_BYTES);
    free(w);
    return r;
}
