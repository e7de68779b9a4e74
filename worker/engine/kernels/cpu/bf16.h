/* bf16 - the calls of the CPU table on bf16: widened in pieces that stay in a core's cache, computed by the loops for
 * f32, rounded back */
#ifndef MUSTER_WORKER_KERNELS_CPU_BF16_H
#define MUSTER_WORKER_KERNELS_CPU_BF16_H

#include "worker/engine/kernels/cpu/cpu.h"

/* As the entries of struct kern_ops with type KERN_BF16. */
int bf16_from_f32(struct kern_stream *s, const float *x, size_t n, void *y, struct merr *err);
int bf16_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err);
/* Bias, activation and rounding of rows and columns of C that were made beside it, at c, which is spoilt. */
void bf16_finish(const struct kern_stream *s, const struct kern_gemm *g, float *c, size_t ldc, int row, int column,
                 int rows, int cols);
int bf16_attention(struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err);
/* beta NULL: RMSNorm, which has no mean */
int bf16_norm_forward(struct kern_stream *s, const float *x, const float *gamma, const float *beta, float eps, int rows,
                      int cols, uint16_t *y, float *mean, float *rstd, struct merr *err);
int bf16_rope(struct kern_stream *s, uint16_t *x, int rows, int heads, int dim, int ld, const int32_t *position,
              const float *freq, bool inverse, struct merr *err);
/* dy NULL: forward */
int bf16_gelu(struct kern_stream *s, const uint16_t *x, const uint16_t *dy, size_t n, uint16_t *y, struct merr *err);
int bf16_swiglu(struct kern_stream *s, const uint16_t *gate_up, const uint16_t *dy, int rows, int cols, uint16_t *y,
                struct merr *err);
int bf16_bias_gradient(struct kern_stream *s, const uint16_t *dy, int rows, int cols, int ld, float *db,
                       struct merr *err);
/* live: columns that are not padding */
int bf16_xent_finish(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens, int cols,
                     int first, int live, const int32_t *target, float weight, float *loss, uint16_t *dz,
                     struct merr *err);

#endif
