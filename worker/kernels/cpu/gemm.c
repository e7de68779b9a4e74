/* Matrix products by oneDNN, in blocks that depend on the shape alone
 *
 * oneDNN's own threading gives other bits for another number of threads (its blocks, and so the order of a sum,
 * follow the threads). So each block is one single-threaded call, and threads only share the blocks out. The calls
 * are dnnl_sgemm: for f32 it runs the same code as the matmul primitive without a primitive to look up, and what
 * a packed weight would save in f32 is within a few hundredths; weights_changed therefore has nothing to drop. */
#include "worker/kernels/cpu/cpu.h"

#include <assert.h>
#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCK_FLOPS 24e6 /* about a quarter of a millisecond: well above the cost of a wake-up */
#define BLOCKS_MAX 8
#define BLOCK_ALIGN 16

struct gemm_job {
    struct kern_stream *stream;
    const struct kern_gemm *g;
    bool by_rows;
    int step;        /* rows or columns of a block */
    atomic_int code; /* first failure */
};

int cpu_sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
              bool accumulate, float *c, int ldc)
{
    dnnl_status_t st = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                  accumulate ? 1.0f : 0.0f, c, ldc);

    return st == dnnl_success ? 0 : st == dnnl_out_of_memory ? -ENOMEM : -EIO;
}

static void epilogue(const struct kern_stream *s, const struct kern_gemm *g, int row, int column, int rows, int cols)
{
    size_t at = (size_t)row * (size_t)g->ldc + (size_t)column;

    if (g->epilogue == KERN_BIAS)
        s->loops->add_bias(g->c + at, (size_t)g->ldc, g->bias + column, rows, cols);
    else if (g->epilogue == KERN_BIAS_GELU)
        s->loops->bias_gelu(g->c + at, g->aux + at, (size_t)g->ldc, g->bias + column, rows, cols);
}

static void run_block(void *arg, int item, int worker)
{
    struct gemm_job *job = arg;
    const struct kern_gemm *g = job->g;
    int first = item * job->step, extent = job->by_rows ? g->m : g->n;
    int count = extent - first < job->step ? extent - first : job->step;
    int row = job->by_rows ? first : 0, column = job->by_rows ? 0 : first;
    int m = job->by_rows ? count : g->m, n = job->by_rows ? g->n : count;
    const float *a = g->a + (size_t)row * (g->trans_a ? 1 : (size_t)g->lda);
    const float *b = g->b + (size_t)column * (g->trans_b ? (size_t)g->ldb : 1);
    int rc = cpu_sgemm(g->trans_a, g->trans_b, m, n, g->k, a, g->lda, b, g->ldb, g->accumulate,
                       g->c + (size_t)row * (size_t)g->ldc + column, g->ldc);

    (void)worker;
    if (rc < 0)
        atomic_store(&job->code, rc);
    else
        epilogue(job->stream, g, row, column, m, n);
}

/* A product over nothing is zero. */
static void clear(const struct kern_gemm *g)
{
    for (int r = 0; r < g->m && !g->accumulate; r++)
        memset(g->c + (size_t)r * (size_t)g->ldc, 0, (size_t)g->n * sizeof(*g->c));
}

int cpu_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct gemm_job job = { .stream = s, .g = g, .by_rows = g->m >= g->n };
    double flops = 2.0 * g->m * g->n * g->k;
    int extent = job.by_rows ? g->m : g->n, blocks = 1, rc;

    assert(!g->accumulate || g->epilogue == KERN_PLAIN);
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->k == 0) {
        clear(g);
        epilogue(s, g, 0, 0, g->m, g->n);
        return 0;
    }
    while (blocks < BLOCKS_MAX && flops >= 2 * blocks * BLOCK_FLOPS)
        blocks *= 2;
    job.step = ((extent + blocks - 1) / blocks + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    pool_run(s->pool, (extent + job.step - 1) / job.step, run_block, &job);
    rc = atomic_load(&job.code);
    if (rc < 0)
        return merr_set(err, rc, "oneDNN failed in a matrix product of %d x %d x %d", g->m, g->n, g->k);
    return 0;
}
