/* gpt - the sizes of a GPT-2 model and of the part of it that one tensor-parallel rank holds */
#ifndef MUSTER_WORKER_TRAIN_GPT_H
#define MUSTER_WORKER_TRAIN_GPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

#define GPT_LN_EPS 1e-5f
#define GPT_VOCAB_ALIGN 64 /* the vocabulary is padded to a multiple of this times tp */

struct gpt_cfg {
    int layers, hidden, heads, ffn, context, vocab;
    bool tied;      /* the head is the token embedding */
    double dropout;
    uint64_t seed;
    /* what one tensor-parallel rank holds */
    int tp, tp_index;
    int dim;        /* of a head: hidden / heads */
    int heads_local, hidden_local, ffn_local;
    int vocab_first, vocab_local; /* rows of the padded vocabulary */
};

/* The model of a spec for rank tp_index of tp. -ENOTSUP for a family this version does not train; -EINVAL when
 * heads or ffn do not divide. */
int gpt_from_spec(const struct job_spec *spec, int tp, int tp_index, struct gpt_cfg *ret, struct merr *err);

/* The same from the "model" object of a checkpoint (a Hugging Face config.json), whole on one rank. */
int gpt_from_config(const json_t *config, struct gpt_cfg *ret, struct merr *err);

/* That object, new. NULL when memory is short. */
json_t *gpt_config(const struct gpt_cfg *c);

/* Matrix-product floating point operations a token of one training step, nothing recomputed. */
double gpt_flops_per_token(const struct gpt_cfg *c, int length);

/* What the head costs, in layers. */
double gpt_head_cost(const struct gpt_cfg *c);

#endif
