/* How fast the CPU kernels are, each beside its bound in the same run
 *
 *   kernels [--quick] [--threads N]
 *
 * Matrix products on N threads beside oneDNN called for the whole product with its own. The rest on one thread and by
 * its processor time, so that a busy machine counts less, beside what it cannot do without: the slower of a copy of as
 * many bytes as it reads and writes, and of its multiply-adds and other operations on eight numbers at the rate at
 * which this processor multiplies and adds; divisions and roots, which take several times as long, count as one.
 * `plain` is the plain twin's rate.
 *
 * Attention's memory is beside that of a short sequence times the length: a ratio of 1 or more means that it grows no
 * faster than the length.
 *
 * One JSON object a line; ratio is value / reference, higher is better. */
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/engine/kernels/cpu/cpu.h"
#include "worker/engine/kernels/kernels.h"

#define SAMPLES_MAX 31

struct bench {
    const struct kern_ops *ops;
    struct kern_stream *s;
    int threads, samples;
    double sample_s; /* least length of a sample */
    clockid_t clock;
    struct kern_stream *plain_s;
    double multiply_adds; /* of eight numbers a second, on one thread */
};

typedef void (*bench_fn)(struct bench *b, void *arg);

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench kernels: %s: %s\n", what, why);
    exit(1);
}

static void must(int rc, const struct merr *err)
{
    if (rc < 0)
        die("a kernel failed", err->text);
}

static float *numbers(struct bench *b, size_t n, float size)
{
    struct merr err;
    uint32_t word = 12345;
    float *x;
    void *p;

    must(b->ops->mem_alloc(b->s, n * sizeof(float), &p, &err), &err);
    x = p;
    for (size_t i = 0; i < n; i++) {
        word = word * 1664525u + 1013904223u;
        x[i] = size * ((float)(word >> 8) * 0x1p-23f - 1);
    }
    return x;
}

static double seconds(const struct bench *b)
{
    struct timespec t;

    if (clock_gettime(b->clock, &t) < 0)
        die("clock_gettime", strerror(errno));
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of one call, over as many calls as a sample takes. */
static double one_sample(struct bench *b, bench_fn fn, void *arg)
{
    double begin = seconds(b), now;
    int calls = 0;

    do {
        fn(b, arg);
        calls++;
        now = seconds(b);
    } while (now - begin < b->sample_s);
    return (now - begin) / calls;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Median seconds of a call of each, sampled in turn so that both see the same machine. */
static void compare(struct bench *b, bench_fn fn, bench_fn reference, void *arg, double *ret, double *ret_reference)
{
    double t[SAMPLES_MAX], u[SAMPLES_MAX];

    fn(b, arg);
    reference(b, arg);
    for (int i = 0; i < b->samples; i++) {
        t[i] = one_sample(b, fn, arg);
        u[i] = one_sample(b, reference, arg);
    }
    qsort(t, (size_t)b->samples, sizeof(t[0]), by_value);
    qsort(u, (size_t)b->samples, sizeof(u[0]), by_value);
    *ret = t[b->samples / 2];
    *ret_reference = u[b->samples / 2];
}

/* Seconds of a call of the plain twin, which is slow and needs no more than two. */
static double plain_call(const struct bench *b, bench_fn fn, void *arg)
{
    struct bench plain = *b;

    plain.ops = kern_plain();
    plain.s = b->plain_s;
    plain.sample_s = 0;
    fn(&plain, arg);
    return one_sample(&plain, fn, arg);
}

static void report(const char *metric, double value, const char *unit, const char *reference, double ratio, int threads)
{
    (void)printf("{\"bench\": \"kernels\", \"metric\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", "
                 "\"reference\": \"%s\", \"ratio\": %.3f, \"threads\": %d}\n",
                 metric, value, unit, reference, ratio, threads);
    (void)fflush(stdout);
}

/* A call on one thread beside its limit. work: what it moves or computes, in units of `unit` times a second. */
static void report_loop(const char *metric, double work, const char *unit, double ours, double memory,
                        double arithmetic, double plain)
{
    double limit = memory > arithmetic ? memory : arithmetic;

    (void)printf("{\"bench\": \"kernels\", \"metric\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", "
                 "\"reference\": \"%s: %.4g\", \"ratio\": %.3f, \"threads\": 1, \"plain\": %.4g}\n",
                 metric, work / ours, unit, memory > arithmetic ? "memory copy" : "arithmetic", work / limit,
                 limit / ours, work / plain);
    (void)fflush(stdout);
}

/* --- matrix products ---------------------------------------------------------------------------------------- */

static void call_gemm(struct bench *b, void *arg)
{
    struct merr err;

    must(b->ops->gemm(b->s, arg, &err), &err);
}

static void call_onednn(struct bench *b, void *arg)
{
    const struct kern_gemm *g = arg;

    omp_set_num_threads(b->threads);
    if (dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb,
                   g->accumulate ? 1 : 0, g->c, g->ldc) != dnnl_success)
        die("oneDNN", "dnnl_sgemm failed");
}

static void bench_gemm(struct bench *b, const char *kind, int m, int n, int k)
{
    struct kern_gemm g = {.trans_a = kind[0] == 'T',
                          .trans_b = kind[1] == 'T',
                          .m = m,
                          .n = n,
                          .k = k,
                          .ldc = n,
                          .accumulate = kind[0] == 'T'};
    float *a = numbers(b, (size_t)m * (size_t)k, 1e-3f), *w = numbers(b, (size_t)n * (size_t)k, 1);
    double ours, raw, gflop = 2e-9 * m * n * k;
    char metric[96];

    g.a = a;
    g.lda = g.trans_a ? m : k;
    g.b = w;
    g.ldb = g.trans_b ? k : n;
    g.c = numbers(b, (size_t)m * (size_t)n, 1);
    compare(b, call_gemm, call_onednn, &g, &ours, &raw);
    (void)snprintf(metric, sizeof(metric), "gemm %s %dx%dx%d", kind, m, n, k);
    report(metric, gflop / ours, "GFLOP/s", "dnnl_sgemm on its own threads", raw / ours, b->threads);
    b->ops->mem_free(b->s, a);
    b->ops->mem_free(b->s, w);
    b->ops->mem_free(b->s, g.c);
}

/* --- the arithmetic limit ------------------------------------------------------------------------------------- */

struct peak_case {
    float *a, *b, *c;
};

enum { PEAK_DEPTH = 256, PEAK_SIDE = 512 };

/* Operands that stay in the first cache, or where there is no tile of our own, a product of oneDNN. */
static void call_peak(struct bench *b, void *arg)
{
    struct peak_case *c = arg;

    const struct cpu_tile *t = b->s->tile;

    if (t) {
        for (int i = 0; i < 100; i++)
            t->multiply(PEAK_DEPTH, c->a, c->b, c->c, (size_t)t->columns, false);
        return;
    }
    omp_set_num_threads(1);
    if (dnnl_sgemm('N', 'N', PEAK_SIDE, PEAK_SIDE, PEAK_SIDE, 1, c->a, PEAK_SIDE, c->b, PEAK_SIDE, 0, c->c,
                   PEAK_SIDE) != dnnl_success)
        die("oneDNN", "dnnl_sgemm failed");
}

static void measure_peak(struct bench *b)
{
    size_t n = (size_t)PEAK_SIDE * PEAK_SIDE;
    struct peak_case c = {numbers(b, n, 1), numbers(b, n, 1), numbers(b, n, 1)};
    double pairs = (double)n * PEAK_SIDE, best, again;

    if (b->s->tile)
        pairs = 100.0 * PEAK_DEPTH * b->s->tile->rows * b->s->tile->columns;
    compare(b, call_peak, call_peak, &c, &best, &again);
    best = again < best ? again : best;
    b->multiply_adds = pairs / 8 / best;
    report("multiply-adds", 2e-9 * pairs / best, "GFLOP/s", "itself", 1, 1);
    b->ops->mem_free(b->s, c.a);
    b->ops->mem_free(b->s, c.b);
    b->ops->mem_free(b->s, c.c);
}

/* --- loops against a copy of memory ---------------------------------------------------------------------------- */

struct loop_case {
    int rows, cols;
    size_t n;
    float *x, *y, *z, *gamma, *row, *row2, *sum, *sum2;
    int32_t *index;
    uint64_t *sample;
};

static void call_copy(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->copy(b->s, c->y, c->x, c->n * sizeof(float), &err), &err);
}

static void call_layernorm(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->layernorm_forward(b->s, KERN_F32, c->x, c->gamma, c->gamma, 1e-5f, c->rows, c->cols, c->y, c->row,
                                   c->row2, &err),
         &err);
}

static void call_layernorm_back(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->layernorm_backward(b->s, c->z, c->x, c->gamma, c->row, c->row2, c->rows, c->cols, c->y, false, c->sum,
                                    c->sum2, &err),
         &err);
}

static void call_rmsnorm(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->rmsnorm_forward(b->s, KERN_F32, c->x, c->gamma, 1e-5f, c->rows, c->cols, c->y, c->row2, &err), &err);
}

static void call_rmsnorm_back(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->rmsnorm_backward(b->s, c->z, c->x, c->gamma, c->row2, c->rows, c->cols, c->y, false, c->sum, &err),
         &err);
}

static void call_swiglu(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->swiglu_forward(b->s, KERN_F32, c->x, c->rows, c->cols / 2, c->y, &err), &err);
}

static void call_swiglu_back(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->swiglu_backward(b->s, KERN_F32, c->x, c->z, c->rows, c->cols / 2, c->y, &err), &err);
}

static void call_rope(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->rope(b->s, KERN_F32, c->y, c->rows, c->cols / 64, 64, c->cols, c->index, c->gamma, false, &err), &err);
}

static void call_gelu(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->gelu_forward(b->s, KERN_F32, c->x, c->n, c->y, &err), &err);
}

static void call_gelu_back(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->gelu_backward(b->s, KERN_F32, c->x, c->z, c->n, c->y, &err), &err);
}

static void call_add(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->add(b->s, c->y, c->x, c->n, &err), &err);
}

static void call_bias_gradient(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->bias_gradient(b->s, KERN_F32, c->x, c->rows, c->cols, c->cols, c->sum, &err), &err);
}

static void call_dropout(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    const struct kern_dropout d = {.rows = c->rows,
                                   .cols = c->cols,
                                   .ld = c->cols,
                                   .p = 0.1f,
                                   .threshold = 429496730u,
                                   .key = {1, 2},
                                   .position = c->index,
                                   .sample = c->sample};
    struct merr err;

    must(b->ops->dropout(b->s, &d, c->x, c->y, &err), &err);
}

static void call_loss(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    struct merr err;

    must(b->ops->xent_partial(b->s, c->x, c->rows, c->cols, 0, c->cols, c->index, c->z, &err), &err);
    must(b->ops->xent_finish(b->s, c->x, c->z, 1, c->rows, c->cols, 0, c->cols, c->index, 1, c->row, KERN_F32, c->y,
                             &err),
         &err);
}

static void call_adamw(struct bench *b, void *arg)
{
    struct loop_case *c = arg;
    const struct kern_adamw_step step = {.grad_scale = 1, .lr = 1e-3f, .inv_bias1 = 1, .inv_bias2 = 1};
    const struct kern_adamw a = {.n = c->n / 4,
                                 .w = c->y,
                                 .m = c->y + c->n / 4,
                                 .v = c->z,
                                 .g = c->x,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .step = &step};
    struct merr err;

    must(b->ops->adamw(b->s, &a, &err), &err);
}

static void bench_loops(struct bench *b, int rows, int cols)
{
    static const struct {
        const char *name;
        bench_fn fn;
        double floats;     /* moved a number of the matrix: read and written once each */
        double operations; /* on eight numbers of it, of them 17 an exponential */
    } loop[] = {
        {"layernorm forward", call_layernorm, 2, 6},
        {"layernorm backward", call_layernorm_back, 3, 15},
        {"rmsnorm forward", call_rmsnorm, 2, 3},
        {"rmsnorm backward", call_rmsnorm_back, 3, 10},
        {"swiglu forward", call_swiglu, 1.5, 10},
        {"swiglu backward", call_swiglu_back, 2.5, 13},
        {"rope", call_rope, 2, 3},
        {"gelu forward", call_gelu, 2, 23},
        {"gelu backward", call_gelu_back, 3, 28},
        {"add", call_add, 3, 1},
        {"bias gradient", call_bias_gradient, 1, 1},
        {"dropout", call_dropout, 2, 47},
        {"loss and gradient", call_loss, 3, 39},
        {"adamw", call_adamw, 7.0 / 4, 15.0 / 4},
    };
    size_t n = (size_t)rows * (size_t)cols;
    struct loop_case c = {.rows = rows,
                          .cols = cols,
                          .n = n,
                          .x = numbers(b, n, 1),
                          .y = numbers(b, n, 1),
                          .z = numbers(b, n, 1),
                          .gamma = numbers(b, (size_t)cols, 1),
                          .row = numbers(b, (size_t)rows, 1),
                          .row2 = numbers(b, (size_t)rows, 1),
                          .sum = numbers(b, (size_t)cols, 1),
                          .sum2 = numbers(b, (size_t)cols, 1)};

    c.index = calloc((size_t)rows, sizeof(*c.index));
    c.sample = calloc((size_t)rows, sizeof(*c.sample));
    if (!c.index || !c.sample)
        die("memory", "none left");
    for (int i = 0; i < rows; i++) /* positions, and tokens of the vocabulary */
        c.index[i] = i % cols;
    for (size_t i = 0; i < n; i++)
        c.z[i] = fabsf(c.z[i]);
    for (size_t i = 0; i < sizeof(loop) / sizeof(loop[0]); i++) {
        double ours, copied, bytes = loop[i].floats * 4 * (double)n;
        char metric[96];

        compare(b, loop[i].fn, call_copy, &c, &ours, &copied);
        (void)snprintf(metric, sizeof(metric), "%s %dx%d", loop[i].name, rows, cols);
        report_loop(metric, bytes * 1e-9, "GB/s", ours, copied * loop[i].floats / 2,
                    loop[i].operations * (double)n / 8 / b->multiply_adds, plain_call(b, loop[i].fn, &c));
    }
    b->ops->mem_free(b->s, c.x);
    b->ops->mem_free(b->s, c.y);
    b->ops->mem_free(b->s, c.z);
    b->ops->mem_free(b->s, c.gamma);
    b->ops->mem_free(b->s, c.row);
    b->ops->mem_free(b->s, c.row2);
    b->ops->mem_free(b->s, c.sum);
    b->ops->mem_free(b->s, c.sum2);
    free(c.index);
    free(c.sample);
}

/* --- attention against its multiply-adds -------------------------------------------------------------------------- */

static void call_attention(struct bench *b, void *arg)
{
    struct merr err;

    must(b->ops->attention_forward(b->s, arg, &err), &err);
}

static void call_attention_back(struct bench *b, void *arg)
{
    struct merr err;

    must(b->ops->attention_backward(b->s, arg, &err), &err);
}

/* products: of `dim` multiply-adds for each pair of a query and a key; operations: on eight pairs, beside those. */
static void bench_attention_way(struct bench *b, const char *way, bench_fn fn, struct kern_attention *a,
                                double products, double operations)
{
    int length = a->tokens / a->docs;
    double pairs = 0.5 * length * (length + 1.0) * a->docs * a->heads, ours, again;
    char metric[96];

    compare(b, fn, fn, a, &ours, &again);
    (void)snprintf(metric, sizeof(metric), "attention %s %d of %d, %d heads of %d", way, a->docs, length, a->heads,
                   a->dim);
    report_loop(metric, 2e-9 * products * pairs * a->dim, "GFLOP/s", (ours + again) / 2, 0,
                pairs / 8 * (products * a->dim + operations) / b->multiply_adds, plain_call(b, fn, a));
}

static void bench_attention(struct bench *b, int docs, int length, int heads, int dim)
{
    int tokens = docs * length, width = heads * dim;
    size_t n = (size_t)tokens * (size_t)width;
    int32_t *cu = calloc((size_t)docs + 1, sizeof(*cu));
    struct kern_attention a = {
        .tokens = tokens,
        .heads = heads,
        .kv_heads = heads,
        .dim = dim,
        .ld = 3 * width,
        .cu = cu,
        .docs = docs,
        .scale = 0.125f,
        .qkv = numbers(b, 3 * n, 1),
        .out = numbers(b, n, 1),
        .lse = numbers(b, (size_t)tokens * (size_t)heads, 1),
        .dout = numbers(b, n, 1),
        .dqkv = numbers(b, 3 * n, 1),
    };

    if (!cu)
        die("memory", "none left");
    for (int d = 0; d <= docs; d++)
        cu[d] = d * length;
    bench_attention_way(b, "forward", call_attention, &a, 2, 21);
    bench_attention_way(b, "backward", call_attention_back, &a, 5, 21);
    b->ops->mem_free(b->s, (float *)a.qkv);
    b->ops->mem_free(b->s, a.out);
    b->ops->mem_free(b->s, a.lse);
    b->ops->mem_free(b->s, (float *)a.dout);
    b->ops->mem_free(b->s, a.dqkv);
    free(cu);
}

/* --- memory of attention against the length ---------------------------------------------------------------------- */

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* Bytes that a fresh stream holds after attention over one sequence, forward and backward: beside the arrays of the
 * call, all that it takes. One head, as the time grows with the square of the length. */
static size_t attention_memory(enum kern_type type, int length)
{
    enum { DIM = 64 };
    const int32_t cu[2] = {0, length};
    size_t n = (size_t)length * DIM, before;
    float *x = calloc(9 * n, sizeof(*x));
    struct kern_attention a = {.type = type,
                               .tokens = length,
                               .heads = 1,
                               .kv_heads = 1,
                               .dim = DIM,
                               .ld = 3 * DIM,
                               .cu = cu,
                               .docs = 1,
                               .scale = 0.125f,
                               .qkv = x,
                               .out = x + 3 * n,
                               .lse = x + 4 * n,
                               .dout = x + 5 * n,
                               .dqkv = x + 6 * n};
    struct bench b = {.ops = kern_cpu()};
    struct merr err;

    if (!x)
        die("memory", "none left");
    before = in_use();
    must(b.ops->stream_new(&(struct kern_cfg){.threads = 1}, &b.s, &err), &err);
    call_attention(&b, &a);
    call_attention_back(&b, &a);
    before = in_use() - before;
    b.ops->stream_free(b.s);
    free(x);
    return before;
}

static void bench_attention_memory(enum kern_type type, bool quick)
{
    static const int length[] = {256, 1024, 4096, 16384};
    size_t least = 0;

    for (int i = 0; i < (quick ? 3 : 4); i++) {
        size_t bytes = attention_memory(type, length[i]);
        char metric[96];

        least = i == 0 ? bytes : least;
        (void)snprintf(metric, sizeof(metric), "attention memory %s, 1 of %d", type == KERN_BF16 ? "bf16" : "f32",
                       length[i]);
        report(metric, (double)bytes, "bytes", "those at 256 times the length",
               (double)least * length[i] / length[0] / (double)bytes, 1);
    }
}

static int threads_of(const char *text)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || n < 1 || n > 256)
        die("--threads", "want a number from 1 to 256");
    return (int)n;
}

int main(int argc, char **argv)
{
    struct bench b = {.ops = kern_cpu(), .samples = 15, .sample_s = 0.02, .clock = CLOCK_MONOTONIC};
    bool quick = false;
    struct merr err;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    b.threads = cpus < 1 ? 1 : cpus > 256 ? 256 : (int)cpus;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            b.threads = threads_of(argv[++i]);
        } else {
            (void)fprintf(stderr, "usage: kernels [--quick] [--threads N]\n");
            return 2;
        }
    }
    if (quick) {
        b.samples = 3;
        b.sample_s = 1e-3;
    }
    /* Helpers of oneDNN's own threads that spin between calls would hold the cores of ours: the runtime reads this
     * when it is loaded, so start over with it. */
    if (!getenv("OMP_WAIT_POLICY")) {
        if (setenv("OMP_WAIT_POLICY", "passive", 1) < 0 || execv("/proc/self/exe", argv) < 0)
            die("cannot start over", strerror(errno));
    }
    must(b.ops->stream_new(&(struct kern_cfg){.threads = b.threads}, &b.s, &err), &err);
    bench_gemm(&b, "NT", 1024, 1152, 384);
    bench_gemm(&b, "NT", 1024, 384, 1536);
    bench_gemm(&b, "NN", 1024, 384, 1536);
    bench_gemm(&b, "TN", 1536, 384, 1024);
    bench_gemm(&b, "TN", 384, 384, 1024);
    bench_gemm(&b, "NT", 1024, 2304, 768);
    bench_gemm(&b, "NT", 512, 384, 128);
    bench_gemm(&b, "TN", 128, 128, 512);
    b.ops->stream_free(b.s);
    b.clock = CLOCK_THREAD_CPUTIME_ID;
    must(b.ops->stream_new(&(struct kern_cfg){.threads = 1}, &b.s, &err), &err);
    must(kern_plain()->stream_new(&(struct kern_cfg){.threads = 1}, &b.plain_s, &err), &err);
    measure_peak(&b);
    bench_attention(&b, 4, 256, 6, 64);
    bench_attention(&b, 1, 1024, 6, 64);
    bench_attention(&b, 4, 128, 4, 32);
    bench_attention_memory(KERN_F32, quick);
    bench_attention_memory(KERN_BF16, quick);
    bench_loops(&b, 1024, 384);
    bench_loops(&b, quick ? 4096 : 16384, 768);
    kern_plain()->stream_free(b.plain_s);
    b.ops->stream_free(b.s);
    return 0;
}
