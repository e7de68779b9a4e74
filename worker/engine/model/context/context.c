#include "worker/engine/model/context/context.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/try.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/model/context/context_priv.h"

#define TAG_ROWS 0

static const struct context_ops *ops_of(const struct context_cfg *cfg)
{
    static const struct context_ops *const modes[] = {[CP_ZIGZAG] = &context_zigzag, [CP_ULYSSES] = &context_ulysses};

    return modes[cfg->mode];
}

int context_check(const struct context_cfg *cfg, const struct model_cfg *model, struct merr *err)
{
    const struct context_ops *ops = ops_of(cfg);

    return context_size(cfg) > 1 && ops->check ? ops->check(cfg, model, err) : 0;
}

int context_open(struct context *cx, struct merr *err)
{
    cx->request = calloc(2 * (size_t)context_size(&cx->cfg), sizeof(struct comm_request *));
    return cx->request ? 0 : merr_set(err, -ENOMEM, "no memory for messages to %d ranks", context_size(&cx->cfg));
}

void context_close(struct context *cx)
{
    free(cx->request);
    cx->request = NULL;
}

int context_share_init(struct context_share *s, int docs)
{
    *s = (struct context_share){
        .whole = calloc(docs, sizeof(*s->whole)),
        .whole_cu = calloc(docs + 1, sizeof(*s->whole_cu)),
        .whole_sample = calloc(docs, sizeof(*s->whole_sample)),
        .past = calloc(docs, sizeof(*s->past)),
        .kv_at = calloc(docs, sizeof(*s->kv_at)),
        .own_cu = calloc(docs + 1, sizeof(*s->own_cu)),
    };
    return s->whole && s->whole_cu && s->whole_sample && s->past && s->kv_at && s->own_cu ? 0 : -ENOMEM;
}

void context_share_clear(struct context_share *s)
{
    free(s->whole);
    free(s->whole_cu);
    free(s->whole_sample);
    free(s->past);
    free(s->kv_at);
    free(s->own_cu);
    *s = (struct context_share){.n = 0};
}

void context_carve(struct context *cx, struct carve *c)
{
    if (context_size(&cx->cfg) > 1)
        ops_of(&cx->cfg)->carve(cx, c);
}

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

int context_forward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err)
{
    return ops_of(&cx->cfg)->forward(cx, shared, a, err);
}

int context_backward_begin(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                           struct merr *err)
{
    const struct context_ops *ops = ops_of(&cx->cfg);

    return ops->backward_begin ? ops->backward_begin(cx, shared, a, err) : 0;
}

int context_backward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                     struct merr *err)
{
    return ops_of(&cx->cfg)->backward(cx, shared, a, err);
}
