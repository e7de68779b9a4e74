/* Llama and its kinds as in Hugging Face: RMSNorm, rotated positions, SwiGLU, keys and values shared by groups of
 * heads; weights are stored [out, in]. Mistral has a window, Qwen2 biases on queries, keys and values, Qwen3 norms of
 * each head of queries and keys, and Phi-3 one tensor of queries, keys and values, and one of gate and up. */
#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/param_build.h"
#include "worker/engine/model/stage_priv.h"

enum { PLAIN_TENSORS = 9, FUSED_TENSORS = 6, BIAS_TENSORS = 3, HEAD_NORMS = 2 };

static int layer_tensors(const struct model_cfg *c)
{
    return (c->fused ? FUSED_TENSORS : PLAIN_TENSORS) + (c->qkv_bias ? BIAS_TENSORS : 0) +
           (c->qk_norm ? HEAD_NORMS : 0);
}

static struct norm_params norm(struct param_builder *b, const char *weight)
{
    return (struct norm_params){param_whole(b, weight, 1, b->c->hidden, 0, 0, 1), -1};
}

/* Add a matrix [out, hidden] cut by its outputs; bias NULL: none. */
static void add_outputs(struct param_builder *b, struct linear *l, const char *weight, const char *bias, int out)
{
    l->w[l->n] = param_rows(b, weight, out, b->c->hidden, PARAM_STD);
    l->bias[l->n] = bias ? param_columns(b, bias, 1, 0, 1, out, 0) : -1;
    l->n++;
}

/* A matrix [hidden, in] cut by its inputs. */
static struct linear by_inputs(struct param_builder *b, const char *weight, int in)
{
    int w = param_columns(b, weight, 2, b->c->hidden, 1, in, PARAM_STD);

    return (struct linear){.n = 1, .w = {w}, .bias = {-1}, .out_in = true};
}

/* One tensor of several matrices [out, hidden], each cut by its outputs. */
static struct linear fused(struct param_builder *b, const char *weight, const uint64_t *out, int n)
{
    return (struct linear){
        .n = 1, .w = {param_rows_of(b, weight, out, n, b->c->hidden, PARAM_STD)}, .bias = {-1}, .out_in = true};
}

static void attention_tensors(struct param_builder *b, struct layer_params *l, int q, int kv)
{
    const struct model_cfg *c = b->c;
    bool bias = c->qkv_bias;

    if (c->fused) {
        l->qkv = fused(b, "self_attn.qkv_proj.weight", (const uint64_t[]){q, kv, kv}, 3);
        return;
    }
    l->qkv = (struct linear){.out_in = true};
    add_outputs(b, &l->qkv, "self_attn.q_proj.weight", bias ? "self_attn.q_proj.bias" : NULL, q);
    b->copies = c->kv_copies;
    add_outputs(b, &l->qkv, "self_attn.k_proj.weight", bias ? "self_attn.k_proj.bias" : NULL, kv);
    add_outputs(b, &l->qkv, "self_attn.v_proj.weight", bias ? "self_attn.v_proj.bias" : NULL, kv);
    b->copies = 1;
    if (!c->qk_norm)
        return;
    l->q_norm = param_whole(b, "self_attn.q_norm.weight", 1, c->dim, 0, 0, 1);
    l->k_norm = param_whole(b, "self_attn.k_norm.weight", 1, c->dim, 0, 0, 1);
}

static void tensors(struct param_builder *b, struct layer_params *l)
{
    const struct model_cfg *c = b->c;
    int q = c->heads * c->dim, kv = c->kv_heads * c->dim;

    l->norm1 = norm(b, "input_layernorm.weight");
    attention_tensors(b, l, q, kv);
    l->proj = by_inputs(b, "self_attn.o_proj.weight", q);
    l->norm2 = norm(b, "post_attention_layernorm.weight");
    l->fc = (struct linear){.out_in = true};
    if (c->fused) {
        l->fc = fused(b, "mlp.gate_up_proj.weight", (const uint64_t[]){c->ffn, c->ffn}, 2);
    } else {
        add_outputs(b, &l->fc, "mlp.gate_proj.weight", NULL, c->ffn);
        add_outputs(b, &l->fc, "mlp.up_proj.weight", NULL, c->ffn);
    }
    l->out = by_inputs(b, "mlp.down_proj.weight", c->ffn);
}

static int norm_forward(struct stage *st, const float *x, struct norm_params n, void *y, float *mean, float *rstd,
                        struct merr *err)
{
    const struct model_cfg *c = st->cfg.model;

    (void)mean;
    return st->cfg.k->rmsnorm_forward(st->cfg.stream, st->cfg.precision.type, x, weight_of(st, n.w), (float)c->norm_eps,
                                      trunk_rows(st), c->hidden, y, rstd, err);
}

static int norm_backward(struct stage *st, const float *dy, const float *x, struct norm_params n, const float *mean,
                         const float *rstd, float *dx, bool add, float *grad, struct merr *err)
{
    (void)mean;
    return st->cfg.k->rmsnorm_backward(st->cfg.stream, dy, x, weight_of(st, n.w), rstd, trunk_rows(st),
                                       st->cfg.model->hidden, dx, add, grad_of(st, grad, n.w), err);
}

static int act_forward(struct stage *st, const void *pre, void *act, struct merr *err)
{
    return st->cfg.k->swiglu_forward(st->cfg.stream, st->cfg.precision.type, pre, st->rows, st->cfg.model->ffn_local,
                                     act, err);
}

static int act_backward(struct stage *st, const void *pre, const void *d_act, void *d_pre, struct merr *err)
{
    return st->cfg.k->swiglu_backward(st->cfg.stream, st->cfg.precision.type, pre, d_act, st->rows,
                                      st->cfg.model->ffn_local, d_pre, err);
}

const struct family family_llama = {
    .name = "llama",
    .embedding = "model.embed_tokens.weight",
    .head = "lm_head.weight",
    .norm = "model.norm",
    .layer = "model.layers.%d.",
    .parts = 2,
    .fc_end = KERN_PLAIN,
    .layer_tensors = layer_tensors,
    .tensors = tensors,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .act_forward = act_forward,
    .act_backward = act_backward,
};
