/* Matrix products: by tiles of our own (product.c) where the processor has AVX2, but for small ones; else by oneDNN, in
 * blocks that depend on the shape alone
 *
 * oneDNN's own threading gives other bits for another number of threads (its blocks, and so the order of a sum,
 * follow the threads). So each block is one single-threaded call, and threads only share the blocks out. A weight
 * gradient that would leave oneDNN's fast path when cut by rows is cut along its depth instead, the parts added in
 * their order.
 *
 * The calls are dnnl_sgemm: for f32 it runs the same code as the matmul primitive without a primitive to look up, and
 * what a packed weight would save in f32 is within a few hundredths, there as with our own tiles; weights_changed
 * therefore has nothing to drop. */
#include "worker/engine/kernels/cpu/cpu.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCK_FLOPS 24e6 /* about a quarter of a millisecond: well above the cost of a wake-up */
#define BLOCKS_MAX 8
#define BLOCK_ALIGN 16
#define DEPTH_BLOCKS 4
#define DEPTH_MIN 512 /* least k that is cut */
#define ADD_ROWS 32   /* rows of an item that adds up the parts */

enum cut { BY_ROWS, BY_COLUMNS, BY_DEPTH };

struct gemm_job {
    struct kern_stream *stream;
    const struct kern_gemm *g;
    enum cut cut;
    int step; /* rows, columns or depth of a block */
    int blocks;
    float *part;     /* BY_DEPTH: [blocks][m][n], added to C in order */
    atomic_int code; /* first failure */
};

static int extent_of(const struct gemm_job *job)
{
    return job->cut == BY_ROWS ? job->g->m : job->cut == BY_COLUMNS ? job->g->n : job->g->k;
}

static void run_block(void *arg, int item, int worker)
{
    struct gemm_job *job = arg;
    const struct kern_gemm *g = job->g;
    int first = item * job->step, left = extent_of(job) - first, count = left < job->step ? left : job->step;
    int row = job->cut == BY_ROWS ? first : 0, column = job->cut == BY_COLUMNS ? first : 0;
    int m = job->cut == BY_ROWS ? count : g->m, n = job->cut == BY_COLUMNS ? count : g->n;
    const float *a = (const float *)g->a + (size_t)row * (g->trans_a ? 1 : (size_t)g->lda);
    const float *b = (const float *)g->b + (size_t)column * (g->trans_b ? (size_t)g->ldb : 1);
    int rc;

    (void)worker;
    if (job->cut == BY_DEPTH)
        rc = cpu_sgemm(true, false, m, n, count, a + (size_t)first * (size_t)g->lda, g->lda,
                       b + (size_t)first * (size_t)g->ldb, g->ldb, false,
                       job->part + (size_t)item * (size_t)m * (size_t)n, n);
    else
        rc = cpu_sgemm(g->trans_a, g->trans_b, m, n, g->k, a, g->lda, b, g->ldb, g->accumulate,
                       (float *)g->c + (size_t)row * (size_t)g->ldc + column, g->ldc);
    if (rc < 0)
        atomic_store(&job->code, rc);
    else if (job->cut != BY_DEPTH)
        cpu_epilogue(job->stream, g, row, column, m, n);
}

static void add_parts(void *arg, int item, int worker)
{
    struct gemm_job *job = arg;
    const struct kern_gemm *g = job->g;
    size_t n = (size_t)g->n, all = (size_t)g->m * n;

    (void)worker;
    for (int r = item * ADD_ROWS; r < g->m && r < (item + 1) * ADD_ROWS; r++)
        for (int part = 0; part < job->blocks; part++)
            job->stream->loops->add((float *)g->c + (size_t)r * (size_t)g->ldc,
                                    job->part + (size_t)part * all + (size_t)r * n, n);
}

/* oneDNN packs the operands of products this large only; of those with A transposed the others run at half to
 * three quarters of the rate (measured with AVX2). */
static bool packs(int m, int n)
{
    return 1.0 / m + 1.0 / n < 0.0038;
}

/* How to cut a product: by its shape and form alone. */
static void choose_cut(struct gemm_job *job)
{
    const struct kern_gemm *g = job->g;
    double flops = 2.0 * g->m * g->n * g->k;
    int extent, blocks = 1;

    job->cut = g->m >= g->n ? BY_ROWS : BY_COLUMNS;
    extent = extent_of(job);
    while (blocks < BLOCKS_MAX && flops >= 2 * blocks * BLOCK_FLOPS)
        blocks *= 2;
    if (blocks > 1 && g->trans_a && !g->trans_b && packs(g->m, g->n)) {
        while (blocks > 1 && !packs(extent / blocks, g->m >= g->n ? g->n : g->m))
            blocks /= 2;
        if (blocks == 1 && g->accumulate && g->k >= DEPTH_MIN) {
            job->cut = BY_DEPTH;
            extent = g->k;
            blocks = DEPTH_BLOCKS;
        }
    }
    job->step = ((extent + blocks - 1) / blocks + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    job->blocks = (extent + job->step - 1) / job->step;
}

/* A product over nothing is zero. */
static void clear(const struct kern_gemm *g)
{
    for (int r = 0; r < g->m && !g->accumulate; r++)
        memset((float *)g->c + (size_t)r * (size_t)g->ldc, 0, (size_t)g->n * sizeof(float));
}

int cpu_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct gemm_job job = {.stream = s, .g = g};
    void *work = NULL;
    int rc;

    assert(g->type == KERN_F32 && (!g->accumulate || g->epilogue == KERN_PLAIN) && g->c_type == KERN_F32);
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->k == 0) {
        clear(g);
        cpu_epilogue(s, g, 0, 0, g->m, g->n);
        return 0;
    }
    if (cpu_product_takes(s, g))
        return cpu_product(s, g, err);
    choose_cut(&job);
    if (job.cut == BY_DEPTH) {
        rc = cpu_work(s, (size_t)job.blocks * (size_t)g->m * (size_t)g->n * sizeof(float), &work, err);
        if (rc < 0)
            return rc;
        job.part = work;
    }
    pool_run(s->pool, job.blocks, run_block, &job);
    rc = atomic_load(&job.code);
    if (rc < 0)
        return merr_set(err, rc, "oneDNN failed in a matrix product of %d x %d x %d", g->m, g->n, g->k);
    if (job.cut == BY_DEPTH)
        pool_run(s->pool, (g->m + ADD_ROWS - 1) / ADD_ROWS, add_parts, &job);
    return 0;
}
