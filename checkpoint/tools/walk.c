#include "checkpoint/tools/walk.h"

#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "checkpoint/format/dtype.h"

#define MEMORY_BYTES (8u << 20)
#define PIECES_MAX 256

struct piece {
    const struct mck_tensor *t;
    bool first;
};

struct batch { /* what is read at once */
    struct mck *c;
    const struct walk *w;
    struct mck_buffer buffer[PIECES_MAX];
    struct piece piece[PIECES_MAX];
    char name[PIECES_MAX][MCK_NAME_MAX + 1];
    size_t n, used; /* of memory */
    char memory[MEMORY_BYTES];
};

int walk_dtype(int dtype, const struct mck_tensor *t)
{
    return dtype != WALK_AS_STORED && dtype_converts(t->dtype, dtype) ? dtype : t->dtype;
}

static int flush(struct batch *b, struct merr *err)
{
    if (b->n)
        TRY(mck_load(b->c, b->buffer, b->n, err));
    for (size_t i = 0; i < b->n; i++) {
        uint64_t bytes = mck_buffer_bytes(&b->buffer[i]);

        TRY(b->w->take(b->w->arg, b->piece[i].t, b->piece[i].first, b->buffer[i].data, bytes, err));
        read_watch_add(b->c, bytes);
    }
    b->n = 0;
    b->used = 0;
    return 0;
}

static int add_tensor(struct batch *b, const struct mck_tensor *t, struct merr *err)
{
    int dtype = walk_dtype(b->w->dtype, t);
    uint64_t volume, at = 0, esize = dtype_size(dtype);

    do {
        struct mck_buffer *q;
        uint64_t fit;

        if (b->n == PIECES_MAX || MEMORY_BYTES - b->used < esize)
            TRY(flush(b, err));
        q = &b->buffer[b->n];
        read_describe(b->c, t, b->name[b->n], q, &volume);
        fit = (MEMORY_BYTES - b->used) / esize;
        q->dtype = (enum mck_dtype)dtype;
        q->data = b->memory + b->used;
        q->sub_begin = at;
        q->sub_end = volume - at < fit ? volume : at + fit;
        b->piece[b->n++] = (struct piece){.t = t, .first = at == 0};
        b->used += (q->sub_end - at) * esize;
        at = q->sub_end;
    } while (at < volume);
    return 0;
}

int walk_tensors(struct mck *c, const struct walk *w, struct merr *err)
{
    struct batch *b = malloc(sizeof(*b));
    int r = 0;

    if (!b)
        return merr_set(err, -ENOMEM, "no memory to read tensors");
    b->c = c;
    b->w = w;
    b->n = b->used = 0;
    for (size_t i = w->begin; i < w->end && r == 0; i++)
        if (w->role == WALK_ALL_ROLES || c->ix.tensor[i].role == w->role)
            r = add_tensor(b, &c->ix.tensor[i], err);
    if (r == 0)
        r = flush(b, err);
    free(b);
    return r;
}
