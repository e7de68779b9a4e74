#include "worker/engine/kernels/cuda/dnn_graph.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

#define DESCRIPTORS_MAX 128
#define OPERATIONS_MAX 40
#define CONFIGS_MAX 8
#define ALIGNMENT 16

enum { MUL = 1, ADD = 0, SUB = 9, DIV = 6, EXP = 13, LOG = 15, IDENTITY_INDEX = 501, SELECT = 601 };
enum { LESS = 304, AT_LEAST = 303, AND = 400 };
enum { SUM_OF = 0, MAX_OF = 3 };
enum { MODE_A = 3, MODE_FALLBACK = 2 };

/* A graph that is being said. The first failure stays, and nothing is done after it. */
struct graph {
    const struct dnn_api *f;
    const struct dnn_shape *s;
    void *made[DESCRIPTORS_MAX];
    int n, virtuals;
    void *op[OPERATIONS_MAX];
    int ops;
    int status;
    const char *what;
    void *q_lengths, *k_lengths, *masked;
};

static int words(const struct dnn_api *f, int status, const char *what, struct merr *err)
{
    char more[512] = "";
    int kind = status / 1000 * 1000;

    f->last_error(more, sizeof(more));
    more[sizeof(more) - 1] = '\0';
    return merr_set(err, kind == DNN_NOT_SUPPORTED ? -ENOTSUP : -EIO, "cuDNN: %s: %s%s%.300s", what, f->error(status),
                    *more ? ": " : "", more);
}

/* --- descriptors -------------------------------------------------------------------------------- */

static void note(struct graph *g, int status, const char *what)
{
    if (g->status == DNN_SUCCESS && status != DNN_SUCCESS) {
        g->status = status;
        g->what = what;
    }
}

static void *begin(struct graph *g, enum dnn_kind kind)
{
    void *d = NULL;

    assert(g->n < DESCRIPTORS_MAX);
    if (g->status == DNN_SUCCESS)
        note(g, g->f->make(kind, &d), "a descriptor");
    if (g->status != DNN_SUCCESS)
        return NULL;
    return g->made[g->n++] = d;
}

static void put(struct graph *g, void *d, enum dnn_attribute a, enum dnn_type type, int64_t n, const void *values)
{
    if (g->status == DNN_SUCCESS)
        note(g, g->f->set(d, a, type, n, values), "an attribute");
}

static void put_other(struct graph *g, void *d, enum dnn_attribute a, void *other)
{
    put(g, d, a, DNN_DESCRIPTOR, 1, &other);
}

static void put_data(struct graph *g, void *d, enum dnn_attribute a, int type)
{
    put(g, d, a, DNN_DATA, 1, &type);
}

static void *end(struct graph *g, void *d, const char *what)
{
    if (g->status == DNN_SUCCESS)
        note(g, g->f->finalize(d), what);
    return d;
}

static void *end_operation(struct graph *g, void *d, const char *what)
{
    assert(g->ops < OPERATIONS_MAX);
    g->op[g->ops++] = end(g, d, what);
    return d;
}

/* --- tensors: [documents, heads, rows, numbers] --------------------------------------------------- */

struct layout {
    int64_t size[4], stride[4];
};

static void *tensor_start(struct graph *g, int64_t id, int type, struct layout l)
{
    const int64_t alignment = type == DNN_BF16 ? ALIGNMENT : type == DNN_INT64 ? 8 : 4;
    void *t = begin(g, DNN_TENSOR);

    put_data(g, t, DNN_TENSOR_TYPE, type);
    put(g, t, DNN_TENSOR_SIZES, DNN_I64, 4, l.size);
    put(g, t, DNN_TENSOR_STRIDES, DNN_I64, 4, l.stride);
    put(g, t, DNN_TENSOR_ID, DNN_I64, 1, &id);
    put(g, t, DNN_TENSOR_ALIGNMENT, DNN_I64, 1, &alignment);
    return t;
}

static void *given(struct graph *g, enum dnn_tensor id, int type, struct layout l, void *offsets)
{
    void *t = tensor_start(g, id, type, l);

    if (offsets)
        put_other(g, t, DNN_TENSOR_RAGGED, offsets);
    return end(g, t, "a tensor");
}

static void *by_value(struct graph *g, enum dnn_tensor id)
{
    const struct layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    const bool yes = true;
    void *t = tensor_start(g, id, DNN_FLOAT, one);

    put(g, t, DNN_TENSOR_BY_VALUE, DNN_BOOL, 1, &yes);
    return end(g, t, "a value");
}

/* What only operations of the graph see. */
static void *between(struct graph *g, int type, struct layout l, void *offsets)
{
    const bool yes = true;
    void *t = tensor_start(g, DNN_TENSORS + g->virtuals++, type, l);

    put(g, t, DNN_TENSOR_VIRTUAL, DNN_BOOL, 1, &yes);
    if (offsets)
        put_other(g, t, DNN_TENSOR_RAGGED, offsets);
    return end(g, t, "a tensor between operations");
}

static struct layout scores(const struct dnn_shape *s)
{
    const int64_t r = s->rows;

    return (struct layout){{s->docs, s->heads, r, r}, {s->heads * r * r, r * r, r, 1}};
}

/* Rows of a document that lie `ld` numbers apart. */
static struct layout rows_of(const struct dnn_shape *s, int64_t heads, int64_t ld)
{
    return (struct layout){{s->docs, heads, s->rows, s->dim}, {s->rows * ld, s->dim, ld, 1}};
}

static struct layout turned(struct layout l)
{
    return (struct layout){{l.size[0], l.size[1], l.size[3], l.size[2]},
                           {l.stride[0], l.stride[1], l.stride[3], l.stride[2]}};
}

static struct layout a_row(const struct dnn_shape *s, bool packed) /* one number a row and head */
{
    const int64_t h = s->heads, r = s->rows;

    return packed ? (struct layout){{s->docs, h, r, 1}, {r * h, 1, h, 1}}
                  : (struct layout){{s->docs, h, r, 1}, {h * r, r, 1, 1}};
}

size_t dnn_sums_bytes(const struct dnn_shape *s)
{
    return (size_t)s->docs * (size_t)s->heads * (size_t)s->rows * sizeof(float);
}

/* --- operations --------------------------------------------------------------------------------- */

struct point {
    int does, in, axis; /* axis: of an index */
    void *x, *b, *t, *y;
};

static void *pointwise(struct graph *g, struct point p)
{
    const int64_t axis = p.axis;
    void *what = begin(g, DNN_POINTWISE), *op;

    put(g, what, DNN_POINTWISE_DOES, DNN_POINTWISE_MODE, 1, &p.does);
    put_data(g, what, DNN_POINTWISE_IN, p.in);
    if (p.does == IDENTITY_INDEX)
        put(g, what, DNN_POINTWISE_AXIS, DNN_I64, 1, &axis);
    (void)end(g, what, "what to do with each number");
    op = begin(g, DNN_DO_POINTWISE);
    put_other(g, op, DNN_DO_POINTWISE_WHAT, what);
    put_other(g, op, DNN_DO_POINTWISE_X, p.x);
    if (p.b)
        put_other(g, op, DNN_DO_POINTWISE_B, p.b);
    if (p.t)
        put_other(g, op, DNN_DO_POINTWISE_T, p.t);
    put_other(g, op, DNN_DO_POINTWISE_Y, p.y);
    (void)end_operation(g, op, "an operation of each number");
    return p.y;
}

/* In f32, of scores or whatever l is. */
static void *each(struct graph *g, int does, void *x, void *b, struct layout l)
{
    return pointwise(
        g, (struct point){.does = does, .in = DNN_FLOAT, .x = x, .b = b, .y = between(g, DNN_FLOAT, l, NULL)});
}

enum { M = 1, N = 2, K = 4 }; /* which sizes of a product are documents' lengths */

static void product(struct graph *g, void *a, void *b, void *c, int q_rows, int k_rows, double *padding)
{
    static const enum dnn_attribute of[] = {DNN_DO_MATMUL_M, DNN_DO_MATMUL_N, DNN_DO_MATMUL_K};
    void *what = begin(g, DNN_MATMUL), *op;

    put_data(g, what, DNN_MATMUL_IN, DNN_FLOAT);
    if (padding)
        put(g, what, DNN_MATMUL_PADDING, DNN_F64, 1, padding);
    (void)end(g, what, "a product");
    op = begin(g, DNN_DO_MATMUL);
    put_other(g, op, DNN_DO_MATMUL_WHAT, what);
    put_other(g, op, DNN_DO_MATMUL_A, a);
    put_other(g, op, DNN_DO_MATMUL_B, b);
    put_other(g, op, DNN_DO_MATMUL_C, c);
    for (int i = 0; i < 3; i++) {
        if (q_rows & 1 << i)
            put_other(g, op, of[i], g->q_lengths);
        if (k_rows & 1 << i)
            put_other(g, op, of[i], g->k_lengths);
    }
    (void)end_operation(g, op, "an operation of products");
}

static void *reduce(struct graph *g, int does, void *x, void *y)
{
    void *what = begin(g, DNN_REDUCTION), *op;

    put(g, what, DNN_REDUCTION_DOES, DNN_REDUCTION_MODE, 1, &does);
    put_data(g, what, DNN_REDUCTION_IN, DNN_FLOAT);
    (void)end(g, what, "a reduction");
    op = begin(g, DNN_DO_REDUCTION);
    put_other(g, op, DNN_DO_REDUCTION_WHAT, what);
    put_other(g, op, DNN_DO_REDUCTION_X, x);
    put_other(g, op, DNN_DO_REDUCTION_Y, y);
    (void)end_operation(g, op, "an operation of reductions");
    return y;
}

static void *reshape(struct graph *g, void *x, void *y)
{
    void *op = begin(g, DNN_DO_RESHAPE);

    put_other(g, op, DNN_DO_RESHAPE_X, x);
    put_other(g, op, DNN_DO_RESHAPE_Y, y);
    (void)end_operation(g, op, "an operation that turns a matrix");
    return y;
}

static void *index_of(struct graph *g, void *x, int axis)
{
    return pointwise(g, (struct point){.does = IDENTITY_INDEX,
                                       .in = DNN_INT32,
                                       .axis = axis,
                                       .x = x,
                                       .y = between(g, DNN_INT32, scores(g->s), NULL)});
}

static void *whether(struct graph *g, int does, void *x, void *b)
{
    return pointwise(
        g, (struct point){
               .does = does, .in = DNN_BOOLEAN, .x = x, .b = b, .y = between(g, DNN_BOOLEAN, scores(g->s), NULL)});
}

static void *keep(struct graph *g, void *x, void *where)
{
    return pointwise(g, (struct point){.does = SELECT,
                                       .in = DNN_FLOAT,
                                       .x = x,
                                       .b = g->masked,
                                       .t = where,
                                       .y = between(g, DNN_FLOAT, scores(g->s), NULL)});
}

/* Scores of rows and keys that the document has. */
static void *within(struct graph *g, void *x)
{
    void *row = index_of(g, x, 2), *key = index_of(g, x, 3);
    void *is_row = whether(g, LESS, row, g->q_lengths), *is_key = whether(g, LESS, key, g->k_lengths);

    return keep(g, x, whether(g, AND, is_row, is_key));
}

/* Of keys that a row sees. */
static void *causal(struct graph *g, void *x)
{
    void *row = index_of(g, x, 2), *key = index_of(g, x, 3);

    return keep(g, x, whether(g, AT_LEAST, row, key));
}

/* --- attention ---------------------------------------------------------------------------------- */

struct tensors {
    void *q, *k_turned, *scale, *lse, *qkv_at, *o_at, *lse_at;
    struct layout q_rows, kv_rows, o_rows;
};

static void common(struct graph *g, struct tensors *t)
{
    const struct dnn_shape *s = g->s;
    const struct layout lengths = {{s->docs, 1, 1, 1}, {1, 1, 1, 1}}, at = {{s->docs + 1, 1, 1, 1}, {1, 1, 1, 1}};

    *t = (struct tensors){.q_rows = rows_of(s, s->heads, s->ld),
                          .kv_rows = rows_of(s, s->kv_heads, s->ld),
                          .o_rows = rows_of(s, s->heads, (int64_t)s->heads * s->dim)};
    g->q_lengths = given(g, DNN_Q_LENGTHS, DNN_INT32, lengths, NULL);
    g->k_lengths = given(g, DNN_K_LENGTHS, DNN_INT32, lengths, NULL);
    t->qkv_at = given(g, DNN_QKV_AT, DNN_INT64, at, NULL);
    t->o_at = given(g, DNN_O_AT, DNN_INT64, at, NULL);
    t->lse_at = given(g, DNN_LSE_AT, DNN_INT64, at, NULL);
    t->q = given(g, DNN_Q, DNN_BF16, t->q_rows, t->qkv_at);
    t->k_turned = given(g, DNN_K, DNN_BF16, turned(t->kv_rows), t->qkv_at);
    t->lse = given(g, DNN_LSE, DNN_FLOAT, a_row(s, true), t->lse_at);
    t->scale = by_value(g, DNN_SCALE);
    g->masked = by_value(g, DNN_MASKED);
}

static void forward(struct graph *g)
{
    const struct layout square = scores(g->s), row = a_row(g->s, false);
    double zero = 0;
    struct tensors t;
    void *v, *o, *x, *max, *sum, *log, *p;

    common(g, &t);
    v = given(g, DNN_V, DNN_BF16, t.kv_rows, t.qkv_at);
    o = given(g, DNN_O, DNN_BF16, t.o_rows, t.o_at);
    x = between(g, DNN_FLOAT, square, NULL);
    product(g, t.q, t.k_turned, x, M, N, &zero);
    x = causal(g, within(g, each(g, MUL, x, t.scale, square)));
    max = reduce(g, MAX_OF, x, between(g, DNN_FLOAT, row, NULL));
    x = each(g, EXP, each(g, SUB, x, max, square), NULL, square);
    sum = reduce(g, SUM_OF, x, between(g, DNN_FLOAT, row, NULL));
    log = each(g, LOG, sum, NULL, row);
    (void)pointwise(g, (struct point){.does = ADD, .in = DNN_FLOAT, .x = max, .b = log, .y = t.lse});
    p = between(g, DNN_BF16, square, NULL);
    (void)pointwise(g, (struct point){.does = DIV, .in = DNN_FLOAT, .x = x, .b = sum, .y = p});
    product(g, p, v, o, M, K, NULL);
}

/* The gradient of keys or of values, summed over the heads that share them. */
static void shared(struct graph *g, const struct tensors *t, enum dnn_tensor id, void *turned_scores, void *rows)
{
    const struct dnn_shape *s = g->s;
    const int64_t d = s->dim, r = s->rows, h = s->heads;
    void *to = given(g, id, DNN_BF16, t->kv_rows, t->qkv_at), *all = to;

    if (s->heads != s->kv_heads)
        all = between(g, DNN_BF16, (struct layout){{s->docs, h, r, d}, {h * r * d, r * d, d, 1}}, NULL);
    product(g, turned_scores, rows, all, K, M, NULL);
    if (all != to)
        (void)reduce(g, SUM_OF, all, to);
}

static void *turned_bf16(struct graph *g, void *x)
{
    return reshape(g, x, between(g, DNN_BF16, turned(scores(g->s)), NULL));
}

static void backward(struct graph *g)
{
    const struct layout square = scores(g->s), row = a_row(g->s, false);
    struct layout o_dense;
    struct tensors t;
    void *o, *grad, *one, *sums, *x, *p, *v_turned, *k;

    common(g, &t);
    o_dense = (struct layout){{g->s->docs, g->s->heads, g->s->rows, g->s->dim}, {0}};
    memcpy(o_dense.stride, t.o_rows.stride, sizeof(o_dense.stride));
    o = given(g, DNN_O, DNN_BF16, t.o_rows, t.o_at);
    grad = given(g, DNN_DO, DNN_BF16, t.o_rows, t.o_at);
    v_turned = given(g, DNN_V, DNN_BF16, turned(t.kv_rows), t.qkv_at);
    one = by_value(g, DNN_ONE);
    sums = given(g, DNN_SUMS, DNN_FLOAT, row, NULL);
    x = reduce(g, SUM_OF, each(g, MUL, grad, o, o_dense), between(g, DNN_FLOAT, row, NULL));
    (void)pointwise(g, (struct point){.does = MUL, .in = DNN_FLOAT, .x = x, .b = one, .y = sums});

    x = between(g, DNN_FLOAT, square, NULL);
    product(g, t.q, t.k_turned, x, M, N, NULL);
    x = within(g, each(g, MUL, x, t.scale, square));
    p = each(g, EXP, causal(g, each(g, SUB, x, t.lse, square)), NULL, square);
    shared(g, &t, DNN_DV, turned_bf16(g, p), grad);

    x = between(g, DNN_FLOAT, square, NULL);
    product(g, grad, v_turned, x, M, N, NULL);
    x = each(g, MUL, each(g, SUB, x, sums, square), p, square);
    x = each(g, MUL, x, t.scale, square);
    shared(g, &t, DNN_DK, turned_bf16(g, x), t.q);
    k = reshape(g, t.k_turned, between(g, DNN_BF16, t.kv_rows, t.qkv_at));
    /* In one product, not added up on the way: that is what makes the library choose a fixed order. */
    product(g, x, k, given(g, DNN_DQ, DNN_BF16, t.q_rows, t.qkv_at), M, K, NULL);
}

/* --- engines ------------------------------------------------------------------------------------ */

static bool is_fixed(const struct dnn_api *f, void *config)
{
    int notes[DNN_NOTES_MAX];
    void *engine = NULL;
    int64_t n = 0;
    bool fixed = false;

    if (f->make(DNN_ENGINE, &engine) != DNN_SUCCESS)
        return false;
    if (f->get(config, DNN_CONFIG_ENGINE, DNN_DESCRIPTOR, 1, &n, &engine) == DNN_SUCCESS &&
        f->get(engine, DNN_ENGINE_NOTES, DNN_NOTE, DNN_NOTES_MAX, &n, notes) == DNN_SUCCESS) {
        fixed = true;
        for (int64_t i = 0; i < n && i < DNN_NOTES_MAX; i++)
            fixed &= notes[i] != DNN_NONDETERMINISTIC;
    }
    (void)f->unmake(engine);
    return fixed;
}

/* A plan of one configuration, or without a handle the room that it would take: a status of the library's. */
static int plan_of(const struct dnn_api *f, void *handle, void *config, struct dnn_plan *ret)
{
    int64_t work = 0, n = 0;
    void *plan = NULL;
    int e = handle ? f->make(DNN_PLAN, &plan) : f->get(config, DNN_CONFIG_WORK, DNN_I64, 1, &n, &work);

    if (handle && e == DNN_SUCCESS)
        e = f->set(plan, DNN_PLAN_HANDLE, DNN_HANDLE, 1, &handle);
    if (handle && e == DNN_SUCCESS)
        e = f->set(plan, DNN_PLAN_CONFIG, DNN_DESCRIPTOR, 1, &config);
    if (handle && e == DNN_SUCCESS)
        e = f->finalize(plan);
    if (handle && e == DNN_SUCCESS)
        e = f->get(plan, DNN_PLAN_WORK, DNN_I64, 1, &n, &work);
    if (e == DNN_SUCCESS)
        *ret = (struct dnn_plan){.plan = plan, .work_bytes = work > 0 ? (size_t)work : 0};
    else if (plan)
        (void)f->unmake(plan);
    return e;
}

struct search { /* for a plan */
    void *handle, *device;
    size_t work_most;
    int status; /* the last refusal */
    int loose, large;
};

static bool try_all(struct graph *g, struct search *at, void **config, int64_t n, struct dnn_plan *ret)
{
    for (int64_t i = 0; i < n; i++) {
        struct dnn_plan p = {.plan = NULL};
        int e;

        if (!is_fixed(g->f, config[i])) {
            at->loose++;
            continue;
        }
        e = plan_of(g->f, at->handle, config[i], &p);
        if (e != DNN_SUCCESS) {
            at->status = e;
        } else if (p.work_bytes > at->work_most) {
            dnn_plan_clear(g->f, &p);
            at->large++;
        } else {
            *ret = p;
            return true;
        }
    }
    return false;
}

/* What the heuristics of a mode name, best first. */
static bool try_mode(struct graph *g, struct search *at, void *graph, int mode, struct dnn_plan *ret)
{
    void *heuristic = begin(g, DNN_HEURISTIC), *config[CONFIGS_MAX];
    int64_t n = 0, made = 0;
    bool found = false;

    put_other(g, heuristic, DNN_HEURISTIC_GRAPH, graph);
    put(g, heuristic, DNN_HEURISTIC_HOW, DNN_HEURISTIC_MODE, 1, &mode);
    if (!at->handle)
        put_other(g, heuristic, DNN_HEURISTIC_DEVICE, at->device);
    (void)end(g, heuristic, "no engine");
    while (g->status == DNN_SUCCESS && made < CONFIGS_MAX && g->f->make(DNN_CONFIG, &config[made]) == DNN_SUCCESS)
        made++;
    if (g->status == DNN_SUCCESS)
        note(g, g->f->get(heuristic, DNN_HEURISTIC_RESULTS, DNN_DESCRIPTOR, made, &n, config), "no engine");
    if (g->status == DNN_SUCCESS)
        found = try_all(g, at, config, n < made ? n : made, ret);
    while (made > 0)
        (void)g->f->unmake(config[--made]);
    return found;
}

static int choose(struct graph *g, struct search *at, struct dnn_plan *ret, struct merr *err)
{
    void *graph = begin(g, DNN_GRAPH);
    bool found;

    if (at->handle)
        put(g, graph, DNN_GRAPH_HANDLE, DNN_HANDLE, 1, &at->handle);
    put(g, graph, DNN_GRAPH_OPERATIONS, DNN_DESCRIPTOR, g->ops, g->op);
    (void)end(g, graph, "a graph of operations");
    if (g->status != DNN_SUCCESS)
        return words(g->f, g->status, g->what, err);
    found = try_mode(g, at, graph, MODE_A, ret);
    if (!found) {
        g->status = DNN_SUCCESS;
        found = try_mode(g, at, graph, MODE_FALLBACK, ret);
    }
    if (found)
        return 0;
    if (at->loose || at->large)
        return merr_set(err, -ENOTSUP,
                        "cuDNN's engines for it do not give the same bits each time (%d) or take more "
                        "than %zu MiB of workspace (%d)",
                        at->loose, at->work_most >> 20, at->large);
    return words(g->f, at->status ? at->status : g->status,
                 at->status ? "no plan"
                 : g->what  ? g->what
                            : "no engine",
                 err);
}

int dnn_plan_new(const struct dnn_api *f, void *handle, void *device, const struct dnn_shape *s, size_t work_most,
                 struct dnn_plan *ret, struct merr *err)
{
    struct graph *g = calloc(1, sizeof(*g));
    struct search at = {.handle = handle, .device = device, .work_most = work_most};
    int r;

    if (!g)
        return merr_set(err, -ENOMEM, "no memory for a plan of attention");
    g->f = f;
    g->s = s;
    if (s->backward)
        backward(g);
    else
        forward(g);
    r = g->status == DNN_SUCCESS ? choose(g, &at, ret, err) : words(f, g->status, g->what, err);
    while (g->n > 0)
        (void)f->unmake(g->made[--g->n]);
    free(g);
    return r;
}

void dnn_plan_clear(const struct dnn_api *f, struct dnn_plan *p)
{
    if (p->plan)
        (void)f->unmake(p->plan);
    *p = (struct dnn_plan){.plan = NULL};
}
