/* model - the sizes of a model and of the part of it that one tensor-parallel rank holds
 *
 * What sets one family of models apart from another (names, norm, activation) is in its table, family.h.
 */
#ifndef MUSTER_WORKER_MODEL_MODEL_H
#define MUSTER_WORKER_MODEL_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/engine/model/rope.h"

#define MODEL_VOCAB_ALIGN 64 /* the vocabulary is padded to a multiple of this times tp */

struct family;

struct model_cfg {
    const struct family *family;
    int layers, hidden, heads, kv_heads, dim /* of a head */, ffn, context, vocab;
    bool tied; /* the head is the token embedding */
    /* llama: its kinds, as hf.h has them */
    bool qkv_bias, qk_norm, fused;
    int window;
    struct rope rope;
    double norm_eps, dropout;
    uint64_t seed;
    /* what one tensor-parallel rank holds */
    int tp, tp_index;
    bool sequence_parallel; /* between the blocks' products each holds a part of a micro-batch's tokens; tp above 1 */
    int heads_local, kv_heads_local;
    int kv_copies;          /* ranks that hold the same head of keys and values: tp / kv_heads, at least 1 */
    int q_local, qkv_local; /* columns of the queries, of queries, keys and values */
    int ffn_local;
    int vocab_first, vocab_local; /* rows of the padded vocabulary */
};

/* The model of a spec for rank tp_index of tp. source: the config of the weights it starts from (a Hugging Face
 * config.json), borrowed, or NULL: the spec must agree with it, and what the spec leaves open comes from there.
 * -EINVAL when sizes do not divide or disagree; -ENOTSUP for a source that is no known model. */
int model_from_spec(const struct job_spec *spec, const json_t *source, int tp, int tp_index, struct model_cfg *ret,
                    struct merr *err);

/* The same from such a config alone, whole on one rank. */
int model_from_config(const json_t *config, struct model_cfg *ret, struct merr *err);

/* That config, new. NULL when memory is short. */
json_t *model_config(const struct model_cfg *c);

/* Fill in what rank tp_index of tp holds. -EINVAL when heads, kv_heads or ffn do not divide; kv_heads may also divide
 * tp, but not of fused tensors. */
int model_cut(struct model_cfg *c, int tp, int tp_index, struct merr *err);

/* Matrix-product floating point operations a token of one training step, nothing recomputed. */
double model_flops_per_token(const struct model_cfg *c, double length);

/* What the head costs, in layers. */
double model_head_cost(const struct model_cfg *c);

/* Columns of the keys and values of a token. */
static inline size_t model_kv_columns(const struct model_cfg *c)
{
    return 2 * (size_t)c->kv_heads_local * (size_t)c->dim;
}

#endif
