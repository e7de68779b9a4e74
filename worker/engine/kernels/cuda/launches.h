/* launches - the kernels of the CUDA table, as its host code (C) queues them
 *
 * All pointers are device memory. Each function queues its kernels on a stream (a cudaStream_t), returns a cudaError_t
 * and never waits. Launch configurations depend on shapes alone: the same call gives the same bits. Sums of many
 * numbers are f32 trees of fixed form; nothing is added atomically.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_LAUNCHES_H
#define MUSTER_WORKER_KERNELS_CUDA_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- elements ----------------------------------------------------------------------------------------------------- */

int launch_fill(void *stream, float *y, float value, size_t n);
int launch_to_bf16(void *stream, const float *x, size_t n, void *y);
int launch_gelu_forward(void *stream, enum kern_type type, const void *x, size_t n, void *y);
int launch_gelu_backward(void *stream, enum kern_type type, const void *x, const void *dy, size_t n, void *dx);
int launch_swiglu_forward(void *stream, enum kern_type type, const void *gate_up, int rows, int cols, void *y);
int launch_swiglu_backward(void *stream, enum kern_type type, const void *gate_up, const void *dy, int rows, int cols,
                           void *dgate_up);
int launch_add(void *stream, float *y, const float *x, size_t n);
int launch_add_bias(void *stream, float *y, const float *bias, int rows, int cols);
int launch_dropout(void *stream, const struct kern_dropout *d, const float *x, float *y); /* position, sample: device */

struct turns { /* device memory: of positions 0 .. positions - 1 and each frequency, both [positions, dim / 2] */
    const float *cosines, *sines;
    int positions;
};
int launch_turns(void *stream, const float *freq, int half, int positions, float *cosines, float *sines);
/* Positions beyond turns are computed: the same bits, more slowly. */
int launch_rope(void *stream, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, const struct turns *turns, bool inverse);
/* step: device memory; NULL: *a->step */
int launch_adamw(void *stream, const struct kern_adamw *a, const struct kern_adamw_step *step);
int launch_embedding_forward(void *stream, enum kern_type type, const void *table, int first, int rows, int cols,
                             const int32_t *token, int tokens, float *y);

/* What follows a product whose sums are in acc [m,n], row stride ldc like c and aux: c = acc (+ bias), rounded once to
 * type; with aux, that goes to aux and c = gelu(aux). acc may be c or aux when type is f32. */
int launch_epilogue(void *stream, const float *acc, const float *bias, int m, int n, int ldc, enum kern_type type,
                    void *c, void *aux);

/* --- rows and columns --------------------------------------------------------------------------------------------- */

int launch_layernorm_forward(void *stream, enum kern_type type, const float *x, const float *gamma, const float *beta,
                             float eps, int rows, int cols, void *y, float *mean, float *rstd);
int launch_rmsnorm_forward(void *stream, enum kern_type type, const float *x, const float *gamma, float eps, int rows,
                           int cols, void *y, float *rstd);

/* Backward of both; mean and dbeta NULL: RMSNorm. dx may be dy. work: launch_norm_floats(rows, cols). */
size_t launch_norm_floats(int rows, int cols);
int launch_norm_backward(void *stream, const float *dy, const float *x, const float *gamma, const float *mean,
                         const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, float *dbeta,
                         float *work);

/* Floats of work for one sum of columns. */
size_t launch_columns_floats(int rows, int cols);
int launch_bias_gradient(void *stream, enum kern_type type, const void *dy, int rows, int cols, int ld, float *db,
                         float *work);

/* dtable[row[u],:] += dy[t,:] for the t = order[start[u]] .. order[start[u+1]-1], in that order. */
int launch_embedding_backward(void *stream, const float *dy, int cols, const int32_t *row, const int32_t *start,
                              int unique, const int32_t *order, float *dtable);

int launch_xent_partial(void *stream, const float *logits, int tokens, int cols, int first, int vocab,
                        const int32_t *target, float *stats);
int launch_xent_finish(void *stream, const float *logits, const float *stats, int n, int tokens, int cols, int first,
                       int vocab, const int32_t *target, float weight, float *loss, enum kern_type type, void *dz);
int launch_sum_squares(void *stream, const float *x, size_t n, size_t block, double *ret);

/* --- attention ---------------------------------------------------------------------------------------------------- */

#define ATTENTION_TILE 32 /* queries, and keys, of a tile of the plain kernels */
#define ATTENTION_DIM_MAX 256

/* Rows of a call's tiles of queries and of keys: bf16 of suitable shape and place goes to tensor cores, whose tiles are
 * larger (attention_tensor.h). */
struct attention_cut {
    int queries, keys;
};
struct attention_cut launch_attention_cut(const struct kern_attention *a);

/* Bytes of shared memory that a call's largest block takes at least. */
size_t launch_attention_shared(const struct kern_attention *a, bool backward);

struct attention_tile { /* of piece doc, which is rows begin .. end-1 and has `past` rows of its document before it */
    int32_t first;      /* row of the first query; or the first key, counted in its document */
    int32_t begin, end, doc, past;
    int32_t key0, keys; /* row of the document's first key, and how many the piece sees: past + end - begin */
};

struct attention_tiles {                      /* device memory */
    const struct attention_tile *query, *key; /* of all pieces in order */
    int queries;
    size_t shared_most;   /* bytes of shared memory that a block of threads may have on this GPU */
    const int *key_first; /* host memory, docs + 1: a piece's tiles of keys are key_first[d] .. key_first[d + 1] - 1 */
};

/* cu, past and kv_at are not used: the tiles tell; samples and drop_keys are device memory. */
int launch_attention_forward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles);
/* delta: workspace [tokens, heads]. */
int launch_attention_backward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles,
                              float *delta);
int launch_attention_cached(void *stream, const struct kern_cached *a);

#ifdef __cplusplus
}
#endif

#endif
