/* Speeds, each beside the copy bandwidth of the same run; products and attention in TFLOP/s. Launches follow one
 * another on one stream; the clock is the processor's, around enough of them to outweigh the first. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "tests/gpu/bench.h"

#define SAMPLE_US 100000

void bench_must(int r, const struct merr *err)
{
    if (r) {
        (void)fprintf(stderr, "check: benchmarks: %s\n", err->text);
        exit(1);
    }
}

/* Seconds of one call: the best of three samples. */
double bench_seconds(struct bench *b, bench_fn fn)
{
    double best = INFINITY;
    struct merr err = {""};

    bench_must(fn(b, &err), &err);
    bench_must(b->k->stream_sync(b->c->s, &err), &err);
    for (int sample = 0; sample < 3; sample++) {
        int64_t begin = clock_mono_us(), end;
        int n = 0;

        do {
            for (int i = 0; i < 8; i++, n++)
                bench_must(fn(b, &err), &err);
            bench_must(b->k->stream_sync(b->c->s, &err), &err);
            end = clock_mono_us();
        } while (end - begin < SAMPLE_US);
        best = fmin(best, (double)(end - begin) * 1e-6 / n);
    }
    return best;
}

void bench_bytes(struct bench *b, const char *what, bench_fn fn, double bytes)
{
    double rate = bytes / bench_seconds(b, fn);

    check_figure(b->c, what, rate * 1e-9, "GB/s", "copy", rate / b->copy);
}

static int copy(struct bench *b, struct merr *err)
{
    return b->k->copy(b->c->s, b->b, b->a, BENCH_VALUES * sizeof(float), err);
}

static int encode(struct bench *b, struct merr *err)
{
    const struct codec_site site = {.seed = 1};

    return b->g->encode(b->c->gpu->native_stream(b->c->s), b->codec, &site, CODEC_F32, b->a, BENCH_VALUES, b->b,
                        b->report, err);
}

static int decode(struct bench *b, struct merr *err)
{
    return b->g->decode(b->c->gpu->native_stream(b->c->s), b->codec, b->b, codec_size(b->codec, BENCH_VALUES),
                        CODEC_F32, b->x, BENCH_VALUES, b->report, err);
}

static int reduce(struct bench *b, struct merr *err)
{
    const void *blocks[] = {b->b, b->b, b->b, b->b};
    const struct codec_parts p = {.blocks = blocks, .n = 4, .len = codec_size(b->codec, BENCH_VALUES)};

    return b->g->decode_reduce(b->c->gpu->native_stream(b->c->s), b->codec, &p, CODEC_F32, b->x, BENCH_VALUES,
                               b->report, err);
}

static void codecs(struct bench *b)
{
    char what[96];
    struct merr err;
    uint32_t flags = 0;

    bench_must(b->g->report_new(&b->report, &err), &err);
    for (size_t i = 0; (b->codec = codec_at(i)) != NULL; i++) {
        double raw = (double)(BENCH_VALUES * sizeof(float)), block = (double)codec_size(b->codec, BENCH_VALUES);

        (void)snprintf(what, sizeof(what), "encode %s", codec_name(b->codec));
        bench_bytes(b, what, encode, raw + block);
        (void)snprintf(what, sizeof(what), "decode %s", codec_name(b->codec));
        bench_bytes(b, what, decode, raw + block);
        (void)snprintf(what, sizeof(what), "reduce four of %s", codec_name(b->codec));
        bench_bytes(b, what, reduce, raw + block); /* the four are one block: cached, its bytes count once */
        bench_must(b->g->fetch(b->c->gpu->native_stream(b->c->s), b->report, &err), &err);
        bench_must(b->k->stream_sync(b->c->s, &err), &err);
        bench_must(b->g->collect(b->report, &flags, NULL, &err), &err);
    }
    b->g->report_free(b->report);
}

static int gelu(struct bench *b, struct merr *err)
{
    return b->k->gelu_forward(b->c->s, KERN_BF16, b->a, BENCH_VALUES, b->b, err);
}

static int layernorm(struct bench *b, struct merr *err)
{
    return b->k->layernorm_forward(b->c->s, KERN_BF16, b->a, b->x, b->x, 1e-5f, (int)(BENCH_VALUES / 2048), 2048, b->b,
                                   b->x + 4096, b->x + (1 << 20), err);
}

static int adamw(struct bench *b, struct merr *err)
{
    const struct kern_adamw_step step = {.grad_scale = 1, .lr = 1e-9f, .inv_bias1 = 1, .inv_bias2 = 1};
    const struct kern_adamw w = {.n = BENCH_VALUES / 2,
                                 .w = b->a,
                                 .m = b->a + BENCH_VALUES / 2,
                                 .v = b->b,
                                 .g = b->b + BENCH_VALUES / 2,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .step = &step};

    return b->k->adamw(b->c->s, &w, err);
}

static int product(struct bench *b, struct merr *err)
{
    const struct kern_gemm g = {.type = KERN_BF16,
                                .c_type = KERN_BF16,
                                .trans_b = true,
                                .m = b->m,
                                .n = b->n,
                                .k = b->kk,
                                .a = b->a,
                                .lda = b->kk,
                                .b = b->b,
                                .ldb = b->kk,
                                .c = b->x,
                                .ldc = b->n};

    return b->k->gemm(b->c->s, &g, err);
}

/* One row of 16 heads. What does not begin on a boundary of 16 bytes goes to the plain kernels. */
static struct kern_attention attention(struct bench *b)
{
    const uint16_t *qkv = (const uint16_t *)(const void *)b->a + (b->plain_attention ? 1 : 0);

    return (struct kern_attention){.type = KERN_BF16,
                                   .tokens = b->cu[1],
                                   .heads = 16,
                                   .kv_heads = 16,
                                   .dim = 128,
                                   .ld = 48 * 128,
                                   .cu = b->cu,
                                   .docs = 1,
                                   .scale = 0.088f,
                                   .qkv = qkv,
                                   .out = b->x,
                                   .lse = b->x + BENCH_VALUES / 2,
                                   .dout = b->a,
                                   .dqkv = b->b};
}

static int attention_forward(struct bench *b, struct merr *err)
{
    const struct kern_attention a = attention(b);

    return b->k->attention_forward(b->c->s, &a, err);
}

static int attention_backward(struct bench *b, struct merr *err)
{
    const struct kern_attention a = attention(b);

    return b->k->attention_backward(b->c->s, &a, err);
}

/* Random numbers in [-1, 1) as f32 and, two by two, as bf16: power, and so speed, depends on them. */
static void refill(struct bench *b)
{
    const size_t n = (size_t)1 << 20;
    float *const room[] = {b->a, b->b, b->x};
    uint32_t *some = malloc(n * sizeof(*some));
    struct merr err = {""};

    bench_must(some ? 0 : merr_set(&err, -ENOMEM, "no memory for random numbers"), &err);
    for (size_t i = 0; i < n; i++)
        some[i] = (uint32_t)bf16_from_float(check_uniform(b->c)) << 16 | bf16_from_float(check_uniform(b->c));
    for (int r = 0; r < 3; r++)
        for (size_t at = 0; at < BENCH_VALUES; at += n)
            bench_must(b->k->copy(b->c->s, room[r] + at, some, n * sizeof(*some), &err), &err);
    free(some);
}

/* Share of a product's rate; a backward counts as five products to a forward's two, whatever it computes again. */
static void attentions(struct bench *b, double product_rate)
{
    static const int tokens[] = {1024, 2048, 4096};
    static const char *const ways[] = {"", ", plain", ", cuDNN"};
    struct kern_stream *own = b->c->s;
    char what[96];

    for (int i = 0; i < 9; i++) {
        struct kern_attention_ways before, after;
        const char *how = ways[i % 3];
        double flops, rate;

        b->cu[1] = tokens[i / 3];
        b->plain_attention = i % 3 == 1;
        b->c->s = i % 3 == 2 ? b->c->library : own;
        flops = 2.0 * tokens[i / 3] * tokens[i / 3] * 128 * 16; /* half of all pairs, which is what a query sees */
        b->k->attention_ways(b->c->s, &before);
        rate = flops / bench_seconds(b, attention_forward);
        (void)snprintf(what, sizeof(what), "attention forward bf16 %d%s", tokens[i / 3], how);
        b->k->attention_ways(b->c->s, &after);
        if (i % 3 == 2 && after.by_library == before.by_library) /* it has no way: these would be ours once more */
            continue;
        check_figure(b->c, what, rate * 1e-12, "TFLOP/s", "the product", rate / product_rate);
        rate = 2.5 * flops / bench_seconds(b, attention_backward);
        (void)snprintf(what, sizeof(what), "attention backward bf16 %d%s", tokens[i / 3], how);
        check_figure(b->c, what, rate * 1e-12, "TFLOP/s", "the product", rate / product_rate);
    }
    b->c->s = own;
}

static void kernels(struct bench *b)
{
    double rate;

    bench_bytes(b, "gelu bf16", gelu, (double)BENCH_VALUES * 4);
    bench_bytes(b, "layernorm f32 to bf16", layernorm, (double)BENCH_VALUES * 6);
    bench_bytes(b, "adamw", adamw, (double)(BENCH_VALUES / 2) * 4 * 7);
    refill(b); /* what adamw leaves is nothing to multiply */
    b->m = b->n = b->kk = 8192;
    b->square = rate = 2.0 * b->m * b->n * b->kk / bench_seconds(b, product);
    check_figure(b->c, "product bf16 8192^3", rate * 1e-12, "TFLOP/s", "790 TFLOP/s", rate / 790e12);
    attentions(b, rate);
}

/* On a stream of its own, with memory that the GPU has to itself, as a rank that is alone has. */
void check_bench(struct check *c)
{
    const struct kern_cfg cfg = {.threads = 1, .apart = true, .own = true};
    struct bench b = {.c = c, .k = c->gpu->kernels, .g = c->gpu->codecs};
    struct kern_stream *before = c->s;
    float **room[] = {&b.a, &b.b, &b.x};
    struct merr err = {""};

    bench_must(b.k->stream_new(&cfg, &c->s, &err), &err);
    for (int i = 0; i < 3; i++) {
        void *p;

        bench_must(b.k->mem_alloc(c->s, BENCH_VALUES * sizeof(float), &p, &err), &err);
        *room[i] = p;
    }
    refill(&b);
    b.copy = 2.0 * (double)(BENCH_VALUES * sizeof(float)) / bench_seconds(&b, copy);
    check_figure(c, "copy", b.copy * 1e-9, "GB/s", "itself", 1);
    kernels(&b);
    refill(&b);
    check_rates(&b);
    refill(&b);
    codecs(&b);
    for (int i = 0; i < 3; i++)
        b.k->mem_free(c->s, *room[i]);
    b.k->stream_free(c->s);
    c->s = before;
}
