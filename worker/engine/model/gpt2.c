/* GPT-2 as in Hugging Face: LayerNorm with biases, learned positions, tanh-GELU; weights are stored [in, out]. */
#include <errno.h>
#include <math.h>

#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/param_build.h"
#include "worker/engine/model/stage_priv.h"

enum { LAYER_TENSORS = 12 };

static int from_config(const json_t *config, struct model_cfg *c, struct merr *err)
{
    c->tied = !json_is_false(json_object_get(config, "tie_word_embeddings"));
    TRY(model_want_int(config, "n_layer", 0, &c->layers, err));
    TRY(model_want_int(config, "n_embd", 0, &c->hidden, err));
    TRY(model_want_int(config, "n_head", 0, &c->heads, err));
    TRY(model_want_int(config, "n_positions", 0, &c->context, err));
    TRY(model_want_int(config, "vocab_size", 0, &c->vocab, err));
    TRY(model_want_int(config, "n_inner", 4 * c->hidden, &c->ffn, err));
    TRY(model_want_number(config, "layer_norm_epsilon", 1e-5, &c->norm_eps, err));
    TRY(model_want_word(config, "activation_function", "gelu_new", err));
    if (json_is_true(json_object_get(config, "scale_attn_by_inverse_layer_idx")) ||
        json_is_false(json_object_get(config, "scale_attn_weights")))
        return merr_set(err, -ENOTSUP, "the model's attention is scaled in another way than by its heads' size");
    c->kv_heads = c->heads;
    return 0;
}

static json_t *config(const struct model_cfg *c)
{
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:f, s:f, s:f, s:f, s:s}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "n_layer", c->layers, "n_embd",
                     c->hidden, "n_head", c->heads, "n_inner", c->ffn, "n_positions", c->context, "n_ctx", c->context,
                     "vocab_size", c->vocab, "layer_norm_epsilon", c->norm_eps, "activation_function", "gelu_new",
                     "tie_word_embeddings", c->tied, "resid_pdrop", c->dropout, "embd_pdrop", c->dropout, "attn_pdrop",
                     c->dropout, "initializer_range", PARAM_STD, "torch_dtype", "float32");
}

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

static const char *const types[] = {"gpt2", NULL};

const struct family family_gpt2 = {
    .name = "gpt2",
    .types = types,
    .embedding = "wte.weight",
    .head = "lm_head.weight",
    .norm = "ln_f",
    .positions = "wpe.weight",
    .layer = "h.%d.",
    .norm_bias = true,
    .parts = 1,
    .fc_end = KERN_BIAS_GELU,
    .from_config = from_config,
    .config = config,
    .layer_tensors = layer_tensors,
    .tensors = tensors,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .act_forward = act_forward,
    .act_backward = act_backward,
};
