/* What several files of the CPU table call: room and threads of a stream, one product on a thread, what follows it */
#include "worker/engine/kernels/cpu/bf16.h"

#include <errno.h>
#include <oneapi/dnnl/dnnl.h>

#include "worker/engine/kernels/host.h"

#define WAKE_US 40.0 /* a call below this stays on its thread */

int cpu_work(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    if (s->work_bytes < bytes) {
        void *p;
        int rc = host_alloc(bytes, &p, err);

        if (rc < 0)
            return rc;
        host_free(s->work);
        s->work = p;
        s->work_bytes = bytes;
    }
    *ret = s->work;
    return 0;
}

int cpu_wide(struct kern_stream *s, size_t n, float **ret, struct merr *err)
{
    if (s->wide_floats < n) {
        void *p;
        int rc = host_alloc(n * sizeof(float), &p, err);

        if (rc < 0)
            return rc;
        host_free(s->wide);
        s->wide = p;
        s->wide_floats = n;
    }
    *ret = s->wide;
    return 0;
}

void cpu_run(struct kern_stream *s, int items, double microseconds, pool_fn fn, void *arg)
{
    if (microseconds >= WAKE_US) {
        pool_run(s->pool, items, fn, arg);
        return;
    }
    for (int i = 0; i < items; i++)
        fn(arg, i, 0);
}

int cpu_sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
              bool accumulate, float *c, int ldc)
{
    dnnl_status_t st = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                                  accumulate ? 1.0f : 0.0f, c, ldc);

    return st == dnnl_success ? 0 : st == dnnl_out_of_memory ? -ENOMEM : -EIO;
}

void cpu_epilogue(const struct kern_stream *s, const struct kern_gemm *g, int row, int column, int rows, int cols)
{
    size_t at = (size_t)row * (size_t)g->ldc + (size_t)column;

    if (g->epilogue == KERN_BIAS)
        s->loops->add_bias((float *)g->c + at, (size_t)g->ldc, g->bias + column, rows, cols);
    else if (g->epilogue == KERN_BIAS_GELU)
        s->loops->bias_gelu((float *)g->c + at, (float *)g->aux + at, (size_t)g->ldc, g->bias + column, rows, cols);
}

void bf16_finish(const struct kern_stream *s, const struct kern_gemm *g, float *c, size_t ldc, int row, int column,
                 int rows, int cols)
{
    const struct cpu_loops *loops = s->loops;
    size_t n = (size_t)cols;

    if (g->epilogue != KERN_PLAIN)
        loops->add_bias(c, ldc, g->bias + column, rows, cols);
    for (int r = 0; r < rows; r++, c += ldc) {
        size_t at = (size_t)(row + r) * (size_t)g->ldc + (size_t)column;

        if (g->epilogue == KERN_BIAS_GELU) {
            loops->narrow(c, n, (uint16_t *)g->aux + at);
            loops->widen((uint16_t *)g->aux + at, n, c);
            loops->gelu_forward(c, n, c);
        }
        loops->narrow(c, n, (uint16_t *)g->c + at);
    }
}
