/* One block of GPT-2: x + proj(attention(ln_1(x))), then + out(gelu(fc(ln_2(.)))), column- then row-parallel. */
#include <math.h>

#include "worker/train/stage_impl.h"
#include "worker/train/try.h"

/* y[rows, out] = x[rows, in] · W + bias, W in one dense box for each range of columns. aux keeps what gelu took. */
static int linear_columns(struct stage *st, const float *x, int in, int out, int w, int bias, float *y, float *aux,
                          struct merr *err)
{
    const struct param *q = &st->cfg.params->v[w];
    int at = 0;

    for (int i = 0; i < q->boxes; i++) {
        int cols = (int)q->box[i].len[1];
        struct kern_gemm g = {
            .m = st->rows, .n = cols, .k = in, .a = x, .lda = in,
            .b = weight_of(st, w) + q->box[i].at, .ldb = cols, .c = y + at, .ldc = out,
            .epilogue = aux ? KERN_BIAS_GELU : KERN_BIAS, .bias = weight_of(st, bias) + at,
            .aux = aux ? aux + at : NULL, .b_is_weight = true,
        };

        TRY(st->cfg.k->gemm(st->cfg.stream, &g, err));
        at += cols;
    }
    return 0;
}

/* reduce[rows, hidden] = this rank's part of x[rows, in] · W, summed over tp, plus the bias once. */
static int linear_rows(struct stage *st, const float *x, int in, int w, int bias, struct merr *err)
{
    int hidden = st->cfg.gpt->hidden;
    struct kern_gemm g = {
        .m = st->rows, .n = hidden, .k = in, .a = x, .lda = in, .b = weight_of(st, w), .ldb = hidden,
        .c = st->reduce, .ldc = hidden, .epilogue = st->cfg.tp ? KERN_PLAIN : KERN_BIAS,
        .bias = weight_of(st, bias), .b_is_weight = true,
    };

    TRY(st->cfg.k->gemm(st->cfg.stream, &g, err));
    if (!st->cfg.tp)
        return 0;
    TRY(stage_reduce(st, err));
    return st->cfg.k->add_bias(st->cfg.stream, st->reduce, weight_of(st, bias), st->rows, hidden, err);
}

/* y = x + dropout(reduce) */
static int residual(struct stage *st, const struct stage_slot *slot, const uint32_t key[2], bool train, const float *x,
                    float *y, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    size_t n = (size_t)st->rows * st->cfg.gpt->hidden;

    if (train && st->threshold > 0)
        TRY(stage_dropout(st, slot, key, st->reduce, st->reduce, err));
    TRY(k->copy(st->cfg.stream, y, x, n * sizeof(*y), err));
    return k->add(st->cfg.stream, y, st->reduce, n, err);
}

static struct kern_attention attention(const struct stage *st, int i, const struct stage_slot *slot, bool train)
{
    const struct gpt_cfg *c = st->cfg.gpt;

    return (struct kern_attention){
        .tokens = st->rows, .heads = c->heads_local, .kv_heads = c->heads_local, .dim = c->dim,
        .ld = 3 * c->hidden_local, .cu = st->cu, .docs = st->cfg.micro, .scale = (float)(1 / sqrt(c->dim)),
        .qkv = slot->block[i].qkv, .out = slot->block[i].att, .lse = slot->block[i].lse,
        .dropout = train ? (float)c->dropout : 0, .drop_threshold = train ? st->threshold : 0,
        .drop_keys = st->keys[i].attention, .samples = slot->sample,
    };
}

int block_forward(struct stage *st, int i, struct stage_slot *slot, float *out, bool train, struct merr *err)
{
    const struct gpt_cfg *c = st->cfg.gpt;
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    const struct layer_params *l = &st->cfg.params->layer[i];
    struct block_saves *b = &slot->block[i];
    struct kern_attention a = attention(st, i, slot, train);

    TRY(k->layernorm_forward(s, b->x, weight_of(st, l->ln1_w), weight_of(st, l->ln1_b), GPT_LN_EPS, st->rows,
                             c->hidden, b->ln1, b->mean1, b->rstd1, err));
    TRY(linear_columns(st, b->ln1, c->hidden, 3 * c->hidden_local, l->qkv_w, l->qkv_b, b->qkv, NULL, err));
    TRY(k->attention_forward(s, &a, err));
    TRY(linear_rows(st, b->att, c->hidden_local, l->proj_w, l->proj_b, err));
    TRY(residual(st, slot, st->keys[i].attention_out, train, b->x, b->mid, err));

    TRY(k->layernorm_forward(s, b->mid, weight_of(st, l->ln2_w), weight_of(st, l->ln2_b), GPT_LN_EPS, st->rows,
                             c->hidden, b->ln2, b->mean2, b->rstd2, err));
    TRY(linear_columns(st, b->ln2, c->hidden, c->ffn_local, l->fc_w, l->fc_b, b->act, b->pre, err));
    TRY(linear_rows(st, b->act, c->ffn_local, l->out_w, l->out_b, err));
    return residual(st, slot, st->keys[i].mlp_out, train, b->mid, out, err);
}

/* Row-parallel, backward: dy[rows, hidden] is the same on all tp ranks. dW, db grow, dx[rows, in] = dy · W'. */
static int rows_backward(struct stage *st, const float *dy, const float *x, int in, int w, int bias, float *dx,
                         float *grad, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    int hidden = st->cfg.gpt->hidden;
    struct kern_gemm dw = {
        .trans_a = true, .m = in, .n = hidden, .k = st->rows, .a = x, .lda = in, .b = dy, .ldb = hidden,
        .c = grad_of(st, grad, w), .ldc = hidden, .accumulate = true,
    };
    struct kern_gemm di = {
        .trans_b = true, .m = st->rows, .n = in, .k = hidden, .a = dy, .lda = hidden, .b = weight_of(st, w),
        .ldb = hidden, .c = dx, .ldc = in, .b_is_weight = true,
    };

    TRY(k->bias_gradient(s, dy, st->rows, hidden, hidden, grad_of(st, grad, bias), err));
    TRY(k->gemm(s, &dw, err));
    return k->gemm(s, &di, err);
}

/* Column-parallel, backward: dW, db grow, reduce[rows, in] = the sum over tp of dy · W'. */
static int columns_backward(struct stage *st, const float *dy, const float *x, int in, int out, int w, int bias,
                            float *grad, struct merr *err)
{
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    const struct param *q = &st->cfg.params->v[w];
    int at = 0;

    TRY(k->bias_gradient(s, dy, st->rows, out, out, grad_of(st, grad, bias), err));
    for (int i = 0; i < q->boxes; i++) {
        int cols = (int)q->box[i].len[1];
        struct kern_gemm dw = {
            .trans_a = true, .m = in, .n = cols, .k = st->rows, .a = x, .lda = in, .b = dy + at, .ldb = out,
            .c = grad_of(st, grad, w) + q->box[i].at, .ldc = cols, .accumulate = true,
        };
        struct kern_gemm di = {
            .trans_b = true, .m = st->rows, .n = in, .k = cols, .a = dy + at, .lda = out,
            .b = weight_of(st, w) + q->box[i].at, .ldb = cols, .c = st->reduce, .ldc = in, .accumulate = i > 0,
            .b_is_weight = true,
        };

        TRY(k->gemm(s, &dw, err));
        TRY(k->gemm(s, &di, err));
        at += cols;
    }
    return st->cfg.tp ? stage_reduce(st, err) : 0;
}

static int attention_part_backward(struct stage *st, int i, struct stage_slot *slot, float *dx, float *grad,
                                   struct merr *err)
{
    const struct gpt_cfg *c = st->cfg.gpt;
    const struct layer_params *l = &st->cfg.params->layer[i];
    struct block_saves *b = &slot->block[i];
    struct kern_attention a = attention(st, i, slot, true);
    const float *dy = st->threshold > 0 ? st->tmp : dx;

    if (st->threshold > 0)
        TRY(stage_dropout(st, slot, st->keys[i].attention_out, dx, st->tmp, err));
    TRY(rows_backward(st, dy, b->att, c->hidden_local, l->proj_w, l->proj_b, st->d_att, grad, err));
    a.dout = st->d_att;
    a.dqkv = st->d_qkv;
    TRY(st->cfg.k->attention_backward(st->cfg.stream, &a, err));
    TRY(columns_backward(st, st->d_qkv, b->ln1, c->hidden, 3 * c->hidden_local, l->qkv_w, l->qkv_b, grad, err));
    return st->cfg.k->layernorm_backward(st->cfg.stream, st->reduce, b->x, weight_of(st, l->ln1_w), b->mean1,
                                         b->rstd1, st->rows, c->hidden, dx, true, grad_of(st, grad, l->ln1_w),
                                         grad_of(st, grad, l->ln1_b), err);
}

int block_backward(struct stage *st, int i, struct stage_slot *slot, float *dx, float *grad, struct merr *err)
{
    const struct gpt_cfg *c = st->cfg.gpt;
    const struct kern_ops *k = st->cfg.k;
    const struct layer_params *l = &st->cfg.params->layer[i];
    struct block_saves *b = &slot->block[i];
    const float *dy = st->threshold > 0 ? st->tmp : dx;

    if (st->threshold > 0)
        TRY(stage_dropout(st, slot, st->keys[i].mlp_out, dx, st->tmp, err));
    TRY(rows_backward(st, dy, b->act, c->ffn_local, l->out_w, l->out_b, st->d_ffn, grad, err));
    TRY(k->gelu_backward(st->cfg.stream, b->pre, st->d_ffn, (size_t)st->rows * c->ffn_local, st->d_ffn, err));
    TRY(columns_backward(st, st->d_ffn, b->ln2, c->hidden, c->ffn_local, l->fc_w, l->fc_b, grad, err));
    TRY(k->layernorm_backward(st->cfg.stream, st->reduce, b->mid, weight_of(st, l->ln2_w), b->mean2, b->rstd2,
                              st->rows, c->hidden, dx, true, grad_of(st, grad, l->ln2_w),
                              grad_of(st, grad, l->ln2_b), err));
    return attention_part_backward(st, i, slot, dx, grad, err);
}
