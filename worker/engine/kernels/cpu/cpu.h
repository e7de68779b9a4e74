/* cpu - what the files of the CPU table share */
#ifndef MUSTER_WORKER_KERNELS_CPU_CPU_H
#define MUSTER_WORKER_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/engine/kernels/cpu/loops.h"
#include "worker/engine/kernels/cpu/pool.h"
#include "worker/engine/kernels/cpu/tile.h"
#include "worker/engine/kernels/kernels.h"

/* Rows of queries and of keys in a block of attention scores, and floats from one row of it to the next: not a power of
 * two, as the rows of a column would then meet in the same lines of a cache. */
#define CPU_QUERIES 96
#define CPU_KEYS LOOPS_KEYS_MAX
#define CPU_SCORES_LD (CPU_KEYS + 16)
#define CPU_SPAN 256 /* queries for which keys and values are packed at once */
#define CPU_HEAD 128 /* widest head whose keys and values are packed */

/* What one thread packs of A at once: it stays in the core's cache. */
#define CPU_PANEL_ROWS 96
#define CPU_PANEL_DEPTH 384

struct cpu_scratch { /* one a thread */
    _Alignas(64) float panels[CPU_PANEL_ROWS * CPU_PANEL_DEPTH + TILE_SLACK];
    _Alignas(64) float keys[3][CPU_KEYS * CPU_HEAD]; /* of attention, packed as it needs them */
    _Alignas(64) float queries[2][CPU_QUERIES * CPU_HEAD];
    _Alignas(64) float scores[CPU_QUERIES * CPU_SCORES_LD];
    float gradient[CPU_QUERIES * CPU_SCORES_LD];
    float max[CPU_SPAN], sum[CPU_SPAN], alpha[CPU_QUERIES];
};

struct kern_stream {
    struct pool *pool;
    const struct cpu_loops *loops;
    const struct cpu_tile *tile;        /* NULL: matrix products are oneDNN's */
    const struct cpu_tile *narrow_tile; /* for heads that do not fill its columns, with the same bits; may be `tile` */
    struct cpu_scratch *scratch;        /* [threads] */
    void *work;                         /* shared by the threads of one call; see cpu_work */
    size_t work_bytes;
    float *wide; /* bf16 as floats, shared likewise; see cpu_wide */
    size_t wide_floats;
    struct native **native; /* [natives], one a thread; NULL: the processor does not multiply bf16 */
    int natives;
};

/* At least bytes of workspace for this call, grown when a larger shape comes by. */
int cpu_work(struct kern_stream *s, size_t bytes, void **ret, struct merr *err);

/* At least n floats for what a call on bf16 widens, cpu_work left alone; grown likewise. */
int cpu_wide(struct kern_stream *s, size_t n, float **ret, struct merr *err);

/* Run items on the pool, or here alone when the whole takes less than about what waking a thread costs. */
void cpu_run(struct kern_stream *s, int items, double microseconds, pool_fn fn, void *arg);

/* C = op(A)·op(B) (+ C when accumulate), row-major, on the calling thread alone. Returns 0 or a negative errno. */
int cpu_sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
              bool accumulate, float *c, int ldc);

/* Products by our own tiles: whether g is one of them, and to run it. */
bool cpu_product_takes(const struct kern_stream *s, const struct kern_gemm *g);
int cpu_product(struct kern_stream *s, const struct kern_gemm *g, struct merr *err);

/* What follows the product in rows [row, row + rows) and columns [column, column + cols) of C. */
void cpu_epilogue(const struct kern_stream *s, const struct kern_gemm *g, int row, int column, int rows, int cols);

/* As the entries of struct kern_ops, of f32 where no type is given; bf16.h has those of bf16. */
int cpu_copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err);
int cpu_copy_rows(struct kern_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t bytes,
                  int rows, struct merr *err);
int cpu_fill(struct kern_stream *s, float *dst, float value, size_t n, struct merr *err);
int cpu_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err);
int cpu_attention_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err);
int cpu_attention_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err);
int cpu_attention_merge(struct kern_stream *s, enum kern_type type, float *out, float *lse, const void *part,
                        const float *part_lse, int rows, int heads, int dim, struct merr *err);
int cpu_head_norm_forward(struct kern_stream *s, enum kern_type type, void *x, const float *gamma, float eps, int rows,
                          int heads, int dim, int ld, void *raw, struct merr *err);
int cpu_head_norm_backward(struct kern_stream *s, enum kern_type type, void *dx, const void *raw, const float *gamma,
                           float eps, int rows, int heads, int dim, int ld, float *dgamma, struct merr *err);
int cpu_attention_cached(struct kern_stream *s, const struct kern_cached *a, struct merr *err);

#endif
