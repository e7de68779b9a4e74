#include "worker/engine/model/model.h"

#include <errno.h>
#include <string.h>

#include "api/hf.h"
#include "base/try.h"
#include "worker/engine/model/family.h"

#define EPS_DEFAULT 1e-5
#define WIDTH_MAX (1 << 28) /* of queries, keys and values together: numbers of columns are ints */
#define THETA_DEFAULT 10000.0
#define LLAMA3_LOW 1.0 /* what all published models of that scaling have; a config.json may say otherwise */
#define LLAMA3_HIGH 4.0

static const struct family *family_of(enum model_family f)
{
    return f == MODEL_LLAMA ? &family_llama : &family_gpt2;
}

int model_cut(struct model_cfg *c, int tp, int tp_index, struct merr *err)
{
    int unit = MODEL_VOCAB_ALIGN * tp;

    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->dim == 0 && c->hidden % c->heads != 0)
        return merr_set(err, -EINVAL, "hidden %d is not a multiple of heads %d", c->hidden, c->heads);
    if (c->dim == 0)
        c->dim = c->hidden / c->heads;
    if ((int64_t)3 * c->heads * c->dim > WIDTH_MAX)
        return merr_set(err, -EINVAL, "%d heads of %d are wider than this version can be", c->heads, c->dim);
    if (c->heads % c->kv_heads != 0)
        return merr_set(err, -EINVAL, "%d heads cannot share %d kv_heads", c->heads, c->kv_heads);
    if (c->rope.theta > 0 && c->dim % 2 != 0)
        return merr_set(err, -EINVAL, "heads of %d cannot be rotated: want an even number", c->dim);
    if (c->heads % tp != 0)
        return merr_set(err, -EINVAL, "%d heads cannot be split over tp %d", c->heads, tp);
    if (c->kv_heads % tp != 0 && tp % c->kv_heads != 0)
        return merr_set(err, -EINVAL, "%d kv_heads cannot be split over tp %d; want a divisor or a multiple",
                        c->kv_heads, tp);
    if (c->fused && tp > c->kv_heads)
        return merr_set(err, -EINVAL,
                        "%d kv_heads in one tensor with the queries cannot be held by tp %d ranks; want a divisor",
                        c->kv_heads, tp);
    if (c->ffn % tp != 0)
        return merr_set(err, -EINVAL, "ffn %d cannot be split over tp %d", c->ffn, tp);
    c->tp = tp;
    c->tp_index = tp_index;
    c->heads_local = c->heads / tp;
    c->kv_copies = tp > c->kv_heads ? tp / c->kv_heads : 1;
    c->kv_heads_local = c->kv_heads * c->kv_copies / tp;
    c->q_local = c->heads_local * c->dim;
    c->qkv_local = c->q_local + 2 * c->kv_heads_local * c->dim;
    c->ffn_local = c->ffn / tp;
    c->vocab_local = (c->vocab + unit - 1) / unit * MODEL_VOCAB_ALIGN;
    c->vocab_first = c->vocab_local * tp_index;
    return 0;
}

/* --- a spec, and the config of the weights it starts from -------------------------------------------------- */

static int disagree(struct merr *err, const char *field, double spec, double source)
{
    return merr_set(err, -EINVAL, "train.model.%s is %g, but the weights of init.from have %g", field, spec, source);
}

static int agree_sizes(const struct model_cfg *c, const struct model_cfg *s, struct merr *err)
{
    const struct {
        const char *field;
        int spec, source;
    } all[] = {
        {"layers", c->layers, s->layers},
        {"hidden", c->hidden, s->hidden},
        {"heads", c->heads, s->heads},
        {"kv_heads", c->kv_heads, s->kv_heads},
        {"ffn", c->ffn, s->ffn},
        {"vocab", c->vocab, s->vocab},
        {"tie_embeddings", c->tied, s->tied},
        {"qkv_bias", c->qkv_bias, s->qkv_bias},
        {"qk_norm", c->qk_norm, s->qk_norm},
        {"fused", c->fused, s->fused},
        {"window", c->window, s->window},
        {"head_dim", c->dim > 0 ? c->dim : s->dim, s->dim},
    };

    if (c->family != s->family)
        return merr_set(err, -EINVAL, "train.model.family is '%s', but the weights of init.from are '%s'",
                        c->family->name, s->family->name);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].spec != all[i].source)
            return disagree(err, all[i].field, all[i].spec, all[i].source);
    /* learned positions are a tensor of that many rows; a rotation reaches further than it is used */
    if (c->context > s->context || (c->family->positions && c->context != s->context))
        return disagree(err, "context", c->context, s->context);
    return 0;
}

static int agree_rope(const struct job_spec *spec, const struct rope *mine, const struct rope *theirs, struct merr *err)
{
    if (spec->train.model.rope_theta > 0 && mine->theta != theirs->theta)
        return disagree(err, "rope_theta", mine->theta, theirs->theta);
    if (strcmp(spec->train.model.rope_scaling, "auto") == 0)
        return 0;
    if (mine->scaling != theirs->scaling)
        return merr_set(err, -EINVAL, "train.model.rope_scaling is '%s', but not so in the weights of init.from",
                        spec->train.model.rope_scaling);
    if (mine->scaling != ROPE_PLAIN && mine->factor != theirs->factor)
        return disagree(err, "rope_factor", mine->factor, theirs->factor);
    if (mine->scaling == ROPE_LLAMA3 && mine->original != theirs->original)
        return disagree(err, "rope_original", mine->original, theirs->original);
    return 0;
}

/* What the spec gives must be so in the source; what it leaves open is taken from there. */
static int adopt(const struct job_spec *spec, const json_t *source, struct model_cfg *c, struct merr *err)
{
    struct model_cfg s;

    TRY(model_from_config(source, &s, err));
    TRY(agree_sizes(c, &s, err));
    if (spec->train.model.norm_eps > 0 && c->norm_eps != s.norm_eps)
        return disagree(err, "norm_eps", c->norm_eps, s.norm_eps);
    c->norm_eps = s.norm_eps;
    c->dim = s.dim;
    if (c->rope.theta > 0) {
        TRY(agree_rope(spec, &c->rope, &s.rope, err));
        c->rope = s.rope;
    }
    return 0;
}

static struct rope spec_rope(const struct job_spec *spec)
{
    const char *scaling = spec->train.model.rope_scaling;
    double theta = spec->train.model.rope_theta;

    return (struct rope){
        .theta = theta > 0 ? theta : THETA_DEFAULT,
        .scaling = strcmp(scaling, "llama3") == 0   ? ROPE_LLAMA3
                   : strcmp(scaling, "linear") == 0 ? ROPE_LINEAR
                                                    : ROPE_PLAIN,
        .factor = spec->train.model.rope_factor,
        .low = LLAMA3_LOW,
        .high = LLAMA3_HIGH,
        .original = spec->train.model.rope_original,
    };
}

int model_from_spec(const struct job_spec *spec, const json_t *source, int tp, int tp_index, struct model_cfg *ret,
                    struct merr *err)
{
    double eps = spec->train.model.norm_eps;
    struct model_cfg c = {
        .family = family_of(spec->train.model.family),
        .layers = spec->train.model.layers,
        .hidden = spec->train.model.hidden,
        .heads = spec->train.model.heads,
        .kv_heads = spec->train.model.kv_heads,
        .ffn = spec->train.model.ffn,
        .context = spec->train.model.context,
        .vocab = spec->train.model.vocab,
        .tied = spec->train.model.tie_embeddings,
        .qkv_bias = spec->train.model.qkv_bias,
        .qk_norm = spec->train.model.qk_norm,
        .fused = spec->train.model.fused,
        .window = spec->train.model.window,
        .dim = spec->train.model.head_dim,
        .norm_eps = eps > 0 ? eps : EPS_DEFAULT,
        .dropout = spec->train.model.dropout,
        .seed = spec->train.init.seed,
    };

    if (c.kv_heads == 0)
        c.kv_heads = c.heads;
    if (c.family->positions && c.kv_heads != c.heads)
        return merr_set(err, -EINVAL, "gpt2 has as many kv_heads as heads: want %d, not %d", c.heads, c.kv_heads);
    if (!c.family->positions)
        c.rope = spec_rope(spec);
    if (spec->train.batch.length > c.context)
        return merr_set(err, -EINVAL, "batch.length %d is longer than the model's context of %d",
                        spec->train.batch.length, c.context);
    if (source)
        TRY(adopt(spec, source, &c, err));
    c.sequence_parallel = spec->parallel.sequence_parallel && tp > 1;
    TRY(model_cut(&c, tp, tp_index, err));
    *ret = c;
    return 0;
}

/* --- config.json ------------------------------------------------------------------------------------------ */

int model_from_config(const json_t *config, struct model_cfg *ret, struct merr *err)
{
    struct hf_model m;
    struct model_cfg c;

    TRY(hf_model_read(config, &m, err));
    c = (struct model_cfg){
        .family = family_of(m.family),
        .layers = m.layers,
        .hidden = m.hidden,
        .heads = m.heads,
        .kv_heads = m.kv_heads,
        .dim = m.dim,
        .ffn = m.ffn,
        .context = m.context,
        .vocab = m.vocab,
        .tied = m.tied,
        .qkv_bias = m.qkv_bias,
        .qk_norm = m.qk_norm,
        .fused = m.fused,
        .window = m.window,
        .rope = m.rope,
        .norm_eps = m.norm_eps,
    };
    TRY(model_cut(&c, 1, 0, err));
    *ret = c;
    return 0;
}

json_t *model_config(const struct model_cfg *c)
{
    const struct hf_model m = {
        .family = c->family == &family_gpt2 ? MODEL_GPT2 : MODEL_LLAMA,
        .layers = c->layers,
        .hidden = c->hidden,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .dim = c->dim,
        .ffn = c->ffn,
        .context = c->context,
        .vocab = c->vocab,
        .tied = c->tied,
        .qkv_bias = c->qkv_bias,
        .qk_norm = c->qk_norm,
        .fused = c->fused,
        .window = c->window,
        .rope = c->rope,
        .norm_eps = c->norm_eps,
        .dropout = c->dropout,
    };

    return hf_model_write(&m);
}

/* --- what it costs ----------------------------------------------------------------------------------------- */

static double layer_weights(const struct model_cfg *c)
{
    double h = c->hidden, q = (double)c->heads * c->dim, kv = (double)c->kv_heads * c->dim;

    return 2 * h * q + 2 * h * kv + (c->family->parts + 1) * h * c->ffn;
}

double model_flops_per_token(const struct model_cfg *c, double length)
{
    double multiplied = c->layers * layer_weights(c) + (double)c->vocab * c->hidden;
    double w = c->window, seen = w > 0 && w < length ? 2 * w - w * w / length : length; /* twice the mean of a token */

    return 6 * multiplied + 6.0 * c->layers * c->heads * c->dim * seen;
}

double model_head_cost(const struct model_cfg *c)
{
    return (double)c->vocab * c->hidden / layer_weights(c);
}
