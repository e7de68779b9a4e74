/* Matrix products by tiles of our own, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
 * (2008)
 *
 *   for each stretch of the depth, for each stretch of columns:
 *       pack that part of B once, for all threads                 (stays in the shared cache)
 *       item: some rows, step by step through the depth:
 *           pack those rows of A                                  (stay in the core's cache)
 *           panel of B by panel of A: one tile of C in registers
 *
 * bf16 is widened while it is packed, which is exact, and a result that is to be bf16 is made beside C over the whole
 * depth and rounded once.
 *
 * Where oneDNN has AVX2 only, it repacks for each of the calls that threads share and runs the products of weight
 * gradients at three quarters of the rate of the others; these do neither. With AVX-512 both are as fast. The steps of
 * the depth depend on the depth alone, and each of them is added to C in its order: neither how rows and columns are
 * cut nor the size of the tile changes a bit. */
#include "worker/engine/kernels/cpu/bf16.h"

#include <string.h>

#define DEPTH CPU_PANEL_DEPTH /* most depth of a step: a panel of B then fits the first cache beside one of A */
#define STRETCH 2048          /* most depth of packed B */
#define PACKED_FLOATS 2097152 /* about so much of B is packed at once */
#define PACK_PANELS 4         /* of B in an item of packing */
#define ROW_PANELS_MIN 8      /* on average: fewer would wait for B */
#define COLUMN_PANELS_MIN 8
#define ITEMS 16         /* enough to go round */
#define LEAST_ROWS 12    /* of a product worth packing, whatever the tile, so that no bit depends on it */
#define LEAST 16         /* its columns, and its depth */
#define ALONE_FLOPS 16e6 /* a product below this stays on its thread */

struct product {
    const struct kern_stream *stream;
    const struct cpu_tile *tile;
    const struct kern_gemm *g;
    int step; /* depth of a step */
    int row_items, column_items;
    int k0, depth;  /* this stretch of the depth */
    int n0, panels; /* these panels of columns, from column n0 */
    float *packed;  /* [panels][depth][columns] */
    float *wide;    /* [threads][CPU_PANEL_ROWS][wide_ld]: where a bf16 result is made */
    size_t wide_ld;
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

/* Where item i of n begins among so many panels of rows: those of the first half are three times as large as the rest,
 * so that threads end at about the same time. */
static int rows_at(int panels, int n, int i)
{
    int large = n - n / 2, weight = i < large ? 3 * i : 2 * large + i;

    return (int)((int64_t)panels * weight / (2 * large + n));
}

static float *panel_of(const struct product *p, int panel)
{
    return p->packed + (size_t)panel * (size_t)p->depth * (size_t)p->tile->columns;
}

static const void *number_at(const void *x, enum kern_type type, size_t at)
{
    return (const char *)x + at * kern_size(type);
}

static void pack_item(void *arg, int item, int worker)
{
    const struct product *p = arg;
    const struct kern_gemm *g = p->g;
    int width = p->tile->columns, first = item * PACK_PANELS, n = p->n0 + first * width;
    size_t ld = (size_t)g->ldb, line = (size_t)n, at = (size_t)p->k0;

    (void)worker;
    p->tile->pack(g->type, number_at(g->b, g->type, g->trans_b ? line * ld + at : at * ld + line), ld, g->trans_b,
                  width, min_int(min_int(PACK_PANELS, p->panels - first) * width, g->n - n), p->depth,
                  panel_of(p, first), (size_t)p->depth * (size_t)width);
}

/* Panels of A, rows [m, m + rows), depth [k, k + depth). */
static void pack_rows(const struct product *p, int m, int rows, int k, int depth, float *to)
{
    const struct kern_gemm *g = p->g;
    size_t ld = (size_t)g->lda, line = (size_t)m, at = (size_t)k;

    p->tile->pack(g->type, number_at(g->a, g->type, g->trans_a ? at * ld + line : line * ld + at), ld, !g->trans_a,
                  p->tile->rows, rows, depth, to, (size_t)depth * (size_t)p->tile->rows);
}

/* What an item makes: rows [m, m + rows), from column n on, in C or beside it. */
struct block {
    float *c;
    size_t ldc;
    int m, n, rows;
};

/* A tile at the right or lower edge of C is made beside it. */
static void edge_tile(const struct product *p, int depth, const float *a, const float *b, float *c, size_t ldc,
                      int rows, int cols, bool add)
{
    float t[TILE_FLOATS_MAX];
    size_t width = (size_t)p->tile->columns;

    memset(t, 0, sizeof(t));
    for (int r = 0; r < rows && add; r++)
        memcpy(t + (size_t)r * width, c + (size_t)r * ldc, (size_t)cols * sizeof(*t));
    p->tile->multiply(depth, a, b, t, width, add);
    for (int r = 0; r < rows; r++)
        memcpy(c + (size_t)r * ldc, t + (size_t)r * width, (size_t)cols * sizeof(*t));
}

/* One panel of columns, from column n on, over one step of the depth. */
static void column_panel(const struct product *p, const struct block *k, const float *a, const float *b, int n,
                         int depth, bool add)
{
    int width = p->tile->columns, cols = min_int(width, p->g->n - n), high = p->tile->rows;
    float *c = k->c + (n - k->n);

    for (int r = 0; r < k->rows; r += high, a += (size_t)high * (size_t)depth, c += (size_t)high * k->ldc) {
        if (k->rows - r >= high && cols == width)
            p->tile->multiply(depth, a, b, c, k->ldc, add);
        else
            edge_tile(p, depth, a, b, c, k->ldc, min_int(high, k->rows - r), cols, add);
    }
}

static struct block block_of(const struct product *p, int item, int first_panel, int worker)
{
    const struct kern_gemm *g = p->g;
    int high = p->tile->rows, i = item / p->column_items, all = ceil_div(g->m, high);
    struct block k = {.m = rows_at(all, p->row_items, i) * high, .n = p->n0 + first_panel * p->tile->columns};

    k.rows = min_int(rows_at(all, p->row_items, i + 1) * high, g->m) - k.m;
    if (g->c_type == KERN_BF16) {
        k.ldc = p->wide_ld;
        k.c = p->wide + (size_t)worker * CPU_PANEL_ROWS * p->wide_ld;
    } else {
        k.ldc = (size_t)g->ldc;
        k.c = (float *)g->c + (size_t)k.m * k.ldc + (size_t)k.n;
    }
    return k;
}

static void product_item(void *arg, int item, int worker)
{
    const struct product *p = arg;
    const struct kern_gemm *g = p->g;
    float *a = p->stream->scratch[worker].panels;
    int width = p->tile->columns, j = item % p->column_items;
    int begin = part_at(p->panels, p->column_items, j), end = part_at(p->panels, p->column_items, j + 1);
    struct block b = block_of(p, item, begin, worker);

    for (int k = 0; k < p->depth; k += p->step) {
        int depth = min_int(p->step, p->depth - k);
        bool last = p->k0 + k + depth == g->k;

        pack_rows(p, b.m, b.rows, p->k0 + k, depth, a);
        for (int panel = begin; panel < end; panel++) {
            int n = p->n0 + panel * width;

            column_panel(p, &b, a, panel_of(p, panel) + (size_t)k * (size_t)width, n, depth,
                         g->accumulate || p->k0 + k > 0);
            if (last && g->c_type == KERN_F32)
                cpu_epilogue(p->stream, g, b.m, n, b.rows, min_int(width, g->n - n));
        }
    }
    if (g->c_type == KERN_BF16)
        bf16_finish(p->stream, g, b.c, b.ldc, b.m, b.n, b.rows, min_int((end - begin) * width, g->n - b.n));
}

/* Rows first, and columns where rows are few. */
static void cut_items(struct product *p)
{
    int panels = ceil_div(p->g->m, p->tile->rows), most = CPU_PANEL_ROWS / p->tile->rows;

    /* the largest of n items have 3/2n of the rows, or somewhat less; see rows_at */
    p->row_items = max_int(ceil_div(3 * panels, 2 * most), min_int(ITEMS, panels / ROW_PANELS_MIN));
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
    return s->tile && (g->type != KERN_BF16 || !s->native) && g->m >= LEAST_ROWS && g->n >= LEAST && g->k >= LEAST;
}

int cpu_product(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct product p = {.stream = s, .tile = s->tile, .g = g};
    int width = s->tile->columns, stretch, columns, rc;
    void *work;

    p.step = ceil_div(g->k, ceil_div(g->k, DEPTH));
    stretch = g->c_type == KERN_BF16 ? g->k : min_int(g->k, STRETCH / p.step * p.step);
    columns = max_int(1, min_int(PACKED_FLOATS / stretch, g->n) / width) * width;
    rc = cpu_work(s, ((size_t)ceil_div(columns, width) * (size_t)width * (size_t)stretch + TILE_SLACK) * sizeof(float),
                  &work, err);
    p.wide_ld = (size_t)columns;
    if (rc == 0 && g->c_type == KERN_BF16)
        rc = cpu_wide(s, (size_t)pool_threads(s->pool) * CPU_PANEL_ROWS * p.wide_ld, &p.wide, err);
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
