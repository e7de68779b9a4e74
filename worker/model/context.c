/* Context parallelism: attention of sequences that several ranks share (zig-zag shards whose keys and values are
 * gathered, as in Llama 3, 2024). Every rank gets the keys and values of all rows of theirs, looks at those before its
 * own rows, and gives back what it found out of the gradients of each. While keys and values are on their way it
 * attends to the documents that are whole on it. */
#include <assert.h>

#include "base/try.h"
#include "scheduler/sequence/zigzag.h"
#include "worker/model/stage_impl.h"

#define TAG_KEYS 0

/* A rank's pieces in turn, in rows: of the rank's block, in which each has its full size; of all sequences one after
 * the other; of the rank's own, without gaps. */
struct walk {
    int rank, next;
    size_t block, all, own, sequence;
    size_t rows, size; /* of this piece, some of its full size */
};

static bool walk_on(const struct stage *st, const struct stage_slot *slot, struct walk *w)
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

static size_t block_rows(const struct stage *st, const struct stage_slot *slot)
{
    struct walk w = {.rank = 0};

    while (walk_on(st, slot, &w))
        ;
    assert(w.block <= (size_t)st->room);
    return w.block;
}

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

    while (walk_on(st, slot, &w)) {
        char *own = (char *)qkv + w.own * ld + st->cfg.model->q_local * size, *there = (char *)block + w.block * row;

        TRY(st->cfg.k->copy_rows(st->cfg.stream, back ? own : there, back ? ld : row, back ? there : own,
                                 back ? row : ld, row, (int)w.rows, err));
    }
    return 0;
}

/* Wait for all messages under way, also after a failure, whose code is r. */
static int settle(struct stage *st, int r, struct merr *err)
{
    for (int i = 0; i < 2 * stage_cp(st); i++) {
        int one = comm_wait(st->cp_request[i], r == 0 ? err : NULL);

        st->cp_request[i] = NULL;
        r = r == 0 ? one : r;
    }
    return r;
}

/* Send this rank's keys and values to the others, and let theirs come. */
static int post(struct stage *st, const struct stage_slot *slot, void *qkv, struct merr *err)
{
    size_t bytes = block_rows(st, slot) * kv_columns(st) * kern_size(st->cfg.type);
    int r = 0;

    TRY(move_own(st, slot, qkv, st->cp_mine, false, err));
    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    for (int i = 0; i < stage_cp(st) && r == 0; i++) {
        if (i == st->cfg.cp_index)
            continue;
        r = comm_irecv(st->cfg.cp, i, TAG_KEYS, (char *)st->cp_all + i * bytes, bytes, &st->cp_request[2 * i], err);
        if (r == 0)
            r = comm_isend(st->cfg.cp, i, TAG_KEYS, st->cp_mine, bytes, &st->cp_request[2 * i + 1], err);
    }
    return r == 0 ? 0 : settle(st, r, err);
}

/* The others' keys and values are here: put them in order. */
static int land(struct stage *st, const struct stage_slot *slot, struct merr *err)
{
    size_t size = kern_size(st->cfg.type), bytes = block_rows(st, slot) * kv_columns(st) * size;

    for (int i = 0; i < stage_cp(st); i++) {
        const void *block = i == st->cfg.cp_index ? (void *)st->cp_mine : (char *)st->cp_all + i * bytes;
        struct walk w = {.rank = i};

        while (walk_on(st, slot, &w))
            TRY(copy_kv(st, st->cp_kv, w.all, block, w.block, w.rows, size, err));
    }
    return 0;
}

/* Of a whole micro-batch's attention that of the documents which are no pieces, */
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

/* and that of the pieces. */
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

int context_forward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention own = own_part(st, slot, *a), shared = shared_part(st, slot, *a);
    const struct kern_ops *k = st->cfg.k;
    int r = 0;

    TRY(post(st, slot, (void *)a->qkv, err));
    if (own.docs > 0)
        r = k->attention_forward(st->cfg.stream, &own, err);
    TRY(settle(st, r, err));
    TRY(land(st, slot, err));
    return shared.docs > 0 ? k->attention_forward(st->cfg.stream, &shared, err) : 0;
}

/* What all ranks found of each row's gradient, added up in their order, to the rank that has the row. */
static int give_back(struct stage *st, const struct stage_slot *slot, void *dqkv, struct merr *err)
{
    size_t block = block_rows(st, slot), columns = kv_columns(st);
    void *mine = st->cp_mine;

    for (int i = 0; i < stage_cp(st); i++) {
        struct walk w = {.rank = i};

        while (walk_on(st, slot, &w)) {
            size_t at = i * block + w.block;

            TRY(copy_kv(st, st->cp_all, at, st->cp_dkv, w.all, w.rows, sizeof(float), err));
            TRY(st->cfg.k->fill(st->cfg.stream, st->cp_all + (at + w.rows) * columns, 0, (w.size - w.rows) * columns,
                                err));
        }
    }
    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    TRY(comm_reduce_scatter(st->cfg.cp, st->cp_all, st->cp_mine, block * columns, COMM_F32, err));
    if (st->cfg.type == KERN_BF16) {
        mine = st->cp_kv;
        TRY(st->cfg.k->to_bf16(st->cfg.stream, st->cp_mine, block * columns, mine, err));
    }
    return move_own(st, slot, dqkv, mine, true, err);
}

int context_backward(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err)
{
    struct kern_attention own = own_part(st, slot, *a), shared = shared_part(st, slot, *a);
    const struct kern_ops *k = st->cfg.k;
    int r = 0;

    TRY(post(st, slot, (void *)a->qkv, err));
    if (own.docs > 0)
        r = k->attention_backward(st->cfg.stream, &own, err);
    TRY(settle(st, r, err));
    TRY(land(st, slot, err));
    TRY(k->fill(st->cfg.stream, st->cp_dkv, 0, (size_t)slot->whole_rows * kv_columns(st), err));
    if (shared.docs > 0)
        TRY(k->attention_backward(st->cfg.stream, &shared, err));
    return give_back(st, slot, a->dqkv, err);
}
