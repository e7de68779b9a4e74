/* Llama and Qwen2 as in Hugging Face: RMSNorm, rotated positions, SwiGLU, keys and values shared by groups of heads;
 * weights are stored [out, in]. Qwen2 is Llama with biases on queries, keys and values. */
#include <errno.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/param_build.h"
#include "worker/engine/model/stage_priv.h"

enum { PLAIN_TENSORS = 9, BIAS_TENSORS = 3 };

/* What a config.json may ask for that is not built here. */
static int refuse(const json_t *config, bool qwen, struct merr *err)
{
    static const char *const flags[] = {"mlp_bias", "use_sliding_window"};

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (json_is_true(json_object_get(config, flags[i])))
            return merr_set(err, -ENOTSUP, "the model's '%s' is true; that is not built", flags[i]);
    if (!qwen && json_is_true(json_object_get(config, "attention_bias")))
        return merr_set(err, -ENOTSUP,
                        "the model's 'attention_bias' is true: a bias on the attention's output is not "
                        "built; Qwen2's biases are model_type 'qwen2'");
    return model_want_word(config, "hidden_act", "silu", err);
}

static int from_config(const json_t *config, struct model_cfg *c, struct merr *err)
{
    bool qwen = strcmp(json_string_value(json_object_get(config, "model_type")), "qwen2") == 0;

    c->tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
    c->qkv_bias = qwen;
    TRY(refuse(config, qwen, err));
    TRY(model_want_int(config, "num_hidden_layers", 0, &c->layers, err));
    TRY(model_want_int(config, "hidden_size", 0, &c->hidden, err));
    TRY(model_want_int(config, "num_attention_heads", 0, &c->heads, err));
    TRY(model_want_int(config, "num_key_value_heads", c->heads, &c->kv_heads, err));
    TRY(model_want_int(config, "head_dim", c->hidden / c->heads, &c->dim, err));
    TRY(model_want_int(config, "intermediate_size", 0, &c->ffn, err));
    TRY(model_want_int(config, "max_position_embeddings", qwen ? 32768 : 2048, &c->context, err));
    TRY(model_want_int(config, "vocab_size", 0, &c->vocab, err));
    TRY(model_want_number(config, "rms_norm_eps", 1e-6, &c->norm_eps, err));
    return rope_from_config(config, &c->rope, err);
}

static json_t *config(const struct model_cfg *c)
{
    json_t *o = json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:s, s:b, s:f, s:f, s:s}",
                          "model_type", c->qkv_bias ? "qwen2" : "llama", "architectures",
                          c->qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM", "num_hidden_layers", c->layers,
                          "hidden_size", c->hidden, "num_attention_heads", c->heads, "num_key_value_heads", c->kv_heads,
                          "intermediate_size", c->ffn, "max_position_embeddings", c->context, "vocab_size", c->vocab,
                          "rms_norm_eps", c->norm_eps, "rope_theta", c->rope.theta, "rope_scaling",
                          rope_scaling_config(&c->rope), "hidden_act", "silu", "tie_word_embeddings", c->tied,
                          "attention_dropout", c->dropout, "initializer_range", PARAM_STD, "torch_dtype", "float32");

    if (o && c->dim * c->heads != c->hidden)
        (void)json_object_set_new(o, "head_dim", json_integer(c->dim));
    if (o && !c->qkv_bias)
        (void)json_object_set_new(o, "attention_bias", json_false());
    return o;
}

static int layer_tensors(const struct model_cfg *c)
{
    return PLAIN_TENSORS + (c->qkv_bias ? BIAS_TENSORS : 0);
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

static void tensors(struct param_builder *b, struct layer_params *l)
{
    const struct model_cfg *c = b->c;
    int q = c->heads * c->dim, kv = c->kv_heads * c->dim;
    bool bias = c->qkv_bias;

    l->qkv = l->fc = (struct linear){.out_in = true};
    l->norm1 = norm(b, "input_layernorm.weight");
    add_outputs(b, &l->qkv, "self_attn.q_proj.weight", bias ? "self_attn.q_proj.bias" : NULL, q);
    b->copies = c->kv_copies;
    add_outputs(b, &l->qkv, "self_attn.k_proj.weight", bias ? "self_attn.k_proj.bias" : NULL, kv);
    add_outputs(b, &l->qkv, "self_attn.v_proj.weight", bias ? "self_attn.v_proj.bias" : NULL, kv);
    b->copies = 1;
    l->proj = by_inputs(b, "self_attn.o_proj.weight", q);
    l->norm2 = norm(b, "post_attention_layernorm.weight");
    add_outputs(b, &l->fc, "mlp.gate_proj.weight", NULL, c->ffn);
    add_outputs(b, &l->fc, "mlp.up_proj.weight", NULL, c->ffn);
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

static const char *const types[] = {"llama", "qwen2", NULL};

const struct family family_llama = {
    .name = "llama",
    .types = types,
    .embedding = "model.embed_tokens.weight",
    .head = "lm_head.weight",
    .norm = "model.norm",
    .layer = "model.layers.%d.",
    .parts = 2,
    .fc_end = KERN_PLAIN,
    .from_config = from_config,
    .config = config,
    .layer_tensors = layer_tensors,
    .tensors = tensors,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .act_forward = act_forward,
    .act_backward = act_backward,
};
