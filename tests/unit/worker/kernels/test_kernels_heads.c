/* Norms of heads, and attention to parts of the keys that adds up to attention to all of them: the CPU's against their
 * plain twins, on odd sizes between guard pages, and against the whole. */
#include "tests/unit/worker/kernels_try.h"

#include "base/bf16.h"

#define TOLERANCE 2e-5f

/* --- norms ------------------------------------------------------------------------------------------------- */

struct norm_case {
    int rows, heads, dim, ld;
    const float *gamma;
    const float *dy;
};

static void run_norm(const struct kern_ops *ops, struct kern_stream *s, float *const *out, const void *arg)
{
    const struct norm_case *c = arg;

    assert_int_equal(
        ops->head_norm_forward(s, KERN_F32, out[0], c->gamma, 1e-3f, c->rows, c->heads, c->dim, c->ld, out[1], NULL),
        0);
    assert_int_equal(ops->head_norm_backward(s, KERN_F32, out[2], out[1], c->gamma, 1e-3f, c->rows, c->heads, c->dim,
                                             c->ld, out[3], NULL),
                     0);
}

static void norms_of_heads_are_those_of_the_plain_twin(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int before = try_arrays;
        struct norm_case c = {try_range(1, 130), try_range(1, 5), try_range(1, 40), 0, NULL, NULL};
        size_t width = (size_t)c.heads * (size_t)c.dim, n;

        c.ld = (int)width + try_range(0, 9);
        n = ((size_t)c.rows - 1) * (size_t)c.ld + width;
        c.gamma = try_floats((size_t)c.dim, 2);
        const struct try_out out[] = {{n, try_floats(n, 1)},
                                      {(size_t)c.rows * width, NULL},
                                      {n, try_floats(n, 1)},
                                      {(size_t)c.dim, try_floats((size_t)c.dim, 1)}};

        try_check("norms of heads", run_norm, &c, out, 4, TOLERANCE);
        try_drop_arrays(before);
    }
}

/* --- parts of keys ----------------------------------------------------------------------------------------- */

#define HEADS 4
#define KV_HEADS 2
#define WIDTH(dim) (HEADS * (dim))
#define APART(dim) (2 * KV_HEADS * (dim))
#define PARTS 3

/* Rows of two documents, all their keys at once, or in parts of which each row sees some or none. */
struct parts_case {
    int dim, window, rows[2], cut[2][PARTS + 1]; /* where each document's keys are cut */
    float dropout;
    bool bf16;
};

struct result {
    float *out, *lse, *dq, *dkv; /* dkv in the order of the whole */
};

static uint64_t samples[] = {7, UINT64_C(1) << 36};
static uint32_t drop_keys[2 * HEADS] = {1, 2, 3, 4, 5, 6, 7, 8};

/* Round to what the type holds; ret NULL: f32. */
static void *typed(const float *x, size_t n, bool bf16, void **ret)
{
    uint16_t *y;

    if (!bf16)
        return (void *)x;
    y = try_bytes(n * sizeof(*y));
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_from_float(x[i]);
    *ret = y;
    return y;
}

static void widen(const void *from, float *to, size_t n, bool bf16)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16 ? bf16_to_float(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

static struct kern_attention base(const struct parts_case *c, const int32_t *cu, const int32_t *past,
                                  const int32_t *kv_at)
{
    return (struct kern_attention){.type = c->bf16 ? KERN_BF16 : KERN_F32,
                                   .tokens = cu[2],
                                   .heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .dim = c->dim,
                                   .ld = WIDTH(c->dim),
                                   .cu = cu,
                                   .docs = 2,
                                   .window = c->window,
                                   .scale = 0.4f,
                                   .dropout = c->dropout,
                                   .drop_threshold = (uint32_t)((double)c->dropout * 0x1p32),
                                   .drop_keys = drop_keys,
                                   .samples = samples,
                                   .past = past,
                                   .kv_at = kv_at};
}

static void check_parts(const struct kern_ops *k, struct kern_stream *s, const struct parts_case *c, float tol)
{
    int before = try_arrays;
    const int32_t cu[] = {0, c->rows[0], c->rows[0] + c->rows[1]};
    const int32_t past[] = {c->cut[0][PARTS] - c->rows[0], c->cut[1][PARTS] - c->rows[1]};
    const int32_t kv_at[] = {0, c->cut[0][PARTS]};
    size_t rows = (size_t)cu[2], all = (size_t)(c->cut[0][PARTS] + c->cut[1][PARTS]), width = WIDTH(c->dim);
    size_t apart = APART(c->dim), size = kern_size(c->bf16 ? KERN_BF16 : KERN_F32);
    void *held;
    void *q = typed(try_floats(rows * width, 2), rows * width, c->bf16, &held);
    void *kv = typed(try_floats(all * apart, 1), all * apart, c->bf16, &held);
    void *dout = typed(try_floats(rows * width, 1), rows * width, c->bf16, &held);
    void *out = try_bytes(rows * width * size), *part = try_bytes(rows * width * size);
    void *dq = try_bytes(rows * width * size), *some = try_bytes(all * apart * size);
    float *lse = try_floats(rows * HEADS, 0), *part_lse = try_floats(rows * HEADS, 0);
    float *sum = try_floats(rows * width, 0), *sum_lse = try_floats(rows * HEADS, 0);
    float *want = try_floats(rows * width, 0), *got = try_floats(rows * width, 0);
    float *dkv = try_floats(all * apart, 0), *some_dkv = try_floats(all * apart, 0);
    float *sum_dq = try_floats(rows * width, 0), *dkv_parts = try_floats(all * apart, 0);
    struct kern_attention a = base(c, cu, past, kv_at), p;

    a.qkv = q;
    a.kv = kv;
    a.kv_rows = (int)all;
    a.out = out;
    a.lse = lse;
    assert_int_equal(k->attention_forward(s, &a, NULL), 0);
    a.dout = dout;
    a.dqkv = dq;
    a.dkv = dkv;
    assert_int_equal(k->attention_backward(s, &a, NULL), 0);
    for (size_t i = 0; i < rows * HEADS; i++)
        sum_lse[i] = -INFINITY;
    for (int i = 0; i < 2 * PARTS; i++) { /* forward in one order, backward in the other */
        int j = i < PARTS ? i : 2 * PARTS - 1 - i;
        const int32_t first[] = {c->cut[0][j], c->cut[1][j]};
        const int32_t len[] = {c->cut[0][j + 1] - first[0], c->cut[1][j + 1] - first[1]}, at[] = {0, len[0]};
        size_t of0 = (size_t)len[0] * apart, of1 = (size_t)len[1] * apart;

        memcpy(some, (char *)kv + (size_t)first[0] * apart * size, of0 * size);
        memcpy((char *)some + of0 * size, (char *)kv + (size_t)(kv_at[1] + first[1]) * apart * size, of1 * size);
        p = a;
        p.kv = some;
        p.kv_rows = len[0] + len[1];
        p.kv_at = at;
        p.kv_first = first;
        p.kv_len = len;
        p.dkv = some_dkv;
        if (i < PARTS) {
            p.out = part;
            p.lse = part_lse;
            assert_int_equal(k->attention_forward(s, &p, NULL), 0);
            assert_int_equal(
                k->attention_merge(s, p.type, sum, sum_lse, part, part_lse, (int)rows, HEADS, c->dim, NULL), 0);
            continue;
        }
        memset(some_dkv, 0, (of0 + of1) * sizeof(float));
        p.dqkv = part;
        assert_int_equal(k->attention_backward(s, &p, NULL), 0);
        widen(part, got, rows * width, c->bf16);
        for (size_t e = 0; e < rows * width; e++)
            sum_dq[e] += got[e];
        memcpy(dkv_parts + (size_t)first[0] * apart, some_dkv, of0 * sizeof(float));
        memcpy(dkv_parts + (size_t)(kv_at[1] + first[1]) * apart, some_dkv + of0, of1 * sizeof(float));
    }
    widen(out, want, rows * width, c->bf16);
    try_compare("out of parts", 0, sum, want, rows * width, tol);
    try_compare("lse of parts", 1, sum_lse, lse, rows * HEADS, tol);
    widen(dq, want, rows * width, c->bf16);
    try_compare("dq of parts", 2, sum_dq, want, rows * width, tol);
    try_compare("dkv of parts", 3, dkv_parts, dkv, all * apart, tol);
    try_drop_arrays(before);
}

static const struct parts_case cases[] = {
    {8, 0, {60, 5}, {{0, 20, 40, 60}, {0, 5, 5, 5}}, 0, false},
    {16, 0, {300, 100}, {{0, 300, 600, 900}, {0, 40, 60, 100}}, 0.2f, false},
    {5, 70, {260, 1}, {{0, 250, 500, 510}, {0, 1, 2, 3}}, 0, false},
    {16, 300, {97, 40}, {{0, 300, 590, 700}, {0, 0, 30, 40}}, 0.1f, false},
    {16, 33, {97, 40}, {{0, 30, 650, 700}, {0, 10, 30, 40}}, 0, true},
};

static void parts_of_keys_add_up_to_all(void **state)
{
    const struct kern_ops *const tables[] = {kern_plain(), kern_cpu()};

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        const struct kern_ops *k = tables[i % 2];
        struct kern_cfg cfg = {.threads = 2};
        struct kern_stream *s;

        assert_true(k->parts);
        assert_int_equal(k->stream_new(&cfg, &s, NULL), 0);
        check_parts(k, s, &cases[i / 2], cases[i / 2].bf16 ? 2e-2f : TOLERANCE);
        k->stream_free(s);
    }
}

static void what_no_key_was_seen_by_changes_nothing(void **state)
{
    const struct kern_ops *const tables[] = {kern_plain(), kern_cpu()};
    struct kern_cfg cfg = {.threads = 1};

    (void)state;
    for (size_t i = 0; i < COUNT(tables); i++) {
        float out[] = {1, 2, 3, 4}, lse[] = {0.5f, -INFINITY}, part[] = {9, 9, 5, 6}, none[] = {-INFINITY, -INFINITY};
        struct kern_stream *s;

        assert_int_equal(tables[i]->stream_new(&cfg, &s, NULL), 0);
        assert_int_equal(tables[i]->attention_merge(s, KERN_F32, out, lse, part, none, 2, 1, 2, NULL), 0);
        assert_true(out[0] == 1 && out[3] == 4 && lse[0] == 0.5f && lse[1] == -INFINITY);
        none[1] = 3;
        assert_int_equal(tables[i]->attention_merge(s, KERN_F32, out, lse, part, none, 2, 1, 2, NULL), 0);
        assert_true(out[0] == 1 && out[2] == 5 && out[3] == 6 && lse[1] == 3);
        tables[i]->stream_free(s);
    }
}

#define TRY(test) cmocka_unit_test_setup_teardown(test, try_setup, try_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRY(norms_of_heads_are_those_of_the_plain_twin),
        TRY(parts_of_keys_add_up_to_all),
        TRY(what_no_key_was_seen_by_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
