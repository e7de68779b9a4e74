/* Kernels that look at elements one by one, four a thread; built without contraction, so that what is exact
 * on the processor's plain table has the same bits here. */
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"

#define THREADS 256
#define FOUR 4

namespace
{

/* Work of a thread: f(i) for up to four i below n; neighbouring threads have neighbouring ones. */
template <typename F> __global__ void for_each(size_t n, F f)
{
    const size_t first = (size_t)blockIdx.x * (THREADS * FOUR) + threadIdx.x;

#pragma unroll
    for (int v = 0; v < FOUR; v++)
        if (first + (size_t)(v * THREADS) < n)
            f(first + (size_t)(v * THREADS));
}

template <typename F> int run_each(void *stream, size_t n, F f)
{
    if (n > 0)
        LAUNCH(for_each<F>, blocks_for(n, THREADS * FOUR), THREADS, 0, stream, n, f);
    return cudaGetLastError();
}

struct place { /* of element i in rows of so many columns */
    size_t row, col;
};

/* Division of 64 bits is a loop of many instructions, which would cost more than the memory: 32 do for most. */
__device__ inline place place_of(size_t i, uint32_t cols)
{
    if (i <= UINT32_MAX) {
        const uint32_t row = (uint32_t)i / cols;

        return place{row, (uint32_t)i - row * cols};
    }
    return place{i / cols, i % cols};
}

struct fill_with {
    float *y, value;

    __device__ void operator()(size_t i) const
    {
        y[i] = value;
    }
};

template <typename T> struct convert {
    const float *x;
    T *y;

    __device__ void operator()(size_t i) const
    {
        put(y + i, x[i]);
    }
};

template <typename T> struct gelu_there {
    const T *x;
    T *y;

    __device__ void operator()(size_t i) const
    {
        put(y + i, gelu(get(x + i)));
    }
};

template <typename T> struct gelu_back {
    const T *x, *dy;
    T *dx;

    __device__ void operator()(size_t i) const
    {
        const float v = get(x + i), h = tanhf(GELU_K * (v + GELU_A * v * v * v));
        const float slope = 0.5f * (1 + h) + 0.5f * v * (1 - h * h) * GELU_K * (1 + 3 * GELU_A * v * v);

        put(dx + i, get(dy + i) * slope);
    }
};

template <typename T> struct swiglu_there {
    const T *gate_up;
    T *y;
    int cols;

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const size_t at = p.row * 2 * (size_t)cols + p.col;
        const float gate = get(gate_up + at), up = get(gate_up + at + cols);

        put(y + i, gate / (1 + expf(-gate)) * up);
    }
};

template <typename T> struct swiglu_back {
    const T *gate_up, *dy;
    T *dgate_up;
    int cols;

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const size_t at = p.row * 2 * (size_t)cols + p.col;
        const float gate = get(gate_up + at), up = get(gate_up + at + cols), d = get(dy + i);
        const float s = 1 / (1 + expf(-gate));

        put(dgate_up + at, d * up * s * (1 + gate * (1 - s)));
        put(dgate_up + at + cols, d * gate * s);
    }
};

struct add_to {
    float *y;
    const float *x;
    uint32_t period; /* of x */

    __device__ void operator()(size_t i) const
    {
        y[i] += x[period ? place_of(i, period).col : i];
    }
};

/* i-th four columns, by their global number, of a row */
struct drop {
    const float *x;
    float *y;
    struct kern_dropout d;
    float scale;
    int quads; /* of a row */

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)quads);
        const int row = (int)p.row, quad = d.col0 / 4 + (int)p.col;
        const uint64_t sample = d.sample[row];
        const uint32_t ctr[4] = {(uint32_t)quad, (uint32_t)d.position[row], (uint32_t)sample, (uint32_t)(sample >> 32)};
        uint32_t word[4];

        philox4x32(ctr, d.key, word);
#pragma unroll
        for (int v = 0; v < 4; v++) {
            const int col = quad * 4 + v - d.col0;
            const size_t at = (size_t)row * (size_t)d.ld + (size_t)col;

            if (col >= 0 && col < d.cols)
                y[at] = word[v] < d.threshold ? 0 : x[at] * scale;
        }
    }
};

/* One pair of frequencies of one row, in all heads. */
template <typename T> struct rotate {
    T *x;
    int heads, dim, ld;
    const int32_t *position;
    const float *freq;
    bool inverse;

    __device__ void operator()(size_t at) const
    {
        const int half = dim / 2;
        const place of = place_of(at, (uint32_t)half);
        const size_t row = of.row;
        const int i = (int)of.col;
        const double angle = (double)position[row] * (double)freq[i];
        const float c = (float)cos(angle), s = (float)(inverse ? -sin(angle) : sin(angle));

        for (int h = 0; h < heads; h++) {
            T *p = x + row * (size_t)ld + (size_t)h * (size_t)dim + i;
            const float lo = get(p), hi = get(p + half);

            put(p, lo * c - hi * s);
            put(p + half, hi * c + lo * s);
        }
    }
};

struct adamw {
    kern_adamw a;
    kern_adamw_step given;
    const kern_adamw_step *there; /* NULL: given */

    __device__ void operator()(size_t i) const
    {
        const kern_adamw_step step = there ? *there : given;
        const float g = a.g[i] * step.grad_scale, w = a.w[i];
        const float m = a.beta1 * a.m[i] + (1 - a.beta1) * g;
        const float v = a.beta2 * a.v[i] + (1 - a.beta2) * (g * g);

        a.m[i] = m;
        a.v[i] = v;
        a.w[i] =
            w - step.lr * a.weight_decay * w - step.lr * (m * step.inv_bias1) / (sqrtf(v * step.inv_bias2) + a.eps);
    }
};

struct look_up {
    const float *table;
    int first, rows, cols;
    const int32_t *token;
    float *y;

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const int64_t row = (int64_t)token[p.row] - first;

        y[i] = row >= 0 && row < rows ? table[(size_t)row * (size_t)cols + p.col] : 0;
    }
};

template <typename T> struct finish_product {
    const float *acc, *bias;
    int n, ldc;
    T *c, *aux;

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)n);
        const size_t at = p.row * (size_t)ldc + p.col;
        const float x = bias ? acc[at] + bias[p.col] : acc[at];

        if (aux) {
            put(aux + at, x);
            put(c + at, gelu(get(aux + at))); /* of the rounded number: what backward will see */
        } else {
            put(c + at, x);
        }
    }
};

} // namespace

int launch_fill(void *stream, float *y, float value, size_t n)
{
    return run_each(stream, n, fill_with{y, value});
}

int launch_to_bf16(void *stream, const float *x, size_t n, void *y)
{
    return run_each(stream, n, convert<bf16>{x, (bf16 *)y});
}

int launch_gelu_forward(void *stream, enum kern_type type, const void *x, size_t n, void *y)
{
    if (type == KERN_BF16)
        return run_each(stream, n, gelu_there<bf16>{(const bf16 *)x, (bf16 *)y});
    return run_each(stream, n, gelu_there<float>{(const float *)x, (float *)y});
}

int launch_gelu_backward(void *stream, enum kern_type type, const void *x, const void *dy, size_t n, void *dx)
{
    if (type == KERN_BF16)
        return run_each(stream, n, gelu_back<bf16>{(const bf16 *)x, (const bf16 *)dy, (bf16 *)dx});
    return run_each(stream, n, gelu_back<float>{(const float *)x, (const float *)dy, (float *)dx});
}

int launch_swiglu_forward(void *stream, enum kern_type type, const void *gate_up, int rows, int cols, void *y)
{
    const size_t n = (size_t)rows * (size_t)cols;

    if (type == KERN_BF16)
        return run_each(stream, n, swiglu_there<bf16>{(const bf16 *)gate_up, (bf16 *)y, cols});
    return run_each(stream, n, swiglu_there<float>{(const float *)gate_up, (float *)y, cols});
}

int launch_swiglu_backward(void *stream, enum kern_type type, const void *gate_up, const void *dy, int rows, int cols,
                           void *dgate_up)
{
    const size_t n = (size_t)rows * (size_t)cols;

    if (type == KERN_BF16)
        return run_each(stream, n, swiglu_back<bf16>{(const bf16 *)gate_up, (const bf16 *)dy, (bf16 *)dgate_up, cols});
    return run_each(stream, n, swiglu_back<float>{(const float *)gate_up, (const float *)dy, (float *)dgate_up, cols});
}

int launch_add(void *stream, float *y, const float *x, size_t n)
{
    return run_each(stream, n, add_to{y, x, 0});
}

int launch_add_bias(void *stream, float *y, const float *bias, int rows, int cols)
{
    return run_each(stream, (size_t)rows * (size_t)cols, add_to{y, bias, (uint32_t)cols});
}

int launch_dropout(void *stream, const struct kern_dropout *d, const float *x, float *y)
{
    const int quads = d->cols > 0 ? (d->col0 + d->cols - 1) / 4 - d->col0 / 4 + 1 : 0;

    return run_each(stream, (size_t)d->rows * (size_t)quads, drop{x, y, *d, 1 / (1 - d->p), quads});
}

int launch_rope(void *stream, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, bool inverse)
{
    const size_t n = (size_t)rows * (size_t)(dim / 2);

    if (type == KERN_BF16)
        return run_each(stream, n, rotate<bf16>{(bf16 *)x, heads, dim, ld, position, freq, inverse});
    return run_each(stream, n, rotate<float>{(float *)x, heads, dim, ld, position, freq, inverse});
}

int launch_adamw(void *stream, const struct kern_adamw *a, const struct kern_adamw_step *step)
{
    return run_each(stream, a->n, adamw{*a, *a->step, step});
}

int launch_embedding_forward(void *stream, const float *table, int first, int rows, int cols, const int32_t *token,
                             int tokens, float *y)
{
    return run_each(stream, (size_t)tokens * (size_t)cols, look_up{table, first, rows, cols, token, y});
}

int launch_epilogue(void *stream, const float *acc, const float *bias, int m, int n, int ldc, enum kern_type type,
                    void *c, void *aux)
{
    const size_t all = (size_t)m * (size_t)n;

    if (type == KERN_BF16)
        return run_each(stream, all, finish_product<bf16>{acc, bias, n, ldc, (bf16 *)c, (bf16 *)aux});
    return run_each(stream, all, finish_product<float>{acc, bias, n, ldc, (float *)c, (float *)aux});
}
