/* Any bytes as the config.json of a model: refused, or sizes that fit together and are written as they were read. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/model/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL), *again;
    struct model_cfg c, d;

    if (!o)
        return 0;
    if (model_from_config(o, &c, NULL) == 0) {
        assert(c.layers > 0 && c.hidden > 0 && c.ffn > 0 && c.context > 0 && c.heads % c.kv_heads == 0);
        assert(c.qkv_local == (c.heads + 2 * c.kv_heads) * c.dim && c.vocab_local >= c.vocab);
        again = model_config(&c);
        assert(again && model_from_config(again, &d, NULL) == 0);
        assert(c.family == d.family && c.qkv_local == d.qkv_local && c.tied == d.tied && c.norm_eps == d.norm_eps);
        assert(c.rope.theta == d.rope.theta && c.rope.scaling == d.rope.scaling && c.rope.factor == d.rope.factor);
        json_decref(again);
    }
    json_decref(o);
    return 0;
}
