/* The kernels on bf16: the CPU table against its plain twin and, where no long sum is involved, against its own f32
 * loops rounded once, bit for bit.
 *
 * The two tables round numbers to bf16 that differ by an f32 rounding or two, so now and then they end up on
 * neighbours: one part in 128, or in 64 where a rounded number is rounded again. */
#include "tests/unit/worker/kernels_try.h"

#include "base/bf16.h"

#define NEIGHBOUR (1 / 128.0f)
#define TWO_NEIGHBOURS (1 / 64.0f)
#define LONG_SUM 1e-5f

/* n random bf16 in [-size, size). */
static uint16_t *try_bf16(size_t n, float size)
{
    uint16_t *p = try_bytes(n * sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = bf16_from_float(size * try_uniform());
    return p;
}

static uint16_t *no_bf16(size_t n) /* all +0 */
{
    return memset(try_bytes(n * sizeof(uint16_t)), 0, n * sizeof(uint16_t));
}

static float *no_floats(size_t n)
{
    return memset(try_bytes(n * sizeof(float)), 0, n * sizeof(float));
}

static float *widened(const uint16_t *x, size_t n)
{
    float *p = try_bytes(n * sizeof(*p));

    for (size_t i = 0; i < n; i++)
        p[i] = bf16_to_float(x[i]);
    return p;
}

/* What a call left in y goes to out; want: what it must be before it is rounded, NULL when unknown. */
static void give(const uint16_t *y, size_t n, const float *want, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = bf16_to_float(y[i]);
        if (want && y[i] != bf16_from_float(want[i]))
            fail_msg("[%zu of %zu] is %.9g, f32 gives %.9g (seed %llu)", i, n, (double)out[i], (double)want[i],
                     (unsigned long long)try_seed);
    }
}

static void numbers_are_rounded_to_the_nearest_in_every_piece(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 4095, 4096, 4097, 50001};
    const struct kern_ops *const tables[] = {kern_plain(), kern_cpu()};
    const struct kern_cfg cfg = {.threads = 3};

    (void)state;
    for (size_t t = 0; t < COUNT(tables); t++) {
        struct kern_stream *s;

        assert_int_equal(tables[t]->stream_new(&cfg, &s, NULL), 0);
        for (size_t i = 0; i < COUNT(sizes); i++) {
            int before = try_arrays;
            float *x = try_floats(sizes[i], 3);
            uint16_t *y = try_bf16(sizes[i], 1);

            if (sizes[i] > 2) {
                x[0] = NAN;
                x[1] = -INFINITY;
            }
            assert_int_equal(tables[t]->to_bf16(s, x, sizes[i], y, NULL), 0);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(y[k], bf16_from_float(x[k]));
            try_drop_arrays(before);
        }
        tables[t]->stream_free(s);
    }
}

/* --- matrix products --------------------------------------------------------------------------------------- */

static void run_gemm(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    struct kern_gemm g = *(const struct kern_gemm *)arg;
    size_t n = (size_t)(g.m - 1) * (size_t)g.ldc + (size_t)g.n;
    uint16_t *c = no_bf16(n), *aux = no_bf16(n);

    if (g.c_type == KERN_F32) {
        g.c = out[0];
        g.aux = out[1];
        assert_int_equal(ops->gemm(s, &g, NULL), 0);
        return;
    }
    g.c = c;
    g.aux = aux;
    assert_int_equal(ops->gemm(s, &g, NULL), 0);
    give(c, n, NULL, out[0]);
    give(aux, n, NULL, out[1]);
    for (int r = 0; g.epilogue == KERN_BIAS_GELU && r < g.m; r++) { /* backward may compute C again from aux */
        size_t at = (size_t)r * (size_t)g.ldc;
        uint16_t *again = no_bf16((size_t)g.n);

        assert_int_equal(ops->gelu_forward(s, KERN_BF16, aux + at, (size_t)g.n, again, NULL), 0);
        assert_memory_equal(again, c + at, (size_t)g.n * sizeof(*c));
        try_drop_arrays(try_arrays - 1);
    }
}

static void check_gemm(bool trans_a, bool trans_b, int m, int n, int k, int pad, enum kern_type c_type, bool accumulate,
                       enum kern_epilogue epilogue)
{
    int before = try_arrays;
    struct kern_gemm g = {.type = KERN_BF16,
                          .c_type = c_type,
                          .trans_a = trans_a,
                          .trans_b = trans_b,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = (trans_a ? m : k) + pad,
                          .ldb = (trans_b ? k : n) + pad,
                          .ldc = n + pad,
                          .accumulate = accumulate,
                          .epilogue = epilogue};
    size_t c = (size_t)(m - 1) * (size_t)g.ldc + (size_t)n, a = (size_t)(trans_a ? k : m),
           b = (size_t)(trans_b ? n : k);
    const struct try_out out[] = {{c, try_floats(c, 1)}, {c, try_floats(c, 1)}};
    char what[128];

    g.a = try_bf16(a > 0 ? (a - 1) * (size_t)g.lda + (size_t)(trans_a ? m : k) : 0, 1 / sqrtf((float)(k > 0 ? k : 1)));
    g.b = try_bf16(b > 0 ? (b - 1) * (size_t)g.ldb + (size_t)(trans_b ? k : n) : 0, 2);
    g.bias = try_floats((size_t)n, 1);
    (void)snprintf(what, sizeof(what), "bf16 gemm %d%d %dx%dx%d pad %d to %d accumulate %d epilogue %d", trans_a,
                   trans_b, m, n, k, pad, c_type, accumulate, epilogue);
    try_check(what, run_gemm, &g, out, 2,
              c_type == KERN_F32           ? LONG_SUM
              : epilogue == KERN_BIAS_GELU ? TWO_NEIGHBOURS
                                           : NEIGHBOUR);
    try_drop_arrays(before);
}

static void products_of_bf16_match_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        for (int i = 0; i < 4; i++) {
            int m = try_range(1, 70), n = try_range(1, 70), k = try_range(1, 90), pad = try_range(0, 9);

            check_gemm(form & 1, form & 2, m, n, k, pad, KERN_F32, false, KERN_PLAIN);
            check_gemm(form & 1, form & 2, m, n, k, pad, KERN_F32, true, KERN_PLAIN);
            check_gemm(form & 1, form & 2, m, n, k, pad, KERN_F32, false, KERN_BIAS);
            check_gemm(form & 1, form & 2, m, n, k, 0, KERN_BF16, false, KERN_PLAIN);
            check_gemm(form & 1, form & 2, m, n, k, pad, KERN_BF16, false, KERN_BIAS);
            check_gemm(form & 1, form & 2, m, n, k, pad, KERN_BF16, false, KERN_BIAS_GELU);
        }
    }
    check_gemm(false, true, 5, 7, 0, 2, KERN_BF16, false, KERN_BIAS);
    check_gemm(true, false, 5, 7, 0, 2, KERN_F32, true, KERN_PLAIN);
    check_gemm(false, false, 5, 7, 0, 2, KERN_F32, false, KERN_BIAS_GELU);
}

static void large_products_of_bf16_have_the_same_bits_on_any_threads(void **state)
{
    (void)state;
    check_gemm(false, true, 515, 387, 129, 1, KERN_BF16, false, KERN_BIAS_GELU);
    check_gemm(false, false, 131, 700, 600, 0, KERN_F32, false, KERN_PLAIN);
    check_gemm(true, false, 387, 129, 1030, 3, KERN_F32, true, KERN_PLAIN);
    check_gemm(true, true, 49, 37, 4111, 0, KERN_BF16, false, KERN_PLAIN); /* rounded after all of a great depth */
}

/* --- attention --------------------------------------------------------------------------------------------- */

static void run_attention(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    struct kern_attention a = *(const struct kern_attention *)arg, f = a;
    size_t columns = (size_t)(a.heads + 2 * a.kv_heads) * (size_t)a.dim, width = (size_t)(a.heads * a.dim);
    size_t tokens = (size_t)a.tokens, n = (tokens - 1) * (size_t)a.ld + columns;
    uint16_t *y = no_bf16(tokens * width), *dqkv = no_bf16(n);
    float *y32 = no_floats(tokens * width), *dqkv32 = no_floats(n);

    a.out = y;
    a.lse = out[1];
    a.dqkv = dqkv;
    assert_int_equal(ops->attention_forward(s, &a, NULL), 0);
    f.type = KERN_F32;
    f.qkv = widened(a.qkv, n);
    f.out = y32;
    f.lse = no_floats(tokens * (size_t)a.heads);
    assert_int_equal(ops->attention_forward(s, &f, NULL), 0);
    give(y, tokens * width, y32, out[0]);
    assert_memory_equal(a.lse, f.lse, tokens * (size_t)a.heads * sizeof(float));
    assert_int_equal(ops->attention_backward(s, &a, NULL), 0);
    f.out = widened(y, tokens * width);
    f.dout = widened(a.dout, tokens * width);
    f.dqkv = dqkv32;
    assert_int_equal(ops->attention_backward(s, &f, NULL), 0);
    give(dqkv, n, dqkv32, out[2]);
}

static void check_attention(const int *length, int docs, int heads, int kv_heads, int dim, float dropout, int pad)
{
    int before = try_arrays, columns = (heads + 2 * kv_heads) * dim;
    int32_t *cu = try_bytes(((size_t)docs + 1) * sizeof(*cu));
    uint64_t *samples = try_bytes((size_t)docs * sizeof(*samples));
    uint32_t *keys = try_bytes((size_t)heads * 2 * sizeof(*keys));
    struct kern_attention a;
    size_t tokens, n, width = (size_t)(heads * dim);

    cu[0] = 0;
    for (int d = 0; d < docs; d++) {
        cu[d + 1] = cu[d] + length[d];
        samples[d] = try_word();
    }
    for (int i = 0; i < 2 * heads; i++)
        keys[i] = (uint32_t)try_word();
    tokens = (size_t)cu[docs];
    n = (tokens - 1) * (size_t)(columns + pad) + (size_t)columns;
    a = (struct kern_attention){
        .type = KERN_BF16,
        .tokens = (int)tokens,
        .heads = heads,
        .kv_heads = kv_heads,
        .dim = dim,
        .ld = columns + pad,
        .cu = cu,
        .docs = docs,
        .scale = 1 / sqrtf((float)dim),
        .qkv = try_bf16(n, 2),
        .dropout = dropout,
        .drop_threshold = (uint32_t)((double)dropout * 0x1p32),
        .drop_keys = keys,
        .samples = samples,
        .dout = try_bf16(tokens * width, 1),
    };

    const struct try_out out[] = {{tokens * width, NULL}, {tokens * (size_t)heads, NULL}, {n, no_floats(n)}};

    try_check("attention of bf16", run_attention, &a, out, 3, TWO_NEIGHBOURS);
    try_drop_arrays(before);
}

static void attention_of_bf16_is_that_of_f32_rounded(void **state)
{
    static const int one[] = {1}, long_one[] = {300}, mixed[] = {1, 70, 3, 129, 64};

    (void)state;
    check_attention(one, COUNT(one), 2, 2, 8, 0, 0);
    check_attention(long_one, COUNT(long_one), 2, 1, 16, 0, 0);
    check_attention(mixed, COUNT(mixed), 4, 2, 12, 0.3f, 5);
}

/* --- rows and elements ------------------------------------------------------------------------------------- */

struct rows_case {
    int rows, cols, heads, dim, ld;
    const float *x, *gamma, *beta, *freq;
    const uint16_t *a, *b;
    const int32_t *position;
};

static void run_norms(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct rows_case *c = arg;
    size_t n = (size_t)c->rows * (size_t)c->cols, rows = (size_t)c->rows;
    uint16_t *y = no_bf16(n);
    float *want = no_floats(n), *mean = no_floats(rows), *rstd = no_floats(rows);

    assert_int_equal(
        ops->layernorm_forward(s, KERN_F32, c->x, c->gamma, c->beta, 1e-5f, c->rows, c->cols, want, mean, rstd, NULL),
        0);
    assert_int_equal(
        ops->layernorm_forward(s, KERN_BF16, c->x, c->gamma, c->beta, 1e-5f, c->rows, c->cols, y, out[2], out[3], NULL),
        0);
    give(y, n, want, out[0]);
    assert_memory_equal(out[2], mean, rows * sizeof(float));
    assert_memory_equal(out[3], rstd, rows * sizeof(float));
    assert_int_equal(ops->rmsnorm_forward(s, KERN_F32, c->x, c->gamma, 1e-5f, c->rows, c->cols, want, rstd, NULL), 0);
    assert_int_equal(ops->rmsnorm_forward(s, KERN_BF16, c->x, c->gamma, 1e-5f, c->rows, c->cols, y, out[3], NULL), 0);
    give(y, n, want, out[1]);
    assert_memory_equal(out[3], rstd, rows * sizeof(float));
}

static void norms_round_what_they_give(void **state)
{
    static const int shape[][2] = {{1, 1}, {5, 13}, {70, 768}, {3, 5000}};

    (void)state;
    for (size_t i = 0; i < COUNT(shape); i++) {
        int before = try_arrays;
        size_t n = (size_t)shape[i][0] * (size_t)shape[i][1], cols = (size_t)shape[i][1], rows = (size_t)shape[i][0];
        struct rows_case c = {.rows = shape[i][0],
                              .cols = shape[i][1],
                              .x = try_floats(n, 3),
                              .gamma = try_floats(cols, 2),
                              .beta = try_floats(cols, 1)};
        const struct try_out out[] = {{n, NULL}, {n, NULL}, {rows, NULL}, {rows, NULL}};

        try_check("norms to bf16", run_norms, &c, out, 4, NEIGHBOUR);
        try_drop_arrays(before);
    }
}

static void run_rope(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct rows_case *c = arg;
    size_t n = (size_t)(c->rows - 1) * (size_t)c->ld + (size_t)(c->heads * c->dim);
    uint16_t *x = no_bf16(n);

    for (int inverse = 0; inverse < 2; inverse++) {
        float *want = widened(c->a, n);

        memcpy(x, c->a, n * sizeof(*x));
        assert_int_equal(
            ops->rope(s, KERN_F32, want, c->rows, c->heads, c->dim, c->ld, c->position, c->freq, inverse, NULL), 0);
        assert_int_equal(
            ops->rope(s, KERN_BF16, x, c->rows, c->heads, c->dim, c->ld, c->position, c->freq, inverse, NULL), 0);
        /* the CPU's f32 call cuts its rows elsewhere, where it computes an angle anew: a few bits of a float */
        give(x, n, ops == kern_plain() ? want : NULL, out[inverse]);
    }
}

static void rotations_of_bf16_match(void **state)
{
    enum { ROWS = 90, DIM = 16, HEADS = 3, LD = HEADS * DIM + 7, N = (ROWS - 1) * LD + HEADS * DIM };
    int32_t *position = try_bytes(ROWS * sizeof(*position));
    struct rows_case c = {.rows = ROWS,
                          .heads = HEADS,
                          .dim = DIM,
                          .ld = LD,
                          .a = try_bf16(N, 2),
                          .freq = try_floats(DIM / 2, 1),
                          .position = position};
    const struct try_out out[] = {{N, NULL}, {N, NULL}};

    (void)state;
    for (int i = 0; i < ROWS; i++)
        position[i] = i % 37;
    try_check("rope of bf16", run_rope, &c, out, 2, NEIGHBOUR);
}

static void run_activations(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct rows_case *c = arg;
    size_t n = (size_t)c->rows * (size_t)c->cols;
    uint16_t *y = no_bf16(2 * n);
    float *want = no_floats(2 * n), *a = widened(c->a, 2 * n), *b = widened(c->b, n);

    assert_int_equal(ops->gelu_forward(s, KERN_F32, a, n, want, NULL), 0);
    assert_int_equal(ops->gelu_forward(s, KERN_BF16, c->a, n, y, NULL), 0);
    give(y, n, want, out[0]);
    assert_int_equal(ops->gelu_backward(s, KERN_F32, a, b, n, want, NULL), 0);
    memcpy(y, c->b, n * sizeof(*y)); /* in place of dy */
    assert_int_equal(ops->gelu_backward(s, KERN_BF16, c->a, y, n, y, NULL), 0);
    give(y, n, want, out[1]);
    assert_int_equal(ops->swiglu_forward(s, KERN_F32, a, c->rows, c->cols, want, NULL), 0);
    assert_int_equal(ops->swiglu_forward(s, KERN_BF16, c->a, c->rows, c->cols, y, NULL), 0);
    give(y, n, want, out[2]);
    assert_int_equal(ops->swiglu_backward(s, KERN_F32, a, b, c->rows, c->cols, want, NULL), 0);
    assert_int_equal(ops->swiglu_backward(s, KERN_BF16, c->a, c->b, c->rows, c->cols, y, NULL), 0);
    give(y, 2 * n, want, out[3]);
}

static void activations_of_bf16_are_those_of_f32_rounded(void **state)
{
    static const int shape[][2] = {{1, 1}, {7, 5}, {3, 4096}, {3, 4099}, {70, 130}};

    (void)state;
    for (size_t i = 0; i < COUNT(shape); i++) {
        int before = try_arrays;
        size_t n = (size_t)shape[i][0] * (size_t)shape[i][1];
        struct rows_case c = {.rows = shape[i][0], .cols = shape[i][1], .a = try_bf16(2 * n, 4), .b = try_bf16(n, 2)};
        const struct try_out out[] = {{n, NULL}, {n, NULL}, {n, NULL}, {2 * n, NULL}};

        try_check("activations of bf16", run_activations, &c, out, 4, NEIGHBOUR);
        try_drop_arrays(before);
    }
}

static void run_bias_gradient(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct rows_case *c = arg;

    assert_int_equal(ops->bias_gradient(s, KERN_BF16, c->a, c->rows, c->cols, c->ld, out[0], NULL), 0);
}

static void gradients_of_biases_are_summed_in_f32(void **state)
{
    static const int shape[][2] = {{1, 1}, {63, 65}, {64, 64}, {65, 63}, {700, 130}};

    (void)state;
    for (size_t i = 0; i < COUNT(shape); i++) {
        int before = try_arrays, rows = shape[i][0], cols = shape[i][1], ld = cols + 3;
        struct rows_case c = {
            .rows = rows, .cols = cols, .ld = ld, .a = try_bf16((size_t)(rows - 1) * (size_t)ld + (size_t)cols, 1)};
        const struct try_out out[] = {{(size_t)cols, try_floats((size_t)cols, 1)}};

        try_check("bias gradient of bf16", run_bias_gradient, &c, out, 1, LONG_SUM);
        try_drop_arrays(before);
    }
}

static void embeddings_are_rows_of_a_table_in_bf16(void **state)
{
    enum { FIRST = 3, ROWS = 5, COLS = 67, TOKENS = 40 };
    const struct kern_ops *const ops[] = {kern_plain(), kern_cpu()};
    const uint16_t *table = try_bf16(ROWS * COLS, 1);
    int32_t token[TOKENS];
    float y[TOKENS * COLS];

    (void)state;
    for (int t = 0; t < TOKENS; t++)
        token[t] = (int32_t)try_range(0, FIRST + ROWS + 3);
    for (size_t k = 0; k < COUNT(ops); k++) {
        struct kern_cfg cfg = {.threads = 1};
        struct kern_stream *s;

        assert_int_equal(ops[k]->stream_new(&cfg, &s, NULL), 0);
        assert_int_equal(ops[k]->embedding_forward(s, KERN_BF16, table, FIRST, ROWS, COLS, token, TOKENS, y, NULL), 0);
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < COLS; i++) {
                int row = token[t] - FIRST;

                assert_true(y[t * COLS + i] == (row >= 0 && row < ROWS ? bf16_to_float(table[row * COLS + i]) : 0.0F));
            }
        ops[k]->stream_free(s);
    }
}

/* --- loss -------------------------------------------------------------------------------------------------- */

struct loss_case {
    int tokens, cols, first, vocab;
    const float *logits;
    const int32_t *target;
};

static void run_loss(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct loss_case *c = arg;
    size_t tokens = (size_t)c->tokens, n = tokens * (size_t)c->cols;
    float *stats = no_floats(3 * tokens), *loss = no_floats(tokens), *want = no_floats(n);
    uint16_t *dz = no_bf16(n);

    assert_int_equal(ops->xent_partial(s, c->logits, c->tokens, c->cols, c->first, c->vocab, c->target, stats, NULL),
                     0);
    assert_int_equal(ops->xent_finish(s, c->logits, stats, 1, c->tokens, c->cols, c->first, c->vocab, c->target, 0.25f,
                                      loss, KERN_F32, want, NULL),
                     0);
    assert_int_equal(ops->xent_finish(s, c->logits, stats, 1, c->tokens, c->cols, c->first, c->vocab, c->target, 0.25f,
                                      out[1], KERN_BF16, dz, NULL),
                     0);
    give(dz, n, want, out[0]);
    assert_memory_equal(loss, out[1], tokens * sizeof(float));
}

static void gradients_of_logits_are_rounded(void **state)
{
    enum { TOKENS = 40, COLS = 300, N = TOKENS * COLS };
    int32_t *target = try_bytes(TOKENS * sizeof(*target));
    struct loss_case c = {.tokens = TOKENS, .cols = COLS, .vocab = 290, .logits = try_floats(N, 6), .target = target};
    const struct try_out out[] = {{N, NULL}, {TOKENS, NULL}};

    (void)state;
    for (int t = 0; t < TOKENS; t++)
        target[t] = t % 9 == 4 ? -1 : (t * 31) % 290;
    try_check("loss with a gradient in bf16", run_loss, &c, out, 2, NEIGHBOUR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_are_rounded_to_the_nearest_in_every_piece, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(products_of_bf16_match_in_every_form, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(large_products_of_bf16_have_the_same_bits_on_any_threads, try_setup,
                                        try_teardown),
        cmocka_unit_test_setup_teardown(attention_of_bf16_is_that_of_f32_rounded, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(norms_round_what_they_give, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(rotations_of_bf16_match, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(activations_of_bf16_are_those_of_f32_rounded, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(gradients_of_biases_are_summed_in_f32, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(embeddings_are_rows_of_a_table_in_bf16, try_setup, try_teardown),
        cmocka_unit_test_setup_teardown(gradients_of_logits_are_rounded, try_setup, try_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
