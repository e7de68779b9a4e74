/* Every kernel of the table but attention, on shapes with and without tails. Limits: an f32 result may be off by the
 * rounding of its sums and of the GPU's exp and tanh; a bf16 one by one neighbour, 1/128, or two where a rounded number
 * is rounded again. What has no sum and no function is exact. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

#define EXACT 0.0f
#define F32 2e-5f
#define NEIGHBOUR (1 / 128.0f)
#define TWO_NEIGHBOURS (1 / 64.0f)
#define INPUT -1.0f
#define WRITTEN -1.0f /* size: nothing in it before */

struct shape {
    int rows, cols, ld, first, vocab, n;
    bool flag;
    enum kern_type type;
    const int32_t *token;
    const uint64_t *sample;
    struct kern_gemm gemm;
    struct kern_dropout drop;
    const float *freq;
};

#define CASE(name)                                                                                                     \
    static int name(const struct kern_ops *k, struct kern_stream *s, const struct check_array *a, const void *arg,     \
                    struct merr *err)
#define SHAPE const struct shape *d = arg

CASE(fill)
{
    SHAPE;
    (void)d;
    return k->fill(s, a[0].p, 1.25f, a[0].n, err);
}

CASE(to_bf16)
{
    SHAPE;
    (void)d;
    return k->to_bf16(s, a[1].p, a[1].n, a[0].p, err);
}

CASE(gelu_forward)
{
    SHAPE;
    return k->gelu_forward(s, d->type, a[1].p, a[1].n, a[0].p, err);
}

CASE(gelu_backward)
{
    SHAPE;
    return k->gelu_backward(s, d->type, a[1].p, a[2].p, a[1].n, a[0].p, err);
}

CASE(swiglu_forward)
{
    SHAPE;
    return k->swiglu_forward(s, d->type, a[1].p, d->rows, d->cols, a[0].p, err);
}

CASE(swiglu_backward)
{
    SHAPE;
    return k->swiglu_backward(s, d->type, a[1].p, a[2].p, d->rows, d->cols, a[0].p, err);
}

CASE(add)
{
    SHAPE;
    (void)d;
    return k->add(s, a[0].p, a[1].p, a[0].n, err);
}

CASE(add_bias)
{
    SHAPE;
    return k->add_bias(s, a[0].p, a[1].p, d->rows, d->cols, err);
}

CASE(bias_gradient)
{
    SHAPE;
    return k->bias_gradient(s, d->type, a[1].p, d->rows, d->cols, d->ld, a[0].p, err);
}

CASE(dropout)
{
    SHAPE;
    return k->dropout(s, &d->drop, a[1].p, a[0].p, err);
}

CASE(rope)
{
    SHAPE;
    return k->rope(s, d->type, a[0].p, d->rows, d->n, d->cols, d->ld, d->token, d->freq, d->flag, err);
}

CASE(layernorm)
{
    SHAPE;
    int r =
        k->layernorm_forward(s, d->type, a[3].p, a[4].p, a[5].p, 1e-5f, d->rows, d->cols, a[0].p, a[1].p, a[2].p, err);

    return r ? r
             : k->layernorm_backward(s, a[6].p, a[3].p, a[4].p, a[1].p, a[2].p, d->rows, d->cols, a[7].p, d->flag,
                                     a[8].p, a[9].p, err);
}

CASE(rmsnorm)
{
    SHAPE;
    int r = k->rmsnorm_forward(s, d->type, a[2].p, a[3].p, 1e-5f, d->rows, d->cols, a[0].p, a[1].p, err);

    return r ? r
             : k->rmsnorm_backward(s, a[4].p, a[2].p, a[3].p, a[1].p, d->rows, d->cols, a[5].p, d->flag, a[6].p, err);
}

CASE(embedding)
{
    SHAPE;
    int r = k->embedding_forward(s, d->type, a[1].p, d->first, d->n, d->cols, d->token, d->rows, a[0].p, err);

    return r ? r : k->embedding_backward(s, a[2].p, d->first, d->n, d->cols, d->token, d->rows, a[3].p, err);
}

/* Two slices of the vocabulary; the second one's gradient, in place where flag. */
CASE(loss)
{
    SHAPE;
    float *stats = a[0].p, *other = stats + 3 * d->rows;
    int r = k->xent_partial(s, a[3].p, d->rows, d->cols, 0, d->vocab, d->token, stats, err);

    if (r == 0)
        r = k->xent_partial(s, a[2].p, d->rows, d->cols, d->cols, d->vocab, d->token, other, err);
    return r ? r
             : k->xent_finish(s, a[2].p, stats, 2, d->rows, d->cols, d->cols, d->vocab, d->token, 0.37f, a[1].p,
                              d->type, d->flag ? a[2].p : a[4].p, err);
}

CASE(adamw)
{
    SHAPE;
    const struct kern_adamw_step step = {.grad_scale = 0.71f, .lr = 1e-2f, .inv_bias1 = 3.1f, .inv_bias2 = 7.7f};
    const struct kern_adamw w = {.n = a[0].n,
                                 .w = a[0].p,
                                 .m = a[1].p,
                                 .v = a[2].p,
                                 .g = a[3].p,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .step = &step};

    (void)d;
    return k->adamw(s, &w, err);
}

CASE(sum_squares)
{
    SHAPE;
    size_t blocks = (a[1].n + (size_t)d->n - 1) / (size_t)d->n;
    double *sum = calloc(blocks + 1, sizeof(*sum));
    float *out = malloc((blocks + 1) * sizeof(*out));
    int r = sum && out ? k->sum_squares(s, a[1].p, a[1].n, (size_t)d->n, sum, err) : merr_set(err, -1, "no memory");

    for (size_t i = 0; r == 0 && i < blocks; i++)
        out[i] = (float)sum[i];
    if (r == 0)
        r = k->copy(s, a[0].p, out, blocks * sizeof(*out), err);
    free(sum);
    free(out);
    return r;
}

CASE(gemm)
{
    const struct shape *d = arg;
    struct kern_gemm g = d->gemm;

    g.c = a[0].p;
    g.aux = a[1].p;
    g.a = a[2].p;
    g.b = a[3].p;
    g.bias = a[4].p;
    g.onto = d->flag ? a[5].p : NULL;
    return k->gemm(s, &g, err);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static float limit_of(enum kern_type t)
{
    return t == KERN_BF16 ? NEIGHBOUR : F32;
}

static const char *name_of(enum kern_type t)
{
    return t == KERN_BF16 ? "bf16" : "f32";
}

static void elements(struct check *c, size_t n)
{
    struct check_array filled[] = {{"y", KERN_F32, n, WRITTEN, EXACT, 0, 0}};
    struct check_array narrow[] = {{"y", KERN_BF16, n, WRITTEN, EXACT, 0, 0}, {"x", KERN_F32, n, 3, INPUT, 0, 0}};
    struct check_array sum[] = {{"y", KERN_F32, n, 3, EXACT, 0, 0}, {"x", KERN_F32, n, 3, INPUT, 0, 0}};
    struct check_array adam[] = {{"w", KERN_F32, n, 1, EXACT, 0, 0},
                                 {"m", KERN_F32, n, 1, EXACT, 0, 0},
                                 {"v", KERN_F32, n, 0, EXACT, 0, 0},
                                 {"g", KERN_F32, n, 1, INPUT, 0, 0}};
    struct shape d = {.rows = 1};
    char what[96];

    (void)snprintf(what, sizeof(what), "of %zu", n);
#define RUN(label, fn, arrays, count)                                                                                  \
    do {                                                                                                               \
        (void)snprintf(what, sizeof(what), label " %zu", n);                                                           \
        check_run(c, what, fn, arrays, count, &d);                                                                     \
    } while (0)
    RUN("fill", fill, filled, 1);
    RUN("to_bf16", to_bf16, narrow, 2);
    RUN("add", add, sum, 2);
    RUN("adamw", adamw, adam, 4);
#undef RUN
    for (enum kern_type t = KERN_F32; t <= KERN_BF16; t++) {
        struct check_array a[] = {
            {"y", t, n, WRITTEN, limit_of(t), 0, 0}, {"x", t, n, 6, INPUT, 0, 0}, {"dy", t, n, 2, INPUT, 0, 0}};

        d.type = t;
        (void)snprintf(what, sizeof(what), "gelu %s %zu", name_of(t), n);
        check_run(c, what, gelu_forward, a, 2, &d);
        (void)snprintf(what, sizeof(what), "gelu backward %s %zu", name_of(t), n);
        check_run(c, what, gelu_backward, a, 3, &d);
    }
}

static void activations(struct check *c, int rows, int cols)
{
    size_t n = (size_t)rows * (size_t)cols;
    char what[96];

    for (enum kern_type t = KERN_F32; t <= KERN_BF16; t++) {
        struct shape d = {.rows = rows, .cols = cols, .type = t, .ld = cols + (cols % 8 ? 3 : 8)};
        size_t strided = (size_t)(rows - 1) * (size_t)d.ld + (size_t)cols;
        struct check_array there[] = {{"y", t, n, WRITTEN, limit_of(t), 0, 0}, {"gate_up", t, 2 * n, 5, INPUT, 0, 0}};
        struct check_array back[] = {{"dgate_up", t, 2 * n, WRITTEN, limit_of(t), 0, 0},
                                     {"gate_up", t, 2 * n, 5, INPUT, 0, 0},
                                     {"dy", t, n, 1, INPUT, 0, 0}};
        struct check_array bias[] = {{"db", KERN_F32, (size_t)cols, 1, 10 * F32, 0, 0},
                                     {"dy", t, strided, 1, INPUT, 0, 0}};
        struct check_array plus[] = {{"y", KERN_F32, n, 1, EXACT, 0, 0},
                                     {"bias", KERN_F32, (size_t)cols, 1, INPUT, 0, 0}};

        (void)snprintf(what, sizeof(what), "swiglu %s %dx%d", name_of(t), rows, cols);
        check_run(c, what, swiglu_forward, there, 2, &d);
        (void)snprintf(what, sizeof(what), "swiglu backward %s %dx%d", name_of(t), rows, cols);
        check_run(c, what, swiglu_backward, back, 3, &d);
        (void)snprintf(what, sizeof(what), "bias gradient %s %dx%d", name_of(t), rows, cols);
        check_run(c, what, bias_gradient, bias, 2, &d);
        (void)snprintf(what, sizeof(what), "add bias %dx%d", rows, cols);
        check_run(c, what, add_bias, plus, 2, &d);
    }
}

static void norms(struct check *c, int rows, int cols, enum kern_type t, bool adds)
{
    size_t r = (size_t)rows, k = (size_t)cols, n = r * k;
    struct shape d = {.rows = rows, .cols = cols, .type = t, .flag = adds};
    struct check_array layer[] = {
        {"y", t, n, WRITTEN, t == KERN_BF16 ? NEIGHBOUR : 5 * F32, 0, 0},
        {"mean", KERN_F32, r, WRITTEN, F32, 0, 0},
        {"rstd", KERN_F32, r, WRITTEN, 5 * F32, 0, 0},
        {"x", KERN_F32, n, 2, INPUT, 0, 0},
        {"gamma", KERN_F32, k, 1, INPUT, 0, 0},
        {"beta", KERN_F32, k, 1, INPUT, 0, 0},
        {"dy", KERN_F32, n, 1, INPUT, 0, 0},
        {"dx", KERN_F32, n, adds ? 1 : WRITTEN, 5 * F32, 0, 0},
        {"dgamma", KERN_F32, k, 1, 20 * F32, 0, 0},
        {"dbeta", KERN_F32, k, 1, 20 * F32, 0, 0},
    };
    struct check_array rms[] = {layer[0], layer[2], layer[3], layer[4], layer[6], layer[7], layer[8]};
    char what[96];

    (void)snprintf(what, sizeof(what), "layernorm %s %dx%d add %d", name_of(t), rows, cols, adds);
    check_run(c, what, layernorm, layer, 10, &d);
    (void)snprintf(what, sizeof(what), "rmsnorm %s %dx%d add %d", name_of(t), rows, cols, adds);
    check_run(c, what, rmsnorm, rms, 7, &d);
}

static int32_t *random_tokens(struct check *c, int n, int lo, int hi)
{
    int32_t *t = malloc((size_t)(n + 1) * sizeof(*t));

    for (int i = 0; t && i < n; i++)
        t[i] = check_range(c, lo, hi);
    if (!t)
        exit(1);
    return t;
}

static void tokens(struct check *c, int rows, int cols)
{
    int vocab = 2 * cols - check_range(c, 0, cols / 2), table = check_range(c, 3, 40);
    size_t n = (size_t)rows * (size_t)cols, r = (size_t)rows;
    struct shape d = {.rows = rows, .cols = cols, .vocab = vocab, .n = table, .first = check_range(c, 0, 9)};
    int32_t *target = random_tokens(c, rows, -1, vocab - 1), *token = random_tokens(c, rows, 0, 60);
    char what[96];

    for (int form = 0; form < 3; form++) {
        enum kern_type t = form == 2 ? KERN_BF16 : KERN_F32;
        struct check_array a[] = {
            {"stats", KERN_F32, 6 * r, WRITTEN, F32 * 5, 0, 0},        {"loss", KERN_F32, r, WRITTEN, F32, 0, 0},
            {"logits", KERN_F32, n, 8, form == 1 ? F32 : INPUT, 0, 0}, {"others", KERN_F32, n, 8, INPUT, 0, 0},
            {"dz", t, form == 1 ? 0 : n, WRITTEN, limit_of(t), 0, 0},
        };

        d.type = t;
        d.flag = form == 1;
        d.token = target;
        (void)snprintf(what, sizeof(what), "loss %s%s %dx%d", name_of(t), form == 1 ? " in place" : "", rows, cols);
        check_run(c, what, loss, a, 5, &d);
    }
    struct check_array e[] = {
        {"y", KERN_F32, n, WRITTEN, EXACT, 0, 0},
        {"table", KERN_F32, (size_t)table * (size_t)cols, 1, INPUT, 0, 0},
        {"dy", KERN_F32, n, 1, INPUT, 0, 0},
        {"dtable", KERN_F32, (size_t)table * (size_t)cols, 1, EXACT, 0, 0},
    };
    d.token = token;
    for (enum kern_type t = KERN_F32; t <= KERN_BF16; t++) {
        d.type = e[1].type = t;
        (void)snprintf(what, sizeof(what), "embedding %s %dx%d", name_of(t), rows, cols);
        check_run(c, what, embedding, e, 4, &d);
    }
    free(target);
    free(token);
}

/* gap: between rows. */
static void positions(struct check *c, int rows, int heads, int dim, int gap)
{
    int cols = heads * dim, ld = cols + gap;
    size_t n = (size_t)(rows - 1) * (size_t)ld + (size_t)cols;
    int32_t *position = random_tokens(c, rows, 0, 9000);
    uint64_t *sample = malloc((size_t)rows * sizeof(*sample));
    float *freq = malloc((size_t)dim * sizeof(*freq));
    char what[96];

    if (!sample || !freq)
        exit(1);
    for (int i = 0; i < rows; i++)
        sample[i] = check_word(c);
    for (int i = 0; i < dim; i++)
        freq[i] = 0.5f + 0.5f * check_uniform(c);
    for (int form = 0; form < 4; form++) {
        enum kern_type t = form % 2 ? KERN_BF16 : KERN_F32;
        struct shape d = {.rows = rows,
                          .cols = dim,
                          .n = heads,
                          .ld = ld,
                          .type = t,
                          .token = position,
                          .freq = freq,
                          .flag = form > 1};
        struct check_array a[] = {{"x", t, n, 2, limit_of(t), 0, 0}};

        (void)snprintf(what, sizeof(what), "rope %s inverse %d %dx%dx%d", name_of(t), d.flag, rows, heads, dim);
        check_run(c, what, rope, a, 1, &d);
    }
    for (int col0 = 0; col0 < 7; col0 += gap % 4 ? 3 : 4) {
        struct shape d = {.drop = {.rows = rows,
                                   .cols = cols,
                                   .ld = ld,
                                   .col0 = col0,
                                   .p = 0.3f,
                                   .threshold = 1288490188,
                                   .key = {7, (uint32_t)check_word(c)},
                                   .position = position,
                                   .sample = sample}};
        float *zeros = calloc(n, sizeof(*zeros)); /* between the rows */
        struct check_array a[] = {{"y", KERN_F32, n, 0, EXACT, 0, zeros}, {"x", KERN_F32, n, 2, INPUT, 0, 0}};

        (void)snprintf(what, sizeof(what), "dropout %dx%d from column %d", rows, cols, col0);
        check_run(c, what, dropout, a, 2, &d);
        free(zeros);
    }
    free(position);
    free(sample);
    free(freq);
}

static void product(struct check *c, int form, int m, int n, int k, int pad, enum kern_type type, enum kern_type c_type,
                    bool accumulate, bool onto, enum kern_epilogue epilogue)
{
    bool ta = form & 1, tb = form & 2, aux = epilogue == KERN_BIAS_GELU;
    struct shape d = {.flag = onto,
                      .gemm = {.type = type,
                               .c_type = c_type,
                               .trans_a = ta,
                               .trans_b = tb,
                               .m = m,
                               .n = n,
                               .k = k,
                               .lda = (ta ? m : k) + pad,
                               .ldb = (tb ? k : n) + pad,
                               .ldc = n + pad,
                               .accumulate = accumulate,
                               .epilogue = epilogue}};
    size_t out = (size_t)m * (size_t)d.gemm.ldc, a_n = (size_t)(ta ? k : m) * (size_t)d.gemm.lda;
    size_t b_n = (size_t)(tb ? n : k) * (size_t)d.gemm.ldb;
    float limit = c_type == KERN_F32 ? F32 : aux ? TWO_NEIGHBOURS : NEIGHBOUR;
    struct check_array a[] = {
        {"c", c_type, out, 1, limit, 0, 0},
        {"aux", c_type, aux ? out : 0, 1, limit, 0, 0},
        {"a", type, a_n, 1, INPUT, 0, 0},
        {"b", type, b_n, 1 / sqrtf((float)(k + 1)), INPUT, 0, 0},
        {"bias", KERN_F32, (size_t)n, 1, INPUT, 0, 0},
        {"onto", KERN_F32, onto ? out : 0, 1, INPUT, 0, 0},
    };
    char what[96];

    (void)snprintf(what, sizeof(what), "gemm %s to %s %d%d %dx%dx%d +%d%s%s", name_of(type), name_of(c_type), ta, tb, m,
                   n, k, pad,
                   accumulate ? " add"
                   : onto     ? " onto"
                              : "",
                   aux                     ? " gelu"
                   : epilogue == KERN_BIAS ? " bias"
                                           : "");
    check_run(c, what, gemm, a, 6, &d);
}

static void products(struct check *c)
{
    int big = c->quick ? 20 : 260;

    for (int form = 0; form < 4; form++)
        for (int e = KERN_PLAIN; e <= KERN_BIAS_GELU; e++) {
            int m = check_range(c, 1, big), n = check_range(c, 1, big), k = check_range(c, 1, big), pad = form * e;

            product(c, form, m, n, k, pad, KERN_F32, KERN_F32, false, false, (enum kern_epilogue)e);
            product(c, form, m, n, k, pad, KERN_BF16, KERN_F32, false, false, (enum kern_epilogue)e);
            product(c, form, 8 * m, 8, 8 * k, 0, KERN_BF16, KERN_BF16, false, false, (enum kern_epilogue)e);
            product(c, form, m, n, 0, pad, KERN_BF16, KERN_BF16, false, false, (enum kern_epilogue)e);
        }
    for (int form = 0; form < 4; form++) {
        product(c, form, 33, 24, 40, 8, KERN_F32, KERN_F32, true, false, KERN_PLAIN);
        product(c, form, 32, 24, 16, 8, KERN_BF16, KERN_F32, true, false, KERN_PLAIN);
        product(c, form, 33, 24, 40, 8 * (form / 2), KERN_F32, KERN_F32, false, true, KERN_BIAS);
        product(c, form, 32, 24, form == 3 ? 0 : 16, 8, KERN_BF16, KERN_F32, false, true,
                form % 2 ? KERN_BIAS : KERN_PLAIN);
    }
}

/* Rows of whole units of eight, which kernels move in wide accesses, with several units a thread; and norms of rows
 * that take one, two, four and eight places in a thread. */
static void whole_units(struct check *c)
{
    static const int cols[] = {72, 1032, 4096, 8192};

    activations(c, 33, 136);
    activations(c, 9, 1032);
    for (int i = 0; i < 4; i++) {
        norms(c, i == 0 ? 131 : 3, cols[i], KERN_F32, false);
        norms(c, 3, cols[i], KERN_BF16, true);
    }
    tokens(c, 5, 4 * 8 * 256 + 72);
    tokens(c, 3, 72);
    positions(c, 37, 6, 32, 8); /* units of eight, heads by fours */
    positions(c, 5, 1, 128, 8);
}

void check_kernels(struct check *c)
{
    static const size_t sizes[] = {1, 1023, 1025, 8203};
    struct shape d;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        elements(c, sizes[i]);
    for (int i = 0; i < 3; i++) {
        int rows = i == 0 ? 1 : check_range(c, 100, c->quick ? 140 : 700), cols = i == 0 ? 1 : check_range(c, 5, 700);

        if (c->quick && i > 0)
            cols = check_range(c, 5, 70) + (i == 1 ? 256 : 0), rows = i == 1 ? 5 : rows;
        activations(c, rows, cols);
        for (int form = 0; form < 4; form++)
            norms(c, rows, cols, form % 2 ? KERN_BF16 : KERN_F32, form > 1);
        tokens(c, rows, cols);
        positions(c, rows, i + 1, 2 * check_range(c, 1, 40), 5);
    }
    whole_units(c);
    products(c);
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)check_range(c, 1, 9000), blocks;

        d = (struct shape){.n = i == 0 ? 2048 : check_range(c, 1, 4000)};
        blocks = (n + (size_t)d.n - 1) / (size_t)d.n;
        struct check_array a[] = {{"sums", KERN_F32, blocks, WRITTEN, 1e-6f, 0, 0}, {"x", KERN_F32, n, 1, INPUT, 0, 0}};
        check_run(c, "sum of squares", sum_squares, a, 2, &d);
    }
}
