/* One block of any family: x + proj(attention(qkv(norm1(x)))), then + out(activation(fc(norm2(.)))), cut over tp by the
 * outputs of qkv and fc and by the inputs of proj and out. What differs between families comes from family.h. */
#include <assert.h>
#include <math.h>

#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage_priv.h"

/* --- linear maps ------------------------------------------------------------------------------------------- */

/* A dense matrix of a linear map: its place, the columns of the output that it makes and where those begin. */
struct piece {
    int param, bias; /* -1: none */
    size_t at, bias_at;
    int first, cols;
};

/* Piece i of l, in order; false past the last. */
static bool piece_of(const struct stage *st, const struct linear *l, int i, struct piece *ret)
{
    int first = 0;

    for (int k = 0; k < l->n; k++) {
        const struct param *q = &st->cfg.params->v[l->w[k]];
        size_t bias_at = 0;

        for (int j = 0; j < q->boxes; j++, i--) {
            int cols = (int)q->box[j].len[l->out_in ? 0 : 1];

            if (i == 0) {
                *ret = (struct piece){l->w[k], l->bias[k], q->box[j].at, bias_at, first, cols};
                return true;
            }
            first += cols;
            bias_at += cols;
        }
    }
    return false;
}

/* y[rows, out] = x[rows, in] · W + bias, cut over tp by outputs. aux keeps what end's activation took. */
static int outputs_forward(struct stage *st, const struct linear *l, const void *x, int in, int out, void *y,
                           enum kern_epilogue end, void *aux, struct merr *err)
{
    struct piece p;

    for (int i = 0; piece_of(st, l, i, &p); i++) {
        struct kern_gemm g = {
            .type = st->cfg.precision.type,
            .c_type = st->cfg.precision.type,
            .trans_b = l->out_in,
            .m = st->rows,
            .n = p.cols,
            .k = in,
            .a = x,
            .lda = in,
            .b = matrix_of(st, p.param, p.at),
            .ldb = l->out_in ? in : p.cols,
            .c = element(st, y, p.first),
            .ldc = out,
            .epilogue = p.bias < 0 ? KERN_PLAIN : end,
            .bias = p.bias < 0 ? NULL : weight_of(st, p.bias) + p.bias_at,
            .aux = aux ? element(st, aux, p.first) : NULL,
            .b_is_weight = true,
        };

        TRY(st->cfg.k->gemm(st->cfg.stream, &g, err));
    }
    return 0;
}

/* dW, db grow by what dy[rows, out] and x[rows, in] say. */
static int outputs_weights(struct stage *st, const struct linear *l, const void *dy, const void *x, int in, int out,
                           float *grad, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    struct piece p;

    for (int i = 0; piece_of(st, l, i, &p); i++) {
        const void *dp = element(st, dy, p.first);
        struct kern_gemm dw = {
            .type = st->cfg.precision.type,
            .trans_a = true,
            .m = l->out_in ? p.cols : in,
            .n = l->out_in ? in : p.cols,
            .k = st->rows,
            .a = l->out_in ? dp : x,
            .lda = l->out_in ? out : in,
            .b = l->out_in ? x : dp,
            .ldb = l->out_in ? in : out,
            .c = grad_of(st, grad, p.param) + p.at,
            .ldc = l->out_in ? in : p.cols,
            .accumulate = true,
        };

        if (p.bias >= 0)
            TRY(k->bias_gradient(st->cfg.stream, st->cfg.precision.type, dp, st->rows, p.cols, out,
                                 grad_of(st, grad, p.bias) + p.bias_at, err));
        TRY(k->gemm(st->cfg.stream, &dw, err));
    }
    return 0;
}

/* trunk_sum() = the sum over tp of dy[rows, out] · W'. */
static int outputs_input(struct stage *st, const struct linear *l, const void *dy, int in, int out, struct merr *err)
{
    struct piece p;

    for (int i = 0; piece_of(st, l, i, &p); i++) {
        struct kern_gemm di = {
            .type = st->cfg.precision.type,
            .trans_b = !l->out_in,
            .m = st->rows,
            .n = in,
            .k = p.cols,
            .a = element(st, dy, p.first),
            .lda = out,
            .b = matrix_of(st, p.param, p.at),
            .ldb = l->out_in ? in : p.cols,
            .c = st->reduce,
            .ldc = in,
            .accumulate = i > 0,
            .b_is_weight = true,
        };

        TRY(st->cfg.k->gemm(st->cfg.stream, &di, err));
    }
    return stage_reduce(st, err);
}

/* trunk_sum() = this rank's part of x[rows, in] · W, summed over tp, plus the bias once; or, without tp, onto + that in
 * y. */
static int inputs_forward(struct stage *st, const struct linear *l, const void *x, int in, const float *onto, float *y,
                          struct merr *err)
{
    int hidden = st->cfg.model->hidden;
    const float *bias = l->bias[0] < 0 ? NULL : weight_of(st, l->bias[0]);
    struct kern_gemm g = {
        .type = st->cfg.precision.type,
        .trans_b = l->out_in,
        .m = st->rows,
        .n = hidden,
        .k = in,
        .a = x,
        .lda = in,
        .b = matrix_of(st, l->w[0], 0),
        .ldb = l->out_in ? in : hidden,
        .c = onto ? y : st->reduce,
        .ldc = hidden,
        .onto = onto,
        .epilogue = st->cfg.part.tp || !bias ? KERN_PLAIN : KERN_BIAS,
        .bias = bias,
        .b_is_weight = true,
    };

    assert(l->n == 1 && !(onto && st->cfg.part.tp));
    TRY(st->cfg.k->gemm(st->cfg.stream, &g, err));
    if (!st->cfg.part.tp)
        return 0;
    TRY(stage_reduce(st, err));
    return bias ? st->cfg.k->add_bias(st->cfg.stream, trunk_sum(st), bias, trunk_rows(st), hidden, err) : 0;
}

/* A gradient of the trunk, gathered, [rows, hidden]: in f32, and as products take it. */
struct gradient {
    const float *f32;
    const void *typed;
};

/* dy: the rows that are here. */
static int gradient_of(struct stage *st, const float *dy, struct gradient *ret, struct merr *err)
{
    const void *all;

    TRY(stage_gather(st, dy, sizeof(*dy), &all, err));
    *ret = (struct gradient){all, all};
    if (st->cfg.precision.type == KERN_F32)
        return 0;
    ret->typed = st->rounded;
    return st->cfg.k->to_bf16(st->cfg.stream, ret->f32, (size_t)st->rows * st->cfg.model->hidden, st->rounded, err);
}

/* dW, db grow; dy is the same on all tp ranks. */
static int inputs_weights(struct stage *st, const struct linear *l, const struct gradient *dy, const void *x, int in,
                          float *grad, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    int hidden = st->cfg.model->hidden;
    struct kern_gemm dw = {
        .type = st->cfg.precision.type,
        .trans_a = true,
        .m = l->out_in ? hidden : in,
        .n = l->out_in ? in : hidden,
        .k = st->rows,
        .a = l->out_in ? dy->typed : x,
        .lda = l->out_in ? hidden : in,
        .b = l->out_in ? x : dy->typed,
        .ldb = l->out_in ? in : hidden,
        .c = grad_of(st, grad, l->w[0]),
        .ldc = l->out_in ? in : hidden,
        .accumulate = true,
    };

    if (l->bias[0] >= 0)
        TRY(k->bias_gradient(st->cfg.stream, KERN_F32, dy->f32, st->rows, hidden, hidden, grad_of(st, grad, l->bias[0]),
                             err));
    return k->gemm(st->cfg.stream, &dw, err);
}

/* dx[rows, in] = dy[rows, hidden] · W' */
static int inputs_input(struct stage *st, const struct linear *l, const struct gradient *dy, int in, void *dx,
                        struct merr *err)
{
    int hidden = st->cfg.model->hidden;
    struct kern_gemm di = {
        .type = st->cfg.precision.type,
        .c_type = st->cfg.precision.type,
        .trans_b = !l->out_in,
        .m = st->rows,
        .n = in,
        .k = hidden,
        .a = dy->typed,
        .lda = hidden,
        .b = matrix_of(st, l->w[0], 0),
        .ldb = l->out_in ? in : hidden,
        .c = dx,
        .ldc = in,
        .b_is_weight = true,
    };

    return st->cfg.k->gemm(st->cfg.stream, &di, err);
}

/* --- the parts of a block ---------------------------------------------------------------------------------- */

/* y = x + dropout(what inputs_forward() makes of part): the product adds x itself where nothing comes between. */
static int residual(struct stage *st, const struct stage_slot *slot, const struct linear *l, const void *part, int in,
                    const uint32_t key[2], bool train, const float *x, float *y, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    size_t n = (size_t)trunk_rows(st) * st->cfg.model->hidden;
    bool drops = train && st->threshold > 0, straight = !drops && !st->cfg.part.tp;
    float *sum = trunk_sum(st);

    TRY(inputs_forward(st, l, part, in, straight ? x : NULL, y, err));
    if (straight)
        return 0;
    if (drops)
        TRY(stage_dropout(st, slot, key, sum, sum, err));
    TRY(k->copy(st->cfg.stream, y, x, n * sizeof(*y), err));
    return k->add(st->cfg.stream, y, sum, n, err);
}

/* Of each head of queries, of keys, where the model has them. */
static int head_norms(struct stage *st, int i, const struct stage_slot *slot, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct layer_params *l = block_params(st, i);
    const struct block_saves *b = &slot->block[i];
    const int weight[] = {l->q_norm, l->k_norm}, heads[] = {c->heads_local, c->kv_heads_local}, at[] = {0, c->q_local};

    for (int j = 0; j < 2 && c->qk_norm; j++)
        TRY(st->cfg.k->head_norm_forward(st->cfg.stream, st->cfg.precision.type, element(st, b->qkv, at[j]),
                                         weight_of(st, weight[j]), (float)c->norm_eps, st->rows, heads[j], c->dim,
                                         c->qkv_local, b->raw[j], err));
    return 0;
}

static int head_norms_backward(struct stage *st, int i, const struct stage_slot *slot, float *grad, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct layer_params *l = block_params(st, i);
    const struct block_saves *b = &slot->block[i];
    const int weight[] = {l->q_norm, l->k_norm}, heads[] = {c->heads_local, c->kv_heads_local}, at[] = {0, c->q_local};

    for (int j = 0; j < 2 && c->qk_norm; j++)
        TRY(st->cfg.k->head_norm_backward(st->cfg.stream, st->cfg.precision.type, element(st, st->d_qkv, at[j]),
                                          b->raw[j], weight_of(st, weight[j]), (float)c->norm_eps, st->rows, heads[j],
                                          c->dim, c->qkv_local, grad_of(st, grad, weight[j]), err));
    return 0;
}

/* Queries and keys stand side by side: all are rotated at once. */
static int rotate(struct stage *st, void *qkv, bool inverse, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;

    if (!st->freq)
        return 0;
    return st->cfg.k->rope(st->cfg.stream, st->cfg.precision.type, qkv, st->rows, c->heads_local + c->kv_heads_local,
                           c->dim, c->qkv_local, st->position, st->freq, inverse, err);
}

/* Where keys and values of the slot's sequence are kept for block i; NULL: it is no piece of one. */
static const struct store *store_of(const struct stage *st, int i, const struct stage_slot *slot)
{
    return slot->piece.tokens > 0 ? &st->store[slot->piece.store * st->blocks + i] : NULL;
}

static struct kern_attention attention(const struct stage *st, int i, const struct stage_slot *slot, bool train)
{
    static const int32_t start = 0;
    const struct model_cfg *c = st->cfg.model;
    const struct store *store = store_of(st, i, slot);

    return (struct kern_attention){
        .kv = store ? store->kv : NULL,
        .dkv = store ? store->dkv : NULL,
        .past = &slot->piece.past,
        .kv_at = &start,
        .kv_rows = slot->piece.past + slot->piece.tokens,
        .type = st->cfg.precision.type,
        .tokens = st->rows,
        .heads = c->heads_local,
        .kv_heads = c->kv_heads_local,
        .dim = c->dim,
        .ld = c->qkv_local,
        .cu = st->cu,
        .docs = st->docs,
        .scale = (float)(1 / sqrt(c->dim)),
        .window = c->window,
        .qkv = slot->block[i].qkv,
        .out = slot->block[i].att,
        .lse = slot->block[i].lse,
        .dropout = train ? (float)c->dropout : 0,
        .drop_threshold = train ? st->threshold : 0,
        .drop_keys = st->keys[i].attention,
        .samples = slot->sample,
    };
}

/* Attention over this micro-batch's own tokens, and of a piece over those before it; or over all since the cache was
 * emptied. */
static int attend(struct stage *st, int i, struct stage_slot *slot, bool train, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    struct kern_attention a = attention(st, i, slot, train);
    size_t size = kern_size(st->cfg.precision.type), row = kv_columns(st) * size;
    const struct store *store = store_of(st, i, slot);
    struct kern_cached q;

    if (slot->shared.n > 0)
        return context_forward(&st->context, &slot->shared, &a, err);
    if (store) /* of a forward that is made again they are the same */
        TRY(st->cfg.k->copy_rows(st->cfg.stream, (char *)store->kv + slot->piece.past * row, row,
                                 element(st, slot->block[i].qkv, c->q_local), c->qkv_local * size, row, st->rows, err));
    if (!st->keys_cached)
        return st->cfg.k->attention_forward(st->cfg.stream, &a, err);
    q = (struct kern_cached){
        .rows = st->rows,
        .past = st->past,
        .heads = c->heads_local,
        .kv_heads = c->kv_heads_local,
        .dim = c->dim,
        .ld = c->qkv_local,
        .scale = a.scale,
        .window = c->window,
        .qkv = slot->block[i].qkv,
        .keys = st->keys_cached[i],
        .values = st->values_cached[i],
        .out = slot->block[i].att,
    };
    return st->cfg.k->attention_cached(st->cfg.stream, &q, err);
}

/* All of a block's forward but its last product. */
int block_inside(struct stage *st, int i, struct stage_slot *slot, bool train, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct family *f = c->family;
    const struct layer_params *l = block_params(st, i);
    struct block_saves *b = &slot->block[i];
    size_t size = kern_size(st->cfg.precision.type);
    int wide = f->parts * c->ffn_local;
    const void *x;

    TRY(f->norm_forward(st, b->x, l->norm1, b->norm1, b->mean1, b->rstd1, err));
    TRY(stage_gather(st, b->norm1, size, &x, err));
    TRY(outputs_forward(st, &l->qkv, x, c->hidden, c->qkv_local, b->qkv, KERN_BIAS, NULL, err));
    TRY(head_norms(st, i, slot, err));
    TRY(rotate(st, b->qkv, false, err));
    TRY(attend(st, i, slot, train, err));
    TRY(residual(st, slot, &l->proj, b->att, c->q_local, st->keys[i].attention_out, train, b->x, b->mid, err));

    TRY(f->norm_forward(st, b->mid, l->norm2, b->norm2, b->mean2, b->rstd2, err));
    TRY(stage_gather(st, b->norm2, size, &x, err));
    if (f->fc_end == KERN_BIAS_GELU)
        return outputs_forward(st, &l->fc, x, c->hidden, wide, b->act, f->fc_end, b->pre, err);
    TRY(outputs_forward(st, &l->fc, x, c->hidden, wide, b->pre, f->fc_end, NULL, err));
    return f->act_forward(st, b->pre, b->act, err);
}

int block_forward(struct stage *st, int i, struct stage_slot *slot, float *out, bool train, struct merr *err)
{
    const struct block_saves *b = &slot->block[i];

    TRY(block_inside(st, i, slot, train, err));
    return residual(st, slot, &block_params(st, i)->out, b->act, st->cfg.model->ffn_local, st->keys[i].mlp_out, train,
                    b->mid, out, err);
}

/* Make again what forward did not keep for this block. */
static int block_again(struct stage *st, int i, struct stage_slot *slot, struct merr *err)
{
    const struct family *f = st->cfg.model->family;
    const struct layer_params *l = block_params(st, i);
    const struct block_saves *b = &slot->block[i];

    if (b->stay.again == AGAIN_NOTHING || i < b->stay.last) /* the last of several blocks is the first here */
        return 0;
    for (int j = b->stay.first; j < i && b->stay.again == AGAIN_WHOLE; j++)
        TRY(block_forward(st, j, slot, slot->block[j + 1].x, true, err));
    if (b->stay.again == AGAIN_WHOLE)
        return block_inside(st, i, slot, true, err);
    TRY(f->norm_forward(st, b->x, l->norm1, b->norm1, b->mean1, b->rstd1, err));
    TRY(f->norm_forward(st, b->mid, l->norm2, b->norm2, b->mean2, b->rstd2, err));
    return f->act_forward(st, b->pre, b->act, err);
}

/* Rows of the trunk. */
static int keep(struct stage *st, float *to, const float *from, struct merr *err)
{
    return st->cfg.k->copy(st->cfg.stream, to, from, (size_t)trunk_rows(st) * st->cfg.model->hidden * sizeof(*to), err);
}

/* The gradient of a part's output on the way back through its dropout, all rows; if not whole a copy of the trunk's
 * rows stays in st->dy for later. */
static int residual_backward(struct stage *st, const struct stage_slot *slot, const uint32_t key[2], const float *dx,
                             bool whole, struct gradient *ret, struct merr *err)
{
    const float *dy = dx;

    if (st->threshold > 0) {
        TRY(stage_dropout(st, slot, key, dx, st->tmp, err));
        dy = st->tmp;
    }
    if (!whole)
        TRY(keep(st, st->dy, dy, err));
    return gradient_of(st, dy, ret, err);
}

/* outputs_weights() with x gathered. */
static int gathered_weights(struct stage *st, const struct linear *l, const void *dy, const void *x, int out,
                            float *grad, struct merr *err)
{
    int hidden = st->cfg.model->hidden;

    TRY(stage_gather(st, x, kern_size(st->cfg.precision.type), &x, err));
    return outputs_weights(st, l, dy, x, hidden, out, grad, err);
}

/* The attention's part of a backward: a.dqkv of a.dout. What a piece's keys and values get is complete with it, as the
 * pieces after have been here before, and its own are not needed any more. */
static int attend_backward(struct stage *st, int i, const struct stage_slot *slot, const struct kern_attention *a,
                           struct merr *err)
{
    const struct store *store = store_of(st, i, slot);
    const struct kern_ops *k = st->cfg.k;
    size_t columns = kv_columns(st), size = kern_size(st->cfg.precision.type), at = slot->piece.past * columns;
    const void *own;

    if (slot->shared.n > 0)
        return context_backward(&st->context, &slot->shared, a, err);
    if (!store)
        return k->attention_backward(st->cfg.stream, a, err);
    if (slot->piece.last)
        TRY(k->fill(st->cfg.stream, store->dkv, 0, at + st->rows * columns, err));
    TRY(k->attention_backward(st->cfg.stream, a, err));
    own = store->dkv + at;
    if (st->cfg.precision.type == KERN_BF16) {
        TRY(k->to_bf16(st->cfg.stream, own, st->rows * columns, element(st, store->kv, at), err));
        own = element(st, store->kv, at);
    }
    return k->copy_rows(st->cfg.stream, element(st, a->dqkv, st->cfg.model->q_local), a->ld * size, own, columns * size,
                        columns * size, st->rows, err);
}

/* st->d_att: the gradient of what the attention gave, of that of the block's middle. */
static int proj_backward(struct stage *st, int i, struct stage_slot *slot, const float *dx, bool whole, float *grad,
                         struct merr *err)
{
    const struct layer_params *l = block_params(st, i);
    int in = st->cfg.model->q_local;
    struct gradient dy;

    TRY(residual_backward(st, slot, st->keys[i].attention_out, dx, whole, &dy, err));
    if (whole)
        TRY(inputs_weights(st, &l->proj, &dy, slot->block[i].att, in, grad, err));
    return inputs_input(st, &l->proj, &dy, in, st->d_att, err);
}

/* Not whole: dy of proj goes to x, that of qkv to qkv, which nobody needs any more. */
static int attention_part_backward(struct stage *st, int i, struct stage_slot *slot, float *dx, bool whole, float *grad,
                                   struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct layer_params *l = block_params(st, i);
    struct block_saves *b = &slot->block[i];
    struct kern_attention a = attention(st, i, slot, true);
    int r;

    if (slot->shared.n > 0)
        TRY(context_backward_begin(&st->context, &slot->shared, &a, err));
    r = proj_backward(st, i, slot, dx, whole, grad, err);
    if (r != 0)
        return slot->shared.n > 0 ? context_settle(&st->context, r, err) : r;
    a.dout = st->d_att;
    a.dqkv = st->d_qkv;
    TRY(attend_backward(st, i, slot, &a, err));
    TRY(rotate(st, st->d_qkv, true, err));
    TRY(head_norms_backward(st, i, slot, grad, err));
    if (whole)
        TRY(gathered_weights(st, &l->qkv, st->d_qkv, b->norm1, c->qkv_local, grad, err));
    else
        TRY(st->cfg.k->copy(st->cfg.stream, b->qkv, st->d_qkv,
                            (size_t)st->rows * c->qkv_local * kern_size(st->cfg.precision.type), err));
    TRY(outputs_input(st, &l->qkv, st->d_qkv, c->hidden, c->qkv_local, err));
    TRY(c->family->norm_backward(st, trunk_sum(st), b->x, l->norm1, b->mean1, b->rstd1, dx, true, grad, err));
    return whole ? 0 : keep(st, b->x, st->dy, err);
}

/* Not whole: dy of out goes to mid, that of fc to pre. */
int block_backward(struct stage *st, int i, struct stage_slot *slot, float *dx, bool whole, float *grad,
                   struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct family *f = c->family;
    const struct layer_params *l = block_params(st, i);
    struct block_saves *b = &slot->block[i];
    void *d_pre = whole ? st->d_pre : b->pre;
    int wide = f->parts * c->ffn_local;
    struct gradient dy;

    TRY(block_again(st, i, slot, err));
    TRY(residual_backward(st, slot, st->keys[i].mlp_out, dx, whole, &dy, err));
    if (whole)
        TRY(inputs_weights(st, &l->out, &dy, b->act, c->ffn_local, grad, err));
    TRY(inputs_input(st, &l->out, &dy, c->ffn_local, st->d_act, err));
    TRY(f->act_backward(st, b->pre, st->d_act, d_pre, err));
    if (whole)
        TRY(gathered_weights(st, &l->fc, d_pre, b->norm2, wide, grad, err));
    TRY(outputs_input(st, &l->fc, d_pre, c->hidden, wide, err));
    TRY(f->norm_backward(st, trunk_sum(st), b->mid, l->norm2, b->mean2, b->rstd2, dx, true, grad, err));
    if (!whole)
        TRY(keep(st, b->mid, st->dy, err));
    return attention_part_backward(st, i, slot, dx, whole, grad, err);
}

int block_weights(struct stage *st, int i, struct stage_slot *slot, float *grad, struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;
    const struct layer_params *l = block_params(st, i);
    const struct block_saves *b = &slot->block[i];
    struct gradient dy;

    TRY(gradient_of(st, b->mid, &dy, err));
    TRY(inputs_weights(st, &l->out, &dy, b->act, c->ffn_local, grad, err));
    TRY(gathered_weights(st, &l->fc, b->pre, b->norm2, c->family->parts * c->ffn_local, grad, err));
    TRY(gradient_of(st, b->x, &dy, err));
    TRY(inputs_weights(st, &l->proj, &dy, b->att, c->q_local, grad, err));
    return gathered_weights(st, &l->qkv, b->qkv, b->norm1, c->qkv_local, grad, err);
}
