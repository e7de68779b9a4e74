/* Context parallelism: attention of sequences that several ranks share. While something is on its way between them,
 * each attends to the documents that are whole on it. */
#include <assert.h>

#include "base/try.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/engine/model/context_priv.h"

#define TAG_ROWS 0

bool context_walk(const struct stage *st, const struct stage_slot *slot, struct walk *w)
{
    int i = w->next / ZIGZAG_PIECES;
    struct zigzag z;

    w->block += w->size;
    w->own += w->rows;
    if (i == slot->shared)
        return false;
    if (i > 0 && w->next % ZIGZAG_PIECES == 0)
        w->sequence += (size_t)slot->whole[i - 1];
    z = zigzag_piece(slot->whole[i], stage_cp(st), w->rank, w->next++ % ZIGZAG_PIECES);
    w->size = (size_t)zigzag_size(slot->whole[i], stage_cp(st));
    w->rows = (size_t)z.tokens;
    w->all = w->sequence + (size_t)z.start;
    return true;
}

size_t context_block_rows(const struct stage *st, const struct stage_slot *slot)
{
    struct walk w = {.rank = 0};

    while (context_walk(st, slot, &w))
        ;
    assert(w.block <= (size_t)st->room);
    return w.block;
}

int context_settle(struct stage *st, int r, struct merr *err)
{
    for (int i = 0; i < 2 * stage_cp(st); i++) {
        int one = comm_wait(st->cp_request[i], r == 0 ? err : NULL);

        st->cp_request[i] = NULL;
        r = r == 0 ? one : r;
    }
    return r;
}

int context_post(struct stage *st, const void *send, size_t step, void *recv, size_t bytes, struct merr *err)
{
    int r = 0;

    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    for (int i = 0; i < stage_cp(st) && r == 0; i++) {
        if (i == st->cfg.cp_index)
            continue;
        r = comm_irecv(st->cfg.cp, i, TAG_ROWS, (char *)recv + i * bytes, bytes, &st->cp_request[2 * i], err);
        if (r == 0)
            r = comm_isend(st->cfg.cp, i, TAG_ROWS, (const char *)send + i * step, bytes, &st->cp_request[2 * i + 1],
                           err);
    }
    return r == 0 ? 0 : context_settle(st, r, err);
}

/* Of a whole micro-batch's attention that of the documents which are no pieces. */
static struct kern_attention own_part(const struct stage *st, const struct stage_slot *slot, struct kern_attention a)
{
    const struct model_cfg *c = st->cfg.model;
    size_t q = (size_t)slot->shared_rows * c->q_local, qkv = (size_t)slot->shared_rows * c->qkv_local;

    a.tokens = slot->rows - slot->shared_rows;
    a.docs = slot->docs - slot->shared_docs;
    a.cu = slot->own_cu;
    a.samples += slot->shared_docs;
    a.qkv = element(st, a.qkv, qkv);
    a.out = element(st, a.out, q);
    a.lse += (size_t)slot->shared_rows * c->heads_local;
    a.dout = a.dout ? element(st, a.dout, q) : NULL;
    a.dqkv = a.dqkv ? element(st, a.dqkv, qkv) : NULL;
    return a;
}

static const struct context_way *way_of(const struct stage *st)
{
    return st->cfg.cp_mode == CP_ULYSSES ? &context_heads : &context_keys;
}

int context_meanwhile(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention own = own_part(st, slot, *a);
    const struct kern_ops *k = st->cfg.k;
    int r = 0;

    if (own.docs > 0)
        r = (own.dqkv ? k->attention_backward : k->attention_forward)(st->cfg.stream, &own, err);
    return context_settle(st, r, err);
}

int context_forward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    return way_of(st)->forward(st, slot, a, err);
}

int context_backward_begin(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a,
                           struct merr *err)
{
    return way_of(st)->backward_begin ? way_of(st)->backward_begin(st, slot, a, err) : 0;
}

int context_backward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    return way_of(st)->backward(st, slot, a, err);
}
