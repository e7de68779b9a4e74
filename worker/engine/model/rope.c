#include "worker/engine/model/rope.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/engine/model/model.h"

#define TWO_PI 6.283185307179586476925286766559

static double scaled(const struct rope *r, double f)
{
    double wavelength = TWO_PI / f, share;

    if (r->scaling == ROPE_LINEAR)
        return f / r->factor;
    if (r->scaling != ROPE_LLAMA3 || wavelength < r->original / r->high)
        return f;
    if (wavelength > r->original / r->low)
        return f / r->factor;
    share = (r->original / wavelength - r->low) / (r->high - r->low);
    return (1 - share) * f / r->factor + share * f;
}

void rope_frequencies(const struct rope *r, int dim, float *freq)
{
    for (int i = 0; i < dim / 2; i++)
        freq[i] = (float)scaled(r, 1 / pow(r->theta, 2.0 * i / dim));
}

static int read_llama3(const json_t *o, struct rope *r, struct merr *err)
{
    double original = 0;
    int code = model_want_number(o, "low_freq_factor", 1, &r->low, err);

    if (code == 0)
        code = model_want_number(o, "high_freq_factor", 4, &r->high, err);
    if (code == 0)
        code = model_want_number(o, "original_max_position_embeddings", 8192, &original, err);
    if (code != 0)
        return code;
    if (r->high <= r->low || original > 1 << 24)
        return merr_set(err, -EINVAL,
                        "the model's rope_scaling cannot be: high_freq_factor %g, low_freq_factor %g, "
                        "original_max_position_embeddings %g",
                        r->high, r->low, original);
    r->original = (int)original;
    return 0;
}

int rope_from_config(const json_t *config, struct rope *ret, struct merr *err)
{
    const json_t *both = json_object_get(config, "rope_parameters"), *o = json_object_get(config, "rope_scaling");
    struct rope r = {.factor = 1};
    const char *type;
    int code;

    if (json_is_object(both))
        o = both;
    code = model_want_number(json_object_get(both, "rope_theta") ? both : config, "rope_theta", 10000, &r.theta, err);
    if (code != 0)
        return code;
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
    code = model_want_number(o, "factor", 0, &r.factor, err);
    if (code == 0 && r.scaling == ROPE_LLAMA3)
        code = read_llama3(o, &r, err);
    if (code == 0)
        *ret = r;
    return code;
}

json_t *rope_scaling_config(const struct rope *r)
{
    if (r->scaling == ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", r->factor);
    if (r->scaling == ROPE_LLAMA3)
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", r->factor, "low_freq_factor",
                         r->low, "high_freq_factor", r->high, "original_max_position_embeddings", r->original);
    return json_null();
}
