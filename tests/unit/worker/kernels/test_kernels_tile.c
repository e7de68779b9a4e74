/* The tiles for AVX-512 and for AVX2 give the same bits, so a training in f32 may go on on either processor. */
#include "tests/unit/worker/kernels_try.h"

#include "base/bf16.h"

/* Two streams of one thread that differ in their tile alone. Products of bf16 are widened in both. */
static struct {
    struct kern_stream *wide, *narrow;
    struct native **native[2];
} streams;

static int streams_open(void **state)
{
    const struct kern_cfg cfg = {.threads = 1};

    (void)try_setup(state);
    assert_int_equal(kern_cpu()->stream_new(&cfg, &streams.wide, NULL), 0);
    assert_int_equal(kern_cpu()->stream_new(&cfg, &streams.narrow, NULL), 0);
    streams.native[0] = streams.wide->native;
    streams.native[1] = streams.narrow->native;
    streams.wide->native = streams.narrow->native = NULL;
    streams.narrow->tile = streams.narrow->narrow_tile;
    return 0;
}

static int streams_close(void **state)
{
    streams.wide->native = streams.native[0];
    streams.narrow->native = streams.native[1];
    kern_cpu()->stream_free(streams.wide);
    kern_cpu()->stream_free(streams.narrow);
    return try_teardown(state);
}

static void skip_without_two(void)
{
    if (streams.wide->tile != streams.narrow->tile)
        return;
    print_message("this processor has not both AVX2 and AVX-512\n");
    skip();
}

static void *operand(enum kern_type type, size_t n)
{
    float *x = try_floats(n, 1);
    uint16_t *y;

    if (type == KERN_F32)
        return x;
    y = try_bytes(n * sizeof(*y));
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_from_float(x[i]);
    return y;
}

static void check_product(struct kern_gemm g, int pad)
{
    int before = try_arrays;
    size_t c, bytes;
    void *got[2], *aux[2];

    g.lda = (g.trans_a ? g.m : g.k) + pad;
    g.ldb = (g.trans_b ? g.k : g.n) + pad;
    g.ldc = g.n + pad;
    g.a = operand(g.type, (size_t)g.lda * (size_t)(g.trans_a ? g.k : g.m));
    g.b = operand(g.type, (size_t)g.ldb * (size_t)(g.trans_b ? g.n : g.k));
    g.bias = try_floats((size_t)g.n, 1);
    c = (size_t)g.m * (size_t)g.ldc;
    bytes = c * kern_size(g.c_type);
    got[0] = operand(g.c_type, c);
    aux[0] = operand(g.c_type, c);
    got[1] = memcpy(try_bytes(bytes), got[0], bytes);
    aux[1] = memcpy(try_bytes(bytes), aux[0], bytes);
    for (int i = 0; i < 2; i++) {
        g.c = got[i];
        g.aux = aux[i];
        assert_int_equal(kern_cpu()->gemm(i ? streams.narrow : streams.wide, &g, NULL), 0);
    }
    if (memcmp(got[0], got[1], bytes) != 0 || memcmp(aux[0], aux[1], bytes) != 0)
        fail_msg("product %d%d %dx%dx%d pad %d type %d to %d accumulate %d epilogue %d: other bits (seed %llu)",
                 g.trans_a, g.trans_b, g.m, g.n, g.k, pad, g.type, g.c_type, g.accumulate, g.epilogue,
                 (unsigned long long)try_seed);
    try_drop_arrays(before);
}

static void products_have_the_same_bits(void **state)
{
    (void)state;
    skip_without_two();
    for (int i = 0; i < 160; i++) {
        struct kern_gemm g = {.type = i & 1 ? KERN_BF16 : KERN_F32,
                              .trans_a = i & 2,
                              .trans_b = i & 4,
                              .m = try_range(1, 130),
                              .n = try_range(1, 150),
                              .k = try_range(1, i % 10 ? 90 : 900)};

        g.c_type = i & 8 ? g.type : KERN_F32;
        g.accumulate = g.c_type == KERN_F32 && i & 16;
        g.epilogue = g.accumulate ? KERN_PLAIN : i & 32 ? KERN_BIAS : i & 64 ? KERN_BIAS_GELU : KERN_PLAIN;
        check_product(g, try_range(0, 9));
    }
}

static void products_at_the_least_of_each_side_have_the_same_bits(void **state)
{
    static const int side[] = {11, 12, 15, 16, 17, 24, 31, 32, 33};

    (void)state;
    skip_without_two();
    for (size_t i = 0; i < COUNT(side); i++)
        for (size_t k = 0; k < COUNT(side); k++)
            for (int form = 0; form < 4; form++)
                check_product((struct kern_gemm){.trans_a = form & 1,
                                                 .trans_b = form & 2,
                                                 .m = side[i],
                                                 .n = side[k],
                                                 .k = side[(i + k) % COUNT(side)]},
                              form);
}

/* Forward, then backward from what it gave: the output, the sums and the gradients. */
static void attend(struct kern_stream *s, const struct kern_attention *from, float *out[3], size_t n, size_t rows)
{
    struct kern_attention a = *from;

    for (int i = 0; i < 3; i++)
        out[i] = try_floats(i == 0 ? rows * (size_t)a.dim : i == 1 ? rows : n, 0);
    a.out = out[0];
    a.lse = out[1];
    a.dqkv = out[2];
    assert_int_equal(kern_cpu()->attention_forward(s, &a, NULL), 0);
    assert_int_equal(kern_cpu()->attention_backward(s, &a, NULL), 0);
}

static void attention_has_the_same_bits(void **state)
{
    static const int dim[] = {16, 32, 48, 64, 96, 112, 128};

    (void)state;
    skip_without_two();
    for (int i = 0; i < 14; i++) {
        int before = try_arrays, first = try_range(1, 300), heads = 2, d = dim[i % 7];
        int32_t cu[3] = {0, first, first + try_range(1, 120)};
        size_t rows = (size_t)cu[2] * (size_t)heads, n = 3 * rows * (size_t)d;
        struct kern_attention a = {.tokens = cu[2],
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .dim = d,
                                   .ld = 3 * heads * d,
                                   .cu = cu,
                                   .docs = 2,
                                   .scale = 0.2f,
                                   .qkv = try_floats(n, 2),
                                   .dout = try_floats(rows * (size_t)d, 1)};
        float *wide[3], *narrow[3];

        attend(streams.wide, &a, wide, n, rows);
        attend(streams.narrow, &a, narrow, n, rows);
        if (memcmp(wide[0], narrow[0], rows * (size_t)d * sizeof(float)) != 0 ||
            memcmp(wide[1], narrow[1], rows * sizeof(float)) != 0 || memcmp(wide[2], narrow[2], n * sizeof(float)) != 0)
            fail_msg("attention over %d and %d tokens, heads of %d: other bits (seed %llu)", first, cu[2] - first, d,
                     (unsigned long long)try_seed);
        try_drop_arrays(before);
    }
}

#define TRY(test) cmocka_unit_test_setup_teardown(test, streams_open, streams_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRY(products_have_the_same_bits),
        TRY(products_at_the_least_of_each_side_have_the_same_bits),
        TRY(attention_has_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
