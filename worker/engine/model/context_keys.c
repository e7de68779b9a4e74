/* Every rank of cp gets the keys and values of all rows of theirs (as in Llama 3, 2024), looks at those before its own
 * rows, and gives back what it found out of the gradients of each. */
#include "base/try.h"
#include "worker/engine/model/context_priv.h"

/* Rows of keys and values, elements of size bytes, that stand without gaps. */
static int copy_kv(struct stage *st, void *to, size_t to_row, const void *from, size_t from_row, size_t rows,
                   size_t size, struct merr *err)
{
    size_t row = kv_columns(st) * size;

    return st->cfg.k->copy(st->cfg.stream, (char *)to + to_row * row, (const char *)from + from_row * row, rows * row,
                           err);
}

/* Between the rows of qkv or dqkv and this rank's block. */
static int move_own(struct stage *st, const struct stage_slot *slot, void *qkv, void *block, bool back,
                    struct merr *err)
{
    size_t size = kern_size(st->cfg.type), row = kv_columns(st) * size, ld = st->cfg.model->qkv_local * size;
    struct walk w = {.rank = st->cfg.cp_index};

    while (context_walk(st, slot, &w)) {
        char *own = (char *)qkv + w.own * ld + st->cfg.model->q_local * size, *there = (char *)block + w.block * row;

        TRY(st->cfg.k->copy_rows(st->cfg.stream, back ? own : there, back ? ld : row, back ? there : own,
                                 back ? row : ld, row, (int)w.rows, err));
    }
    return 0;
}

static size_t block_bytes(const struct stage *st, const struct stage_slot *slot)
{
    return context_block_rows(st, slot) * kv_columns(st) * kern_size(st->cfg.type);
}

static int post(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    TRY(move_own(st, slot, (void *)a->qkv, st->cp_mine, false, err));
    return context_post(st, st->cp_mine, 0, st->cp_all, block_bytes(st, slot), err);
}

/* The others' keys and values are here: put them in order. */
static int land(struct stage *st, const struct stage_slot *slot, struct merr *err)
{
    size_t size = kern_size(st->cfg.type), bytes = block_bytes(st, slot);

    for (int i = 0; i < stage_cp(st); i++) {
        const void *block = i == st->cfg.cp_index ? (void *)st->cp_mine : (char *)st->cp_all + i * bytes;
        struct walk w = {.rank = i};

        while (context_walk(st, slot, &w))
            TRY(copy_kv(st, st->cp_kv, w.all, block, w.block, w.rows, size, err));
    }
    return 0;
}

/* Of a whole micro-batch's attention that of the pieces. */
static struct kern_attention shared_part(const struct stage *st, const struct stage_slot *slot, struct kern_attention a)
{
    a.tokens = slot->shared_rows;
    a.docs = slot->shared_docs;
    a.kv = st->cp_kv;
    a.dkv = st->cp_dkv;
    a.kv_rows = slot->whole_rows;
    a.past = slot->past;
    a.kv_at = slot->kv_at;
    return a;
}

static int forward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention shared = shared_part(st, slot, *a);

    TRY(post(st, slot, a, err));
    TRY(context_meanwhile(st, slot, a, err));
    TRY(land(st, slot, err));
    return shared.docs > 0 ? st->cfg.k->attention_forward(st->cfg.stream, &shared, err) : 0;
}

/* What this rank found of the gradients of each rank's rows, to that rank; what the others found comes to where the
 * found lay. */
static int give_back(struct stage *st, const struct stage_slot *slot, struct merr *err)
{
    size_t block = context_block_rows(st, slot), columns = kv_columns(st), bytes = block * columns * sizeof(float);

    for (int i = 0; i < stage_cp(st); i++) {
        struct walk w = {.rank = i};

        while (context_walk(st, slot, &w)) {
            size_t at = i * block + w.block;

            TRY(copy_kv(st, st->cp_all, at, st->cp_dkv, w.all, w.rows, sizeof(float), err));
            TRY(st->cfg.k->fill(st->cfg.stream, st->cp_all + (at + w.rows) * columns, 0, (w.size - w.rows) * columns,
                                err));
        }
    }
    return context_post(st, st->cp_all, bytes, st->cp_dkv, bytes, err);
}

/* What all ranks found of the gradients of this one's rows, added up in their order. */
static int take_back(struct stage *st, const struct stage_slot *slot, void *dqkv, struct merr *err)
{
    size_t n = context_block_rows(st, slot) * kv_columns(st);
    const struct kern_ops *k = st->cfg.k;
    void *mine = st->cp_mine;

    for (int i = 0; i < stage_cp(st); i++) {
        const float *found = (i == st->cfg.cp_index ? st->cp_all : st->cp_dkv) + i * n;

        TRY(i == 0 ? k->copy(st->cfg.stream, st->cp_mine, found, n * sizeof(*found), err)
                   : k->add(st->cfg.stream, st->cp_mine, found, n, err));
    }
    if (st->cfg.type == KERN_BF16) {
        mine = st->cp_kv;
        TRY(k->to_bf16(st->cfg.stream, st->cp_mine, n, mine, err));
    }
    return move_own(st, slot, dqkv, mine, true, err);
}

static int backward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention shared = shared_part(st, slot, *a);
    const struct kern_ops *k = st->cfg.k;

    TRY(context_settle(st, 0, err));
    TRY(land(st, slot, err));
    TRY(k->fill(st->cfg.stream, st->cp_dkv, 0, (size_t)slot->whole_rows * kv_columns(st), err));
    if (shared.docs > 0)
        TRY(k->attention_backward(st->cfg.stream, &shared, err));
    TRY(give_back(st, slot, err));
    TRY(context_meanwhile(st, slot, a, err));
    return take_back(st, slot, a->dqkv, err);
}

const struct context_way context_keys = {.forward = forward, .backward_begin = post, .backward = backward};
