/* Each CPU kernel against its plain twin, on odd sizes between guard pages, and its bits on 1, 2 and 4 threads.
 *
 * Tolerances are relative to 1 + |value|. The twin sums in double; the CPU sums floats of size about 1, so its
 * error grows with the square root of the terms: 1e-5 covers some thousand of them, 2e-6 a handful of roundings. */
#include "tests/unit/worker/kernels_try.h"

#include <errno.h>

#define ONE_ROUNDING 2e-6f
#define LONG_SUM 1e-5f

/* --- matrix products --------------------------------------------------------------------------------------- */

static void run_gemm(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    struct kern_gemm g = *(const struct kern_gemm *)arg;

    g.c = out[0];
    g.aux = out[1];
    assert_int_equal(ops->gemm(s, &g, NULL), 0);
    for (int r = 0; g.epilogue == KERN_BIAS_GELU && r < g.m; r++) { /* backward may compute C again from aux */
        size_t at = (size_t)r * (size_t)g.ldc, bytes = (size_t)g.n * sizeof(float);
        float *again = try_bytes(bytes);

        assert_int_equal(ops->gelu_forward(s, KERN_F32, out[1] + at, (size_t)g.n, again, NULL), 0);
        assert_memory_equal(again, out[0] + at, bytes);
        try_drop_arrays(try_arrays - 1);
    }
}

static void check_product(bool trans_a, bool trans_b, int m, int n, int k, int pad, bool accumulate, bool onto,
                          enum kern_epilogue epilogue)
{
    int before = try_arrays;
    struct kern_gemm g = {.trans_a = trans_a,
                          .trans_b = trans_b,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = (trans_a ? m : k) + pad,
                          .ldb = (trans_b ? k : n) + pad,
                          .ldc = n + pad,
                          .accumulate = accumulate,
                          .epilogue = epilogue};
    size_t c = m > 0 ? (size_t)(m - 1) * (size_t)g.ldc + (size_t)n : 0;
    size_t a = (size_t)(trans_a ? k : m), b = (size_t)(trans_b ? n : k);
    const struct try_out out[] = {{c, try_floats(c, 1)}, {c, try_floats(c, 1)}};
    float scale = 1 / sqrtf((float)(k > 0 ? k : 1));
    char what[128];

    /* the last row ends where its last element does: no padding behind it */
    g.a = try_floats(a > 0 ? (a - 1) * (size_t)g.lda + (size_t)(trans_a ? m : k) : 0, scale);
    g.b = try_floats(b > 0 ? (b - 1) * (size_t)g.ldb + (size_t)(trans_b ? k : n) : 0, 2);
    g.bias = try_floats((size_t)n, 1);
    g.onto = onto ? try_floats(c, 1) : NULL;
    (void)snprintf(what, sizeof(what), "gemm %d%d %dx%dx%d pad %d accumulate %d onto %d epilogue %d", trans_a, trans_b,
                   m, n, k, pad, accumulate, onto, epilogue);
    try_check(what, run_gemm, &g, out, 2, LONG_SUM);
    try_drop_arrays(before);
}

static void check_gemm(bool trans_a, bool trans_b, int m, int n, int k, int pad, bool accumulate,
                       enum kern_epilogue epilogue)
{
    check_product(trans_a, trans_b, m, n, k, pad, accumulate, false, epilogue);
}

static void matrix_products_match_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        for (int i = 0; i < 6; i++) {
            int m = try_range(1, 70), n = try_range(1, 70), k = try_range(1, 90), pad = try_range(0, 9);

            check_gemm(form & 1, form & 2, m, n, k, pad, false, KERN_PLAIN);
            check_gemm(form & 1, form & 2, m, n, k, pad, true, KERN_PLAIN);
            check_gemm(form & 1, form & 2, m, n, k, pad, false, KERN_BIAS);
            check_gemm(form & 1, form & 2, m, n, k, pad, false, KERN_BIAS_GELU);
            check_product(form & 1, form & 2, m, n, k, pad, false, true, i % 2 ? KERN_BIAS : KERN_PLAIN);
        }
    }
}

static void products_over_nothing_are_zero(void **state)
{
    (void)state;
    check_gemm(false, false, 5, 7, 0, 2, false, KERN_PLAIN);
    check_gemm(false, false, 5, 7, 0, 2, true, KERN_PLAIN);
    check_gemm(false, true, 5, 7, 0, 2, false, KERN_BIAS);
    check_gemm(false, true, 5, 7, 0, 2, false, KERN_BIAS_GELU);
    check_product(false, true, 5, 7, 0, 2, false, true, KERN_BIAS);
    check_gemm(true, false, 1, 1, 1, 0, false, KERN_PLAIN);
}

static void large_products_have_the_same_bits_on_any_threads(void **state)
{
    (void)state;
    check_gemm(false, true, 515, 387, 129, 1, false, KERN_BIAS_GELU);
    check_gemm(false, false, 131, 700, 387, 0, false, KERN_PLAIN);
    check_gemm(true, false, 387, 129, 1030, 3, true, KERN_PLAIN);
    check_gemm(true, false, 64, 64, 4100, 0, true, KERN_PLAIN);       /* where a library would split K over threads */
    check_gemm(true, false, 900, 400, 530, 2, true, KERN_PLAIN);      /* cut by depth */
    check_gemm(false, true, 50, 810, 1500, 1, false, KERN_BIAS_GELU); /* B is packed in several parts */
    check_gemm(false, false, 13, 17, 2300, 1, true, KERN_PLAIN);
    check_gemm(true, false, 900, 400, 530, 2, false, KERN_PLAIN);
}

static void products_do_not_depend_on_where_the_matrices_lie(void **state)
{
    static const int shape[][3] = {{70, 50, 90}, {130, 384, 64}, {515, 387, 129}};
    const struct kern_cfg cfg = {.threads = 2};
    struct kern_stream *s;

    (void)state;
    assert_int_equal(kern_cpu()->stream_new(&cfg, &s, NULL), 0);
    for (size_t i = 0; i < COUNT(shape); i++) {
        for (int form = 0; form < 4; form++) {
            int before = try_arrays, m = shape[i][0], n = shape[i][1], k = shape[i][2];
            size_t a = (size_t)m * (size_t)k, b = (size_t)k * (size_t)n, c = (size_t)m * (size_t)n;
            float *from_a = try_floats(a, 1), *from_b = try_floats(b, 1), *first = NULL;

            for (size_t off = 0; off < 20; off += 3) { /* behind arrays that end at a page: any alignment of 4 */
                float *to_a = try_bytes((a + off) * sizeof(float)), *to_b = try_bytes((b + 2 * off) * sizeof(float));
                float *to_c = try_bytes((c + 5 * off) * sizeof(float));
                struct kern_gemm g = {.trans_a = form & 1,
                                      .trans_b = form & 2,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = to_a,
                                      .lda = form & 1 ? m : k,
                                      .b = to_b,
                                      .ldb = form & 2 ? k : n,
                                      .c = to_c,
                                      .ldc = n};

                memcpy(to_a, from_a, a * sizeof(float));
                memcpy(to_b, from_b, b * sizeof(float));
                assert_int_equal(kern_cpu()->gemm(s, &g, NULL), 0);
                first = first ? first : to_c;
                assert_memory_equal(to_c, first, c * sizeof(float));
            }
            try_drop_arrays(before);
        }
    }
    kern_cpu()->stream_free(s);
}

/* --- norms and rotation ------------------------------------------------------------------------------------- */

struct norm_case {
    const float *x, *dy, *gamma, *beta, *mean, *rstd;
    int rows, cols;
    bool add;
};

static void run_layernorm(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct norm_case *c = arg;

    assert_int_equal(ops->layernorm_forward(s, KERN_F32, c->x, c->gamma, c->beta, 1e-5f, c->rows, c->cols, out[0],
                                            out[1], out[2], NULL),
                     0);
}

static void run_layernorm_back(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct norm_case *c = arg;

    assert_int_equal(ops->layernorm_backward(s, c->dy, c->x, c->gamma, c->mean, c->rstd, c->rows, c->cols, out[0],
                                             c->add, out[1], out[2], NULL),
                     0);
}

static void run_rmsnorm(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct norm_case *c = arg;

    assert_int_equal(ops->rmsnorm_forward(s, KERN_F32, c->x, c->gamma, 1e-5f, c->rows, c->cols, out[0], out[1], NULL),
                     0);
}

static void run_rmsnorm_back(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct norm_case *c = arg;

    assert_int_equal(
        ops->rmsnorm_backward(s, c->dy, c->x, c->gamma, c->rstd, c->rows, c->cols, out[0], c->add, out[1], NULL), 0);
}

static void norms_match_forward_and_backward(void **state)
{
    static const int edge[][2] = {{1, 1}, {1, 8}, {3, 7}, {64, 33}, {65, 128}, {129, 384}, {700, 257}};

    (void)state;
    for (size_t e = 0; e < COUNT(edge); e++) {
        int before = try_arrays;
        size_t rows = (size_t)edge[e][0], cols = (size_t)edge[e][1], n = rows * cols;
        struct norm_case c = {.x = try_floats(n, 2),
                              .dy = try_floats(n, 1),
                              .gamma = try_floats(cols, 1),
                              .beta = try_floats(cols, 1),
                              .rows = (int)rows,
                              .cols = (int)cols,
                              .add = e % 2};
        float *mean = try_floats(rows, 0.5f), *rstd = try_floats(rows, 1);
        const float *held = try_floats(n, 1), *sums = try_floats(cols, 1);
        const struct try_out forward[] = {{n, NULL}, {rows, NULL}, {rows, NULL}};
        const struct try_out backward[] = {{n, c.add ? held : NULL}, {cols, sums}, {cols, sums}};
        /* of one column nothing is left but what cancels, times 1/sqrt(eps) */
        float tol = cols == 1 ? 1e-3f : LONG_SUM;

        c.mean = mean;
        c.rstd = rstd;
        try_check("layernorm forward", run_layernorm, &c, forward, 3, tol);
        try_check("layernorm backward", run_layernorm_back, &c, backward, 3, 3 * LONG_SUM);
        try_check("rmsnorm forward", run_rmsnorm, &c, forward, 2, tol);
        try_check("rmsnorm backward", run_rmsnorm_back, &c, backward, 2, 3 * LONG_SUM);
        try_drop_arrays(before);
    }
}

struct rope_case {
    int rows, heads, dim, ld;
    const int32_t *position;
    const float *freq;
    bool inverse;
};

static void run_rope(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct rope_case *c = arg;

    assert_int_equal(
        ops->rope(s, KERN_F32, out[0], c->rows, c->heads, c->dim, c->ld, c->position, c->freq, c->inverse, NULL), 0);
}

static void rotations_match_and_undo_themselves(void **state)
{
    enum { ROWS = 300, HEADS = 3, DIM = 10, LD = 37, N = (ROWS - 1) * LD + HEADS * DIM };
    float *x = try_floats(N, 1), *freq = try_bytes(DIM / 2 * sizeof(*freq));
    int32_t *position = try_bytes(ROWS * sizeof(*position));
    struct rope_case c = {ROWS, HEADS, DIM, LD, position, freq, false};
    const struct try_out out = {N, x};
    float *there[1];

    (void)state;
    for (int i = 0; i < DIM / 2; i++)
        freq[i] = powf(10000, -2.0f * (float)i / DIM);
    for (int i = 0; i < ROWS; i++)
        position[i] = try_range(0, 100000);
    try_check("rope", run_rope, &c, &out, 1, ONE_ROUNDING);
    try_run(kern_cpu(), 2, run_rope, &c, &out, 1, there);
    c.inverse = true;
    try_check("inverse rope", run_rope, &c, &(struct try_out){N, there[0]}, 1, ONE_ROUNDING);
    try_run(kern_cpu(), 2, run_rope, &c, &(struct try_out){N, there[0]}, 1, there);
    try_compare("there and back", 0, there[0], x, N, ONE_ROUNDING);
}

/* --- elementwise ------------------------------------------------------------------------------------------- */

struct plain_case {
    const float *x, *dy, *bias;
    size_t n;
    int rows, cols, ld;
};

static void run_gelu(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct plain_case *c = arg;

    assert_int_equal(ops->gelu_forward(s, KERN_F32, c->x, c->n, out[0], NULL), 0);
    assert_int_equal(ops->gelu_backward(s, KERN_F32, c->x, c->dy, c->n, out[1], NULL), 0);
}

static void run_swiglu(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct plain_case *c = arg;

    assert_int_equal(ops->swiglu_forward(s, KERN_F32, c->x, c->rows, c->cols, out[0], NULL), 0);
    assert_int_equal(ops->swiglu_backward(s, KERN_F32, c->x, c->dy, c->rows, c->cols, out[1], NULL), 0);
}

static void activations_match_for_small_and_extreme_inputs(void **state)
{
    static const float size[] = {1e-3f, 1, 4, 30, 1e4f, 1e18f};

    (void)state;
    for (size_t e = 0; e < COUNT(size); e++) {
        int before = try_arrays;
        size_t n = (size_t)try_range(1, 40000);
        struct plain_case c = {.x = try_floats(n, size[e]), .dy = try_floats(n, 1), .n = n, .rows = 61, .cols = 77};
        const struct try_out out[] = {{n, NULL}, {n, NULL}};
        const struct try_out gated[] = {{61 * 77, NULL}, {2 * 61 * 77, NULL}};
        char what[64];

        (void)snprintf(what, sizeof(what), "gelu of inputs up to %g", (double)size[e]);
        /* x^3 overflows a float beyond 7e12: the slope there is 0 or 1 either way, but inf - inf is not */
        if (size[e] < 1e12f)
            try_check(what, run_gelu, &c, out, 2, ONE_ROUNDING);
        c.x = try_floats(2 * 61 * 77, size[e] < 1e6f ? size[e] : 1e6f);
        c.dy = try_floats(61 * 77, 1);
        (void)snprintf(what, sizeof(what), "swiglu of inputs up to %g", (double)size[e]);
        try_check(what, run_swiglu, &c, gated, 2, ONE_ROUNDING);
        try_drop_arrays(before);
    }
}

static void run_add(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct plain_case *c = arg;

    assert_int_equal(ops->add(s, out[0], c->x, c->n, NULL), 0);
    assert_int_equal(ops->add_bias(s, out[1], c->bias, c->rows, c->cols, NULL), 0);
    assert_int_equal(ops->bias_gradient(s, KERN_F32, c->dy, c->rows, c->cols, c->ld, out[2], NULL), 0);
    assert_int_equal(ops->fill(s, out[3], 2.5f, c->n / 2, NULL), 0);
    assert_int_equal(ops->copy(s, out[3] + c->n / 2, c->x, (c->n - c->n / 2) * sizeof(float), NULL), 0);
}

static void sums_and_biases_match(void **state)
{
    static const int edge[][2] = {{1, 1}, {2, 31}, {33, 32}, {70, 65}, {1030, 387}};

    (void)state;
    for (size_t e = 0; e < COUNT(edge); e++) {
        int before = try_arrays, rows = edge[e][0], cols = edge[e][1], ld = cols + try_range(0, 5);
        size_t n = (size_t)rows * (size_t)cols;
        struct plain_case c = {.x = try_floats(n, 1),
                               .bias = try_floats((size_t)cols, 1),
                               .n = n,
                               .rows = rows,
                               .cols = cols,
                               .ld = ld,
                               .dy = try_floats((size_t)(rows - 1) * (size_t)ld + (size_t)cols, 1)};
        const struct try_out out[] = {
            {n, try_floats(n, 1)}, {n, try_floats(n, 1)}, {(size_t)cols, try_floats((size_t)cols, 1)}, {n, NULL}};

        try_check("add, add_bias, bias_gradient, fill, copy", run_add, &c, out, 4, 2 * LONG_SUM);
        try_drop_arrays(before);
    }
}

/* --- dropout ------------------------------------------------------------------------------------------------ */

struct dropout_case {
    struct kern_dropout d;
    const float *x;
};

static void run_dropout(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct dropout_case *c = arg;

    assert_int_equal(ops->dropout(s, &c->d, c->x, out[0], NULL), 0);
}

static void dropout_keeps_its_share_and_cuts_alike_for_any_layout(void **state)
{
    enum { ROWS = 257, COLS = 389, N = ROWS * COLS };
    static const float p[] = {0.001f, 0.1f, 0.5f, 0.9f};
    int32_t *position = try_bytes(ROWS * sizeof(*position));
    uint64_t *sample = try_bytes(ROWS * sizeof(*sample));
    float *one = try_floats(N, 0);

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        position[i] = i % 100;
        sample[i] = (uint64_t)i / 100 << 33 | 5;
    }
    for (int i = 0; i < N; i++)
        one[i] = 1;
    for (size_t e = 0; e < COUNT(p); e++) {
        int before = try_arrays, kept = 0;
        struct dropout_case c = {{.rows = ROWS,
                                  .cols = COLS,
                                  .ld = COLS,
                                  .p = p[e],
                                  .threshold = (uint32_t)((double)p[e] * 0x1p32),
                                  .key = {7, 9},
                                  .position = position,
                                  .sample = sample},
                                 one};
        const struct try_out out = {N, NULL};
        float *whole[1], *part[1];

        try_check("dropout", run_dropout, &c, &out, 1, ONE_ROUNDING);
        try_run(kern_cpu(), 1, run_dropout, &c, &out, 1, whole);
        for (int i = 0; i < N; i++)
            kept += whole[0][i] != 0;
        assert_true(fabs(kept - N * (1 - (double)p[e])) < 4 * sqrt(N * (double)p[e] * (1 - (double)p[e])));
        /* columns 37.. and rows 100.. alone, as another rank would have them */
        c.d.col0 = 37;
        c.d.cols = 150;
        c.d.rows = 50;
        c.d.position += 100;
        c.d.sample += 100;
        try_run(kern_cpu(), 1, run_dropout, &c, &(struct try_out){49 * COLS + 150, one}, 1, part);
        for (size_t r = 0; r < 50; r++)
            assert_memory_equal(part[0] + r * COLS, whole[0] + (100 + r) * COLS + 37, 150 * sizeof(float));
        try_drop_arrays(before);
    }
}

/* --- embedding and loss ------------------------------------------------------------------------------------- */

struct embedding_case {
    const float *table, *dy;
    const int32_t *token;
    int first, rows, cols, tokens;
};

static void run_embedding(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct embedding_case *c = arg;

    assert_int_equal(
        ops->embedding_forward(s, KERN_F32, c->table, c->first, c->rows, c->cols, c->token, c->tokens, out[0], NULL),
        0);
    assert_int_equal(ops->embedding_backward(s, c->dy, c->first, c->rows, c->cols, c->token, c->tokens, out[1], NULL),
                     0);
}

static void embeddings_match_with_tokens_of_other_ranks(void **state)
{
    static const int edge[][4] = {{0, 1, 1, 1}, {0, 20, 7, 50}, {16, 16, 65, 300}, {8, 8, 200, 900}};

    (void)state;
    for (size_t e = 0; e < COUNT(edge); e++) {
        int before = try_arrays, rows = edge[e][1], cols = edge[e][2], tokens = edge[e][3];
        size_t table = (size_t)rows * (size_t)cols, n = (size_t)tokens * (size_t)cols;
        int32_t *token = try_bytes((size_t)tokens * sizeof(*token));
        struct embedding_case c = {try_floats(table, 1), try_floats(n, 1), token, edge[e][0], rows, cols, tokens};
        const struct try_out out[] = {{n, NULL}, {table, try_floats(table, 1)}};

        for (int t = 0; t < tokens; t++)
            token[t] = try_range(0, 2 * (edge[e][0] + rows));
        try_check("embedding", run_embedding, &c, out, 2, 5 * LONG_SUM);
        try_drop_arrays(before);
    }
}

struct loss_case {
    const float *logits; /* [tokens][n·cols] */
    const int32_t *target;
    int n, tokens, cols, vocab;
};

/* The loss as n ranks compute it, each with its slice of the columns; dz back in one piece. */
static void run_loss(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct loss_case *c = arg;
    size_t tokens = (size_t)c->tokens, cols = (size_t)c->cols, n = (size_t)c->n;
    float *slice = try_bytes(tokens * cols * sizeof(float)), *stats = try_bytes(n * tokens * 3 * sizeof(float));

    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t k = 0; k < n; k++) {
            int first = (int)(k * cols);

            for (size_t t = 0; t < tokens; t++)
                memcpy(slice + t * cols, c->logits + (t * n + k) * cols, cols * sizeof(float));
            if (pass == 0)
                assert_int_equal(ops->xent_partial(s, slice, c->tokens, c->cols, first, c->vocab, c->target,
                                                   stats + k * tokens * 3, NULL),
                                 0);
            else
                assert_int_equal(ops->xent_finish(s, slice, stats, c->n, c->tokens, c->cols, first, c->vocab, c->target,
                                                  0.25f, out[0], KERN_F32, slice, NULL),
                                 0);
            for (size_t t = 0; t < tokens && pass == 1; t++)
                memcpy(out[1] + (t * n + k) * cols, slice + t * cols, cols * sizeof(float));
        }
    }
    for (int rank = 0; rank < c->n; rank++) { /* an evaluation wants no gradient, and every rank has the same loss */
        float *loss = try_bytes(tokens * sizeof(float));

        assert_int_equal(ops->xent_finish(s, slice, stats, c->n, c->tokens, c->cols, rank * c->cols, c->vocab,
                                          c->target, 0.25f, loss, KERN_F32, NULL, NULL),
                         0);
        assert_memory_equal(loss, out[0], tokens * sizeof(float));
    }
}

static void the_loss_of_slices_matches_at_edges_and_padding(void **state)
{
    enum { COLS = 1024, TOKENS = 90 };
    static const int slices[] = {1, 2, 4, 8}, vocabs[] = {1024, 1023, 897, 896, 600, 1};
    float *logits = try_floats(TOKENS * COLS, 8), *whole[2];
    int32_t *target = try_bytes(TOKENS * sizeof(*target));

    (void)state;
    for (size_t v = 0; v < COUNT(vocabs); v++) {
        int before = try_arrays;
        struct loss_case c = {logits, target, 1, TOKENS, COLS, vocabs[v]};
        const struct try_out out[] = {{TOKENS, NULL}, {TOKENS * COLS, NULL}};

        for (int t = 0; t < TOKENS; t++) {
            int edge = t % 10 * 128 - t % 2; /* first and last of each slice */

            target[t] = t % 7 == 3 ? -1 : edge >= 0 && edge < vocabs[v] ? edge : vocabs[v] - 1;
        }
        try_run(kern_plain(), 1, run_loss, &c, out, 2, whole);
        for (size_t i = 0; i < COUNT(slices); i++) {
            int inner = try_arrays;
            float *got[2];

            c.n = slices[i];
            c.cols = COLS / slices[i];
            try_check("loss", run_loss, &c, out, 2, LONG_SUM);
            try_run(kern_cpu(), 1, run_loss, &c, out, 2, got);
            try_compare("loss of slices", 0, got[0], whole[0], TOKENS, LONG_SUM);
            try_compare("gradient of slices", 1, got[1], whole[1], TOKENS * COLS, ONE_ROUNDING);
            try_drop_arrays(inner);
        }
        for (int t = 0; t < TOKENS; t++) {
            for (int i = 0; i < COLS; i++)
                if (target[t] < 0 || i >= vocabs[v])
                    assert_true(whole[1][t * COLS + i] == 0);
            assert_true(target[t] >= 0 || whole[0][t] == 0);
        }
        try_drop_arrays(before);
    }
}

static void a_logit_that_is_not_a_number_reaches_the_loss(void **state)
{
    float *logits = try_floats(64, 1), *stats = try_bytes(3 * sizeof(float)), *loss = try_bytes(sizeof(float));
    int32_t *target = try_bytes(sizeof(*target));
    const struct kern_ops *tables[] = {kern_plain(), kern_cpu()};

    (void)state;
    *target = 3;
    for (size_t i = 0; i < COUNT(tables); i++) {
        static const float bad[] = {NAN, INFINITY};

        for (size_t b = 0; b < COUNT(bad); b++) {
            const struct kern_cfg cfg = {.threads = 1};
            struct kern_stream *s;

            logits[17] = bad[b];
            assert_int_equal(tables[i]->stream_new(&cfg, &s, NULL), 0);
            assert_int_equal(tables[i]->xent_partial(s, logits, 1, 64, 0, 64, target, stats, NULL), 0);
            assert_int_equal(
                tables[i]->xent_finish(s, logits, stats, 1, 1, 64, 0, 64, target, 1, loss, KERN_F32, NULL, NULL), 0);
            assert_false(isfinite(*loss));
            tables[i]->stream_free(s);
        }
    }
}

/* --- optimizer ---------------------------------------------------------------------------------------------- */

static void run_adamw(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    struct kern_adamw a = *(const struct kern_adamw *)arg;

    a.w = out[0];
    a.m = out[1];
    a.v = out[2];
    assert_int_equal(ops->adamw(s, &a, NULL), 0);
}

static void the_optimizer_matches(void **state)
{
    static const size_t size[] = {1, 7, 8, 16384, 16385, 70001};

    (void)state;
    for (size_t e = 0; e < COUNT(size); e++) {
        int before = try_arrays;
        size_t n = size[e];
        const struct kern_adamw_step step = {.grad_scale = 0.7f, .lr = 1e-3f, .inv_bias1 = 10, .inv_bias2 = 20};
        struct kern_adamw a = {.n = n,
                               .g = try_floats(n, 1),
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = 1e-8f,
                               .weight_decay = 0.1f,
                               .step = &step};
        float *v = try_floats(n, 1);
        const struct try_out out[] = {{n, try_floats(n, 1)}, {n, try_floats(n, 1)}, {n, v}};

        for (size_t i = 0; i < n; i++)
            v[i] = fabsf(v[i]);
        try_check("adamw", run_adamw, &a, out, 3, ONE_ROUNDING);
        try_drop_arrays(before);
    }
}

static void sums_of_squares_match_block_by_block_in_double(void **state)
{
    static const size_t edge[][2] = {{1, 1}, {7, 8}, {8, 8}, {1000, 33}, {300000, 4096}};

    (void)state;
    for (size_t e = 0; e < COUNT(edge); e++) {
        int before = try_arrays;
        size_t n = edge[e][0], block = edge[e][1], blocks = (n + block - 1) / block;
        float *x = try_floats(n, 3);
        double *want = try_bytes(blocks * sizeof(*want)), *got = try_bytes(blocks * sizeof(*got)), *first = NULL;
        static const int threads[] = {1, 2, 4};

        assert_int_equal(kern_plain()->sum_squares(NULL, x, n, block, want, NULL), 0);
        for (size_t t = 0; t < COUNT(threads); t++) {
            const struct kern_cfg cfg = {.threads = threads[t]};
            struct kern_stream *s;

            assert_int_equal(kern_cpu()->stream_new(&cfg, &s, NULL), 0);
            assert_int_equal(kern_cpu()->sum_squares(s, x, n, block, got, NULL), 0);
            kern_cpu()->stream_free(s);
            for (size_t i = 0; i < blocks; i++)
                assert_true(fabs(got[i] - want[i]) <= 1e-13 * want[i]);
            if (first)
                assert_memory_equal(got, first, blocks * sizeof(*got));
            first = got;
            got = try_bytes(blocks * sizeof(*got));
        }
        try_drop_arrays(before);
    }
}

static void check_found(const char *name, const struct kern_ops *want)
{
    const struct kern_ops *got = NULL;

    assert_int_equal(kern_find(name, &got, NULL), 0);
    assert_ptr_equal(got, want);
}

static void tables_are_found_by_name(void **state)
{
    const struct kern_ops *none = NULL;
    struct merr err;

    (void)state;
    check_found("cpu", kern_cpu());
    check_found("auto", kern_cpu());
    check_found("plain", kern_plain());
    assert_int_equal(kern_find("gpu?", &none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'gpu?'"));
    assert_int_equal(setenv("MUSTER_CUDA_BACKEND", "/nowhere/muster-cuda.so", 1), 0);
    assert_int_equal(kern_find("cuda", &none, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'/nowhere/muster-cuda.so'"));
    assert_int_equal(setenv("MUSTER_CUDA_BACKEND", "/proc/self/exe", 1), 0);
    assert_int_equal(kern_find("cuda", &none, &err), -EIO);
    assert_int_equal(unsetenv("MUSTER_CUDA_BACKEND"), 0);
    assert_null(none);
}

static void memory_comes_zeroed_and_aligned(void **state)
{
    static const size_t size[] = {0, 1, 63, 4096, 5 << 20};
    const struct kern_ops *tables[] = {kern_plain(), kern_cpu()};
    const struct kern_cfg cfg = {.threads = 1};

    (void)state;
    for (size_t i = 0; i < COUNT(tables); i++) {
        struct kern_stream *s;

        assert_int_equal(tables[i]->stream_new(&cfg, &s, NULL), 0);
        for (size_t e = 0; e < 2 * COUNT(size); e++) { /* the second time some of it was used before */
            size_t n = size[e % COUNT(size)];
            void *p;

            assert_int_equal(tables[i]->mem_alloc(s, n, &p, NULL), 0);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t b = 0; b < n; b++)
                assert_int_equal(((unsigned char *)p)[b], 0);
            memset(p, 0xff, n);
            tables[i]->mem_free(s, p);
        }
        tables[i]->stream_free(s);
        tables[i]->stream_free(NULL);
        tables[i]->mem_free(NULL, NULL);
    }
}

#define TRY(test) cmocka_unit_test_setup_teardown(test, try_setup, try_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRY(matrix_products_match_in_every_form),
        TRY(products_over_nothing_are_zero),
        TRY(large_products_have_the_same_bits_on_any_threads),
        TRY(products_do_not_depend_on_where_the_matrices_lie),
        TRY(norms_match_forward_and_backward),
        TRY(rotations_match_and_undo_themselves),
        TRY(activations_match_for_small_and_extreme_inputs),
        TRY(sums_and_biases_match),
        TRY(dropout_keeps_its_share_and_cuts_alike_for_any_layout),
        TRY(embeddings_match_with_tokens_of_other_ranks),
        TRY(the_loss_of_slices_matches_at_edges_and_padding),
        TRY(a_logit_that_is_not_a_number_reaches_the_loss),
        TRY(the_optimizer_matches),
        TRY(sums_of_squares_match_block_by_block_in_double),
        TRY(tables_are_found_by_name),
        TRY(memory_comes_zeroed_and_aligned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
