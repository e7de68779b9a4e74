/* The rate of matrix products at a model's own shapes: what training can reach at most.
 *
 *   train-matrix THREADS MILLISECONDS TYPE MxNxKxCOUNT...
 *
 * TYPE is f32 or bf16. Each shape is a product of a forward pass, C[M,N] = A[M,K] · B[K,N], which it holds so often. It
 * is timed for so many milliseconds by Muster's kernels and by oneDNN on its own threads, in turns. Of each way the
 * median counts, as it does of the steps beside this, and the faster way for each shape; bf16 counts at least as f32
 * does, which holds its numbers too. Prints one JSON object: GFLOP/s over all products, the same if the fastest call of
 * each shape counted, and of each way alone. */
#include <errno.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/engine/kernels/kernels.h"

#define SAMPLES_MAX 4096

enum { MUSTER_F32, ONEDNN_F32, MUSTER_BF16, WAYS };

struct bench {
    struct kern_stream *s;
    int threads, ways;
    void *a, *b, *c; /* as large as the largest shape; bf16 has room there too */
};

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "train-matrix: %s: %s\n", what, why);
    exit(1);
}

static int number(const char *text, char end, const char **ret_next)
{
    char *at;
    long n;

    errno = 0;
    n = strtol(text, &at, 10);
    if (errno || at == text || *at != end || n < 1 || n > 1 << 24)
        die(text, "want a number from 1 to 16777216");
    *ret_next = end ? at + 1 : at;
    return (int)n;
}

static void multiply(struct bench *b, int way, int m, int n, int k)
{
    struct kern_gemm g = {.type = way == MUSTER_BF16 ? KERN_BF16 : KERN_F32,
                          .c_type = KERN_F32,
                          .m = m,
                          .n = n,
                          .k = k,
                          .a = b->a,
                          .lda = k,
                          .b = b->b,
                          .ldb = n,
                          .c = b->c,
                          .ldc = n,
                          .b_is_weight = true};
    struct merr err;

    switch (way) {
    case ONEDNN_F32:
        omp_set_num_threads(b->threads);
        if (dnnl_sgemm('N', 'N', m, n, k, 1, b->a, k, b->b, n, 0, b->c, n) != dnnl_success)
            die("oneDNN", "dnnl_sgemm failed");
        break;
    default:
        if (kern_cpu()->gemm(b->s, &g, &err) < 0)
            die("a kernel failed", err.text);
    }
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

/* Seconds of one product each way, the median of what fits the time; and of the fastest of all. */
static double time_shape(struct bench *b, int64_t budget_us, int m, int n, int k, double median[WAYS])
{
    static double took[WAYS][SAMPLES_MAX];
    int64_t begin = clock_mono_us();
    double fastest = 1e9;
    int samples = 0;

    for (int way = 0; way < b->ways; way++)
        multiply(b, way, m, n, k); /* the first makes what the others reuse */
    do {
        for (int way = 0; way < b->ways; way++) {
            int64_t t = clock_mono_us();

            multiply(b, way, m, n, k);
            took[way][samples] = (double)(clock_mono_us() - t) * 1e-6;
        }
        samples++;
    } while (samples < SAMPLES_MAX && clock_mono_us() - begin < budget_us);
    for (int way = 0; way < b->ways; way++) {
        qsort(took[way], (size_t)samples, sizeof(took[way][0]), by_value);
        median[way] = took[way][samples / 2];
        fastest = took[way][0] < fastest ? took[way][0] : fastest;
    }
    return fastest;
}

static void open_bench(struct bench *b, char **shape, int shapes)
{
    size_t most = 0;
    struct merr err;

    for (int i = 0; i < shapes; i++) {
        const char *at = shape[i];
        size_t m = (size_t)number(at, 'x', &at), n = (size_t)number(at, 'x', &at), k = (size_t)number(at, 'x', &at);
        size_t large = m * n > m * k ? m * n : m * k;

        large = n * k > large ? n * k : large;
        most = large > most ? large : most;
    }
    if (kern_cpu()->stream_new(&(struct kern_cfg){.threads = b->threads}, &b->s, &err) < 0 ||
        kern_cpu()->mem_alloc(b->s, most * sizeof(float), &b->a, &err) < 0 ||
        kern_cpu()->mem_alloc(b->s, most * sizeof(float), &b->b, &err) < 0 ||
        kern_cpu()->mem_alloc(b->s, most * sizeof(float), &b->c, &err) < 0)
        die("no memory", err.text);
}

int main(int argc, char **argv)
{
    static const char *const name[WAYS] = {"muster_f32", "onednn_f32", "muster_bf16"};
    double flops = 0, seconds = 0, fastest = 0, way_seconds[WAYS] = {0};
    struct bench b = {.ways = 2};
    const char *at;
    int64_t budget_us;

    if (argc < 5 || (strcmp(argv[3], "f32") != 0 && strcmp(argv[3], "bf16") != 0)) {
        (void)fprintf(stderr, "usage: train-matrix THREADS MILLISECONDS f32|bf16 MxNxKxCOUNT...\n");
        return 2;
    }
    /* Threads of oneDNN that spin between calls would hold the cores of ours; the runtime reads this at its start. */
    if (!getenv("OMP_WAIT_POLICY") &&
        (setenv("OMP_WAIT_POLICY", "passive", 1) < 0 || execv("/proc/self/exe", argv) < 0))
        die("cannot start over", strerror(errno));
    b.threads = number(argv[1], 0, &at);
    budget_us = (int64_t)number(argv[2], 0, &at) * 1000;
    b.ways = strcmp(argv[3], "bf16") == 0 ? WAYS : 2;
    open_bench(&b, argv + 4, argc - 4);
    for (int i = 4; i < argc; i++) {
        int m = number(argv[i], 'x', &at), n = number(at, 'x', &at), k = number(at, 'x', &at);
        int count = number(at, 0, &at);
        double median[WAYS] = {0}, least = 1e9;

        fastest += count * time_shape(&b, budget_us, m, n, k, median);
        flops += 2.0 * m * n * k * count;
        for (int way = 0; way < b.ways; way++) {
            least = median[way] < least ? median[way] : least;
            way_seconds[way] += count * median[way];
        }
        seconds += count * least;
    }
    (void)printf("{\"gflops\": %.2f, \"fastest\": %.2f", flops / seconds * 1e-9, flops / fastest * 1e-9);
    for (int way = 0; way < b.ways; way++)
        (void)printf(", \"%s\": %.2f", name[way], flops / way_seconds[way] * 1e-9);
    (void)printf("}\n");
    return ferror(stdout) || fflush(stdout) != 0;
}
