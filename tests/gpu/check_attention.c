/* Attention: packed documents of all lengths, shared keys, dropout, both types; and one token after another. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/check.h"

#define DOCS_MAX 8
#define HEADS_MAX 8

struct call {
    struct kern_attention a;
    struct kern_cached q;
    int32_t cu[DOCS_MAX + 1], past[DOCS_MAX], kv_at[DOCS_MAX];
    uint64_t samples[DOCS_MAX];
    uint32_t keys[HEADS_MAX * 2];
};

static int both_ways(const struct kern_ops *k, struct kern_stream *s, const struct check_array *a, const void *arg,
                     struct merr *err)
{
    const struct call *c = arg;
    struct kern_attention x = c->a;
    int r;

    x.cu = c->cu;
    x.samples = c->samples;
    x.drop_keys = c->keys;
    x.out = a[0].p;
    x.lse = a[1].p;
    x.dqkv = a[2].p;
    x.qkv = a[3].p;
    x.dout = a[4].p;
    if (x.kv_rows) {
        x.past = c->past;
        x.kv_at = c->kv_at;
        x.kv = a[5].p;
        x.dkv = a[6].p;
    }
    r = k->attention_forward(s, &x, err);
    return r ? r : k->attention_backward(s, &x, err);
}

struct piece { /* rows of a document before it; its first row of keys */
    int length, past, kv_at;
};

/* kv_rows: keys lie apart; 0: they do not, and pieces are whole documents. */
static void packed(struct check *c, const struct piece *piece, int docs, int kv_rows, int heads, int kv_heads, int dim,
                   float dropout, int pad, enum kern_type t)
{
    struct call x = {.a = {.type = t,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .dim = dim,
                           .docs = docs,
                           .kv_rows = kv_rows,
                           .ld = (heads + 2 * kv_heads) * dim + pad,
                           .scale = 1 / sqrtf((float)dim),
                           .dropout = dropout,
                           .drop_threshold = (uint32_t)((double)dropout * 0x1p32)}};
    /* Tensor cores round probabilities to bf16, each by at most u = 2^-8 of it: a weighted mean of values below 2 moves
     * by at most 2 u, times what dropout scales by. The result is rounded there and here, u of it each. */
    float mean = t == KERN_BF16 ? 2 * 0x1p-8f / (1 - dropout) + 5e-5f : 5e-5f;
    /* A gradient is a sum of products whose one factor, a probability or a score's gradient, is rounded likewise.
     * Errors are even and independent, so they add up to a deviation of at most u / sqrt(3) S, S the root of the
     * products' summed squares; six of them are 3.5 u S, and the two roundings of the result 2 u of it. What goes in
     * here makes S about 1 at most in the gradients of the first keys, whose probabilities are largest; it grows with
     * what dropout scales by and with the square root of the heads that share keys. */
    float limit = t == KERN_BF16 ? 4 * 0x1p-8f * sqrtf((float)heads / (float)kv_heads) / (1 - dropout) : 5e-5f;
    size_t tokens, qkv, width = (size_t)heads * (size_t)dim, apart = (size_t)(2 * kv_heads * dim);
    char what[96];

    for (int d = 0; d < docs; d++) {
        x.cu[d + 1] = x.cu[d] + piece[d].length;
        x.past[d] = piece[d].past;
        x.kv_at[d] = piece[d].kv_at;
        x.samples[d] = check_word(c);
    }
    for (int i = 0; i < 2 * heads; i++)
        x.keys[i] = (uint32_t)check_word(c);
    x.a.tokens = x.cu[docs];
    tokens = (size_t)x.a.tokens;
    qkv = (tokens - 1) * (size_t)x.a.ld + (size_t)(heads + 2 * kv_heads) * (size_t)dim;
    void *zeros = calloc(qkv, 4); /* of dqkv, between the rows */
    struct check_array a[] = {
        {"out", t, tokens * width, -1, mean, 0, 0},
        {"lse", KERN_F32, tokens * (size_t)heads, -1, 5e-5f, 0, 0},
        {"dqkv", t, qkv, 0, limit, 0, zeros},
        {"qkv", t, qkv, 2, -1, 0, 0},
        {"dout", t, tokens * width, 1, -1, 0, 0},
        {"kv", t, (size_t)kv_rows * apart, 2, -1, 0, 0},
        {"dkv", KERN_F32, (size_t)kv_rows * apart, 1, limit, 0, 0}, /* grows */
    };
    (void)snprintf(what, sizeof(what), "attention%s %s %d tokens %d %s %d/%d heads of %d drop %.1f",
                   c->s == c->library ? " by cuDNN" : "", t == KERN_BF16 ? "bf16" : "f32", x.a.tokens, docs,
                   kv_rows ? "pieces" : "docs", heads, kv_heads, dim, (double)dropout);
    check_run(c, what, both_ways, a, kv_rows ? 7 : 5, &x);
    free(zeros);
}

/* Rows that come later look at what earlier ones left. */
static int one_by_one(const struct kern_ops *k, struct kern_stream *s, const struct check_array *a, const void *arg,
                      struct merr *err)
{
    const struct call *c = arg;
    struct kern_cached q = c->q;
    int rows = q.rows, r = 0;

    q.keys = a[1].p;
    q.values = a[2].p;
    for (int at = 0; at < rows && r == 0; at += q.rows) {
        q.rows = at == 0 ? rows / 2 + 1 : 1;
        q.past = at;
        q.qkv = (const float *)a[3].p + (size_t)at * (size_t)q.ld;
        q.out = (float *)a[0].p + (size_t)at * (size_t)(q.heads * q.dim);
        r = k->attention_cached(s, &q, err);
    }
    return r;
}

static void cached(struct check *c, int rows, int heads, int kv_heads, int dim)
{
    struct call x = {.q = {.rows = rows,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .dim = dim,
                           .ld = (heads + 2 * kv_heads) * dim,
                           .scale = 1 / sqrtf((float)dim)}};
    size_t kv = (size_t)rows * (size_t)(kv_heads * dim);
    struct check_array a[] = {
        {"out", KERN_F32, (size_t)(rows * heads * dim), -1, 5e-5f, 0, 0},
        {"keys", KERN_F32, kv, -1, 0, 0, 0},
        {"values", KERN_F32, kv, -1, 0, 0, 0},
        {"qkv", KERN_F32, (size_t)(rows * x.q.ld), 1, -1, 0, 0},
    };
    char what[96];

    (void)snprintf(what, sizeof(what), "attention with kept keys, %d rows %d/%d heads of %d", rows, heads, kv_heads,
                   dim);
    check_run(c, what, one_by_one, a, 4, &x);
}

/* A call of heads that this GPU has no shared memory for is refused with words. */
static void refused(struct check *c)
{
    static const int32_t cu[2] = {0, 1};
    struct kern_attention a = {
        .tokens = 1, .heads = 1, .kv_heads = 1, .dim = 256, .ld = 768, .cu = cu, .docs = 1, .scale = 1};
    char wrong[160] = "";
    struct merr err = {""};
    int r = c->gpu->kernels->attention_backward(c->s, &a, &err);

    if (r != -ENOTSUP ||
        !strstr(err.text, "takes 140032 bytes of a GPU's shared memory for a block, and this one gives"))
        (void)snprintf(wrong, sizeof(wrong), "%d: %.100s", r, err.text);
    check_note(c, "attention of 256 dimensions without shared memory for it", 0, 0, wrong);
}

static bool is_small(const struct check *c)
{
    struct device_about about;
    struct merr err;

    return c->gpu->kernels->device->about(0, &about, &err) == 0 && about.shared < 140032;
}

void check_large_heads(struct check *c)
{
    const struct piece large[] = {{64, 0, 0}, {65, 0, 0}, {127, 0, 0}, {128, 0, 0}, {129, 0, 0}};

    packed(c, c->only_attention ? large + 1 : large, c->only_attention ? 1 : 5, 0, 1, 1, 128, 0, 0, KERN_BF16);
    if (is_small(c))
        refused(c);
}

/* What suits tensor cores: rows on boundaries of 16 bytes. Lengths around all sizes of tiles. */
static void on_tensor_cores(struct check *c)
{
    const struct piece small[] = {{1, 0, 0}, {15, 0, 0}, {16, 0, 0}, {17, 0, 0}, {0, 0, 0}, {63, 0, 0}};
    const struct piece large[] = {{64, 0, 0}, {65, 0, 0}, {127, 0, 0}, {128, 0, 0}, {129, 0, 0}};
    /* Two parts of one document, one of 140 rows after 131 others, and one whose keys begin in a tile's middle. */
    const struct piece some[] = {{33, 70, 0}, {70, 0, 0}, {140, 131, 103}, {20, 45, 374}};
    const struct piece one = {1030, 0, 0}, two[] = {{200, 0, 0}, {57, 0, 0}};

    check_large_heads(c);
    packed(c, small, 6, 0, 4, 2, 64, 0, 0, KERN_BF16);
    packed(c, small, 6, 0, 4, 1, 80, 0.25f, 8, KERN_BF16);
    packed(c, large, 3, 0, 2, 1, 96, 0.1f, 0, KERN_BF16);
    packed(c, some, 4, 439, 2, 1, 64, 0, 0, KERN_BF16);
    packed(c, some, 2, 103, 2, 2, 128, 0.5f, 0, KERN_BF16);
    packed(c, two, 2, 0, 8, 1, 32, 0, 16, KERN_BF16);
    packed(c, two, 1, 0, 1, 1, 128, 0.1f, 0, KERN_BF16);
    packed(c, &one, 1, 0, 1, 1, c->quick ? 64 : 128, 0, 0, KERN_BF16);
    if (c->quick)
        return;
    packed(c, &one, 1, 0, 3, 1, 80, 0.1f, 0, KERN_BF16);
    packed(c, &one, 1, 0, 4, 4, 96, 0, 0, KERN_BF16);
    packed(c, &one, 1, 0, 4, 1, 128, 0.1f, 0, KERN_BF16);
}

/* By the library where it has a way; how many of the calls went so is told. Each case is four calls. */
void check_library_attention(struct check *c)
{
    const struct piece some[] = {{1, 0, 0}, {15, 0, 0}, {128, 0, 0}, {0, 0, 0}, {129, 0, 0}, {63, 0, 0}};
    const struct piece one = {c->quick ? 300 : 1030, 0, 0}, two[] = {{200, 0, 0}, {57, 0, 0}};
    struct kern_stream *own = c->s;
    struct kern_attention_ways w;

    c->s = c->library;
    packed(c, some, 6, 0, 4, 2, 64, 0, 0, KERN_BF16);
    packed(c, two, 2, 0, 2, 2, 128, 0, 8, KERN_BF16);
    packed(c, some, 4, 0, 1, 1, 128, 0, 0, KERN_BF16);
    packed(c, two, 1, 0, 3, 1, 96, 0, 16, KERN_BF16);
    packed(c, &one, 1, 0, c->quick ? 2 : 8, 1, 64, 0, 0, KERN_BF16);
    packed(c, two, 1, 0, 2, 1, 80, 0.1f, 0, KERN_BF16); /* ours */
    c->s = own;
    c->gpu->kernels->attention_ways(c->library, &w);
    if (w.library)
        (void)printf("attention by cuDNN %zu: %llu calls, %llu by our own kernels%s%s\n", w.library,
                     (unsigned long long)w.by_library, (unsigned long long)w.by_us, *w.why ? ": " : "", w.why);
    else
        (void)printf("attention by cuDNN is not there: %s\n", w.why);
}

void check_attention(struct check *c)
{
    const struct piece docs[] = {{1, 0, 0}, {31, 0, 0}, {33, 0, 0}, {0, 0, 0}, {70, 0, 0}};
    /* Two thirds of a document of 90 rows, in an order of their own, around another one; and a chunk of a long one. */
    const struct piece some[] = {{30, 60, 0}, {33, 0, 90}, {0, 5, 0}, {30, 0, 0}, {7, 50, 123}};
    struct piece one = {.length = 0};

    for (enum kern_type t = KERN_F32; t <= KERN_BF16; t++) {
        packed(c, docs, 5, 0, 4, 2, 24, 0, 0, t);
        packed(c, docs, 4, 0, 2, 1, 8, 0.3f, 7, t);
        packed(c, some, 5, 190, 4, 2, 24, 0.2f, 0, t);
        packed(c, some, 4, 123, 2, 2, 16, 0, 5, t);
        one.length = c->quick ? 40 : check_range(c, 200, 900);
        packed(c, &one, 1, 0, 2, 2, 128, 0.1f, 0, t);
        packed(c, &one, 1, 0, 1, 1, 80, 0, 3, t);
        one.length = 34;
        if (!is_small(c))
            packed(c, &one, 1, 0, 1, 1, 256, 0.1f, 0, t);
    }
    on_tensor_cores(c);
    check_library_attention(c);
    cached(c, 9, 4, 2, 24);
    cached(c, c->quick ? 133 : 300, 1, 1, 160);
}
