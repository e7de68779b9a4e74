/* lt - matrix products by cuBLASLt, loaded at run time
 *
 * Sums are f32; f32 numbers are multiplied as such, not as TF32. The algorithm of a shape is chosen once and kept, so
 * that the same call gives the same bits.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_LT_H
#define MUSTER_WORKER_KERNELS_CUDA_LT_H

#include "worker/engine/kernels/kernels.h"

struct lt;

/* 0, or -ENOENT (the library is not found), -ENOMEM, -EIO. */
int lt_new(struct lt **ret, struct merr *err);
void lt_free(struct lt *t);

/* Queue C = op(A)·op(B), + C when accumulate, + g's onto, on a cudaStream_t; with a bias, + bias[n], which is of C's
 * type and added to the f32 sums before they are rounded. What g says of a bias is not looked at. All numbers at least
 * 1. 0, -EIO, or -ENOTSUP: the library has no way for this shape, and nothing was queued. */
int lt_gemm(struct lt *t, void *queue, const struct kern_gemm *g, const void *bias, struct merr *err);

#endif
