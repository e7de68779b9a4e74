/* Attention of the CPU against its plain twin, on odd sizes between guard pages, and its bits on 1, 2 and 4 threads. */
#include "tests/unit/worker/kernels_try.h"

#define LONG_SUM 1e-5f /* as in test_kernels.c */

struct attention_case {
    struct kern_attention a;
    bool backward;
};

static void run_attention(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct attention_case *c = arg;
    struct kern_attention a = c->a;

    a.out = out[0];
    a.lse = out[1];
    assert_int_equal(ops->attention_forward(s, &a, NULL), 0);
    a.dqkv = out[2];
    assert_int_equal(ops->attention_backward(s, &a, NULL), 0);
}

static int window;

static void check_attention(const int *length, int docs, int heads, int kv_heads, int dim, float dropout, int pad)
{
    int before = try_arrays;
    int32_t *cu = try_bytes(((size_t)docs + 1) * sizeof(*cu));
    uint64_t *samples = try_bytes((size_t)docs * sizeof(*samples));
    uint32_t *keys = try_bytes((size_t)heads * 2 * sizeof(*keys));
    int columns = (heads + 2 * kv_heads) * dim;
    struct attention_case c;
    size_t tokens, n;
    char what[160];

    cu[0] = 0;
    for (int d = 0; d < docs; d++) {
        cu[d + 1] = cu[d] + length[d];
        samples[d] = try_word();
    }
    for (int i = 0; i < 2 * heads; i++)
        keys[i] = (uint32_t)try_word();
    tokens = (size_t)cu[docs];
    n = (tokens - 1) * (size_t)(columns + pad) + (size_t)columns;
    c.a = (struct kern_attention){
        .tokens = (int)tokens,
        .heads = heads,
        .kv_heads = kv_heads,
        .dim = dim,
        .ld = columns + pad,
        .cu = cu,
        .docs = docs,
        .window = window,
        .scale = 1 / sqrtf((float)dim),
        .qkv = try_floats(n, 2),
        .dropout = dropout,
        .drop_threshold = (uint32_t)((double)dropout * 0x1p32),
        .drop_keys = keys,
        .samples = samples,
        .dout = try_floats(tokens * (size_t)heads * (size_t)dim, 1),
    };

    const struct try_out out[] = {
        {tokens * (size_t)heads * (size_t)dim, NULL}, {tokens * (size_t)heads, NULL}, {n, try_floats(n, 0)}};

    (void)snprintf(what, sizeof(what), "attention of %d documents, %d tokens, %d/%d heads of %d, window %d, dropout %g",
                   docs, (int)tokens, heads, kv_heads, dim, window, (double)dropout);
    try_check(what, run_attention, &c, out, 3, 2 * LONG_SUM);
    try_drop_arrays(before);
}

static void attention_matches_at_the_edges_of_its_blocks(void **state)
{
    static const int length[] = {1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300};

    (void)state;
    for (size_t i = 0; i < COUNT(length); i++)
        check_attention(&length[i], 1, 2, 2, 16, 0, 0);
    for (size_t i = 0; i < COUNT(length); i += 3)
        check_attention(&length[i], 1, 2, 1, 8, 0.3f, 3);
}

static void attention_keeps_documents_apart(void **state)
{
    static const int one[] = {1, 1, 1, 1, 1}, mixed[] = {1, 70, 1, 3, 0, 129, 64};

    (void)state;
    check_attention(one, COUNT(one), 2, 2, 8, 0, 0);
    check_attention(mixed, COUNT(mixed), 3, 3, 5, 0, 1);
    check_attention(mixed, COUNT(mixed), 4, 2, 12, 0.5f, 0);
    for (int i = 0; i < 4; i++) {
        int length[4];

        for (int d = 0; d < 4; d++)
            length[d] = try_range(1, 90);
        check_attention(length, 4, 4, 1 << try_range(0, 2), 2 * try_range(1, 20), i % 2 ? 0.1f : 0, try_range(0, 5));
    }
}

static void attention_of_long_documents_crosses_blocks_of_keys(void **state)
{
    static const int length[] = {520, 300};

    (void)state;
    check_attention(length, 2, 2, 1, 16, 0.2f, 0);
}

static void windows_slide_over_blocks_of_queries_and_keys(void **state)
{
    static const int sizes[] = {1, 2, 95, 97, 255, 256, 300, 700}, length[] = {3, 620, 1};

    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        window = sizes[i];
        check_attention(length, COUNT(length), 2, 1, i % 2 ? 16 : 5, i % 3 ? 0 : 0.2f, (int)i);
    }
    window = 0;
}

#define TRY(test) cmocka_unit_test_setup_teardown(test, try_setup, try_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRY(attention_matches_at_the_edges_of_its_blocks),
        TRY(attention_keeps_documents_apart),
        TRY(attention_of_long_documents_crosses_blocks_of_keys),
        TRY(windows_slide_over_blocks_of_queries_and_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
