/* The ends of a stage, embedding and head, and what ends and blocks exchange over tp */
#include <assert.h>

#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/stage_priv.h"

int stage_reduce(struct stage *st, struct merr *err)
{
    size_t n = (size_t)trunk_rows(st) * st->cfg.model->hidden;

    if (!st->cfg.part.tp)
        return 0;
    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    if (st->cfg.model->sequence_parallel)
        return wire_reduce_scatter(st->cfg.part.tp_wire, st->reduce, trunk_sum(st), n, err);
    return wire_all_reduce(st->cfg.part.tp_wire, st->reduce, n, err);
}

static int gather_into(struct stage *st, const void *x, size_t size, void *out, struct merr *err)
{
    TRY(st->cfg.k->stream_sync(st->cfg.stream, err));
    return wire_all_gather(st->cfg.part.tp_wire, x, (size_t)trunk_rows(st) * st->cfg.model->hidden, size, out, err);
}

int stage_gather(struct stage *st, const void *x, size_t size, const void **ret, struct merr *err)
{
    if (st->whole)
        TRY(gather_into(st, x, size, st->whole, err));
    *ret = st->whole ? st->whole : x;
    return 0;
}

int stage_dropout(struct stage *st, const struct stage_slot *slot, const uint32_t key[2], const float *x, float *y,
                  struct merr *err)
{
    const struct model_cfg *g = st->cfg.model;
    struct kern_dropout d = {
        .rows = trunk_rows(st),
        .cols = g->hidden,
        .ld = g->hidden,
        .p = (float)g->dropout,
        .threshold = st->threshold,
        .key = {key[0], key[1]},
        .position = st->position + trunk_from(st),
        .sample = slot->row_sample + trunk_from(st),
    };

    return st->cfg.k->dropout(st->cfg.stream, &d, x, y, err);
}

int stage_embed(struct stage *st, struct stage_slot *slot, bool train, struct merr *err)
{
    const struct model_cfg *g = st->cfg.model;
    const struct params *p = st->cfg.params;
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    size_t n = (size_t)trunk_rows(st) * g->hidden;

    TRY(k->embedding_forward(s, st->cfg.precision.type, matrix_of(st, p->wte, 0), g->vocab_first, g->vocab_local,
                             g->hidden, slot->tokens, st->rows, st->reduce, err));
    TRY(stage_reduce(st, err));
    if (p->wpe < 0) {
        TRY(k->copy(s, slot->in, trunk_sum(st), n * sizeof(float), err));
    } else {
        TRY(k->embedding_forward(s, st->cfg.precision.type, matrix_of(st, p->wpe, 0), 0, g->context, g->hidden,
                                 st->position + trunk_from(st), trunk_rows(st), slot->in, err));
        TRY(k->add(s, slot->in, trunk_sum(st), n, err));
    }
    if (train && st->threshold > 0)
        return stage_dropout(st, slot, st->embedding_key, slot->in, slot->in, err);
    return 0;
}

int stage_embed_backward(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err)
{
    const struct model_cfg *g = st->cfg.model;
    const struct params *p = st->cfg.params;
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    const void *dx;

    if (st->threshold > 0)
        TRY(stage_dropout(st, slot, st->embedding_key, slot->out, slot->out, err));
    TRY(stage_gather(st, slot->out, sizeof(*slot->out), &dx, err));
    TRY(k->embedding_backward(s, dx, g->vocab_first, g->vocab_local, g->hidden, slot->tokens, st->rows,
                              grad_of(st, grad, p->wte), err));
    if (p->wpe < 0)
        return 0;
    return k->embedding_backward(s, dx, 0, g->context, g->hidden, st->position, st->rows, grad_of(st, grad, p->wpe),
                                 err);
}

static struct kern_gemm head_product(const struct stage *st, int from, int rows)
{
    const struct model_cfg *g = st->cfg.model;

    return (struct kern_gemm){
        .type = st->cfg.precision.type,
        .trans_b = true,
        .m = rows,
        .n = g->vocab_local,
        .k = g->hidden,
        .a = element(st, st->norm, (size_t)from * g->hidden),
        .lda = g->hidden,
        .b = matrix_of(st, st->cfg.params->head, 0),
        .ldb = g->hidden,
        .c = st->logits,
        .ldc = g->vocab_local,
        .b_is_weight = true,
    };
}

/* Logits of rows [from, from + rows), their losses and, to train, the way back to the output of the final norm in
 * reduce and to the head's weights. */
static int head_chunk(struct stage *st, struct stage_slot *slot, int from, int rows, float *dhead, float weight,
                      struct merr *err)
{
    const struct model_cfg *g = st->cfg.model;
    const struct kern_ops *k = st->cfg.k;
    struct kern_stream *s = st->cfg.stream;
    struct kern_gemm z = head_product(st, from, rows);
    float *mine = st->stats + (size_t)3 * rows * g->tp_index;
    void *dz = dhead ? st->dz : NULL;

    TRY(k->gemm(s, &z, err));
    TRY(k->xent_partial(s, st->logits, rows, g->vocab_local, g->vocab_first, g->vocab, slot->targets + from, mine,
                        err));
    if (st->cfg.part.tp) {
        TRY(k->stream_sync(s, err));
        TRY(comm_all_gather(st->cfg.part.tp, mine, (size_t)3 * rows * sizeof(float), st->stats, err));
    }
    TRY(k->xent_finish(s, st->logits, st->stats, g->tp, rows, g->vocab_local, g->vocab_first, g->vocab,
                       slot->targets + from, weight, st->loss + from, st->cfg.precision.type, dz, err));
    if (dhead) {
        struct kern_gemm dx = {
            .type = st->cfg.precision.type,
            .m = rows,
            .n = g->hidden,
            .k = g->vocab_local,
            .a = dz,
            .lda = g->vocab_local,
            .b = z.b,
            .ldb = g->hidden,
            .c = st->reduce + (size_t)from * g->hidden,
            .ldc = g->hidden,
            .b_is_weight = true,
        };
        struct kern_gemm dw = {
            .type = st->cfg.precision.type,
            .trans_a = true,
            .m = g->vocab_local,
            .n = g->hidden,
            .k = rows,
            .a = dz,
            .lda = g->vocab_local,
            .b = z.a,
            .ldb = g->hidden,
            .c = dhead,
            .ldc = g->hidden,
            .accumulate = true,
        };

        TRY(k->gemm(s, &dx, err));
        TRY(k->gemm(s, &dw, err));
    }
    return 0;
}

int stage_head(struct stage *st, struct stage_slot *slot, float *grad, float weight, struct merr *err)
{
    const float *x = st->tmp;
    const struct params *p = st->cfg.params;
    const struct family *f = st->cfg.model->family;
    int step = (int)stage_head_rows(st);
    void *mine = element(st, st->norm, (size_t)trunk_from(st) * st->cfg.model->hidden);
    float *dhead = NULL;

    if (grad)
        dhead = p->grad_head_at ? grad + p->grad_head_at : grad_of(st, grad, p->head);
    TRY(f->norm_forward(st, x, p->norm, mine, st->norm_mean, st->norm_rstd, err));
    if (st->whole)
        TRY(gather_into(st, mine, kern_size(st->cfg.precision.type), st->norm, err));
    for (int from = 0; from < st->rows; from += step)
        TRY(head_chunk(st, slot, from, st->rows - from < step ? st->rows - from : step, dhead, weight, err));
    if (!grad)
        return 0;
    TRY(stage_reduce(st, err));
    return f->norm_backward(st, trunk_sum(st), x, p->norm, st->norm_mean, st->norm_rstd, slot->out, false, grad, err);
}

int stage_logits(struct stage *st, struct stage_slot *slot, int row, float *ret, struct merr *err)
{
    struct kern_gemm z = head_product(st, row, 1);

    assert(st->cfg.part.last && row >= 0 && row < slot->rows);
    TRY(st->cfg.k->gemm(st->cfg.stream, &z, err));
    TRY(st->cfg.k->copy(st->cfg.stream, ret, st->logits, (size_t)z.n * sizeof(*ret), err));
    return st->cfg.k->stream_sync(st->cfg.stream, err);
}
