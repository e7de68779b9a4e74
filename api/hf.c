#include "api/hf.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/try.h"

#define STD 0.02 /* deviation of fresh matrices */

/* --- fields of a config ------------------------------------------------------------------------------------ */

/* A number from 1; absent or null: fallback, when that is above 0. */
static int want_int(const json_t *config, const char *key, int fallback, int *ret, struct merr *err)
{
    const json_t *v = json_object_get(config, key);

    if ((!v || json_is_null(v)) && fallback > 0) {
        *ret = fallback;
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 24)
        return merr_set(err, -EINVAL, "the model's '%s' is not a number from 1 to %d", key, 1 << 24);
    *ret = (int)json_integer_value(v);
    return 0;
}

/* A number above 0. */
static int want_number(const json_t *config, const char *key, double fallback, double *ret, struct merr *err)
{
    const json_t *v = json_object_get(config, key);
    double n = !v || json_is_null(v) ? fallback : json_number_value(v);

    if (!(n > 0) || !isfinite(n))
        return merr_set(err, -EINVAL, "the model's '%s' is not a number above 0", key);
    *ret = n;
    return 0;
}

/* A key that must be absent, null or this word. */
static int want_word(const json_t *config, const char *key, const char *word, struct merr *err)
{
    const json_t *v = json_object_get(config, key);
    const char *s = json_string_value(v);

    if (!v || json_is_null(v) || (s && strcmp(s, word) == 0))
        return 0;
    return merr_set(err, -ENOTSUP, "the model's '%s' is '%.40s'; only '%s' is built", key, s ? s : "", word);
}

static bool says(const json_t *config, const char *key)
{
    return json_is_true(json_object_get(config, key));
}

/* --- the rotation ------------------------------------------------------------------------------------------ */

static int read_llama3(const json_t *o, struct rope *r, struct merr *err)
{
    double original = 0;

    TRY(want_number(o, "low_freq_factor", 1, &r->low, err));
    TRY(want_number(o, "high_freq_factor", 4, &r->high, err));
    TRY(want_number(o, "original_max_position_embeddings", 8192, &original, err));
    if (r->high <= r->low || original > 1 << 24)
        return merr_set(err, -EINVAL,
                        "the model's rope_scaling cannot be: high_freq_factor %g, low_freq_factor %g, "
                        "original_max_position_embeddings %g",
                        r->high, r->low, original);
    r->original = (int)original;
    return 0;
}

/* rope_theta and rope_scaling, or rope_parameters. */
static int read_rope(const json_t *config, struct rope *ret, struct merr *err)
{
    const json_t *both = json_object_get(config, "rope_parameters"), *o = json_object_get(config, "rope_scaling");
    const json_t *part = json_object_get(config, "partial_rotary_factor");
    struct rope r = {.factor = 1};
    const char *type;

    if (json_is_number(part) && json_number_value(part) != 1)
        return merr_set(err, -ENOTSUP,
                        "the model's 'partial_rotary_factor' is %g; heads that are rotated in part are "
                        "not built",
                        json_number_value(part));
    if (json_is_object(both))
        o = both;
    TRY(want_number(json_object_get(both, "rope_theta") ? both : config, "rope_theta", 10000, &r.theta, err));
    type = json_string_value(json_object_get(o, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(o, "type"));
    /* dynamic changes nothing up to max_position_embeddings, and no longer sequence is ever made */
    if (!type || strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0) {
        *ret = r;
        return 0;
    }
    if (strcmp(type, "linear") == 0)
        r.scaling = ROPE_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        r.scaling = ROPE_LLAMA3;
    else
        return merr_set(err, -ENOTSUP, "rope_scaling '%s' is not known; want default, linear, dynamic or llama3", type);
    TRY(want_number(o, "factor", 0, &r.factor, err));
    if (r.scaling == ROPE_LLAMA3)
        TRY(read_llama3(o, &r, err));
    *ret = r;
    return 0;
}

static json_t *rope_scaling(const struct rope *r)
{
    if (r->scaling == ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", r->factor);
    if (r->scaling == ROPE_LLAMA3)
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", r->factor, "low_freq_factor",
                         r->low, "high_freq_factor", r->high, "original_max_position_embeddings", r->original);
    return json_null();
}

/* --- GPT-2 ------------------------------------------------------------------------------------------------- */

static int read_gpt2(const json_t *config, struct hf_model *m, struct merr *err)
{
    m->tied = !json_is_false(json_object_get(config, "tie_word_embeddings"));
    TRY(want_int(config, "n_layer", 0, &m->layers, err));
    TRY(want_int(config, "n_embd", 0, &m->hidden, err));
    TRY(want_int(config, "n_head", 0, &m->heads, err));
    TRY(want_int(config, "n_positions", 0, &m->context, err));
    TRY(want_int(config, "vocab_size", 0, &m->vocab, err));
    TRY(want_int(config, "n_inner", 4 * m->hidden, &m->ffn, err));
    TRY(want_number(config, "layer_norm_epsilon", 1e-5, &m->norm_eps, err));
    TRY(want_word(config, "activation_function", "gelu_new", err));
    if (says(config, "scale_attn_by_inverse_layer_idx") || json_is_false(json_object_get(config, "scale_attn_weights")))
        return merr_set(err, -ENOTSUP, "the model's attention is scaled in another way than by its heads' size");
    m->kv_heads = m->heads;
    return 0;
}

static json_t *write_gpt2(const struct hf_model *m)
{
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:f, s:f, s:f, s:f, s:s}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "n_layer", m->layers, "n_embd",
                     m->hidden, "n_head", m->heads, "n_inner", m->ffn, "n_positions", m->context, "n_ctx", m->context,
                     "vocab_size", m->vocab, "layer_norm_epsilon", m->norm_eps, "activation_function", "gelu_new",
                     "tie_word_embeddings", m->tied, "resid_pdrop", m->dropout, "embd_pdrop", m->dropout, "attn_pdrop",
                     m->dropout, "initializer_range", STD, "torch_dtype", "float32");
}

/* --- Llama and its kinds ----------------------------------------------------------------------------------- */

struct kind {
    const char *type, *architecture;
    bool qkv_bias, qk_norm, fused;
    bool window;           /* sliding_window alone says that there is one; else use_sliding_window does */
    int context, kv_heads; /* defaults; kv_heads 0: as many as heads */
    double norm_eps;
};

/* The first whose tensors a model has is the one it is written as. */
static const struct kind kinds[] = {
    {.type = "llama", .architecture = "LlamaForCausalLM", .context = 2048, .norm_eps = 1e-6},
    {.type = "mistral",
     .architecture = "MistralForCausalLM",
     .window = true,
     .context = 131072,
     .kv_heads = 8,
     .norm_eps = 1e-6},
    {.type = "qwen2", .architecture = "Qwen2ForCausalLM", .qkv_bias = true, .context = 32768, .norm_eps = 1e-6},
    {.type = "qwen3", .architecture = "Qwen3ForCausalLM", .qk_norm = true, .context = 32768, .norm_eps = 1e-6},
    {.type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .fused = true,
     .window = true,
     .context = 4096,
     .norm_eps = 1e-5},
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

static bool is_qwen(const struct kind *k)
{
    return k->qkv_bias || k->qk_norm;
}

static const struct kind *kind_of_type(const char *type)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(type, kinds[i].type) == 0)
            return &kinds[i];
    return NULL;
}

static const struct kind *kind_of(const struct hf_model *m)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].qkv_bias == m->qkv_bias && kinds[i].qk_norm == m->qk_norm && kinds[i].fused == m->fused &&
            (m->window == 0 || kinds[i].window || is_qwen(&kinds[i])))
            return &kinds[i];
    return NULL;
}

const char *hf_model_fault(const struct hf_model *m)
{
    if (m->family != MODEL_LLAMA || kind_of(m))
        return NULL;
    return m->fused ? "fused tensors go with neither qkv_bias nor qk_norm" : "qkv_bias and qk_norm do not go together";
}

static int refuse(const json_t *config, const struct kind *k, struct merr *err)
{
    if (says(config, "mlp_bias"))
        return merr_set(err, -ENOTSUP, "the model's 'mlp_bias' is true; that is not built");
    if (!k->qkv_bias && says(config, "attention_bias"))
        return merr_set(err, -ENOTSUP,
                        "the model's 'attention_bias' is true: a bias on the attention's output is not "
                        "built; Qwen2's biases are model_type 'qwen2'");
    return want_word(config, "hidden_act", "silu", err);
}

/* All layers have the window, or none does. */
static int read_window(const json_t *config, const struct kind *k, struct hf_model *m, struct merr *err)
{
    const json_t *types = json_object_get(config, "layer_types"), *v;
    const char *want;
    size_t i;

    if (k->window ? json_is_integer(json_object_get(config, "sliding_window")) : says(config, "use_sliding_window"))
        TRY(want_int(config, "sliding_window", 4096, &m->window, err));
    if (m->window > 0 && is_qwen(k) && !json_is_array(types) &&
        json_integer_value(json_object_get(config, "max_window_layers")) != 0)
        return merr_set(err, -ENOTSUP,
                        "the model's 'max_window_layers' is %lld: a window in some of the layers is not "
                        "built, only in all or none",
                        (long long)json_integer_value(json_object_get(config, "max_window_layers")));
    want = m->window > 0 ? "sliding_attention" : "full_attention";
    json_array_foreach (types, i, v)
        if (!json_is_string(v) || strcmp(json_string_value(v), want) != 0)
            return merr_set(err, -ENOTSUP,
                            "the model's 'layer_types' has layers that are not '%s': a window in some of the "
                            "layers is not built, only in all or none",
                            want);
    return 0;
}

static int read_llama(const json_t *config, const struct kind *k, struct hf_model *m, struct merr *err)
{
    m->tied = says(config, "tie_word_embeddings");
    m->qkv_bias = k->qkv_bias;
    m->qk_norm = k->qk_norm;
    m->fused = k->fused;
    TRY(refuse(config, k, err));
    TRY(want_int(config, "num_hidden_layers", 0, &m->layers, err));
    TRY(want_int(config, "hidden_size", 0, &m->hidden, err));
    TRY(want_int(config, "num_attention_heads", 0, &m->heads, err));
    TRY(want_int(config, "num_key_value_heads", k->kv_heads > 0 ? k->kv_heads : m->heads, &m->kv_heads, err));
    TRY(want_int(config, "head_dim", k->qk_norm ? 128 : m->hidden / m->heads, &m->dim, err));
    TRY(want_int(config, "intermediate_size", 0, &m->ffn, err));
    TRY(want_int(config, "max_position_embeddings", k->context, &m->context, err));
    TRY(want_int(config, "vocab_size", 0, &m->vocab, err));
    TRY(want_number(config, "rms_norm_eps", k->norm_eps, &m->norm_eps, err));
    TRY(read_window(config, k, m, err));
    return read_rope(config, &m->rope, err);
}

/* 0, or -1 when memory is short. */
static int add_window(json_t *o, const struct hf_model *m, const struct kind *k)
{
    int r = 0;

    if (k->window || m->window > 0)
        r |= json_object_set_new(o, "sliding_window", m->window > 0 ? json_integer(m->window) : json_null());
    if (is_qwen(k) && m->window > 0) {
        r |= json_object_set_new(o, "use_sliding_window", json_true());
        r |= json_object_set_new(o, "max_window_layers", json_integer(0));
    }
    return r;
}

static json_t *write_llama(const struct hf_model *m)
{
    const struct kind *k = kind_of(m);
    json_t *o =
        !k ? NULL
           : json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:s, s:b, s:f, s:f, s:s}",
                       "model_type", k->type, "architectures", k->architecture, "num_hidden_layers", m->layers,
                       "hidden_size", m->hidden, "num_attention_heads", m->heads, "num_key_value_heads", m->kv_heads,
                       "intermediate_size", m->ffn, "max_position_embeddings", m->context, "vocab_size", m->vocab,
                       "rms_norm_eps", m->norm_eps, "rope_theta", m->rope.theta, "rope_scaling", rope_scaling(&m->rope),
                       "hidden_act", "silu", "tie_word_embeddings", m->tied, "attention_dropout", m->dropout,
                       "initializer_range", STD, "torch_dtype", "float32");
    int r = o ? add_window(o, m, k) : 0;

    if (o && (m->dim * m->heads != m->hidden || m->qk_norm)) /* Qwen3's default is not hidden / heads */
        r |= json_object_set_new(o, "head_dim", json_integer(m->dim));
    if (o && !m->qkv_bias)
        r |= json_object_set_new(o, "attention_bias", json_false());
    if (o && r != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* Sizes that go together, on one rank at least. */
static int fits(struct hf_model *m, struct merr *err)
{
    if (m->dim == 0 && m->hidden % m->heads != 0)
        return merr_set(err, -EINVAL, "hidden %d is not a multiple of heads %d", m->hidden, m->heads);
    if (m->dim == 0)
        m->dim = m->hidden / m->heads;
    if (m->heads % m->kv_heads != 0)
        return merr_set(err, -EINVAL, "%d heads cannot share %d kv_heads", m->heads, m->kv_heads);
    if (m->rope.theta > 0 && m->dim % 2 != 0)
        return merr_set(err, -EINVAL, "heads of %d cannot be rotated: want an even number", m->dim);
    return 0;
}

/* --- either ------------------------------------------------------------------------------------------------ */

int hf_model_read(const json_t *config, struct hf_model *ret, struct merr *err)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const struct kind *k = type ? kind_of_type(type) : NULL;
    bool gpt2 = type && strcmp(type, "gpt2") == 0;
    struct hf_model m = {.family = gpt2 ? MODEL_GPT2 : MODEL_LLAMA};

    if (!gpt2 && !k)
        return merr_set(err, -ENOTSUP,
                        "model type '%.40s' is not known; want 'gpt2', 'llama', 'mistral', 'qwen2', 'qwen3' or 'phi3'",
                        type ? type : "");
    TRY(gpt2 ? read_gpt2(config, &m, err) : read_llama(config, k, &m, err));
    TRY(fits(&m, err));
    *ret = m;
    return 0;
}

json_t *hf_model_write(const struct hf_model *m)
{
    return m->family == MODEL_GPT2 ? write_gpt2(m) : write_llama(m);
}
