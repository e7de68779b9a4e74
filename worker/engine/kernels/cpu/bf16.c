/* bf16: what is not a matrix product. The loops are those of f32, on pieces that fit a core's cache. */
#include "worker/engine/kernels/cpu/bf16.h"

#include <assert.h>

#define PIECE 4096 /* elements widened at once */
#define STRIP 64   /* columns of an item that walks all rows */

/* One call: rows of cols, or n elements as rows of one piece. */
struct call {
    const struct cpu_loops *loops;
    float *wide; /* [threads][room] */
    size_t room, n;
    int rows, cols, each, ld; /* each: rows of an item */
    const uint16_t *x, *dy;
    uint16_t *y;
    const float *from, *gamma, *beta, *stats, *freq;
    float *mean, *rstd, *sum;
    const int32_t *index;
    int heads, dim, slices, first, live;
    float eps, weight;
    bool inverse;
};

/* Room for `room` floats a thread. */
static int open_call(struct kern_stream *s, struct call *c, size_t room, struct merr *err)
{
    c->loops = s->loops;
    c->room = room;
    return cpu_wide(s, room * (size_t)pool_threads(s->pool), &c->wide, err);
}

static float *room_of(const struct call *c, int worker)
{
    return c->wide + c->room * (size_t)worker;
}

/* --- calls over elements --------------------------------------------------------------------------------------- */

static size_t piece_of(const struct call *c, int item)
{
    size_t at = (size_t)item * PIECE;

    return c->n - at < PIECE ? c->n - at : PIECE;
}

static void run_pieces(struct kern_stream *s, struct call *c, double ns_each, pool_fn fn)
{
    cpu_run(s, (int)((c->n + PIECE - 1) / PIECE), (double)c->n * ns_each * 1e-3, fn, c);
}

static void round_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t at = (size_t)item * PIECE;

    (void)worker;
    c->loops->narrow(c->from + at, piece_of(c, item), c->y + at);
}

int bf16_from_f32(struct kern_stream *s, const float *x, size_t n, void *y, struct merr *err)
{
    struct call c = {.loops = s->loops, .n = n, .from = x, .y = y};

    (void)err;
    run_pieces(s, &c, 0.4, round_item);
    return 0;
}

static void gelu_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t at = (size_t)item * PIECE, n = piece_of(c, item);
    float *x = room_of(c, worker), *dy = x + PIECE;

    c->loops->widen(c->x + at, n, x);
    if (c->dy) {
        c->loops->widen(c->dy + at, n, dy);
        c->loops->gelu_backward(x, dy, n, dy);
    } else {
        c->loops->gelu_forward(x, n, dy);
    }
    c->loops->narrow(dy, n, c->y + at);
}

int bf16_gelu(struct kern_stream *s, const uint16_t *x, const uint16_t *dy, size_t n, uint16_t *y, struct merr *err)
{
    struct call c = {.n = n, .x = x, .dy = dy, .y = y};
    int rc = open_call(s, &c, 2 * PIECE, err);

    if (rc == 0)
        run_pieces(s, &c, 2.5, gelu_item);
    return rc;
}

/* --- calls over rows ------------------------------------------------------------------------------------------- */

static int rows_of(const struct call *c, int item)
{
    int first = item * c->each;

    return c->rows - first < c->each ? c->rows - first : c->each;
}

/* Items of as many rows of `width` as make a piece. */
static void cut_rows(struct call *c, int width)
{
    c->each = width >= PIECE || width == 0 ? 1 : PIECE / width;
}

static void run_rows(struct kern_stream *s, struct call *c, double ns_each, pool_fn fn)
{
    cpu_run(s, (c->rows + c->each - 1) / c->each, (double)c->rows * c->cols * ns_each * 1e-3, fn, c);
}

static size_t row_at(const struct call *c, int item)
{
    return (size_t)item * (size_t)c->each;
}

static void norm_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t row = row_at(c, item), at = row * (size_t)c->cols;
    int rows = rows_of(c, item);
    float *y = room_of(c, worker);

    if (c->beta)
        c->loops->layernorm_forward(c->from + at, c->gamma, c->beta, c->eps, rows, c->cols, y, c->mean + row,
                                    c->rstd + row);
    else
        c->loops->rmsnorm_forward(c->from + at, c->gamma, c->eps, rows, c->cols, y, c->rstd + row);
    c->loops->narrow(y, (size_t)rows * (size_t)c->cols, c->y + at);
}

int bf16_norm_forward(struct kern_stream *s, const float *x, const float *gamma, const float *beta, float eps, int rows,
                      int cols, uint16_t *y, float *mean, float *rstd, struct merr *err)
{
    struct call c = {.rows = rows,
                     .cols = cols,
                     .from = x,
                     .gamma = gamma,
                     .beta = beta,
                     .eps = eps,
                     .y = y,
                     .mean = mean,
                     .rstd = rstd};
    int rc;

    cut_rows(&c, cols);
    rc = open_call(s, &c, (size_t)c.each * (size_t)cols, err);
    if (rc == 0)
        run_rows(s, &c, 0.8, norm_item);
    return rc;
}

static void rope_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t row = row_at(c, item), n = (size_t)c->cols;
    int rows = rows_of(c, item);
    float *x = room_of(c, worker);
    uint16_t *from = c->y + row * (size_t)c->ld;

    for (int r = 0; r < rows; r++)
        c->loops->widen(from + (size_t)r * (size_t)c->ld, n, x + (size_t)r * n);
    c->loops->rope(x, rows, c->heads, c->dim, c->cols, c->index + row, c->freq, c->inverse);
    for (int r = 0; r < rows; r++)
        c->loops->narrow(x + (size_t)r * n, n, from + (size_t)r * (size_t)c->ld);
}

int bf16_rope(struct kern_stream *s, uint16_t *x, int rows, int heads, int dim, int ld, const int32_t *position,
              const float *freq, bool inverse, struct merr *err)
{
    struct call c = {.rows = rows,
                     .cols = heads * dim,
                     .y = x,
                     .heads = heads,
                     .dim = dim,
                     .ld = ld,
                     .index = position,
                     .freq = freq,
                     .inverse = inverse};
    int rc;

    cut_rows(&c, c.cols);
    rc = open_call(s, &c, (size_t)c.each * (size_t)c.cols, err);
    if (rc == 0)
        run_rows(s, &c, 2.5, rope_item);
    return rc;
}

/* Columns [from, from + n) of one row. */
static void swiglu_piece(const struct call *c, size_t row, size_t from, size_t n, float *wide)
{
    size_t cols = (size_t)c->cols, at = row * cols + from;
    const uint16_t *gate = c->x + 2 * row * cols + from;
    float *gate_up = wide, *dy = wide + 2 * PIECE, *to = wide + 3 * PIECE;

    c->loops->widen(gate, n, gate_up);
    c->loops->widen(gate + cols, n, gate_up + n);
    if (!c->dy) {
        c->loops->swiglu_forward(gate_up, 1, (int)n, to);
        c->loops->narrow(to, n, c->y + at);
        return;
    }
    c->loops->widen(c->dy + at, n, dy);
    c->loops->swiglu_backward(gate_up, dy, 1, (int)n, to);
    c->loops->narrow(to, n, c->y + 2 * row * cols + from);
    c->loops->narrow(to + n, n, c->y + (2 * row + 1) * cols + from);
}

static void swiglu_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t row = row_at(c, item), cols = (size_t)c->cols;

    for (size_t end = row + (size_t)rows_of(c, item); row < end; row++)
        for (size_t from = 0; from < cols; from += PIECE)
            swiglu_piece(c, row, from, cols - from < PIECE ? cols - from : PIECE, room_of(c, worker));
}

int bf16_swiglu(struct kern_stream *s, const uint16_t *gate_up, const uint16_t *dy, int rows, int cols, uint16_t *y,
                struct merr *err)
{
    struct call c = {.rows = rows, .cols = cols, .x = gate_up, .dy = dy, .y = y};
    int rc = open_call(s, &c, 5 * PIECE, err);

    cut_rows(&c, cols);
    if (rc == 0)
        run_rows(s, &c, 3, swiglu_item);
    return rc;
}

static void xent_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t row = row_at(c, item), cols = (size_t)c->cols;
    float *dz = room_of(c, worker);

    for (size_t end = row + (size_t)rows_of(c, item); row < end; row++) {
        c->loops->xent_finish(c->from + row * cols, c->stats + 3 * row, c->slices, (size_t)c->rows, 1, c->cols,
                              c->first, c->live, c->index + row, c->weight, c->mean + row, dz);
        c->loops->narrow(dz, cols, c->y + row * cols);
    }
}

int bf16_xent_finish(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens, int cols,
                     int first, int live, const int32_t *target, float weight, float *loss, uint16_t *dz,
                     struct merr *err)
{
    struct call c = {.rows = tokens,
                     .cols = cols,
                     .slices = n,
                     .first = first,
                     .live = live,
                     .from = logits,
                     .stats = stats,
                     .index = target,
                     .weight = weight,
                     .mean = loss,
                     .y = dz};
    int rc = open_call(s, &c, (size_t)cols, err);

    cut_rows(&c, cols);
    if (rc == 0)
        run_rows(s, &c, 1.5, xent_item);
    return rc;
}

/* --- calls over columns ---------------------------------------------------------------------------------------- */

static void bias_gradient_item(void *arg, int item, int worker)
{
    const struct call *c = arg;
    size_t first = (size_t)item * STRIP, width = (size_t)c->cols - first < STRIP ? (size_t)c->cols - first : STRIP;
    float *wide = room_of(c, worker);

    for (int row = 0; row < c->rows; row += PIECE / STRIP) {
        int rows = c->rows - row < PIECE / STRIP ? c->rows - row : PIECE / STRIP;

        for (int r = 0; r < rows; r++)
            c->loops->widen(c->dy + (size_t)(row + r) * (size_t)c->ld + first, width, wide + (size_t)r * STRIP);
        c->loops->bias_gradient(wide, rows, (int)width, STRIP, c->sum + first);
    }
}

int bf16_bias_gradient(struct kern_stream *s, const uint16_t *dy, int rows, int cols, int ld, float *db,
                       struct merr *err)
{
    struct call c = {.rows = rows, .cols = cols, .ld = ld, .dy = dy, .sum = db};
    int rc = open_call(s, &c, PIECE, err);

    if (rc == 0)
        cpu_run(s, (cols + STRIP - 1) / STRIP, (double)rows * cols * 0.6e-3, bias_gradient_item, &c);
    return rc;
}

/* --- attention ------------------------------------------------------------------------------------------------- */

/* A matrix of the batch: bf16 with stride ld, f32 without gaps. */
struct matrix {
    uint16_t *narrow;
    float *wide;
    int cols, ld;
};

struct matrices {
    const struct cpu_loops *loops;
    struct matrix m[3];
    int n, rows;
    bool back; /* round instead of widen */
};

static void matrix_item(void *arg, int item, int worker)
{
    const struct matrices *a = arg;
    const struct matrix *m = &a->m[item % a->n];
    size_t from = (size_t)(item / a->n) * STRIP, rows = (size_t)a->rows - from, n = (size_t)m->cols;

    (void)worker;
    for (size_t r = from; r < from + (rows < STRIP ? rows : STRIP); r++) {
        if (a->back)
            a->loops->narrow(m->wide + r * n, n, m->narrow + r * (size_t)m->ld);
        else
            a->loops->widen(m->narrow + r * (size_t)m->ld, n, m->wide + r * n);
    }
}

static void run_matrices(struct kern_stream *s, struct matrices *a)
{
    double all = 0;

    for (int i = 0; i < a->n; i++)
        all += (double)a->rows * a->m[i].cols;
    a->loops = s->loops;
    cpu_run(s, (a->rows + STRIP - 1) / STRIP * a->n, all * 0.4e-3, matrix_item, a);
}

int bf16_attention(struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err)
{
    int columns = (a->heads + 2 * a->kv_heads) * a->dim, width = a->heads * a->dim, apart = columns - width;
    int own_columns = a->kv ? width : columns;
    size_t qkv = (size_t)a->tokens * (size_t)own_columns, out = (size_t)a->tokens * (size_t)width;
    size_t own = backward ? 2 * (qkv + out) : qkv + out, kv = a->kv ? (size_t)a->kv_rows * (size_t)apart : 0;
    struct matrices keys = {.rows = a->kv_rows, .n = 1};
    struct kern_attention f = *a;
    float *wide;
    int rc = cpu_wide(s, own + kv, &wide, err);
    struct matrices in = {.rows = a->tokens, .n = backward ? 3 : 1}, result = {.rows = a->tokens, .n = 1, .back = true};

    if (rc < 0)
        return rc;
    in.m[0] = (struct matrix){(uint16_t *)a->qkv, wide, own_columns, a->ld};
    in.m[1] = (struct matrix){a->out, wide + qkv, width, width};
    in.m[2] = (struct matrix){(uint16_t *)a->dout, wide + qkv + out, width, width};
    run_matrices(s, &in);
    if (a->kv) {
        keys.m[0] = (struct matrix){(uint16_t *)a->kv, wide + own, apart, apart};
        run_matrices(s, &keys);
        f.kv = wide + own;
    }
    f.type = KERN_F32;
    f.ld = own_columns;
    f.qkv = wide;
    f.out = wide + qkv;
    f.dout = wide + qkv + out;
    f.dqkv = wide + qkv + 2 * out;
    rc = backward ? cpu_attention_backward(s, &f, err) : cpu_attention_forward(s, &f, err);
    if (rc < 0)
        return rc;
    result.m[0] = backward ? (struct matrix){a->dqkv, f.dqkv, own_columns, a->ld} : in.m[1];
    run_matrices(s, &result);
    return 0;
}
