/* Queues of their own: sums in member order, bit for bit those of the transports between processors. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"
#include "worker/engine/comm/reduce.h"

#define MEMBERS 5
#define COUNT ((size_t)1000) /* with a tail of a block */
#define WITHIN_US 10000000

/* Vectors of all members, side by side, in memory of the GPU: folded as one of them would. */
static int fold(const struct device_ops *ops, struct device_queue *q, struct device_fold f, const char *in, size_t size,
                char *out, struct merr *err)
{
    struct device_mark *mark = NULL;
    bool pinned = false;
    void *all = NULL;
    int r = ops->alloc(q, DEVICE_LOCAL, MEMBERS * f.stride, &all, err);

    if (r == 0)
        r = ops->pin(q, (void *)(uintptr_t)in, MEMBERS * COUNT * 8, err);
    pinned = r == 0;
    if (r == 0)
        r = ops->copy(q, all, in, MEMBERS * f.stride, err);
    f.rest = all;
    f.own = (char *)all + (size_t)f.index * f.stride;
    f.out = (char *)all + (size_t)f.index * f.stride;
    if (r == 0)
        r = ops->fold(q, &f, err);
    if (r == 0)
        r = ops->copy(q, out, f.out, f.count * size, err);
    if (r == 0)
        r = ops->mark_new(q, &mark, err);
    if (r == 0)
        r = ops->mark(q, mark, err);
    if (r == 0)
        r = ops->follow(q, mark, err);
    if (r == 0)
        r = ops->await(mark, WITHIN_US, err);
    if (r == 0 && ops->reached(mark, err) != 1)
        r = merr_set(err, -1, "a mark that was waited for is not reached");
    ops->mark_free(mark);
    if (pinned)
        ops->unpin(q, (void *)(uintptr_t)in);
    if (r == 0 && (ops->done(q, err) != 1 || !ops->holds(all) || ops->holds(in)))
        r = merr_set(err, -1, "what has run is not done, or memory is taken for another's");
    if (all)
        ops->free(q, DEVICE_LOCAL, all);
    return r;
}

static void one(struct check *c, struct device_queue *q, int type, bool max)
{
    static const enum device_type of[] = {
        [COMM_U8] = DEVICE_U8, [COMM_I64] = DEVICE_I64, [COMM_F32] = DEVICE_F32, [COMM_F64] = DEVICE_F64};
    static _Alignas(4096) char in[MEMBERS * COUNT * 8];
    static char out[COUNT * 8], want[COUNT * 8];
    size_t size = reduce_size((enum comm_type)type);
    struct device_fold f = {.type = of[type],
                            .max = max,
                            .n = MEMBERS,
                            .index = check_range(c, 0, MEMBERS - 1),
                            .stride = COUNT * size,
                            .count = COUNT - (size_t)check_range(c, 0, 99)};
    const void *src[MEMBERS];
    struct merr err = {""};
    char what[96];

    for (size_t i = 0; i < MEMBERS * COUNT; i++) {
        uint64_t word = check_word(c);
        float x = check_uniform(c);
        double y = (double)x * 1.1;

        memcpy(in + i * size, type == COMM_F32 ? (void *)&x : type == COMM_F64 ? (void *)&y : (void *)&word, size);
    }
    for (int i = 0; i < MEMBERS; i++)
        src[i] = in + (size_t)i * f.stride;
    reduce_fold(want, src, MEMBERS, f.count, (enum comm_type)type, max ? COMM_MAX : COMM_SUM);
    (void)snprintf(what, sizeof(what), "%s of vectors of type %d in order", max ? "maximum" : "sum", type);
    if (fold(c->gpu->kernels->device, q, f, in, size, out, &err))
        check_note(c, what, 0, 0, err.text);
    else
        check_note(c, what, 0, 0, memcmp(out, want, f.count * size) == 0 ? "" : "the bits differ");
}

void check_device(struct check *c)
{
    const struct device_ops *ops = c->gpu->kernels->device;
    struct device_queue *q;
    struct merr err = {""};
    uint64_t left = 0, all = 0;

    if (ops->room(0, &left, &all, &err))
        check_note(c, "the room of a GPU", 0, 0, err.text);
    else
        check_note(c, "the room of a GPU", 0, 0, left > 0 && left <= all ? "" : "too much is free, or nothing");
    if (ops->open(0, &q, &err)) {
        check_note(c, "a queue of its own", 0, 0, err.text);
        return;
    }
    for (int type = COMM_U8; type <= COMM_F64; type++)
        for (int max = 0; max < 2; max++)
            one(c, q, type, max);
    ops->close(q);
}
