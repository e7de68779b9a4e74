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

/* Queue C = op(A)·op(B) (+ C when accumulate, + bias of f32 with KERN_BIAS) on a cudaStream_t. All numbers at least 1,
 * no KERN_BIAS_GELU; KERN_BIAS with f32 C alone. 0, -EIO. */
int lt_gemm(struct lt *t, void *queue, const struct kern_gemm *g, struct merr *err);

#endif
