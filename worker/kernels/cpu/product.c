/* Matrix products by tiles of our own, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
 * (2008)
 *
 *   for each stretch of the depth, for each stretch of columns:
 *       pack that part of B once, for all threads                 (stays in the shared cache)
 *       item: some rows, step by step through the depth:
 *           pack those rows of A                                  (stay in the core's cache)
 *           panel of B by panel of A: one tile of C in registers
 *
 * Where oneDNN has AVX2 only, it repacks for each of the calls that threads share and runs the products of weight
 * gradients at three quarters of the rate of the others; these do neither. The steps of the depth depend on the depth
 * alone, and each of them is added to C in its order: how rows and columns are cut changes no bit. */
#include "worker/kernels/cpu/cpu.h"

#include <string.h>

#define DEPTH CPU_PANEL_DEPTH  /* most depth of a step: a panel of B then fits the first cache beside one of A */
#define STRETCH 2048           /* most depth of packed B */
#define PACKED_FLOATS 1048576  /* about so much of B is packed at once */
#define PACK_PANELS 4          /* of B in an item of packing */
#define ROW_PANELS_MIN 8       /* fewer would wait for B */
#define COLUMN_PANELS_MIN 8
#define ITEMS 16               /* enough to go round */
#define ALONE_FLOPS 16e6       /* a product below this stays on its thread */

struct product {
    const struct kern_stream *stream;
    const struct cpu_tile *tile;
    const struct kern_gemm *g;
    int step;                  /* depth of a step */
    int row_items, column_items;
    int k0, depth;             /* this stretch of the depth */
    int n0, panels;            /* these panels of columns, from column n0 */
    float *packed;             /* [panels][depth][columns] */
};

static int ceil_div(int x, int by)
{
    return (x + by - 1) / by;
}

static int min_int(int x, int y)
{
    return x < y ? x : y;
}

static int max_int(int x, int y)
{
    return x > y ? x : y;
}

/* Where part i of n of `all` begins: parts differ by one at most. */
static int part_at(int all, int n, int i)
{
    return (int)((int64_t)all * i / n);
}

static float *panel_of(const struct product *p, int panel)
{
    return p->packed + (size_t)panel * (size_t)p->depth * (size_t)p->tile->columns;
}

static void pack_item(void *arg, int item, int worker)
{
    const struct product *p = arg;
    const struct kern_gemm *g = p->g;
    int width = p->tile->columns, first = item * PACK_PANELS, n = p->n0 + first * width;
    size_t ld = (size_t)g->ldb, line = (size_t)n, at = (size_t)p->k0;

    (void)worker;
    p->tile->pack((const float *)g->b + (g->trans_b ? line * ld + at : at * ld + line), ld, g->trans_b, width,
                  min_int(min_int(PACK_PANELS, p->panels - first) * width, g->n - n), p->depth, panel_of(p, first),
                  (size_t)p->depth * (size_t)width);
}

/* Panels of A, rows [m, m + rows), depth [k, k + depth). */
static void pack_rows(const struct product *p, int m, int rows, int k, int depth, float *to)
{
    const struct kern_gemm *g = p->g;
    size_t ld = (size_t)g->lda, line = (size_t)m, at = (size_t)k;

    p->tile->pack((const float *)g->a + (g->trans_a ? at * ld + line : line * ld + at), ld, !g->trans_a,
                  p->tile->rows, rows, depth, to, (size_t)depth * (size_t)p->tile->rows);
}

/* A tile at the right or lower edge of C is made beside it. */
static void edge_tile(const struct product *p, int depth, const float *a, const float *b, float *c, int rows, int cols,
                      bool add)
{
    float t[TILE_FLOATS_MAX];
    size_t width = (size_t)p->tile->columns, ldc = (size_t)p->g->ldc;

    memset(t, 0, sizeof(t));
    for (int r = 0; r < rows && add; r++)
        memcpy(t + (size_t)r * width, c + (size_t)r * ldc, (size_t)cols * sizeof(*t));
    p->tile->multiply(depth, a, b, t, width, add);
    for (int r = 0; r < rows; r++)
        memcpy(c + (size_t)r * ldc, t + (size_t)r * width, (size_t)cols * sizeof(*t));
}

/* Rows [m, m + rows) of one panel of columns, over one step of the depth. */
static void column_panel(const struct product *p, const float *a, const float *b, int m, int rows, int n, int depth,
                         bool add)
{
    const struct kern_gemm *g = p->g;
    int width = p->tile->columns, cols = min_int(width, g->n - n), high = p->tile->rows;

    for (int r = 0; r < rows; r += high, a += (size_t)high * (size_t)depth) {
        float *c = (float *)g->c + (size_t)(m + r) * (size_t)g->ldc + (size_t)n;

        if (rows - r >= high && cols == width)
            p->tile->multiply(depth, a, b, c, (size_t)g->ldc, add);
        else
            edge_tile(p, depth, a, b, c, min_int(high, rows - r), cols, add);
    }
}

static void product_item(void *arg, int item, int worker)
{
    const struct product *p = arg;
    const struct kern_gemm *g = p->g;
    float *a = p->stream->scratch[worker].panels;
    int high = p->tile->rows, width = p->tile->columns, i = item / p->column_items, j = item % p->column_items;
    int all = ceil_div(g->m, high), m = part_at(all, p->row_items, i) * high;
    int rows = min_int(part_at(all, p->row_items, i + 1) * high, g->m) - m;
    int begin = part_at(p->panels, p->column_items, j), end = part_at(p->panels, p->column_items, j + 1);

    for (int k = 0; k < p->depth; k += p->step) {
        int depth = min_int(p->step, p->depth - k);
        bool last = p->k0 + k + depth == g->k;

        pack_rows(p, m, rows, p->k0 + k, depth, a);
        for (int panel = begin; panel < end; panel++) {
            int n = p->n0 + panel * width;

            column_panel(p, a, panel_of(p, panel) + (size_t)k * (size_t)width, m, rows, n, depth,
                         g->accumulate || p->k0 + k > 0);
            if (last)
                cpu_epilogue(p->stream, g, m, n, rows, min_int(width, g->n - n));
        }
    }
}

/* Items of about equal size: rows first, and columns where rows are few. */
static void cut_items(struct product *p)
{
    int panels = ceil_div(p->g->m, p->tile->rows);

    p->row_items = max_int(ceil_div(panels, CPU_PANEL_ROWS / p->tile->rows), min_int(ITEMS, panels / ROW_PANELS_MIN));
    p->column_items = min_int(ceil_div(ITEMS, p->row_items), max_int(1, p->panels / COLUMN_PANELS_MIN));
}

static void run(struct kern_stream *s, struct product *p, int items, pool_fn fn)
{
    if (2.0 * p->g->m * p->g->n * p->g->k >= ALONE_FLOPS)
        pool_run(s->pool, items, fn, p);
    else
        for (int i = 0; i < items; i++)
            fn(p, i, 0);
}

bool cpu_product_takes(const struct kern_stream *s, const struct kern_gemm *g)
{
    return s->tile && g->m >= 2 * s->tile->rows && g->n >= s->tile->columns && g->k >= s->tile->columns;
}

int cpu_product(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct product p = { .stream = s, .tile = s->tile, .g = g };
    int width = s->tile->columns, stretch, columns, rc;
    void *work;

    p.step = ceil_div(g->k, ceil_div(g->k, DEPTH));
    stretch = min_int(g->k, STRETCH / p.step * p.step);
    columns = max_int(1, min_int(PACKED_FLOATS / stretch, g->n) / width) * width;
    rc = cpu_work(s, ((size_t)ceil_div(columns, width) * (size_t)width * (size_t)stretch + TILE_SLACK) * sizeof(float),
                  &work, err);
    if (rc < 0)
        return rc;
    p.packed = work;
    for (p.k0 = 0; p.k0 < g->k; p.k0 += stretch)
        for (p.n0 = 0; p.n0 < g->n; p.n0 += columns) {
            p.depth = min_int(stretch, g->k - p.k0);
            p.panels = ceil_div(min_int(columns, g->n - p.n0), width);
            cut_items(&p);
            run(s, &p, ceil_div(p.panels, PACK_PANELS), pack_item);
            run(s, &p, p.row_items * p.column_items, product_item);
        }
    return 0;
}
