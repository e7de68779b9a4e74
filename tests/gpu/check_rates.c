/* Kernels beside the copy bandwidth, products as models ask for them beside the square one, memory that the host shares
 * beside the GPU's own, and the way of a checkpoint to the host beside a plain copy there. */
#include <stdio.h>

#include "base/clock.h"
#include "checkpoint/read/lift.h"
#include "tests/gpu/bench.h"

#define COLS 1024
#define ROWS ((int)(BENCH_VALUES / COLS))
#define VOCAB 50304
#define VOCAB_ROWS 1024
#define TOKENS 8192
#define LIFT_BYTES ((size_t)32 << 20)
#define WITHIN_US 60000000

static int32_t zeros[TOKENS];

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static int gelu_backward(struct bench *b, struct merr *err)
{
    return b->k->gelu_backward(b->c->s, KERN_BF16, b->a, b->x, BENCH_VALUES, b->b, err);
}

static int swiglu(struct bench *b, struct merr *err)
{
    return b->k->swiglu_forward(b->c->s, KERN_BF16, b->a, ROWS, COLS, b->b, err);
}

static int swiglu_backward(struct bench *b, struct merr *err)
{
    return b->k->swiglu_backward(b->c->s, KERN_BF16, b->a, b->x, ROWS, COLS, b->b, err);
}

static int rmsnorm(struct bench *b, struct merr *err)
{
    return b->k->rmsnorm_forward(b->c->s, KERN_BF16, b->a, b->x, 1e-5f, ROWS, COLS, b->b, b->x + COLS, err);
}

static int layernorm_backward(struct bench *b, struct merr *err)
{
    float *mean = b->x + 4 * COLS, *rstd = mean + ROWS;

    return b->k->layernorm_backward(b->c->s, b->a, b->b, b->x, mean, rstd, ROWS / 2, COLS, b->a + BENCH_VALUES / 2,
                                    false, b->x + COLS, b->x + (size_t)2 * COLS, err);
}

static int rope(struct bench *b, struct merr *err)
{
    static float freq[32];

    return b->k->rope(b->c->s, KERN_BF16, b->a, TOKENS, 40, 64, 48 * 64, zeros, freq, false, err);
}

static int bias_gradient(struct bench *b, struct merr *err)
{
    return b->k->bias_gradient(b->c->s, KERN_BF16, b->a, ROWS, COLS, COLS, b->b, err);
}

static int cross_entropy(struct bench *b, struct merr *err)
{
    int r = b->k->xent_partial(b->c->s, b->a, VOCAB_ROWS, VOCAB, 0, VOCAB, zeros, b->x, err);

    return r ? r
             : b->k->xent_finish(b->c->s, b->a, b->x, 1, VOCAB_ROWS, VOCAB, 0, VOCAB, zeros, 1e-3f,
                                 b->x + (size_t)4 * VOCAB_ROWS, KERN_BF16, b->b, err);
}

static int embedding(struct bench *b, struct merr *err)
{
    return b->k->embedding_forward(b->c->s, KERN_F32, b->a, 0, ROWS, COLS, zeros, TOKENS, b->b, err);
}

static int dropout(struct bench *b, struct merr *err)
{
    static uint64_t sample[TOKENS];
    const struct kern_dropout d = {.rows = TOKENS,
                                   .cols = COLS,
                                   .ld = COLS,
                                   .p = 0.1f,
                                   .threshold = 429496729,
                                   .position = zeros,
                                   .sample = sample};

    return b->k->dropout(b->c->s, &d, b->a, b->b, err);
}

static int add(struct bench *b, struct merr *err)
{
    return b->k->add(b->c->s, b->a, b->b, BENCH_VALUES, err);
}

static int to_bf16(struct bench *b, struct merr *err)
{
    return b->k->to_bf16(b->c->s, b->a, BENCH_VALUES, b->b, err);
}

static int sum_squares(struct bench *b, struct merr *err)
{
    static double ret[BENCH_VALUES >> 16];

    return b->k->sum_squares(b->c->s, b->a, BENCH_VALUES, 1 << 16, ret, err);
}

static void kernels(struct bench *b)
{
    const double all = (double)BENCH_VALUES, tokens = (double)TOKENS;

    bench_bytes(b, "gelu backward bf16", gelu_backward, 6 * all);
    bench_bytes(b, "swiglu bf16", swiglu, 6 * all);
    bench_bytes(b, "swiglu backward bf16", swiglu_backward, 10 * all);
    bench_bytes(b, "rmsnorm f32 to bf16", rmsnorm, 6 * all);
    bench_bytes(b, "layernorm backward", layernorm_backward, 12 * all / 2);
    bench_bytes(b, "rope bf16", rope, 4 * tokens * 40 * 64);
    bench_bytes(b, "bias gradient bf16", bias_gradient, 2 * all);
    bench_bytes(b, "cross-entropy and its gradient in bf16, two passes", cross_entropy, 10.0 * VOCAB_ROWS * VOCAB);
    bench_bytes(b, "embedding of one token", embedding, 4 * tokens * COLS); /* its row is cached */
    bench_bytes(b, "dropout", dropout, 8 * tokens * COLS);
    bench_bytes(b, "sum of two", add, 12 * all);
    bench_bytes(b, "f32 to bf16", to_bf16, 6 * all);
    bench_bytes(b, "sum of squares", sum_squares, 4 * all);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static const struct wanted {
    const char *what;
    int m, n, k;
    enum kern_epilogue epilogue;
    enum kern_type c_type;
    bool trans_a, trans_b, accumulate, onto;
} wanted[] = {
    {"768 to 2304, bias, bf16", TOKENS, 2304, 768, KERN_BIAS, KERN_BF16, false, false, false, false},
    {"768 to 3072, bias and gelu, bf16", TOKENS, 3072, 768, KERN_BIAS_GELU, KERN_BF16, false, false, false, false},
    {"3072 to 768, bias, f32", TOKENS, 768, 3072, KERN_BIAS, KERN_F32, false, false, false, false},
    {"3072 to 768, bias and residual, f32", TOKENS, 768, 3072, KERN_BIAS, KERN_F32, false, false, false, true},
    {"3072 to 768, as gradients, bf16", TOKENS, 768, 3072, KERN_PLAIN, KERN_BF16, false, true, false, false},
    {"a gradient of 768 x 3072 weights", 768, 3072, TOKENS, KERN_PLAIN, KERN_F32, true, false, true, false},
    {"logits of 512 tokens, 768 to 50304", 512, 50304, 768, KERN_PLAIN, KERN_F32, false, true, false, false},
    {"a gradient of 50304 x 768, 512 tokens", 50304, 768, 512, KERN_PLAIN, KERN_F32, true, false, true, false},
    {"2048 to 16384, bf16", TOKENS, 16384, 2048, KERN_PLAIN, KERN_BF16, false, true, false, false},
};

static const struct wanted *asked;

static int product(struct bench *b, struct merr *err)
{
    const struct wanted *w = asked;
    const struct kern_gemm g = {
        .type = KERN_BF16,
        .c_type = w->c_type,
        .trans_a = w->trans_a,
        .trans_b = w->trans_b,
        .m = w->m,
        .n = w->n,
        .k = w->k,
        .a = b->a,
        .lda = w->trans_a ? w->m : w->k,
        .b = b->b,
        .ldb = w->trans_b ? w->k : w->n,
        .c = b->x,
        .ldc = w->n,
        .accumulate = w->accumulate,
        .epilogue = w->epilogue,
        .bias = b->a,
        .onto = w->onto ? b->x + BENCH_VALUES / 2 : NULL,
        .aux = w->epilogue == KERN_BIAS_GELU ? b->x + BENCH_VALUES / 2 : NULL,
    };

    return b->k->gemm(b->c->s, &g, err);
}

static void products(struct bench *b)
{
    char what[96];

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const struct wanted *w = asked = &wanted[i];
        double rate = 2.0 * w->m * w->n * w->k / bench_seconds(b, product);

        (void)snprintf(what, sizeof(what), "product: %s", w->what);
        check_figure(b->c, what, rate * 1e-12, "TFLOP/s", "the square one", rate / b->square);
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int copy(struct bench *b, struct merr *err)
{
    return b->k->copy(b->c->s, b->b, b->a, BENCH_VALUES * sizeof(float), err);
}

static int gelu(struct bench *b, struct merr *err)
{
    return b->k->gelu_forward(b->c->s, KERN_BF16, b->a, BENCH_VALUES, b->b, err);
}

/* The same in managed memory, which tensors of several ranks are in. */
static void managed(struct bench *own)
{
    struct bench b = *own;
    const struct kern_cfg cfg = {.threads = 1};
    struct kern_stream *s, *before = b.c->s;
    struct merr err = {""};
    void *p[2];
    double gelu_own = bench_seconds(own, gelu), rate;

    if (b.k->stream_new(&cfg, &s, &err) != 0) {
        (void)printf("managed memory is not measured: %s\n", err.text);
        return;
    }
    b.c->s = s;
    for (int i = 0; i < 2; i++)
        bench_must(b.k->mem_alloc(s, BENCH_VALUES * sizeof(float), &p[i], &err), &err);
    b.a = p[0];
    b.b = p[1];
    rate = 2.0 * (double)(BENCH_VALUES * sizeof(float)) / bench_seconds(&b, copy);
    check_figure(b.c, "copy in managed memory", rate * 1e-9, "GB/s", "copy in the GPU's own", rate / b.copy);
    rate = (double)BENCH_VALUES * 4 / bench_seconds(&b, gelu);
    check_figure(b.c, "gelu bf16 in managed memory", rate * 1e-9, "GB/s", "that in the GPU's own",
                 rate * gelu_own / ((double)BENCH_VALUES * 4));
    for (int i = 0; i < 2; i++)
        b.k->mem_free(s, p[i]);
    b.c->s = before;
    b.k->stream_free(s);
}

/* --- to the host -------------------------------------------------------------------------------------------------- */

static double plain_copies(struct bench *b, struct device_queue *q, void *room)
{
    const struct device_ops *ops = b->k->device;
    const size_t bytes = BENCH_VALUES * sizeof(float);
    struct device_mark *mark;
    struct merr err = {""};
    int64_t began = 0;

    bench_must(ops->mark_new(q, &mark, &err), &err);
    for (int i = 0; i < 5; i++) { /* the first warms */
        bench_must(ops->copy(q, room, b->a, bytes, &err), &err);
        bench_must(ops->mark(q, mark, &err), &err);
        if (i == 0 || i == 4)
            bench_must(ops->await(mark, WITHIN_US, &err), &err);
        began = i == 0 ? clock_mono_us() : began;
    }
    ops->mark_free(mark);
    return 4 * (double)bytes / ((double)(clock_mono_us() - began) * 1e-6);
}

/* As a writer of checkpoints takes tensors: piece by piece into a ring, the oldest waited for. */
static double lifted(struct bench *b, char *room)
{
    const size_t bytes = BENCH_VALUES * sizeof(float), pieces = 4 * bytes / LIFT_BYTES;
    struct lift *l;
    struct merr err = {""};
    int64_t began;

    bench_must(lift_new(b->k->device, 0, room, bytes, &l, &err), &err);
    began = clock_mono_us();
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * LIFT_BYTES % bytes;

        if (lift_under_way(l) == LIFT_DEPTH)
            bench_must(lift_end(l, &err), &err);
        bench_must(lift_begin(l, room + at, (const char *)b->a + at, LIFT_BYTES, &err), &err);
    }
    while (lift_under_way(l) > 0)
        bench_must(lift_end(l, &err), &err);
    began = clock_mono_us() - began;
    lift_free(l);
    return (double)(pieces * LIFT_BYTES) / ((double)began * 1e-6);
}

static _Alignas(4096) char ring[BENCH_VALUES * sizeof(float)];

static void to_host(struct bench *b)
{
    const struct device_ops *ops = b->k->device;
    struct device_queue *q;
    struct merr err = {""};
    void *room;
    double plain, rate;

    bench_must(ops->open(0, &q, &err), &err);
    bench_must(ops->alloc(q, DEVICE_PINNED, BENCH_VALUES * sizeof(float), &room, &err), &err);
    plain = plain_copies(b, q, room);
    ops->free(q, DEVICE_PINNED, room);
    ops->close(q);
    check_figure(b->c, "copy to pinned memory", plain * 1e-9, "GB/s", "itself", 1);
    rate = lifted(b, ring);
    check_figure(b->c, "capture of a checkpoint", rate * 1e-9, "GB/s", "the copy to pinned memory", rate / plain);
}

void check_rates(struct bench *b)
{
    kernels(b);
    products(b);
    managed(b);
    to_host(b);
}
