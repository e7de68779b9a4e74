/* What the modes of context parallelism have in common: pieces in turn, messages to all others, work meanwhile */
#include <assert.h>

#include "base/try.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/model/context/context_priv.h"

#define TAG_ROWS 0

bool context_walk(const struct context *cx, const struct context_share *shared, struct context_walk *w)
{
    int i = w->next / ZIGZAG_PIECES;
    struct zigzag z;

    w->block += w->size;
    w->own += w->rows;
    if (i == shared->n)
        return false;
    if (i > 0 && w->next % ZIGZAG_PIECES == 0)
        w->sequence += (size_t)shared->whole[i - 1];
    z = zigzag_piece(shared->whole[i], context_size(&cx->cfg), w->rank, w->next++ % ZIGZAG_PIECES);
    w->size = (size_t)zigzag_size(shared->whole[i], context_size(&cx->cfg));
    w->rows = (size_t)z.tokens;
    w->all = w->sequence + (size_t)z.start;
    return true;
}

size_t context_block_rows(const struct context *cx, const struct context_share *shared)
{
    struct context_walk w = {.rank = 0};

    while (context_walk(cx, shared, &w))
        ;
    assert(w.block <= (size_t)cx->room);
    return w.block;
}

int context_settle(struct context *cx, int r, struct merr *err)
{
    for (int i = 0; i < 2 * context_size(&cx->cfg); i++) {
        int one = comm_wait(cx->request[i], r == 0 ? err : NULL);

        cx->request[i] = NULL;
        r = r == 0 ? one : r;
    }
    return r;
}

int context_post(struct context *cx, const void *send, size_t step, void *recv, size_t bytes, struct merr *err)
{
    struct comm_group *group = cx->cfg.group;
    int r = 0;

    TRY(cx->k->stream_sync(cx->stream, err));
    for (int i = 0; i < context_size(&cx->cfg) && r == 0; i++) {
        if (i == cx->cfg.index)
            continue;
        r = comm_irecv(group, i, TAG_ROWS, (char *)recv + i * bytes, bytes, &cx->request[2 * i], err);
        if (r == 0)
            r = comm_isend(group, i, TAG_ROWS, (const char *)send + i * step, bytes, &cx->request[2 * i + 1], err);
    }
    return r == 0 ? 0 : context_settle(cx, r, err);
}

/* Element n of an array of the stage's type. */
static void *element(const struct context *cx, const void *array, size_t n)
{
    return (char *)array + n * kern_size(cx->type);
}

/* Of a whole micro-batch's attention that of the documents which are no pieces. */
static struct kern_attention own_part(const struct context *cx, const struct context_share *shared,
                                      struct kern_attention a)
{
    const struct model_cfg *c = cx->model;
    size_t q = (size_t)shared->rows * c->q_local, qkv = (size_t)shared->rows * c->qkv_local;

    a.tokens -= shared->rows;
    a.docs -= shared->docs;
    a.cu = shared->own_cu;
    a.samples += shared->docs;
    a.qkv = element(cx, a.qkv, qkv);
    a.out = element(cx, a.out, q);
    a.lse += (size_t)shared->rows * c->heads_local;
    a.dout = a.dout ? element(cx, a.dout, q) : NULL;
    a.dqkv = a.dqkv ? element(cx, a.dqkv, qkv) : NULL;
    return a;
}

int context_meanwhile(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                      struct merr *err)
{
    struct kern_attention own = own_part(cx, shared, *a);
    int r = 0;

    if (own.docs > 0)
        r = (own.dqkv ? cx->k->attention_backward : cx->k->attention_forward)(cx->stream, &own, err);
    return context_settle(cx, r, err);
}
