/* Matrix products of bf16 that product.c does not take, in tiles that depend on the shape alone
 *
 * A tile of the result is one item. Where the processor multiplies bf16, oneDNN does so for the whole tile. Elsewhere,
 * panel by panel along the depth, its operands are widened into a core's cache and multiplied in f32, which is exact
 * for products of two bf16; the panels' sums are added in their order. */
#include "worker/engine/kernels/cpu/bf16.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "worker/engine/kernels/cpu/native.h"

#define SIDE 512        /* most rows, columns and depth of a tile */
#define TILE_FLOPS 24e6 /* about a quarter of a millisecond: well above the cost of a wake-up */
#define TILES 8         /* enough to go round */
#define ALIGN 16

struct gemm_job {
    struct kern_stream *stream;
    const struct kern_gemm *g;
    int rows, columns; /* of a tile */
    int across;        /* tiles side by side */
    float *wide;       /* [threads][ROOM] */
    atomic_int code;   /* first failure */
};

enum { PANEL = SIDE * SIDE, ROOM = 3 * PANEL };

struct tile {
    int row, column, m, n;
    float *a, *b; /* operands of a panel */
    float *c;     /* the result: in place, or beside when it is rounded */
    int ldc;
};

static int step_of(int extent, int parts)
{
    return ((extent + parts - 1) / parts + ALIGN - 1) / ALIGN * ALIGN;
}

/* By the shape alone: tiles no larger than SIDE, and more of them while that keeps threads busy. */
static void choose_tiles(struct gemm_job *job)
{
    const struct kern_gemm *g = job->g;
    int down = (g->m + SIDE - 1) / SIDE, across = (g->n + SIDE - 1) / SIDE;
    double flops = 2.0 * g->m * g->n * g->k;

    while (down * across < TILES && flops >= 2 * down * across * TILE_FLOPS) {
        if (g->m / down >= g->n / across)
            down *= 2;
        else
            across *= 2;
    }
    job->rows = step_of(g->m, down);
    job->columns = step_of(g->n, across);
    job->across = (g->n + job->columns - 1) / job->columns;
}

/* The panel of A [m, depth] or B that begins at depth k, widened; B keeps its orientation. */
static void widen_panel(const struct gemm_job *job, const struct tile *t, int k, int depth)
{
    const struct cpu_loops *loops = job->stream->loops;
    const struct kern_gemm *g = job->g;
    const uint16_t *a = g->a, *b = g->b;
    size_t lda = (size_t)g->lda, ldb = (size_t)g->ldb, d = (size_t)depth, n = (size_t)t->n;

    if (g->trans_a)
        loops->widen_turned(a + (size_t)k * lda + (size_t)t->row, lda, t->m, depth, t->a);
    for (int r = 0; !g->trans_a && r < t->m; r++)
        loops->widen(a + (size_t)(t->row + r) * lda + (size_t)k, d, t->a + (size_t)r * d);
    for (int r = 0; g->trans_b && r < t->n; r++)
        loops->widen(b + (size_t)(t->column + r) * ldb + (size_t)k, d, t->b + (size_t)r * d);
    for (int r = 0; !g->trans_b && r < depth; r++)
        loops->widen(b + (size_t)(k + r) * ldb + (size_t)t->column, n, t->b + (size_t)r * n);
}

static void finish(const struct gemm_job *job, const struct tile *t)
{
    if (job->g->c_type == KERN_BF16)
        bf16_finish(job->stream, job->g, t->c, (size_t)t->ldc, t->row, t->column, t->m, t->n);
    else
        cpu_epilogue(job->stream, job->g, t->row, t->column, t->m, t->n);
}

static int widened_product(const struct gemm_job *job, const struct tile *t)
{
    const struct kern_gemm *g = job->g;
    int rc = 0;

    for (int k = 0; k < g->k && rc == 0; k += SIDE) {
        int depth = g->k - k < SIDE ? g->k - k : SIDE;

        widen_panel(job, t, k, depth);
        rc = cpu_sgemm(false, g->trans_b, t->m, t->n, depth, t->a, depth, t->b, g->trans_b ? depth : t->n,
                       g->accumulate || k > 0, t->c, t->ldc);
    }
    return rc;
}

/* -ENOTSUP: widen it. */
static int native_product(const struct gemm_job *job, const struct tile *t, int worker)
{
    const struct kern_gemm *g = job->g;
    const struct native_product p = {.type = KERN_BF16,
                                     .trans_a = g->trans_a,
                                     .trans_b = g->trans_b,
                                     .accumulate = g->accumulate,
                                     .m = t->m,
                                     .n = t->n,
                                     .k = g->k,
                                     .lda = g->lda,
                                     .ldb = g->ldb,
                                     .ldc = t->ldc};
    size_t a = (size_t)t->row * (g->trans_a ? 1 : (size_t)g->lda);
    size_t b = (size_t)t->column * (g->trans_b ? (size_t)g->ldb : 1);

    if (!job->stream->native || g->k == 0)
        return -ENOTSUP;
    return native_run(job->stream->native[worker], &p, (const uint16_t *)g->a + a, (const uint16_t *)g->b + b, t->c);
}

static void run_tile(void *arg, int item, int worker)
{
    struct gemm_job *job = arg;
    const struct kern_gemm *g = job->g;
    float *room = job->wide + (size_t)worker * ROOM;
    struct tile t = {.row = item / job->across * job->rows,
                     .column = item % job->across * job->columns,
                     .a = room,
                     .b = room + PANEL,
                     .c = room + 2 * PANEL};
    int rc;

    t.m = g->m - t.row < job->rows ? g->m - t.row : job->rows;
    t.n = g->n - t.column < job->columns ? g->n - t.column : job->columns;
    t.ldc = t.n;
    if (g->c_type == KERN_F32) {
        t.c = (float *)g->c + (size_t)t.row * (size_t)g->ldc + (size_t)t.column;
        t.ldc = g->ldc;
    }
    for (int r = 0; g->k == 0 && !g->accumulate && r < t.m; r++)
        memset(t.c + (size_t)r * (size_t)t.ldc, 0, (size_t)t.n * sizeof(*t.c));
    rc = native_product(job, &t, worker);
    if (rc == -ENOTSUP)
        rc = widened_product(job, &t);
    if (rc < 0)
        atomic_store(&job->code, rc);
    else
        finish(job, &t);
}

int bf16_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct gemm_job job = {.stream = s, .g = g};
    int rc;

    assert(!g->accumulate || (g->epilogue == KERN_PLAIN && g->c_type == KERN_F32));
    if (g->m == 0 || g->n == 0)
        return 0;
    if (cpu_product_takes(s, g))
        return cpu_product(s, g, err);
    choose_tiles(&job);
    rc = cpu_wide(s, (size_t)pool_threads(s->pool) * ROOM, &job.wide, err);
    if (rc < 0)
        return rc;
    pool_run(s->pool, (g->m + job.rows - 1) / job.rows * job.across, run_tile, &job);
    rc = atomic_load(&job.code);
    return rc < 0 ? merr_set(err, rc, "oneDNN failed in a matrix product of %d x %d x %d", g->m, g->n, g->k) : 0;
}
