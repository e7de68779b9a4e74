/* GPT-2 as in Hugging Face: LayerNorm with biases, learned positions, tanh-GELU; weights are stored [in, out]. */
#include <math.h>

#include "worker/engine/model/family.h"
#include "worker/engine/model/param_build.h"
#include "worker/engine/model/stage_priv.h"

enum { LAYER_TENSORS = 12 };

static int layer_tensors(const struct model_cfg *c)
{
    (void)c;
    return LAYER_TENSORS;
}

static struct norm_params norm(struct param_builder *b, const char *weight, const char *bias)
{
    int w = param_whole(b, weight, 1, b->c->hidden, 0, 0, 1);

    return (struct norm_params){w, param_whole(b, bias, 1, b->c->hidden, 0, 0, 0)};
}

/* One matrix cut by columns, parts of them side by side, with its bias. */
static struct linear by_columns(struct param_builder *b, const char *weight, const char *bias, int parts, int cols)
{
    int w = param_columns(b, weight, 2, b->c->hidden, parts, cols, PARAM_STD);

    return (struct linear){.n = 1, .w = {w}, .bias = {param_columns(b, bias, 1, 0, parts, cols, 0)}};
}

static struct linear by_rows(struct param_builder *b, const char *weight, const char *bias, int rows)
{
    float std = (float)(PARAM_STD / sqrt(2.0 * b->c->layers));
    int w = param_rows(b, weight, rows, b->c->hidden, std);

    return (struct linear){.n = 1, .w = {w}, .bias = {param_whole(b, bias, 1, b->c->hidden, 0, 0, 0)}};
}

static void tensors(struct param_builder *b, struct layer_params *l)
{
    l->norm1 = norm(b, "ln_1.weight", "ln_1.bias");
    l->qkv = by_columns(b, "attn.c_attn.weight", "attn.c_attn.bias", 3, b->c->hidden);
    l->proj = by_rows(b, "attn.c_proj.weight", "attn.c_proj.bias", b->c->hidden);
    l->norm2 = norm(b, "ln_2.weight", "ln_2.bias");
    l->fc = by_columns(b, "mlp.c_fc.weight", "mlp.c_fc.bias", 1, b->c->ffn);
    l->out = by_rows(b, "mlp.c_proj.weight", "mlp.c_proj.bias", b->c->ffn);
}

static int norm_forward(struct stage *st, const float *x, struct norm_params n, void *y, float *mean, float *rstd,
                        struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;

    return st->cfg.k->layernorm_forward(st->cfg.stream, st->cfg.precision.type, x, weight_of(st, n.w),
                                        weight_of(st, n.b), (float)c->norm_eps, trunk_rows(st), c->hidden, y, mean,
                                        rstd, err);
}

static int norm_backward(struct stage *st, const float *dy, const float *x, struct norm_params n, const float *mean,
                         const float *rstd, float *dx, bool add, float *grad, struct merr *err)
{
    return st->cfg.k->layernorm_backward(st->cfg.stream, dy, x, weight_of(st, n.w), mean, rstd, trunk_rows(st),
                                         st->cfg.model->hidden, dx, add, grad_of(st, grad, n.w), grad_of(st, grad, n.b),
                                         err);
}

static int act_forward(struct stage *st, const void *pre, void *act, struct merr *err)
{
    return st->cfg.k->gelu_forward(st->cfg.stream, st->cfg.precision.type, pre,
                                   (size_t)st->rows * st->cfg.model->ffn_local, act, err);
}

static int act_backward(struct stage *st, const void *pre, const void *d_act, void *d_pre, struct merr *err)
{
    return st->cfg.k->gelu_backward(st->cfg.stream, st->cfg.precision.type, pre, d_act,
                                    (size_t)st->rows * st->cfg.model->ffn_local, d_pre, err);
}

const struct family family_gpt2 = {
    .name = "gpt2",
    .embedding = "wte.weight",
    .head = "lm_head.weight",
    .norm = "ln_f",
    .positions = "wpe.weight",
    .layer = "h.%d.",
    .norm_bias = true,
    .parts = 1,
    .fc_end = KERN_BIAS_GELU,
    .layer_tensors = layer_tensors,
    .tensors = tensors,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .act_forward = act_forward,
    .act_backward = act_backward,
};
