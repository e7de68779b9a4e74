#include "checkpoint/read/lift.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"

#define WITHIN_US 60000000 /* a copy takes milliseconds */

struct lift {
    const struct device_ops *ops;
    struct device_queue *queue;
    void *memory; /* pinned; NULL: not yet */
    struct device_mark *mark[LIFT_DEPTH];
    size_t first, n; /* under way */
    int code;        /* of the first copy that did not end well: those that follow it end so, too */
    struct merr why;
};

static int make(struct lift *l, int ordinal, void *memory, size_t bytes, struct merr *err)
{
    TRY(l->ops->open(ordinal, &l->queue, err));
    for (int i = 0; i < LIFT_DEPTH; i++)
        TRY(l->ops->mark_new(l->queue, &l->mark[i], err));
    TRY(l->ops->pin(l->queue, memory, bytes, err));
    l->memory = memory;
    return 0;
}

int lift_new(const struct device_ops *ops, int ordinal, void *memory, size_t bytes, struct lift **ret, struct merr *err)
{
    struct lift *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return merr_set(err, -ENOMEM, "no memory for copies from the GPU");
    l->ops = ops;
    r = make(l, ordinal, memory, bytes, err);
    if (r < 0)
        lift_free(l);
    else
        *ret = l;
    return r;
}

void lift_free(struct lift *l)
{
    if (!l)
        return;
    if (l->memory)
        l->ops->unpin(l->queue, l->memory);
    for (int i = 0; i < LIFT_DEPTH; i++)
        l->ops->mark_free(l->mark[i]);
    l->ops->close(l->queue);
    free(l);
}

bool lift_holds(const struct lift *l, const void *p)
{
    return l->ops->holds(p);
}

size_t lift_under_way(const struct lift *l)
{
    return l->n;
}

static int refuse(const struct lift *l, struct merr *err)
{
    return merr_set(err, l->code, "a copy between the GPU and a checkpoint: %s", l->why.text);
}

int lift_begin(struct lift *l, void *to, const void *from, size_t bytes, struct merr *err)
{
    int r;

    assert(l->n < LIFT_DEPTH);
    if (l->code)
        return refuse(l, err);
    r = l->ops->copy(l->queue, to, from, bytes, err);
    if (r < 0)
        return r;
    l->code = l->ops->mark(l->queue, l->mark[(l->first + l->n) % LIFT_DEPTH], &l->why);
    l->n += l->code == 0;
    return l->code ? refuse(l, err) : 0;
}

int lift_end(struct lift *l, struct merr *err)
{
    struct device_mark *oldest = l->mark[l->first];

    assert(l->n > 0);
    l->first = (l->first + 1) % LIFT_DEPTH;
    l->n--;
    if (l->code == 0)
        l->code = l->ops->await(oldest, WITHIN_US, &l->why);
    return l->code ? refuse(l, err) : 0;
}
