#include "worker/train/gpt.h"

#include <errno.h>
#include <string.h>

static int cut(struct gpt_cfg *c, int tp, int tp_index, struct merr *err)
{
    int unit = GPT_VOCAB_ALIGN * tp;

    if (c->hidden % c->heads != 0)
        return merr_set(err, -EINVAL, "hidden %d is not a multiple of heads %d", c->hidden, c->heads);
    if (c->heads % tp != 0)
        return merr_set(err, -EINVAL, "%d heads cannot be split over tp %d", c->heads, tp);
    if (c->ffn % tp != 0)
        return merr_set(err, -EINVAL, "ffn %d cannot be split over tp %d", c->ffn, tp);
    c->tp = tp;
    c->tp_index = tp_index;
    c->dim = c->hidden / c->heads;
    c->heads_local = c->heads / tp;
    c->hidden_local = c->hidden / tp;
    c->ffn_local = c->ffn / tp;
    c->vocab_local = (c->vocab + unit - 1) / unit * GPT_VOCAB_ALIGN;
    c->vocab_first = c->vocab_local * tp_index;
    return 0;
}

int gpt_from_spec(const struct job_spec *spec, int tp, int tp_index, struct gpt_cfg *ret, struct merr *err)
{
    struct gpt_cfg c;
    int r;

    if (spec->train.model.family != MODEL_GPT2)
        return merr_set(err, -ENOTSUP, "model family 'llama' is not trained by this version; use 'gpt2'");
    if (spec->train.model.kv_heads > 0 && spec->train.model.kv_heads != spec->train.model.heads)
        return merr_set(err, -EINVAL, "gpt2 has as many kv_heads as heads: want %d, not %d", spec->train.model.heads,
                        spec->train.model.kv_heads);
    c = (struct gpt_cfg){
        .layers = spec->train.model.layers, .hidden = spec->train.model.hidden, .heads = spec->train.model.heads,
        .ffn = spec->train.model.ffn, .context = spec->train.model.context, .vocab = spec->train.model.vocab,
        .tied = spec->train.model.tie_embeddings, .dropout = spec->train.model.dropout,
        .seed = spec->train.init.seed,
    };
    if (spec->train.batch.length > c.context)
        return merr_set(err, -EINVAL, "batch.length %d is longer than the model's context of %d",
                        spec->train.batch.length, c.context);
    r = cut(&c, tp, tp_index, err);
    if (r == 0)
        *ret = c;
    return r;
}

static int want_int(const json_t *o, const char *key, int fallback, int *ret, struct merr *err)
{
    const json_t *v = json_object_get(o, key);

    if ((!v || json_is_null(v)) && fallback > 0) {
        *ret = fallback;
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24)
        return merr_set(err, -EINVAL, "the model's '%s' is not a number from 1 to %d", key, 1 << 24);
    *ret = (int)json_integer_value(v);
    return 0;
}

int gpt_from_config(const json_t *config, struct gpt_cfg *ret, struct merr *err)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const json_t *tied = json_object_get(config, "tie_word_embeddings");
    struct gpt_cfg c = {.tied = !json_is_false(tied)};
    int r;

    if (!type || strcmp(type, "gpt2") != 0)
        return merr_set(err, -ENOTSUP, "model type '%s' is not known; want 'gpt2'", type ? type : "");
    if ((r = want_int(config, "n_layer", 0, &c.layers, err)) != 0 ||
        (r = want_int(config, "n_embd", 0, &c.hidden, err)) != 0 ||
        (r = want_int(config, "n_head", 0, &c.heads, err)) != 0 ||
        (r = want_int(config, "n_positions", 0, &c.context, err)) != 0 ||
        (r = want_int(config, "vocab_size", 0, &c.vocab, err)) != 0 ||
        (r = want_int(config, "n_inner", 4 * c.hidden, &c.ffn, err)) != 0)
        return r;
    r = cut(&c, 1, 0, err);
    if (r == 0)
        *ret = c;
    return r;
}

json_t *gpt_config(const struct gpt_cfg *c)
{
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:f, s:f, s:f, s:f, s:s}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "n_layer", c->layers, "n_embd",
                     c->hidden, "n_head", c->heads, "n_inner", c->ffn, "n_positions", c->context, "n_ctx",
                     c->context, "vocab_size", c->vocab, "layer_norm_epsilon", 1e-5, "activation_function",
                     "gelu_new", "tie_word_embeddings", c->tied, "resid_pdrop", c->dropout, "embd_pdrop", c->dropout,
                     "attn_pdrop", c->dropout, "initializer_range", 0.02, "torch_dtype", "float32");
}

double gpt_flops_per_token(const struct gpt_cfg *c, int length)
{
    double h = c->hidden, layer = 4 * h * h + 2 * h * c->ffn;
    double multiplied = c->layers * layer + (double)c->vocab * h;

    return 6 * multiplied + 6.0 * c->layers * h * length;
}

double gpt_head_cost(const struct gpt_cfg *c)
{
    double h = c->hidden;

    return (double)c->vocab * h / (4 * h * h + 2 * h * c->ffn);
}
