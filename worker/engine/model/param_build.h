/* param_build - how a family lists the tensors of a block: each call adds one, in canonical order */
#ifndef MUSTER_WORKER_MODEL_PARAM_BUILD_H
#define MUSTER_WORKER_MODEL_PARAM_BUILD_H

#include "worker/engine/model/param.h"

#define PARAM_STD 0.02 /* deviation of fresh matrices */

struct param_builder {
    struct params *p;
    const struct model_cfg *c;
    int layer;  /* -1: not in a block */
    int id;     /* of the next tensor */
    int copies; /* neighbours in tp that hold the same part of what is cut; 0 counts as 1 */
};

/* Each returns the tensor's index in params.v. std 0: filled with 0, or with constant. */

/* A tensor that every tp rank holds whole; ndim 1 has rows elements. */
int param_whole(struct param_builder *b, const char *name, int ndim, uint64_t rows, uint64_t cols, float std,
                float constant);
/* parts tensors of cols columns side by side along the last dimension, each cut over tp by columns. */
int param_columns(struct param_builder *b, const char *name, int ndim, uint64_t rows, int parts, uint64_t cols,
                  float std);
/* n matrices of rows[i] rows one below the other, each cut over tp by rows. */
int param_rows_of(struct param_builder *b, const char *name, const uint64_t *rows, int n, uint64_t cols, float std);
/* A matrix cut over tp by rows. */
int param_rows(struct param_builder *b, const char *name, uint64_t rows, uint64_t cols, float std);

#endif
