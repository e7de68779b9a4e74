/* Every call of the CUDA runtime that a short piece of work makes fails once, in turn: each time the work must end with
 * an error and words, or have been done nevertheless, and leave no memory, stream or event behind. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compress/cuda_backend.h"
#include "worker/engine/kernels/kernels.h"

#define CALLS_MAX 400
#define N 300
#define WITHIN_US 10000000

static float numbers[N];

struct part { /* what is recorded */
    const struct kern_ops *k;
    struct kern_stream *s;
    float *a;
};

static int rotate(void *arg, struct merr *err)
{
    static const int32_t position[4] = {0, 1, 2, 3};
    static const float freq[2] = {1, 0.1f};
    struct part *p = arg;

    return p->k->rope(p->s, KERN_F32, p->a, 4, 1, 4, 4, position, freq, false, err);
}

/* As often as it takes to note it, to capture it and to launch the graph again. */
static int record(const struct kern_ops *k, struct kern_stream *s, float *a, struct merr *err)
{
    struct part p = {k, s, a};
    const struct kern_key key = {.head = &p, .head_bytes = sizeof(p)};
    int r = 0;

    for (int i = 0; i < 3 && r == 0; i++)
        r = kern_recorded(k, s, &key, rotate, &p, err);
    return r;
}

/* A little of everything: returns the first error. */
static int work(const struct cuda_backend *gpu, struct kern_stream *s, struct codec_cuda_report *report, float *a,
                float *b, struct merr *err)
{
    static const int32_t token[4] = {1, 0, 1, 2};
    const struct kern_ops *k = gpu->kernels;
    const struct kern_gemm g = {.m = 3, .n = 4, .k = 5, .a = a, .lda = 5, .b = a, .ldb = 4, .c = b, .ldc = 4};
    const struct codec *c;
    double squares[3];
    uint32_t flags = 0;
    int r = codec_by_name("r8", &c, err);

    if (r == 0)
        r = k->copy(s, a, numbers, sizeof(numbers), err);
    if (r == 0)
        r = k->gemm(s, &g, err);
    if (r == 0)
        r = k->embedding_backward(s, a, 0, 3, 8, token, 4, b, err);
    if (r == 0)
        r = k->bias_gradient(s, KERN_F32, a, 8, 8, 8, b, err);
    if (r == 0)
        r = record(k, s, a, err);
    if (r == 0)
        r = k->sum_squares(s, a, N, 100, squares, err);
    if (r == 0)
        r = gpu->codecs->encode(gpu->native_stream(s), c, NULL, CODEC_F32, a, 128, b, report, err);
    if (r == 0)
        r = gpu->codecs->fetch(gpu->native_stream(s), report, err);
    if (r == 0)
        r = k->stream_sync(s, err);
    return r ? r : gpu->codecs->collect(report, &flags, NULL, err);
}

static _Alignas(4096) char page[4096];

static int by_queue(const struct device_ops *ops, float *a, struct merr *err)
{
    struct device_fold f = {.type = DEVICE_F32, .n = 2, .own = a, .rest = a, .stride = 8, .count = 2, .out = a};
    struct device_mark *mark = NULL;
    struct device_queue *q;
    uint64_t left, all;
    void *pinned = NULL;
    int r = ops->room(0, &left, &all, err);

    if (r == 0)
        r = ops->open(0, &q, err);
    if (r)
        return r;
    r = ops->alloc(q, DEVICE_PINNED, N, &pinned, err);
    if (r == 0)
        r = ops->copy(q, pinned, a, N, err);
    if (r == 0)
        r = ops->fold(q, &f, err);
    if (r == 0)
        r = ops->mark_new(q, &mark, err);
    if (r == 0)
        r = ops->mark(q, mark, err);
    if (r == 0)
        r = ops->follow(q, mark, err);
    if (r == 0)
        r = ops->pin(q, page, sizeof(page), err);
    if (r == 0)
        ops->unpin(q, page);
    if (r == 0)
        r = ops->await(mark, WITHIN_US, err);
    if (r == 0 && (ops->done(q, err) < 0 || ops->reached(mark, err) < 0))
        r = -1;
    ops->mark_free(mark);
    ops->free(q, DEVICE_PINNED, pinned);
    ops->close(q);
    return r;
}

static int once(const struct cuda_backend *gpu, struct merr *err)
{
    const struct kern_cfg cfg = {.threads = 1, .record = true};
    struct codec_cuda_report *report = NULL;
    struct kern_stream *s = NULL;
    void *a = NULL, *b = NULL;
    int r = gpu->kernels->stream_new(&cfg, &s, err);

    if (r)
        return r;
    r = gpu->codecs->report_new(&report, err);
    if (r == 0)
        r = gpu->kernels->mem_alloc(s, N * sizeof(float), &a, err);
    if (r == 0)
        r = gpu->kernels->mem_alloc(s, N * sizeof(float), &b, err);
    if (r == 0)
        r = work(gpu, s, report, a, b, err);
    if (r == 0)
        r = by_queue(gpu->kernels->device, a, err);
    gpu->kernels->mem_free(s, b);
    gpu->kernels->mem_free(s, a);
    gpu->codecs->report_free(report);
    gpu->kernels->stream_free(s);
    return r;
}

/* A GPU that never ends its work. */
static int hung(const struct device_ops *ops, struct merr *err)
{
    struct device_mark *mark = NULL;
    struct device_queue *q;
    int r = ops->open(0, &q, err);

    if (r)
        return r;
    r = ops->mark_new(q, &mark, err);
    if (r == 0)
        r = ops->mark(q, mark, err);
    (void)setenv("FAKE_CUDA_HUNG", "1", 1);
    if (r == 0)
        r = ops->await(mark, 20000, err);
    if (r == -ETIMEDOUT && (ops->done(q, err) != 0 || ops->reached(mark, err) != 0))
        r = merr_set(err, -EIO, "what hangs is said to be done");
    (void)unsetenv("FAKE_CUDA_HUNG");
    ops->mark_free(mark);
    ops->close(q);
    return r;
}

/* A process that gives its GPU up: it frees nothing, and ends past whoever would wait for the GPU, with its status. */
static bool ends_without_its_gpu(const struct cuda_backend *gpu, int (*left)(void))
{
    const struct kern_cfg cfg = {.threads = 1};
    struct device_queue *q;
    struct kern_stream *s;
    void *a;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (atexit(abort) || gpu->kernels->device->open(0, &q, NULL) || gpu->kernels->stream_new(&cfg, &s, NULL) ||
            gpu->kernels->mem_alloc(s, N, &a, NULL))
            _exit(1);
        gpu->kernels->device->lose(q);
        gpu->kernels->device->lose(q);
        status = left();
        gpu->kernels->mem_free(s, a);
        gpu->kernels->stream_free(s);
        gpu->kernels->device->close(q);
        exit(left() == status ? 7 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

static int fault(int n, const char *what, const char *words)
{
    (void)printf("with call %d failing: %s %s\n", n, what, words);
    return 1;
}

int main(void)
{
    const struct cuda_backend *gpu;
    struct merr err = {""};
    int (*left)(void);
    int failed = 0, n;

    if (cuda_backend_open(sizeof(struct kern_ops), &gpu, &err))
        return fault(0, "no library:", err.text);
    left = (int (*)(void))dlsym(dlopen(getenv("MUSTER_CUDA_BACKEND"), RTLD_NOW | RTLD_NOLOAD), "emulate_left");
    if (!left)
        return fault(0, "the library is not the emulated one", "");
    if (once(gpu, &err))
        return fault(0, "the work itself fails:", err.text);
    if (hung(gpu->kernels->device, &err) != -ETIMEDOUT || !strstr(err.text, "GPU 0 did not end"))
        return fault(0, "a GPU that hangs is waited for:", err.text);
    if (!ends_without_its_gpu(gpu, left))
        return fault(0, "a GPU that is given up is freed or waited for", "");
    for (n = 1; n <= CALLS_MAX; n++) {
        char number[16];
        int r;

        (void)snprintf(number, sizeof(number), "%d", n);
        (void)setenv("FAKE_CUDA_FAIL", number, 1);
        err.text[0] = '\0';
        r = once(gpu, &err);
        if (r > 0 || (r != 0 && !err.text[0]))
            return fault(n, "an error without a number or words", "");
        if (left() != 0)
            return fault(n, "something is left behind", err.text);
        failed += r != 0;
        if (r == 0 && n > failed + 20) /* the last calls only free */
            break;
    }
    if (failed < 20 || n > CALLS_MAX)
        return fault(n, "too few calls failed, or they never end", "");
    (void)printf("%d calls failed in turn\n", failed);
    return 0;
}
