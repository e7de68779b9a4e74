/* Every rank of cp gets the keys and values of all rows of theirs (as in Llama 3, 2024), looks at those before its own
 * rows, and gives back what it found out of the gradients of each. */
#include "base/try.h"
#include "worker/engine/model/context/context_priv.h"

static void carve(struct context *cx, struct carve *c)
{
    size_t mine = (size_t)cx->room * model_kv_columns(cx->model), all = mine * (size_t)context_size(&cx->cfg);

    cx->at.kv = carve_typed(c, cx->type, all);
    cx->at.dkv = carve_floats(c, all);
    cx->at.all = carve_floats(c, all);
    cx->at.mine = carve_floats(c, mine);
}

/* Rows of keys and values, elements of size bytes, that stand without gaps. */
static int copy_kv(struct context *cx, void *to, size_t to_row, const void *from, size_t from_row, size_t rows,
                   size_t size, struct merr *err)
{
    size_t row = model_kv_columns(cx->model) * size;

    return cx->k->copy(cx->stream, (char *)to + to_row * row, (const char *)from + from_row * row, rows * row, err);
}

/* Between the rows of qkv or dqkv and this rank's block. */
static int move_own(struct context *cx, const struct context_share *shared, void *qkv, void *block, bool back,
                    struct merr *err)
{
    size_t size = kern_size(cx->type), row = model_kv_columns(cx->model) * size, ld = cx->model->qkv_local * size;
    struct context_walk w = {.rank = cx->cfg.index};

    while (context_walk(cx, shared, &w)) {
        char *own = (char *)qkv + w.own * ld + cx->model->q_local * size, *there = (char *)block + w.block * row;

        TRY(cx->k->copy_rows(cx->stream, back ? own : there, back ? ld : row, back ? there : own, back ? row : ld, row,
                             (int)w.rows, err));
    }
    return 0;
}

static size_t block_bytes(const struct context *cx, const struct context_share *shared)
{
    return context_block_rows(cx, shared) * model_kv_columns(cx->model) * kern_size(cx->type);
}

static int post(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                struct merr *err)
{
    TRY(move_own(cx, shared, (void *)a->qkv, cx->at.mine, false, err));
    return context_post(cx, cx->at.mine, 0, cx->at.all, block_bytes(cx, shared), err);
}

/* The others' keys and values are here: put them in order. */
static int land(struct context *cx, const struct context_share *shared, struct merr *err)
{
    size_t size = kern_size(cx->type), bytes = block_bytes(cx, shared);

    for (int i = 0; i < context_size(&cx->cfg); i++) {
        const void *block = i == cx->cfg.index ? (void *)cx->at.mine : (char *)cx->at.all + i * bytes;
        struct context_walk w = {.rank = i};

        while (context_walk(cx, shared, &w))
            TRY(copy_kv(cx, cx->at.kv, w.all, block, w.block, w.rows, size, err));
    }
    return 0;
}

/* Of a whole micro-batch's attention that of the pieces. */
static struct kern_attention pieces_of(const struct context *cx, const struct context_share *shared,
                                       struct kern_attention a)
{
    a.tokens = shared->rows;
    a.docs = shared->docs;
    a.kv = cx->at.kv;
    a.dkv = cx->at.dkv;
    a.kv_rows = shared->whole_rows;
    a.past = shared->past;
    a.kv_at = shared->kv_at;
    return a;
}

static int forward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                   struct merr *err)
{
    struct kern_attention pieces = pieces_of(cx, shared, *a);

    TRY(post(cx, shared, a, err));
    TRY(context_meanwhile(cx, shared, a, err));
    TRY(land(cx, shared, err));
    return pieces.docs > 0 ? cx->k->attention_forward(cx->stream, &pieces, err) : 0;
}

/* What this rank found of the gradients of each rank's rows, to that rank; what the others found comes to where the
 * found lay. */
static int give_back(struct context *cx, const struct context_share *shared, struct merr *err)
{
    size_t block = context_block_rows(cx, shared), columns = model_kv_columns(cx->model),
           bytes = block * columns * sizeof(float);

    for (int i = 0; i < context_size(&cx->cfg); i++) {
        struct context_walk w = {.rank = i};

        while (context_walk(cx, shared, &w)) {
            size_t at = i * block + w.block;

            TRY(copy_kv(cx, cx->at.all, at, cx->at.dkv, w.all, w.rows, sizeof(float), err));
            TRY(cx->k->fill(cx->stream, cx->at.all + (at + w.rows) * columns, 0, (w.size - w.rows) * columns, err));
        }
    }
    return context_post(cx, cx->at.all, bytes, cx->at.dkv, bytes, err);
}

/* What all ranks found of the gradients of this one's rows, added up in their order. */
static int take_back(struct context *cx, const struct context_share *shared, void *dqkv, struct merr *err)
{
    size_t n = context_block_rows(cx, shared) * model_kv_columns(cx->model);
    const struct kern_ops *k = cx->k;
    void *mine = cx->at.mine;

    for (int i = 0; i < context_size(&cx->cfg); i++) {
        const float *found = (i == cx->cfg.index ? cx->at.all : cx->at.dkv) + i * n;

        TRY(i == 0 ? k->copy(cx->stream, cx->at.mine, found, n * sizeof(*found), err)
                   : k->add(cx->stream, cx->at.mine, found, n, err));
    }
    if (cx->type == KERN_BF16) {
        mine = cx->at.kv;
        TRY(k->to_bf16(cx->stream, cx->at.mine, n, mine, err));
    }
    return move_own(cx, shared, dqkv, mine, true, err);
}

static int backward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err)
{
    struct kern_attention pieces = pieces_of(cx, shared, *a);
    const struct kern_ops *k = cx->k;

    TRY(context_settle(cx, 0, err));
    TRY(land(cx, shared, err));
    TRY(k->fill(cx->stream, cx->at.dkv, 0, (size_t)shared->whole_rows * model_kv_columns(cx->model), err));
    if (pieces.docs > 0)
        TRY(k->attention_backward(cx->stream, &pieces, err));
    TRY(give_back(cx, shared, err));
    TRY(context_meanwhile(cx, shared, a, err));
    return take_back(cx, shared, a->dqkv, err);
}

const struct context_ops context_zigzag = {
    .carve = carve, .forward = forward, .backward_begin = post, .backward = backward};
