/* Every rank of cp gets some heads of all rows of the sequences that are shared (DeepSpeed-Ulysses, 2023), attends with
 * them to whole sequences, and gives the rows' owners what came of it. Nothing of that is kept: the backward fetches
 * queries, keys and values again, and with them what the forward gave away. */
#include <assert.h>

#include "base/try.h"
#include "worker/engine/model/context_priv.h"

/* Columns of a matrix that travels, in bytes: of all heads in this rank's rows (mine), where each member's are width
 * wide, and of this rank's heads in all rows (whole). */
struct strip {
    char *mine, *whole;
    size_t mine_ld, whole_ld, width;
};

#define STRIPS_MAX 6

struct strips {
    struct strip v[STRIPS_MAX];
    int n;
};

/* Columns [at, at + cols) of ld, in elements of size bytes; of each of them a member has its share. */
static void add(const struct stage *st, struct strips *s, const void *mine, const void *whole, int ld, int at, int cols,
                size_t size)
{
    int n = stage_cp(st);

    assert(s->n < STRIPS_MAX && ld % n == 0 && at % n == 0 && cols % n == 0);
    s->v[s->n++] = (struct strip){.mine = (char *)mine + at * size,
                                  .whole = (char *)whole + at / n * size,
                                  .mine_ld = ld * size,
                                  .whole_ld = ld / n * size,
                                  .width = cols / n * size};
}

static void add_qkv(const struct stage *st, struct strips *s, const void *mine, const void *whole)
{
    const struct model_cfg *c = st->cfg.model;
    int kv = c->kv_heads_local * c->dim;
    size_t size = kern_size(st->cfg.type);

    add(st, s, mine, whole, c->qkv_local, 0, c->q_local, size);
    add(st, s, mine, whole, c->qkv_local, c->q_local, kv, size);
    add(st, s, mine, whole, c->qkv_local, c->q_local + kv, kv, size);
}

/* What attention makes of them. */
static void add_out(const struct stage *st, struct strips *s, const struct kern_attention *mine,
                    const struct kern_attention *whole)
{
    const struct model_cfg *c = st->cfg.model;

    add(st, s, mine->out, whole->out, c->q_local, 0, c->q_local, kern_size(st->cfg.type));
    add(st, s, mine->lse, whole->lse, c->heads_local, 0, c->heads_local, sizeof(*mine->lse));
}

/* Attention of this rank's heads to the sequences that are shared. */
static struct kern_attention whole_part(const struct stage *st, const struct stage_slot *slot, struct kern_attention a)
{
    int n = stage_cp(st);

    a.tokens = slot->whole_rows;
    a.docs = slot->shared;
    a.cu = slot->whole_cu;
    a.samples = slot->whole_sample;
    a.heads /= n;
    a.kv_heads /= n;
    a.ld /= n;
    a.drop_keys += (size_t)2 * a.heads * st->cfg.cp_index;
    a.qkv = st->cp_qkv;
    a.out = st->cp_out;
    a.lse = st->cp_lse;
    a.dout = a.dout ? st->cp_dout : NULL;
    a.dqkv = a.dqkv ? st->cp_dqkv : NULL;
    return a;
}

static size_t message_bytes(const struct stage *st, const struct stage_slot *slot, const struct strips *s)
{
    size_t row = 0;

    for (int i = 0; i < s->n; i++)
        row += s->v[i].width;
    return context_block_rows(st, slot) * row;
}

/* Between a message to or from member i and what it is about: with whole the rows of i's pieces, else i's heads of this
 * rank's. */
static int move(struct stage *st, const struct stage_slot *slot, const struct strips *s, int i, char *message,
                bool whole, bool in, struct merr *err)
{
    size_t rows = context_block_rows(st, slot);
    struct walk w = {.rank = whole ? i : st->cfg.cp_index};

    while (context_walk(st, slot, &w)) {
        char *block = message;

        for (int j = 0; j < s->n; j++) {
            const struct strip *p = &s->v[j];
            char *there = block + w.block * p->width;
            char *here = whole ? p->whole + w.all * p->whole_ld : p->mine + w.own * p->mine_ld + i * p->width;
            size_t ld = whole ? p->whole_ld : p->mine_ld;

            TRY(st->cfg.k->copy_rows(st->cfg.stream, in ? there : here, in ? p->width : ld, in ? here : there,
                                     in ? ld : p->width, p->width, (int)w.rows, err));
            block += rows * p->width;
        }
    }
    return 0;
}

/* To the members that have the heads, or, back, to those that have the rows. */
static int leave(struct stage *st, const struct stage_slot *slot, const struct strips *s, bool back, struct merr *err)
{
    size_t bytes = message_bytes(st, slot, s);

    for (int i = 0; i < stage_cp(st); i++)
        TRY(move(st, slot, s, i, (char *)st->cp_mine + i * bytes, back, true, err));
    return context_post(st, st->cp_mine, bytes, st->cp_all, bytes, err);
}

static int arrive(struct stage *st, const struct stage_slot *slot, const struct strips *s, bool back, struct merr *err)
{
    size_t bytes = message_bytes(st, slot, s);

    for (int i = 0; i < stage_cp(st); i++) {
        float *from = i == st->cfg.cp_index ? st->cp_mine : st->cp_all;

        TRY(move(st, slot, s, i, (char *)from + i * bytes, !back, false, err));
    }
    return 0;
}

/* The forward's has no gradients. */
static struct strips needed(const struct stage *st, const struct stage_slot *slot, const struct kern_attention *a)
{
    struct kern_attention whole = whole_part(st, slot, *a);
    struct strips s = {.n = 0};

    add_qkv(st, &s, a->qkv, whole.qkv);
    if (!a->dqkv)
        return s;
    add_out(st, &s, a, &whole);
    add(st, &s, a->dout, whole.dout, st->cfg.model->q_local, 0, st->cfg.model->q_local, kern_size(st->cfg.type));
    return s;
}

static int give_back(struct stage *st, const struct stage_slot *slot, const struct strips *s, struct merr *err)
{
    TRY(leave(st, slot, s, true, err));
    TRY(context_settle(st, 0, err));
    return arrive(st, slot, s, true, err);
}

static int forward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention whole = whole_part(st, slot, *a);
    struct strips s = needed(st, slot, a), out = {.n = 0};

    TRY(leave(st, slot, &s, false, err));
    TRY(context_meanwhile(st, slot, a, err));
    TRY(arrive(st, slot, &s, false, err));
    TRY(st->cfg.k->attention_forward(st->cfg.stream, &whole, err));
    add_out(st, &out, a, &whole);
    return give_back(st, slot, &out, err);
}

static int backward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention whole = whole_part(st, slot, *a);
    struct strips s = needed(st, slot, a), out = {.n = 0};

    TRY(leave(st, slot, &s, false, err));
    TRY(context_meanwhile(st, slot, a, err));
    TRY(arrive(st, slot, &s, false, err));
    TRY(st->cfg.k->attention_backward(st->cfg.stream, &whole, err));
    add_qkv(st, &out, a->dqkv, whole.dqkv);
    return give_back(st, slot, &out, err);
}

const struct context_way context_heads = {.forward = forward, .backward = backward};
