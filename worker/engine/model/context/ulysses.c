/* Every rank of cp gets some heads of all rows of the sequences that are shared (DeepSpeed-Ulysses, 2023), attends with
 * them to whole sequences, and gives the rows' owners what came of it. Nothing of that is kept: the backward fetches
 * queries, keys and values again, and with them what the forward gave away. */
#include <assert.h>
#include <errno.h>

#include "base/try.h"
#include "worker/engine/model/context/context_priv.h"

static int check(const struct context_cfg *cfg, const struct model_cfg *model, struct merr *err)
{
    if (model->kv_heads_local % cfg->size == 0)
        return 0;
    return merr_set(err, -EINVAL,
                    "parallel.cp_mode 'ulysses' cannot share the %d kv_heads that a rank of tp %d has among cp %d",
                    model->kv_heads_local, model->tp, cfg->size);
}

static void carve(struct context *cx, struct carve *c)
{
    const struct model_cfg *g = cx->model;
    size_t rows = cx->room, typed = rows * (g->qkv_local + 2 * g->q_local) * kern_size(cx->type);
    size_t travels = (typed + sizeof(float) - 1) / sizeof(float) + rows * g->heads_local;

    cx->at.qkv = carve_typed(c, cx->type, rows * g->qkv_local);
    cx->at.dqkv = carve_typed(c, cx->type, rows * g->qkv_local);
    cx->at.out = carve_typed(c, cx->type, rows * g->q_local);
    cx->at.dout = carve_typed(c, cx->type, rows * g->q_local);
    cx->at.lse = carve_floats(c, rows * g->heads_local);
    /* a message holds a member's part of qkv, out, dout and lse */
    cx->at.all = carve_floats(c, travels);
    cx->at.mine = carve_floats(c, travels);
}

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
static void add(const struct context *cx, struct strips *s, const void *mine, const void *whole, int ld, int at,
                int cols, size_t size)
{
    int n = context_size(&cx->cfg);

    assert(s->n < STRIPS_MAX && ld % n == 0 && at % n == 0 && cols % n == 0);
    s->v[s->n++] = (struct strip){.mine = (char *)mine + at * size,
                                  .whole = (char *)whole + at / n * size,
                                  .mine_ld = ld * size,
                                  .whole_ld = ld / n * size,
                                  .width = cols / n * size};
}

static void add_qkv(const struct context *cx, struct strips *s, const void *mine, const void *whole)
{
    const struct model_cfg *c = cx->model;
    int kv = c->kv_heads_local * c->dim;
    size_t size = kern_size(cx->type);

    add(cx, s, mine, whole, c->qkv_local, 0, c->q_local, size);
    add(cx, s, mine, whole, c->qkv_local, c->q_local, kv, size);
    add(cx, s, mine, whole, c->qkv_local, c->q_local + kv, kv, size);
}

/* What attention makes of them. */
static void add_out(const struct context *cx, struct strips *s, const struct kern_attention *mine,
                    const struct kern_attention *whole)
{
    const struct model_cfg *c = cx->model;

    add(cx, s, mine->out, whole->out, c->q_local, 0, c->q_local, kern_size(cx->type));
    add(cx, s, mine->lse, whole->lse, c->heads_local, 0, c->heads_local, sizeof(*mine->lse));
}

/* Attention of this rank's heads to the sequences that are shared. */
static struct kern_attention whole_part(const struct context *cx, const struct context_share *shared,
                                        struct kern_attention a)
{
    int n = context_size(&cx->cfg);

    a.tokens = shared->whole_rows;
    a.docs = shared->n;
    a.cu = shared->whole_cu;
    a.samples = shared->whole_sample;
    a.heads /= n;
    a.kv_heads /= n;
    a.ld /= n;
    a.drop_keys += (size_t)2 * a.heads * cx->cfg.index;
    a.qkv = cx->at.qkv;
    a.out = cx->at.out;
    a.lse = cx->at.lse;
    a.dout = a.dout ? cx->at.dout : NULL;
    a.dqkv = a.dqkv ? cx->at.dqkv : NULL;
    return a;
}

static size_t message_bytes(const struct context *cx, const struct context_share *shared, const struct strips *s)
{
    size_t row = 0;

    for (int i = 0; i < s->n; i++)
        row += s->v[i].width;
    return context_block_rows(cx, shared) * row;
}

/* Between a message to or from member i and what it is about: with whole the rows of i's pieces, else i's heads of this
 * rank's. */
static int move(struct context *cx, const struct context_share *shared, const struct strips *s, int i, char *message,
                bool whole, bool in, struct merr *err)
{
    size_t rows = context_block_rows(cx, shared);
    struct context_walk w = {.rank = whole ? i : cx->cfg.index};

    while (context_walk(cx, shared, &w)) {
        char *block = message;

        for (int j = 0; j < s->n; j++) {
            const struct strip *p = &s->v[j];
            char *there = block + w.block * p->width;
            char *here = whole ? p->whole + w.all * p->whole_ld : p->mine + w.own * p->mine_ld + i * p->width;
            size_t ld = whole ? p->whole_ld : p->mine_ld;

            TRY(cx->k->copy_rows(cx->stream, in ? there : here, in ? p->width : ld, in ? here : there,
                                 in ? ld : p->width, p->width, (int)w.rows, err));
            block += rows * p->width;
        }
    }
    return 0;
}

/* To the members that have the heads, or, back, to those that have the rows. */
static int leave(struct context *cx, const struct context_share *shared, const struct strips *s, bool back,
                 struct merr *err)
{
    size_t bytes = message_bytes(cx, shared, s);

    for (int i = 0; i < context_size(&cx->cfg); i++)
        TRY(move(cx, shared, s, i, (char *)cx->at.mine + i * bytes, back, true, err));
    return context_post(cx, cx->at.mine, bytes, cx->at.all, bytes, err);
}

static int arrive(struct context *cx, const struct context_share *shared, const struct strips *s, bool back,
                  struct merr *err)
{
    size_t bytes = message_bytes(cx, shared, s);

    for (int i = 0; i < context_size(&cx->cfg); i++) {
        float *from = i == cx->cfg.index ? cx->at.mine : cx->at.all;

        TRY(move(cx, shared, s, i, (char *)from + i * bytes, !back, false, err));
    }
    return 0;
}

/* The forward's has no gradients. */
static struct strips needed(const struct context *cx, const struct context_share *shared,
                            const struct kern_attention *a)
{
    struct kern_attention whole = whole_part(cx, shared, *a);
    struct strips s = {.n = 0};

    add_qkv(cx, &s, a->qkv, whole.qkv);
    if (!a->dqkv)
        return s;
    add_out(cx, &s, a, &whole);
    add(cx, &s, a->dout, whole.dout, cx->model->q_local, 0, cx->model->q_local, kern_size(cx->type));
    return s;
}

static int give_back(struct context *cx, const struct context_share *shared, const struct strips *s, struct merr *err)
{
    TRY(leave(cx, shared, s, true, err));
    TRY(context_settle(cx, 0, err));
    return arrive(cx, shared, s, true, err);
}

static int forward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                   struct merr *err)
{
    struct kern_attention whole = whole_part(cx, shared, *a);
    struct strips s = needed(cx, shared, a), out = {.n = 0};

    TRY(leave(cx, shared, &s, false, err));
    TRY(context_meanwhile(cx, shared, a, err));
    TRY(arrive(cx, shared, &s, false, err));
    TRY(cx->k->attention_forward(cx->stream, &whole, err));
    add_out(cx, &out, a, &whole);
    return give_back(cx, shared, &out, err);
}

static int backward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err)
{
    struct kern_attention whole = whole_part(cx, shared, *a);
    struct strips s = needed(cx, shared, a), out = {.n = 0};

    TRY(leave(cx, shared, &s, false, err));
    TRY(context_meanwhile(cx, shared, a, err));
    TRY(arrive(cx, shared, &s, false, err));
    TRY(cx->k->attention_backward(cx->stream, &whole, err));
    add_qkv(cx, &out, a->dqkv, whole.dqkv);
    return give_back(cx, shared, &out, err);
}

const struct context_ops context_ulysses = {.check = check, .carve = carve, .forward = forward, .backward = backward};
