/* lower - load into the memory of a GPU: what fits into a room is read there, then copied while the next is read */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/format/buffer.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/read/lift.h"

#define ROOMS 2
#define ROOM_BYTES ((size_t)16 << 20)
#define PARTS_MAX 1024 /* of a room */
#define ALIGN 64u

struct lower {
    struct mck *c;
    struct lift *lift;
    char *memory;
    int room;    /* that is being filled */
    size_t used; /* of it */
    struct mck_buffer part[PARTS_MAX];
    void *to[PARTS_MAX];
    size_t parts;
    size_t copies[ROOMS]; /* under way from each */
};

/* Copies end in order: those from one room before those from the other. */
static int end_copies(struct lower *w, int room, struct merr *err)
{
    int r = 0;

    for (; w->copies[room] > 0 && r == 0; w->copies[room]--)
        r = lift_end(w->lift, err);
    return r;
}

/* A copy more from this room: the lift may want an older one ended before. */
static int begin_copy(struct lower *w, size_t i, struct merr *err)
{
    int other = (w->room + 1) % ROOMS, oldest = w->copies[other] > 0 ? other : w->room, r = 0;

    if (lift_under_way(w->lift) == LIFT_DEPTH) {
        r = lift_end(w->lift, err);
        w->copies[oldest]--;
    }
    if (r == 0)
        r = lift_begin(w->lift, w->to[i], w->part[i].data, mck_buffer_bytes(&w->part[i]), err);
    w->copies[w->room] += r == 0;
    return r;
}

/* Read what the room is for, start its copies, and go on with the other room. */
static int flush(struct lower *w, struct merr *err)
{
    int r = w->parts ? mck_load(w->c, w->part, w->parts, err) : 0;

    for (size_t i = 0; i < w->parts && r == 0; i++)
        r = begin_copy(w, i, err);
    w->parts = 0;
    w->used = 0;
    w->room = (w->room + 1) % ROOMS;
    return r == 0 ? end_copies(w, w->room, err) : r;
}

/* Elements [at, end) of a buffer, counted as its sub_begin is; what fits. */
static uint64_t add_part(struct lower *w, const struct mck_buffer *b, uint64_t begin, uint64_t at, uint64_t end)
{
    size_t size = dtype_size((int)b->dtype);
    uint64_t fit = (ROOM_BYTES - w->used) / size, n = end - at < fit ? end - at : fit;
    struct mck_buffer *p = &w->part[w->parts];

    *p = *b;
    p->sub_begin = at;
    p->sub_end = at + n;
    p->data = w->memory + (size_t)w->room * ROOM_BYTES + w->used;
    w->to[w->parts++] = (char *)b->data + (at - begin) * size;
    w->used += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return n;
}

static int lower_buffer(struct lower *w, const struct mck_buffer *b, struct merr *err)
{
    uint64_t begin, end, at;
    struct box box;
    int r = buffer_check(b, err);

    if (r)
        return r;
    buffer_range(b, &box, &begin, &end);
    for (at = begin; at < end && r == 0;) {
        if (w->used >= ROOM_BYTES || w->parts == PARTS_MAX)
            r = flush(w, err);
        else
            at += add_part(w, b, begin, at, end);
    }
    return r;
}

static int lower_all(struct lower *w, const struct mck_buffer *bufs, size_t n, struct merr *err)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = lift_holds(w->lift, bufs[i].data) ? lower_buffer(w, &bufs[i], err) : mck_load(w->c, &bufs[i], 1, err);
    for (int i = 0; i < ROOMS && r == 0; i++)
        r = flush(w, err);
    return r;
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
    w->memory = mmap(NULL, ROOMS * ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->memory == MAP_FAILED) {
        free(w);
        return merr_set(err, -ENOMEM, "no memory to load %zu MiB at a time onto a GPU", ROOMS * ROOM_BYTES >> 20);
    }
    r = lift_new(device, ordinal, w->memory, ROOMS * ROOM_BYTES, &w->lift, err);
    if (r == 0)
        r = lower_all(w, bufs, n, err);
    lift_free(w->lift);
    (void)munmap(w->memory, ROOMS * ROOM_BYTES);
    free(w);
    return r;
}
