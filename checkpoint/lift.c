#include "checkpoint/lift.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct lift {
    const struct device_ops *ops;
    struct device_queue *queue;
    void *room; /* pinned; NULL: not yet */
    struct device_mark *mark[LIFT_DEPTH];
    size_t first, n; /* under way */
};

static int make(struct lift *l, int ordinal, void *room, size_t bytes, struct merr *err)
{
    int r = l->ops->open(ordinal, &l->queue, err);

    for (int i = 0; i < LIFT_DEPTH && r == 0; i++)
        r = l->ops->mark_new(l->queue, &l->mark[i], err);
    if (r == 0)
        r = l->ops->pin(l->queue, room, bytes, err);
    if (r == 0)
        l->room = room;
    return r;
}

int lift_new(const struct device_ops *ops, int ordinal, void *room, size_t bytes, struct lift **ret, struct merr *err)
{
    struct lift *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return merr_set(err, -ENOMEM, "no memory for copies from the GPU");
    l->ops = ops;
    r = make(l, ordinal, room, bytes, err);
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
    if (l->room)
        l->ops->unpin(l->queue, l->room);
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

int lift_begin(struct lift *l, void *to, const void *from, size_t bytes, struct merr *err)
{
    int r;

    assert(l->n < LIFT_DEPTH);
    r = l->ops->copy(l->queue, to, from, bytes, err);
    if (r == 0)
        r = l->ops->mark(l->queue, l->mark[(l->first + l->n) % LIFT_DEPTH], err);
    if (r == 0)
        l->n++;
    return r;
}

int lift_end(struct lift *l, struct merr *err)
{
    struct device_mark *oldest = l->mark[l->first];

    assert(l->n > 0);
    l->first = (l->first + 1) % LIFT_DEPTH;
    l->n--;
    return l->ops->await(oldest, err);
}
