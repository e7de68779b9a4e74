/* family - what sets one family of models apart: names and shapes of its tensors, its norm, its activation
 *
 * A block of every family is x + proj(attention(qkv(norm1(x)))), then + out(activation(fc(norm2(.)))). The engine
 * reads the rest from here and from model_cfg. Only plain data and functions without state.
 */
#ifndef MUSTER_WORKER_MODEL_FAMILY_H
#define MUSTER_WORKER_MODEL_FAMILY_H

#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/model.h"
#include "worker/engine/model/param.h"

struct stage;

struct family {
    const char *name;                    /* as a spec says it */
    const char *embedding, *head, *norm; /* tensors; norm without .weight or .bias */
    const char *positions;               /* learned positions, NULL: none */
    const char *layer;                   /* what a block's tensors begin with, %d its number */
    bool norm_bias;
    int parts;                 /* matrices side by side in fc: 1, or gate and up */
    enum kern_epilogue fc_end; /* how the product of fc ends */

    int (*layer_tensors)(const struct model_cfg *c); /* how many a block has */
    void (*tensors)(struct param_builder *b, struct layer_params *l);

    /* y[trunk rows, hidden], of the stage's type, = norm(x); mean and rstd are kept for backward. */
    int (*norm_forward)(struct stage *st, const float *x, struct norm_params n, void *y, float *mean, float *rstd,
                        struct merr *err);
    /* dx = gradient (+ what dx held, when add) of dy. */
    int (*norm_backward)(struct stage *st, const float *dy, const float *x, struct norm_params n, const float *mean,
                         const float *rstd, float *dx, bool add, float *grad, struct merr *err);
    /* act[rows, ffn] of pre[rows, parts·ffn], all of the stage's type; fc_end KERN_BIAS_GELU has done it already */
    int (*act_forward)(struct stage *st, const void *pre, void *act, struct merr *err);
    int (*act_backward)(struct stage *st, const void *pre, const void *d_act, void *d_pre, struct merr *err);
};

extern const struct family family_gpt2, family_llama;

#endif
