/* loops - the fused loops of the CPU kernels, one thread each, built for any processor, for AVX2 and for AVX-512
 *
 * A sum is taken in eight lanes in all builds and has one order, so a build gives the same bits for the same input
 * whatever calls it, and those for AVX2 and AVX-512 give the same. The caller cuts the work into ranges that depend on
 * the shape alone.
 */
#ifndef MUSTER_WORKER_KERNELS_CPU_LOOPS_H
#define MUSTER_WORKER_KERNELS_CPU_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/kernels.h"

#define LOOPS_KEYS_MAX 256 /* columns of a block of attention scores */
#define LOOPS_NO_SKIP (-(1 << 30))

/* Which probabilities of a block of scores are dropped. */
struct cpu_drop {
    uint32_t key[2], threshold;
    float scale; /* 1/(1-p) */
    uint64_t sample;
    int query, column; /* positions of the block's first row and first column in the document */
};

struct cpu_loops {
    const char *name;

    void (*layernorm_forward)(const float *x, const float *gamma, const float *beta, float eps, int rows, int cols,
                              float *y, float *mean, float *rstd);
    void (*layernorm_backward)(const float *dy, const float *x, const float *gamma, const float *mean,
                               const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, float *dbeta);
    void (*rmsnorm_forward)(const float *x, const float *gamma, float eps, int rows, int cols, float *y, float *rstd);
    void (*rmsnorm_backward)(const float *dy, const float *x, const float *gamma, const float *rstd, int rows, int cols,
                             float *dx, bool add, float *dgamma);
    void (*rope)(float *x, int rows, int heads, int dim, int ld, const int32_t *position, const float *freq,
                 bool inverse);

    void (*gelu_forward)(const float *x, size_t n, float *y);
    void (*gelu_backward)(const float *x, const float *dy, size_t n, float *dx);
    void (*swiglu_forward)(const float *gate_up, int rows, int cols, float *y);
    void (*swiglu_backward)(const float *gate_up, const float *dy, int rows, int cols, float *dgate_up);

    void (*add)(float *y, const float *x, size_t n);
    void (*add_bias)(float *y, size_t ld, const float *bias, int rows, int cols);
    void (*bias_gelu)(float *c, float *aux, size_t ld, const float *bias, int rows, int cols); /* KERN_BIAS_GELU */
    void (*bias_gradient)(const float *dy, int rows, int cols, size_t ld, float *db);
    void (*dropout)(const struct kern_dropout *d, int first, int rows, const float *x, float *y);

    void (*xent_partial)(const float *logits, int tokens, int cols, int first, int live, const int32_t *target,
                         float *stats);
    /* stats of token t and slice k at stats[(k·stride + t)·3]; live: columns that are not padding */
    void (*xent_finish)(const float *logits, const float *stats, int n, size_t stride, int tokens, int cols, int first,
                        int live, const int32_t *target, float weight, float *loss, float *dz);

    /* A block of scores, row r against its first min(cols, valid + r) columns (none when negative) but the first
     * max(0, skip + r) of them; the other columns become 0. forward: running maximum m, sum l and what to multiply
     * earlier output by in alpha. backward: scores become probabilities as V saw them, dp the gradient of the scores.
     * drop may be NULL. */
    void (*scores_forward)(float *s, size_t ld, int rows, int cols, int valid, int skip, float scale, float *m,
                           float *l, float *alpha, const struct cpu_drop *drop);
    void (*scores_backward)(float *s, float *dp, size_t ld, int rows, int cols, int valid, int skip, float scale,
                            const float *lse, const float *dot, const struct cpu_drop *drop);
    void (*scale_row)(float *x, int n, float by);
    float (*dot)(const float *x, const float *y, int n);

    /* bf16 to f32 and back, to nearest even; a block [rows][cols] stored [cols][rows] with stride ld */
    void (*widen)(const uint16_t *x, size_t n, float *y);
    void (*widen_turned)(const uint16_t *x, size_t ld, int rows, int cols, float *y);
    void (*narrow)(const float *x, size_t n, uint16_t *y);

    void (*adamw)(const struct kern_adamw *a, size_t first, size_t n);
    double (*sum_squares)(const float *x, size_t n);
};

extern const struct cpu_loops cpu_loops_generic;
#ifdef __x86_64__
extern const struct cpu_loops cpu_loops_avx2;   /* only where the processor has AVX2 and FMA */
extern const struct cpu_loops cpu_loops_avx512; /* only where it has those and AVX-512 F, BW, DQ and VL */
#endif

#endif
