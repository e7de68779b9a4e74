/* Fields of a model's config.json */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/engine/model/model.h"

int model_want_int(const json_t *config, const char *key, int fallback, int *ret, struct merr *err)
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

int model_want_number(const json_t *config, const char *key, double fallback, double *ret, struct merr *err)
{
    const json_t *v = json_object_get(config, key);
    double n = !v || json_is_null(v) ? fallback : json_number_value(v);

    if (!(n > 0) || !isfinite(n))
        return merr_set(err, -EINVAL, "the model's '%s' is not a number above 0", key);
    *ret = n;
    return 0;
}

int model_want_word(const json_t *config, const char *key, const char *word, struct merr *err)
{
    const json_t *v = json_object_get(config, key);
    const char *s = json_string_value(v);

    if (!v || json_is_null(v) || (s && strcmp(s, word) == 0))
        return 0;
    return merr_set(err, -ENOTSUP, "the model's '%s' is '%.40s'; only '%s' is built", key, s ? s : "", word);
}
