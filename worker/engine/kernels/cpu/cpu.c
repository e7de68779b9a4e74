/* The CPU table: cuts each call into items that depend on its shape alone and gives them to the stream's threads */
#include "worker/engine/kernels/cpu/cpu.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/try.h"
#include "worker/engine/kernels/cpu/bf16.h"
#include "worker/engine/kernels/cpu/native.h"
#include "worker/engine/kernels/host.h"

#define CHUNK 16384                    /* elements of an item of an elementwise loop */
#define ROW_FLOATS 16384               /* about so many elements of an item of whole rows */
#define TOUCH_BYTES ((size_t)16 << 20) /* of memory that one item has mapped */
#define STRIP 64                       /* columns of an item that walks all rows */
#define PARTIAL_ROWS 64                /* rows whose sums one item of a norm's backward collects */

#ifdef __x86_64__
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static void choose_loops(struct kern_stream *s)
{
    s->loops = &cpu_loops_generic;
#ifdef __x86_64__
    if (has_avx2()) {
        s->loops = &cpu_loops_avx2;
        s->tile = s->narrow_tile = &cpu_tile_avx2;
    }
    if (has_avx512()) {
        s->loops = &cpu_loops_avx512;
        s->tile = &cpu_tile_avx512;
    }
#endif
}

static void stream_free(struct kern_stream *s)
{
    int saved = errno;

    if (s) {
        pool_free(s->pool);
        for (int i = 0; i < s->natives; i++)
            native_free(s->native[i]);
        free(s->native);
        host_free(s->scratch);
        host_free(s->work);
        host_free(s->wide);
        free(s);
    }
    errno = saved;
}

static int open_native(struct kern_stream *s, struct merr *err)
{
    int threads = pool_threads(s->pool), rc = 0;

    s->native = calloc((size_t)threads, sizeof(struct native *));
    if (!s->native)
        return merr_set(err, -ENOMEM, "no memory for the products of %d threads", threads);
    while (rc == 0 && s->natives < threads) {
        rc = native_new(&s->native[s->natives], err);
        s->natives += rc == 0;
    }
    return rc;
}

static int stream_new(const struct kern_cfg *cfg, struct kern_stream **ret, struct merr *err)
{
    struct kern_stream *s = calloc(1, sizeof(*s));
    void *scratch = NULL;
    int rc;

    if (!s)
        return merr_set(err, -ENOMEM, "no memory for a kernel stream");
    /* oneDNN takes its packing buffers from malloc at each call: keep them, page faults cost more than the copies. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
    choose_loops(s);
    rc = pool_new(cfg->threads, &s->pool, err);
    if (rc == 0)
        rc = host_alloc((size_t)pool_threads(s->pool) * sizeof(*s->scratch), &scratch, err);
    s->scratch = scratch;
    if (rc == 0 && native_here())
        rc = open_native(s, err);
    if (rc < 0) {
        stream_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

static int stream_sync(struct kern_stream *s, struct merr *err)
{
    (void)s;
    (void)err;
    return 0;
}

struct touched {
    char *at;
    size_t bytes;
};

static void touch_item(void *arg, int item, int worker)
{
    const struct touched *t = arg;
    size_t from = (size_t)item * TOUCH_BYTES, left = t->bytes - from;

    (void)worker;
    host_populate(t->at + from, left < TOUCH_BYTES ? left : TOUCH_BYTES);
}

static void mem_touch(struct kern_stream *s, void *at, size_t bytes)
{
    struct touched t = {.at = at, .bytes = bytes};

    pool_run(s->pool, (int)((bytes + TOUCH_BYTES - 1) / TOUCH_BYTES), touch_item, &t);
}

/* All of it is there before the first step, which would else wait for it page by page. */
static int mem_alloc(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    TRY(host_alloc(bytes, ret, err));
    mem_touch(s, *ret, bytes);
    return 0;
}

static void mem_free(struct kern_stream *s, void *p)
{
    (void)s;
    host_free(p);
}

static void weights_changed(struct kern_stream *s, const void *p, size_t bytes)
{
    (void)s;
    (void)p;
    (void)bytes;
}

/* --- calls over elements ---------------------------------------------------------------------------------- */

struct elements {
    const struct cpu_loops *loops;
    size_t n;
    const float *x, *dy;
    float *y;
    const struct kern_adamw *adamw;
    size_t block; /* of sum_squares */
    double *sums;
};

static size_t chunk_of(const struct elements *e, int item)
{
    size_t at = (size_t)item * CHUNK;

    return e->n - at < CHUNK ? e->n - at : CHUNK;
}

static void run_elements(struct kern_stream *s, struct elements *e, double ns_each, pool_fn fn)
{
    e->loops = s->loops;
    cpu_run(s, (int)((e->n + CHUNK - 1) / CHUNK), (double)e->n * ns_each * 1e-3, fn, e);
}

static void gelu_forward_item(void *arg, int item, int worker)
{
    const struct elements *e = arg;
    size_t at = (size_t)item * CHUNK;

    (void)worker;
    e->loops->gelu_forward(e->x + at, chunk_of(e, item), e->y + at);
}

static int gelu_forward(struct kern_stream *s, enum kern_type type, const void *x, size_t n, void *y, struct merr *err)
{
    struct elements e = {.n = n, .x = x, .y = y};

    if (type == KERN_BF16)
        return bf16_gelu(s, x, NULL, n, y, err);
    run_elements(s, &e, 1.5, gelu_forward_item);
    return 0;
}

static void gelu_backward_item(void *arg, int item, int worker)
{
    const struct elements *e = arg;
    size_t at = (size_t)item * CHUNK;

    (void)worker;
    e->loops->gelu_backward(e->x + at, e->dy + at, chunk_of(e, item), e->y + at);
}

static int gelu_backward(struct kern_stream *s, enum kern_type type, const void *x, const void *dy, size_t n, void *dx,
                         struct merr *err)
{
    struct elements e = {.n = n, .x = x, .dy = dy, .y = dx};

    if (type == KERN_BF16)
        return bf16_gelu(s, x, dy, n, dx, err);
    run_elements(s, &e, 2, gelu_backward_item);
    return 0;
}

static void add_item(void *arg, int item, int worker)
{
    const struct elements *e = arg;
    size_t at = (size_t)item * CHUNK;

    (void)worker;
    e->loops->add(e->y + at, e->x + at, chunk_of(e, item));
}

static int add(struct kern_stream *s, float *y, const float *x, size_t n, struct merr *err)
{
    struct elements e = {.n = n, .x = x, .y = y};

    (void)err;
    run_elements(s, &e, 0.4, add_item);
    return 0;
}

static void adamw_item(void *arg, int item, int worker)
{
    const struct elements *e = arg;

    (void)worker;
    e->loops->adamw(e->adamw, (size_t)item * CHUNK, chunk_of(e, item));
}

static int adamw(struct kern_stream *s, const struct kern_adamw *a, struct merr *err)
{
    struct elements e = {.n = a->n, .adamw = a};

    (void)err;
    run_elements(s, &e, 1.5, adamw_item);
    return 0;
}

static void sum_squares_item(void *arg, int item, int worker)
{
    const struct elements *e = arg;
    size_t at = (size_t)item * e->block;

    (void)worker;
    e->sums[item] = e->loops->sum_squares(e->x + at, e->n - at < e->block ? e->n - at : e->block);
}

static int sum_squares(struct kern_stream *s, const float *x, size_t n, size_t block, double *ret, struct merr *err)
{
    struct elements e = {.loops = s->loops, .n = n, .x = x, .block = block, .sums = ret};

    (void)err;
    assert(block > 0);
    cpu_run(s, (int)((n + block - 1) / block), (double)n * 0.4e-3, sum_squares_item, &e);
    return 0;
}

/* --- calls over rows -------------------------------------------------------------------------------------- */

struct rows {
    const struct cpu_loops *loops;
    int rows, cols, each; /* each: rows of an item */
    int ld, heads, dim, first, table_rows, vocab, n;
    const float *x, *dy, *gamma, *beta, *stats_in;
    const float *mean_in, *rstd_in, *freq;
    float *y, *mean, *rstd, *partial; /* partial: [items][2][cols] */
    const int32_t *index;             /* tokens, targets or positions */
    const struct kern_dropout *dropout;
    float eps, weight;
    bool add, inverse;
};

static int rows_of(const struct rows *j, int item)
{
    int first = item * j->each;

    return j->rows - first < j->each ? j->rows - first : j->each;
}

static void run_rows(struct kern_stream *s, struct rows *j, double ns_each, pool_fn fn)
{
    int width = j->cols > 0 ? j->cols : 1;

    j->loops = s->loops;
    if (j->each == 0)
        j->each = width >= ROW_FLOATS ? 1 : ROW_FLOATS / width;
    cpu_run(s, (j->rows + j->each - 1) / j->each, (double)j->rows * width * ns_each * 1e-3, fn, j);
}

static size_t row_at(const struct rows *j, int item)
{
    return (size_t)item * (size_t)j->each;
}

static void layernorm_forward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item), at = row * (size_t)j->cols;

    (void)worker;
    j->loops->layernorm_forward(j->x + at, j->gamma, j->beta, j->eps, rows_of(j, item), j->cols, j->y + at,
                                j->mean + row, j->rstd + row);
}

static int layernorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma,
                             const float *beta, float eps, int rows, int cols, void *y, float *mean, float *rstd,
                             struct merr *err)
{
    struct rows j = {.rows = rows,
                     .cols = cols,
                     .x = x,
                     .gamma = gamma,
                     .beta = beta,
                     .eps = eps,
                     .y = y,
                     .mean = mean,
                     .rstd = rstd};

    if (type == KERN_BF16)
        return bf16_norm_forward(s, x, gamma, beta, eps, rows, cols, y, mean, rstd, err);
    run_rows(s, &j, 0.6, layernorm_forward_item);
    return 0;
}

static void norm_backward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item), cols = (size_t)j->cols, at = row * cols;
    float *dgamma = j->partial + 2 * cols * (size_t)item;

    (void)worker;
    memset(dgamma, 0, 2 * cols * sizeof(*dgamma));
    if (j->mean_in)
        j->loops->layernorm_backward(j->dy + at, j->x + at, j->gamma, j->mean_in + row, j->rstd_in + row,
                                     rows_of(j, item), j->cols, j->y + at, j->add, dgamma, dgamma + cols);
    else
        j->loops->rmsnorm_backward(j->dy + at, j->x + at, j->gamma, j->rstd_in + row, rows_of(j, item), j->cols,
                                   j->y + at, j->add, dgamma);
}

/* Both norms: the sums over rows are collected for each PARTIAL_ROWS of them and added up in their order. */
static int norm_backward(struct kern_stream *s, struct rows *j, float *dgamma, float *dbeta, struct merr *err)
{
    size_t cols = (size_t)j->cols, items = ((size_t)j->rows + PARTIAL_ROWS - 1) / PARTIAL_ROWS;
    void *work;
    int rc = cpu_work(s, items * 2 * cols * sizeof(float), &work, err);

    if (rc < 0)
        return rc;
    j->partial = work;
    j->each = PARTIAL_ROWS;
    run_rows(s, j, 1.2, norm_backward_item);
    for (size_t i = 0; i < items; i++) {
        s->loops->add(dgamma, j->partial + 2 * cols * i, cols);
        if (dbeta)
            s->loops->add(dbeta, j->partial + 2 * cols * i + cols, cols);
    }
    return 0;
}

static int layernorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                              const float *mean, const float *rstd, int rows, int cols, float *dx, bool add_dx,
                              float *dgamma, float *dbeta, struct merr *err)
{
    struct rows j = {.rows = rows,
                     .cols = cols,
                     .x = x,
                     .dy = dy,
                     .gamma = gamma,
                     .mean_in = mean,
                     .rstd_in = rstd,
                     .y = dx,
                     .add = add_dx};

    return norm_backward(s, &j, dgamma, dbeta, err);
}

static void rmsnorm_forward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item), at = row * (size_t)j->cols;

    (void)worker;
    j->loops->rmsnorm_forward(j->x + at, j->gamma, j->eps, rows_of(j, item), j->cols, j->y + at, j->rstd + row);
}

static int rmsnorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma, float eps,
                           int rows, int cols, void *y, float *rstd, struct merr *err)
{
    struct rows j = {.rows = rows, .cols = cols, .x = x, .gamma = gamma, .eps = eps, .y = y, .rstd = rstd};

    if (type == KERN_BF16)
        return bf16_norm_forward(s, x, gamma, NULL, eps, rows, cols, y, NULL, rstd, err);
    run_rows(s, &j, 0.5, rmsnorm_forward_item);
    return 0;
}

static int rmsnorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                            const float *rstd, int rows, int cols, float *dx, bool add_dx, float *dgamma,
                            struct merr *err)
{
    struct rows j = {
        .rows = rows, .cols = cols, .x = x, .dy = dy, .gamma = gamma, .rstd_in = rstd, .y = dx, .add = add_dx};

    return norm_backward(s, &j, dgamma, NULL, err);
}

static void rope_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item);

    (void)worker;
    j->loops->rope(j->y + row * (size_t)j->ld, rows_of(j, item), j->heads, j->dim, j->ld, j->index + row, j->freq,
                   j->inverse);
}

static int rope(struct kern_stream *s, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, bool inverse, struct merr *err)
{
    struct rows j = {.rows = rows,
                     .cols = heads * dim,
                     .y = x,
                     .heads = heads,
                     .dim = dim,
                     .ld = ld,
                     .index = position,
                     .freq = freq,
                     .inverse = inverse};

    if (type == KERN_BF16)
        return bf16_rope(s, x, rows, heads, dim, ld, position, freq, inverse, err);
    run_rows(s, &j, 2, rope_item);
    return 0;
}

static void swiglu_forward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t at = row_at(j, item) * (size_t)j->cols;

    (void)worker;
    j->loops->swiglu_forward(j->x + 2 * at, rows_of(j, item), j->cols, j->y + at);
}

static int swiglu_forward(struct kern_stream *s, enum kern_type type, const void *gate_up, int rows, int cols, void *y,
                          struct merr *err)
{
    struct rows j = {.rows = rows, .cols = cols, .x = gate_up, .y = y};

    if (type == KERN_BF16)
        return bf16_swiglu(s, gate_up, NULL, rows, cols, y, err);
    run_rows(s, &j, 1.5, swiglu_forward_item);
    return 0;
}

static void swiglu_backward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t at = row_at(j, item) * (size_t)j->cols;

    (void)worker;
    j->loops->swiglu_backward(j->x + 2 * at, j->dy + at, rows_of(j, item), j->cols, j->y + 2 * at);
}

static int swiglu_backward(struct kern_stream *s, enum kern_type type, const void *gate_up, const void *dy, int rows,
                           int cols, void *dgate_up, struct merr *err)
{
    struct rows j = {.rows = rows, .cols = cols, .x = gate_up, .dy = dy, .y = dgate_up};

    if (type == KERN_BF16)
        return bf16_swiglu(s, gate_up, dy, rows, cols, dgate_up, err);
    run_rows(s, &j, 2, swiglu_backward_item);
    return 0;
}

static void add_bias_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;

    (void)worker;
    j->loops->add_bias(j->y + row_at(j, item) * (size_t)j->cols, (size_t)j->cols, j->x, rows_of(j, item), j->cols);
}

static int add_bias(struct kern_stream *s, float *y, const float *bias, int rows, int cols, struct merr *err)
{
    struct rows j = {.rows = rows, .cols = cols, .x = bias, .y = y};

    (void)err;
    run_rows(s, &j, 0.4, add_bias_item);
    return 0;
}

static void dropout_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;

    (void)worker;
    j->loops->dropout(j->dropout, (int)row_at(j, item), rows_of(j, item), j->x, j->y);
}

static int dropout(struct kern_stream *s, const struct kern_dropout *d, const float *x, float *y, struct merr *err)
{
    struct rows j = {.rows = d->rows, .cols = d->cols, .dropout = d, .x = x, .y = y};

    (void)err;
    run_rows(s, &j, 1.5, dropout_item);
    return 0;
}

/* --- loss ------------------------------------------------------------------------------------------------- */

/* Columns of a slice that belong to the vocabulary and not to its padding. */
static int live_columns(int cols, int first, int vocab)
{
    return first >= vocab ? 0 : vocab - first < cols ? vocab - first : cols;
}

static void xent_partial_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item);

    (void)worker;
    j->loops->xent_partial(j->x + row * (size_t)j->cols, rows_of(j, item), j->cols, j->first, j->n, j->index + row,
                           j->y + 3 * row);
}

static int xent_partial(struct kern_stream *s, const float *logits, int tokens, int cols, int first, int vocab,
                        const int32_t *target, float *stats, struct merr *err)
{
    struct rows j = {.rows = tokens,
                     .cols = cols,
                     .first = first,
                     .n = live_columns(cols, first, vocab),
                     .x = logits,
                     .index = target,
                     .y = stats};

    (void)err;
    run_rows(s, &j, 1, xent_partial_item);
    return 0;
}

static void xent_finish_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    size_t row = row_at(j, item), at = row * (size_t)j->cols;

    (void)worker;
    j->loops->xent_finish(j->x + at, j->stats_in + 3 * row, j->n, (size_t)j->rows, rows_of(j, item), j->cols, j->first,
                          live_columns(j->cols, j->first, j->vocab), j->index + row, j->weight, j->mean + row,
                          j->y ? j->y + at : NULL);
}

static int xent_finish(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens, int cols,
                       int first, int vocab, const int32_t *target, float weight, float *loss, enum kern_type type,
                       void *dz, struct merr *err)
{
    struct rows j = {.rows = tokens,
                     .cols = cols,
                     .first = first,
                     .vocab = vocab,
                     .n = n,
                     .x = logits,
                     .stats_in = stats,
                     .index = target,
                     .weight = weight,
                     .mean = loss,
                     .y = dz};

    if (type == KERN_BF16 && dz)
        return bf16_xent_finish(s, logits, stats, n, tokens, cols, first, live_columns(cols, first, vocab), target,
                                weight, loss, dz, err);
    run_rows(s, &j, dz ? 1 : 0.01, xent_finish_item);
    return 0;
}

/* --- calls over columns: an item owns a strip of them and walks the rows in order --------------------------- */

static void run_strips(struct kern_stream *s, struct rows *j, double ns_each, pool_fn fn)
{
    j->loops = s->loops;
    cpu_run(s, (j->cols + STRIP - 1) / STRIP, (double)j->rows * j->cols * ns_each * 1e-3, fn, j);
}

static int strip_width(const struct rows *j, int item)
{
    return j->cols - item * STRIP < STRIP ? j->cols - item * STRIP : STRIP;
}

static void bias_gradient_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;

    (void)worker;
    j->loops->bias_gradient(j->dy + item * STRIP, j->rows, strip_width(j, item), (size_t)j->ld, j->y + item * STRIP);
}

static int bias_gradient(struct kern_stream *s, enum kern_type type, const void *dy, int rows, int cols, int ld,
                         float *db, struct merr *err)
{
    struct rows j = {.rows = rows, .cols = cols, .ld = ld, .dy = dy, .y = db};

    if (type == KERN_BF16)
        return bf16_bias_gradient(s, dy, rows, cols, ld, db, err);
    run_strips(s, &j, 0.3, bias_gradient_item);
    return 0;
}

static void embedding_backward_item(void *arg, int item, int worker)
{
    const struct rows *j = arg;
    int width = strip_width(j, item);

    (void)worker;
    for (int t = 0; t < j->rows; t++) {
        int64_t row = (int64_t)j->index[t] - j->first;

        if (row >= 0 && row < j->table_rows)
            j->loops->add(j->y + (size_t)row * (size_t)j->cols + (size_t)item * STRIP,
                          j->dy + (size_t)t * (size_t)j->cols + (size_t)item * STRIP, (size_t)width);
    }
}

static int embedding_backward(struct kern_stream *s, const float *dy, int first, int rows, int cols,
                              const int32_t *token, int tokens, float *dtable, struct merr *err)
{
    struct rows j = {
        .rows = tokens, .cols = cols, .first = first, .table_rows = rows, .dy = dy, .index = token, .y = dtable};

    (void)err;
    run_strips(s, &j, 0.6, embedding_backward_item);
    return 0;
}

static void widen(const uint16_t *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_to_float(x[i]);
}

static int embedding_forward(struct kern_stream *s, enum kern_type type, const void *table, int first, int rows,
                             int cols, const int32_t *token, int tokens, float *y, struct merr *err)
{
    (void)s;
    (void)err;
    for (int t = 0; t < tokens; t++, y += cols) {
        int64_t row = (int64_t)token[t] - first;
        size_t at = (size_t)row * (size_t)cols;

        if (row < 0 || row >= rows)
            memset(y, 0, (size_t)cols * sizeof(*y));
        else if (type == KERN_BF16)
            widen((const uint16_t *)table + at, (size_t)cols, y);
        else
            memcpy(y, (const float *)table + at, (size_t)cols * sizeof(*y));
    }
    return 0;
}

static int gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    size_t n = (size_t)g->n, ld = (size_t)g->ldc;
    int rows = ld == n ? 1 : g->m, r = g->type == KERN_BF16 ? bf16_gemm(s, g, err) : cpu_gemm(s, g, err);

    for (int i = 0; r == 0 && g->onto && i < rows; i++)
        r = add(s, (float *)g->c + (size_t)i * ld, g->onto + (size_t)i * ld, ld == n ? n * (size_t)g->m : n, err);
    return r;
}

static int attention_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    return a->type == KERN_BF16 ? bf16_attention(s, a, false, err) : cpu_attention_forward(s, a, err);
}

static int attention_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    return a->type == KERN_BF16 ? bf16_attention(s, a, true, err) : cpu_attention_backward(s, a, err);
}

const struct kern_ops *kern_cpu(void)
{
    static const struct kern_ops ops = {
        .name = "cpu",
        .parts = true,
        .stream_new = stream_new,
        .stream_free = stream_free,
        .stream_sync = stream_sync,
        .mem_alloc = mem_alloc,
        .mem_free = mem_free,
        .mem_touch = mem_touch,
        .copy = cpu_copy,
        .copy_rows = cpu_copy_rows,
        .fill = cpu_fill,
        .to_bf16 = bf16_from_f32,
        .gemm = gemm,
        .weights_changed = weights_changed,
        .attention_forward = attention_forward,
        .attention_backward = attention_backward,
        .attention_cached = cpu_attention_cached,
        .attention_merge = cpu_attention_merge,
        .head_norm_forward = cpu_head_norm_forward,
        .head_norm_backward = cpu_head_norm_backward,
        .layernorm_forward = layernorm_forward,
        .layernorm_backward = layernorm_backward,
        .rmsnorm_forward = rmsnorm_forward,
        .rmsnorm_backward = rmsnorm_backward,
        .rope = rope,
        .gelu_forward = gelu_forward,
        .gelu_backward = gelu_backward,
        .swiglu_forward = swiglu_forward,
        .swiglu_backward = swiglu_backward,
        .add = add,
        .add_bias = add_bias,
        .bias_gradient = bias_gradient,
        .dropout = dropout,
        .embedding_forward = embedding_forward,
        .embedding_backward = embedding_backward,
        .xent_partial = xent_partial,
        .xent_finish = xent_finish,
        .adamw = adamw,
        .sum_squares = sum_squares,
    };

    return &ops;
}
