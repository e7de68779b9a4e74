/* Kernels that look at elements one by one: eight at a time where arrays allow it (wide.h), else four a thread. Built
 * without contraction, so that what is exact on the processor's plain table has the same bits here. */
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"
#include "worker/engine/kernels/cuda/wide.h"

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

/* wide: arrays are on boundaries of 16 bytes, and rows whole units. */
template <typename F> int run_units(void *stream, size_t n, bool wide, F f)
{
    const size_t units = n / UNIT;

    if (!wide || units == 0)
        return run_each(stream, n, f);
    LAUNCH(for_units<F>, blocks_for(units, UNIT_THREADS * UNIT_TURNS), UNIT_THREADS, 0, stream, units, n, f);
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

    struct numbers {
    };

    __device__ void load(size_t, numbers &) const
    {
    }

    __device__ void finish(size_t u, const numbers &) const
    {
        const float v[UNIT] = {value, value, value, value, value, value, value, value};

        store_eight(y + u * UNIT, v);
    }

    __device__ void operator()(size_t i) const
    {
        y[i] = value;
    }
};

/* y[i] = f(x[i]) */
template <typename X, typename Y, typename F> struct map_one {
    const X *x;
    Y *y;
    F f;

    struct numbers {
        eight<X> x;
    };

    __device__ void load(size_t u, numbers &v) const
    {
        v.x.load(x + u * UNIT);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        float r[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            r[e] = f(v.x.at(e));
        store_eight(y + u * UNIT, r);
    }

    __device__ void operator()(size_t i) const
    {
        put(y + i, f(get(x + i)));
    }
};

/* y[i] = f(x[i], z[i]); y may be x or z. */
template <typename T, typename F> struct map_two {
    const T *x, *z;
    T *y;
    F f;

    struct numbers {
        eight<T> x, z;
    };

    __device__ void load(size_t u, numbers &v) const
    {
        v.x.load(x + u * UNIT);
        v.z.load(z + u * UNIT);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        float r[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            r[e] = f(v.x.at(e), v.z.at(e));
        store_eight(y + u * UNIT, r);
    }

    __device__ void operator()(size_t i) const
    {
        put(y + i, f(get(x + i), get(z + i)));
    }
};

template <typename X, typename Y, typename F> int run_one(void *stream, size_t n, const void *x, void *y, F f)
{
    return run_units(stream, n, is_wide(x) && is_wide(y), map_one<X, Y, F>{(const X *)x, (Y *)y, f});
}

template <typename T, typename F> int run_two(void *stream, size_t n, const void *x, const void *z, void *y, F f)
{
    return run_units(stream, n, is_wide(x) && is_wide(z) && is_wide(y),
                     map_two<T, F>{(const T *)x, (const T *)z, (T *)y, f});
}

struct as_it_is {
    __device__ float operator()(float x) const
    {
        return x;
    }
};

struct gelu_there {
    __device__ float operator()(float x) const
    {
        return gelu(x);
    }
};

struct gelu_back {
    __device__ float operator()(float v, float dy) const
    {
        const float h = tanhf(GELU_K * (v + GELU_A * v * v * v));
        const float slope = 0.5f * (1 + h) + 0.5f * v * (1 - h * h) * GELU_K * (1 + 3 * GELU_A * v * v);

        return dy * slope;
    }
};

/* Rows of gates and, as many columns further on, of what they let through. */
template <typename T> struct swiglu_there {
    const T *gate_up;
    T *y;
    int cols;

    struct numbers {
        eight<T> gate, up;
    };

    __device__ static float value(float gate, float up)
    {
        return gate / (1 + expf(-gate)) * up;
    }

    __device__ void load(size_t u, numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)cols);
        const T *from = gate_up + p.row * 2 * (size_t)cols + p.col;

        v.gate.load(from);
        v.up.load(from + cols);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        float r[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            r[e] = value(v.gate.at(e), v.up.at(e));
        store_eight(y + u * UNIT, r);
    }

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const size_t at = p.row * 2 * (size_t)cols + p.col;

        put(y + i, value(get(gate_up + at), get(gate_up + at + cols)));
    }
};

template <typename T> struct swiglu_back {
    const T *gate_up, *dy;
    T *dgate_up;
    int cols;

    struct numbers {
        eight<T> gate, up, dy;
    };

    __device__ static void values(float gate, float up, float d, float &dgate, float &dup)
    {
        const float s = 1 / (1 + expf(-gate));

        dgate = d * up * s * (1 + gate * (1 - s));
        dup = d * gate * s;
    }

    __device__ void load(size_t u, numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)cols);
        const T *from = gate_up + p.row * 2 * (size_t)cols + p.col;

        v.gate.load(from);
        v.up.load(from + cols);
        v.dy.load(dy + u * UNIT);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)cols);
        T *to = dgate_up + p.row * 2 * (size_t)cols + p.col;
        float dgate[UNIT], dup[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            values(v.gate.at(e), v.up.at(e), v.dy.at(e), dgate[e], dup[e]);
        store_eight(to, dgate);
        store_eight(to + cols, dup);
    }

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const size_t at = p.row * 2 * (size_t)cols + p.col;
        float dgate, dup;

        values(get(gate_up + at), get(gate_up + at + cols), get(dy + i), dgate, dup);
        put(dgate_up + at, dgate);
        put(dgate_up + at + cols, dup);
    }
};

struct add_to {
    float *y;
    const float *x;
    uint32_t period; /* of x */

    struct numbers {
        eight<float> x, y;
    };

    __device__ void load(size_t u, numbers &v) const
    {
        v.x.load(x + (period ? place_of(u * UNIT, period).col : u * UNIT));
        v.y.load(y + u * UNIT);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        float r[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            r[e] = v.y.at(e) + v.x.at(e);
        store_eight(y + u * UNIT, r);
    }

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

/* The same where rows are whole units and their first column begins four: two fours a unit. */
struct drop_units {
    const float *x;
    float *y;
    struct kern_dropout d;
    float scale;

    struct numbers {
        eight<float> x;
        uint64_t sample;
        int32_t position;
    };

    __device__ size_t at(size_t i, place &p) const
    {
        p = place_of(i, (uint32_t)d.cols);
        return p.row * (size_t)d.ld + p.col;
    }

    __device__ void load(size_t u, numbers &v) const
    {
        place p;

        v.x.load(x + at(u * UNIT, p));
        v.sample = d.sample[p.row];
        v.position = d.position[p.row];
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        place p;
        float *to = y + at(u * UNIT, p);
        float r[UNIT];

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t quad = (uint32_t)((d.col0 + (int)p.col) / 4 + half);
            const uint32_t ctr[4] = {quad, (uint32_t)v.position, (uint32_t)v.sample, (uint32_t)(v.sample >> 32)};
            uint32_t word[4];

            philox4x32(ctr, d.key, word);
#pragma unroll
            for (int e = 0; e < 4; e++)
                r[4 * half + e] = word[e] < d.threshold ? 0 : v.x.at(4 * half + e) * scale;
        }
        store_eight(to, r);
    }

    __device__ void operator()(size_t) const
    {
    }
};

__device__ inline void turn_of(int32_t position, float freq, float &c, float &s)
{
    const double angle = (double)position * (double)freq;

    c = (float)cos(angle);
    s = (float)sin(angle);
}

struct make_turn {
    const float *freq;
    float *cosines, *sines;
    int half;

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)half);

        turn_of((int32_t)p.row, freq[p.col], cosines[i], sines[i]);
    }
};

/* Eight pairs of one row, in HEADS_A_TURN heads. Positions beyond the table are computed, by a way of their own. */
#define HEADS_A_TURN 4

template <typename T> struct pairs {
    T *x;
    int heads, dim, ld;
    const int32_t *position;
    const float *freq;
    struct turns turns;
    bool inverse;
};

template <typename T> __device__ void rotate_slowly(const pairs<T> &r, T *x, int heads, int32_t position, int first)
{
    const int half = r.dim / 2;

#pragma unroll 1
    for (int i = first; i < first + UNIT; i++) {
        float c, s;

        turn_of(position, r.freq[i], c, s);
        s = r.inverse ? -s : s;
#pragma unroll 1
        for (int h = 0; h < heads; h++) {
            T *p = x + (size_t)h * (size_t)r.dim + i;
            const float lo = get(p), hi = get(p + half);

            put(p, lo * c - hi * s);
            put(p + half, hi * c + lo * s);
        }
    }
}

template <typename T> __global__ void rotate_units(size_t n, pairs<T> r)
{
    const size_t u = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const int half = r.dim / 2, head = (int)blockIdx.y * HEADS_A_TURN;
    const int heads = r.heads - head < HEADS_A_TURN ? r.heads - head : HEADS_A_TURN;
    eight<T> lo[HEADS_A_TURN], hi[HEADS_A_TURN];
    eight<float> c, s;

    if (u >= n)
        return;
    const place of = place_of(u, (uint32_t)(half / UNIT));
    const int first = (int)of.col * UNIT;
    const int32_t position = r.position[of.row];
    T *x = r.x + of.row * (size_t)r.ld + (size_t)head * (size_t)r.dim;

    if (position < 0 || position >= r.turns.positions) {
        rotate_slowly(r, x, heads, position, first);
        return;
    }
#pragma unroll
    for (int h = 0; h < HEADS_A_TURN; h++) {
        T *p = x + (size_t)(h < heads ? h : 0) * (size_t)r.dim + first;

        lo[h].load(p);
        hi[h].load(p + half);
    }
    c.load(r.turns.cosines + (size_t)position * (size_t)half + first);
    s.load(r.turns.sines + (size_t)position * (size_t)half + first);
#pragma unroll
    for (int h = 0; h < HEADS_A_TURN; h++) {
        T *p = x + (size_t)h * (size_t)r.dim + first;
        float low[UNIT], high[UNIT];

        if (h >= heads)
            break;
#pragma unroll
        for (int e = 0; e < UNIT; e++) {
            const float by = r.inverse ? -s.at(e) : s.at(e);

            low[e] = lo[h].at(e) * c.at(e) - hi[h].at(e) * by;
            high[e] = hi[h].at(e) * c.at(e) + lo[h].at(e) * by;
        }
        store_eight(p, low);
        store_eight(p + half, high);
    }
}

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
        float c, s;

        turn_of(position[row], freq[i], c, s);
        s = inverse ? -s : s;
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

    struct numbers {
        kern_adamw_step step;
        eight<float> g, w, m, v;
    };

    __device__ void values(const kern_adamw_step &step, float grad, float &w, float &m, float &v) const
    {
        const float g = grad * step.grad_scale;

        m = a.beta1 * m + (1 - a.beta1) * g;
        v = a.beta2 * v + (1 - a.beta2) * (g * g);
        w = w - step.lr * a.weight_decay * w - step.lr * (m * step.inv_bias1) / (sqrtf(v * step.inv_bias2) + a.eps);
    }

    __device__ void load(size_t u, numbers &n) const
    {
        n.step = there ? *there : given;
        n.g.load(a.g + u * UNIT);
        n.w.load(a.w + u * UNIT);
        n.m.load(a.m + u * UNIT);
        n.v.load(a.v + u * UNIT);
    }

    __device__ void finish(size_t u, const numbers &n) const
    {
        float w[UNIT], m[UNIT], v[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++) {
            w[e] = n.w.at(e);
            m[e] = n.m.at(e);
            v[e] = n.v.at(e);
            values(n.step, n.g.at(e), w[e], m[e], v[e]);
        }
        store_eight(a.m + u * UNIT, m);
        store_eight(a.v + u * UNIT, v);
        store_eight(a.w + u * UNIT, w);
    }

    __device__ void operator()(size_t i) const
    {
        float w = a.w[i], m = a.m[i], v = a.v[i];

        values(there ? *there : given, a.g[i], w, m, v);
        a.m[i] = m;
        a.v[i] = v;
        a.w[i] = w;
    }
};

template <typename T> struct look_up {
    const T *table;
    int first, rows, cols;
    const int32_t *token;
    float *y;

    struct numbers {
        eight<T> x;
        bool there;
    };

    __device__ void load(size_t u, numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)cols);
        const int64_t row = (int64_t)token[p.row] - first;

        v.there = row >= 0 && row < rows;
        v.x.load(table + (v.there ? (size_t)row * (size_t)cols + p.col : 0));
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        float r[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            r[e] = v.there ? v.x.at(e) : 0;
        store_eight(y + u * UNIT, r);
    }

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)cols);
        const int64_t row = (int64_t)token[p.row] - first;

        y[i] = row >= 0 && row < rows ? get(table + (size_t)row * (size_t)cols + p.col) : 0;
    }
};

template <typename T> struct finish_product {
    const float *acc, *bias;
    int n, ldc;
    T *c, *aux;

    struct numbers {
        eight<float> acc, bias;
    };

    /* gelu of the rounded number: what backward will see */
    __device__ static float rounded(float x)
    {
        T r;

        put(&r, x);
        return get(&r);
    }

    __device__ void load(size_t u, numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)n);

        v.acc.load(acc + p.row * (size_t)ldc + p.col);
        if (bias)
            v.bias.load(bias + p.col);
    }

    __device__ void finish(size_t u, const numbers &v) const
    {
        const place p = place_of(u * UNIT, (uint32_t)n);
        const size_t at = p.row * (size_t)ldc + p.col;
        float x[UNIT];

#pragma unroll
        for (int e = 0; e < UNIT; e++)
            x[e] = bias ? v.acc.at(e) + v.bias.at(e) : v.acc.at(e);
        if (aux) {
            store_eight(aux + at, x);
#pragma unroll
            for (int e = 0; e < UNIT; e++)
                x[e] = gelu(rounded(x[e]));
        }
        store_eight(c + at, x);
    }

    __device__ void operator()(size_t i) const
    {
        const place p = place_of(i, (uint32_t)n);
        const size_t at = p.row * (size_t)ldc + p.col;
        const float x = bias ? acc[at] + bias[p.col] : acc[at];

        if (aux)
            put(aux + at, x);
        put(c + at, aux ? gelu(rounded(x)) : x);
    }
};

} // namespace

int launch_fill(void *stream, float *y, float value, size_t n)
{
    return run_units(stream, n, is_wide(y), fill_with{y, value});
}

int launch_to_bf16(void *stream, const float *x, size_t n, void *y)
{
    return run_one<float, bf16>(stream, n, x, y, as_it_is());
}

int launch_gelu_forward(void *stream, enum kern_type type, const void *x, size_t n, void *y)
{
    if (type == KERN_BF16)
        return run_one<bf16, bf16>(stream, n, x, y, gelu_there());
    return run_one<float, float>(stream, n, x, y, gelu_there());
}

int launch_gelu_backward(void *stream, enum kern_type type, const void *x, const void *dy, size_t n, void *dx)
{
    if (type == KERN_BF16)
        return run_two<bf16>(stream, n, x, dy, dx, gelu_back());
    return run_two<float>(stream, n, x, dy, dx, gelu_back());
}

int launch_swiglu_forward(void *stream, enum kern_type type, const void *gate_up, int rows, int cols, void *y)
{
    const size_t n = (size_t)rows * (size_t)cols;
    const bool wide = cols % UNIT == 0 && is_wide(gate_up) && is_wide(y);

    if (type == KERN_BF16)
        return run_units(stream, n, wide, swiglu_there<bf16>{(const bf16 *)gate_up, (bf16 *)y, cols});
    return run_units(stream, n, wide, swiglu_there<float>{(const float *)gate_up, (float *)y, cols});
}

int launch_swiglu_backward(void *stream, enum kern_type type, const void *gate_up, const void *dy, int rows, int cols,
                           void *dgate_up)
{
    const size_t n = (size_t)rows * (size_t)cols;
    const bool wide = cols % UNIT == 0 && is_wide(gate_up) && is_wide(dy) && is_wide(dgate_up);

    if (type == KERN_BF16)
        return run_units(stream, n, wide,
                         swiglu_back<bf16>{(const bf16 *)gate_up, (const bf16 *)dy, (bf16 *)dgate_up, cols});
    return run_units(stream, n, wide,
                     swiglu_back<float>{(const float *)gate_up, (const float *)dy, (float *)dgate_up, cols});
}

int launch_add(void *stream, float *y, const float *x, size_t n)
{
    return run_units(stream, n, is_wide(y) && is_wide(x), add_to{y, x, 0});
}

int launch_add_bias(void *stream, float *y, const float *bias, int rows, int cols)
{
    const bool wide = cols % UNIT == 0 && is_wide(y) && is_wide(bias);

    return run_units(stream, (size_t)rows * (size_t)cols, wide, add_to{y, bias, (uint32_t)cols});
}

int launch_dropout(void *stream, const struct kern_dropout *d, const float *x, float *y)
{
    const int quads = d->cols > 0 ? (d->col0 + d->cols - 1) / 4 - d->col0 / 4 + 1 : 0;

    if (d->cols % UNIT == 0 && d->ld % UNIT == 0 && d->col0 % 4 == 0 && is_wide(x) && is_wide(y))
        return run_units(stream, (size_t)d->rows * (size_t)d->cols, true, drop_units{x, y, *d, 1 / (1 - d->p)});
    return run_each(stream, (size_t)d->rows * (size_t)quads, drop{x, y, *d, 1 / (1 - d->p), quads});
}

int launch_turns(void *stream, const float *freq, int half, int positions, float *cosines, float *sines)
{
    return run_each(stream, (size_t)positions * (size_t)half, make_turn{freq, cosines, sines, half});
}

int launch_rope(void *stream, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, const struct turns *turns, bool inverse)
{
    const size_t n = (size_t)rows * (size_t)(dim / 2), units = n / UNIT;
    const dim3 blocks(blocks_for(units, THREADS), (unsigned)((heads + HEADS_A_TURN - 1) / HEADS_A_TURN));

    if (n == 0 || heads <= 0)
        return cudaSuccess;
    if (turns->positions > 0 && dim / 2 % UNIT == 0 && ld % UNIT == 0 && is_wide(x)) {
        if (type == KERN_BF16)
            LAUNCH(rotate_units<bf16>, blocks, THREADS, 0, stream, units,
                   pairs<bf16>{(bf16 *)x, heads, dim, ld, position, freq, *turns, inverse});
        else
            LAUNCH(rotate_units<float>, blocks, THREADS, 0, stream, units,
                   pairs<float>{(float *)x, heads, dim, ld, position, freq, *turns, inverse});
        return cudaGetLastError();
    }
    if (type == KERN_BF16)
        return run_each(stream, n, rotate<bf16>{(bf16 *)x, heads, dim, ld, position, freq, inverse});
    return run_each(stream, n, rotate<float>{(float *)x, heads, dim, ld, position, freq, inverse});
}

int launch_adamw(void *stream, const struct kern_adamw *a, const struct kern_adamw_step *step)
{
    return run_units(stream, a->n, is_wide(a->w) && is_wide(a->m) && is_wide(a->v) && is_wide(a->g),
                     adamw{*a, *a->step, step});
}

int launch_embedding_forward(void *stream, enum kern_type type, const void *table, int first, int rows, int cols,
                             const int32_t *token, int tokens, float *y)
{
    const size_t n = (size_t)tokens * (size_t)cols;
    const bool wide = rows > 0 && cols % UNIT == 0 && is_wide(table) && is_wide(y);

    if (type == KERN_BF16)
        return run_units(stream, n, wide, look_up<bf16>{(const bf16 *)table, first, rows, cols, token, y});
    return run_units(stream, n, wide, look_up<float>{(const float *)table, first, rows, cols, token, y});
}

int launch_epilogue(void *stream, const float *acc, const float *bias, int m, int n, int ldc, enum kern_type type,
                    void *c, void *aux)
{
    const size_t all = (size_t)m * (size_t)n;
    const bool wide = n % UNIT == 0 && ldc % UNIT == 0 && is_wide(acc) && is_wide(bias) && is_wide(c) && is_wide(aux);

    if (type == KERN_BF16)
        return run_units(stream, all, wide, finish_product<bf16>{acc, bias, n, ldc, (bf16 *)c, (bf16 *)aux});
    return run_units(stream, all, wide, finish_product<float>{acc, bias, n, ldc, (float *)c, (float *)aux});
}
