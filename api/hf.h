/* hf - a model as the config.json of a Hugging Face folder describes it, read and written
 *
 * Pure. Families are those that the engine trains: GPT-2, and Llama, of which Mistral, Qwen2, Qwen3 and Phi-3 are kinds
 * with biases, norms of heads, a window or fused tensors. What a config asks for beyond that is refused by name, so
 * that who imports a model and who trains it refuse the same.
 */
#ifndef MUSTER_API_HF_H
#define MUSTER_API_HF_H

#include <jansson.h>
#include <stdbool.h>

#include "api/spec.h"
#include "base/merr.h"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 };

struct rope {     /* the rotation of positions */
    double theta; /* 0: positions are not rotated */
    enum rope_scaling scaling;
    double factor, low, high; /* low, high, original: llama3 */
    int original;             /* context before scaling */
};

struct hf_model {
    enum model_family family;
    int layers, hidden, heads, kv_heads, dim /* of a head */, ffn, context, vocab;
    bool tied;
    bool qkv_bias; /* as in Qwen2 */
    bool qk_norm;  /* queries and keys are normed by head, as in Qwen3 */
    bool fused;    /* queries, keys and values are one tensor, as are gate and up: Phi-3 */
    int window;    /* keys that a token sees, itself among them; 0: all before it */
    struct rope rope;
    double norm_eps, dropout;
};

/* 0; -ENOTSUP names the key of what is not built; -EINVAL numbers that cannot be. ret is untouched then. */
int hf_model_read(const json_t *config, struct hf_model *ret, struct merr *err);

/* NULL when a file can say so, else why not: of which fields of a model no kind has both. */
const char *hf_model_fault(const struct hf_model *m);

/* The config.json, new; NULL when memory is short. */
json_t *hf_model_write(const struct hf_model *m);

#endif
