/* Kernels that add up along rows (one block of threads a row) or columns (pieces of rows first, then the pieces). */
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"
#include "worker/engine/kernels/cuda/wide.h"

#define THREADS 256
#define PIECE 128    /* rows that are added up first */
#define NORM_ROWS 64 /* of a block of threads in a norm's backward */
#define SIDE 32      /* columns of a block of threads, and its rows in turn */
#define DEEP 8
#define UNDER_WAY 8 /* rows that a thread has asked memory for */

namespace
{

/* --- norms -------------------------------------------------------------------------------------------------------- */

/* beta NULL: RMSNorm, which knows no mean. */
template <typename T>
__global__ void norm_forward(const float *x, const float *gamma, const float *beta, float eps, int cols, T *y,
                             float *mean, float *rstd)
{
    __shared__ float room[WARP];
    const size_t row = blockIdx.x, at = row * (size_t)cols;
    float sum = 0, m = 0, s;

    for (int i = (int)threadIdx.x; beta && i < cols; i += THREADS)
        sum += x[at + i];
    if (beta) /* the same for all threads */
        m = over_block(sum, sum_of(), room) / (float)cols;
    sum = 0;
    for (int i = (int)threadIdx.x; i < cols; i += THREADS)
        sum += (x[at + i] - m) * (x[at + i] - m);
    s = 1 / sqrtf(over_block(sum, sum_of(), room) / (float)cols + eps);
    for (int i = (int)threadIdx.x; i < cols; i += THREADS)
        put(y + at + i, (x[at + i] - m) * s * gamma[i] + (beta ? beta[i] : 0));
    if (threadIdx.x == 0) {
        rstd[row] = s;
        if (beta)
            mean[row] = m;
    }
}

__global__ void norm_backward(const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
                              int cols, float *dx, bool add)
{
    __shared__ float room[WARP];
    const size_t row = blockIdx.x, at = row * (size_t)cols;
    const float m = mean ? mean[row] : 0, s = rstd[row];
    float sum_g = 0, sum_gn = 0;

    for (int i = (int)threadIdx.x; i < cols; i += THREADS) {
        const float g = dy[at + i] * gamma[i];

        sum_g += g;
        sum_gn += g * ((x[at + i] - m) * s);
    }
    sum_gn = over_block(sum_gn, sum_of(), room) / (float)cols;
    sum_g = mean ? over_block(sum_g, sum_of(), room) / (float)cols : 0;
    for (int i = (int)threadIdx.x; i < cols; i += THREADS) {
        const float n = (x[at + i] - m) * s, d = s * (dy[at + i] * gamma[i] - sum_g - n * sum_gn);

        dx[at + i] = add ? dx[at + i] + d : d;
    }
}

/* Rows of up to 8192 columns, by fours: a thread keeps its PER fours of a row in registers, and reads them once. */

__device__ inline float sum_of_four(float4 v)
{
    return v.x + v.y + v.z + v.w;
}

/* Where a thread's p-th four is; cols or more: it has none. */
__device__ inline int four_at(int p)
{
    return (p * THREADS + (int)threadIdx.x) * 4;
}

__device__ inline float4 four_of(const float *x, int at, int cols)
{
    return at < cols ? *(const float4 *)(x + at) : make_float4(0, 0, 0, 0);
}

__device__ inline void put_four(float *y, float4 v)
{
    *(float4 *)y = v;
}

__device__ inline void put_four(bf16 *y, float4 v)
{
    *(uint2 *)y = make_uint2(two_bf16(v.x, v.y), two_bf16(v.z, v.w));
}

template <typename T, int PER>
__global__ void norm_forward_kept(const float *x, const float *gamma, const float *beta, float eps, int cols, T *y,
                                  float *mean, float *rstd)
{
    __shared__ float room[WARP];
    const size_t row = blockIdx.x, at = row * (size_t)cols;
    float4 v[PER];
    float sum = 0, m = 0, s;

#pragma unroll
    for (int p = 0; p < PER; p++)
        v[p] = four_of(x + at, four_at(p), cols);
#pragma unroll
    for (int p = 0; p < PER; p++)
        sum += sum_of_four(v[p]);
    if (beta) /* the same for all threads */
        m = over_block(sum, sum_of(), room) / (float)cols;
    sum = 0;
#pragma unroll
    for (int p = 0; p < PER; p++) {
        v[p] = make_float4(v[p].x - m, v[p].y - m, v[p].z - m, v[p].w - m);
        if (four_at(p) < cols)
            sum += sum_of_four(make_float4(v[p].x * v[p].x, v[p].y * v[p].y, v[p].z * v[p].z, v[p].w * v[p].w));
    }
    s = 1 / sqrtf(over_block(sum, sum_of(), room) / (float)cols + eps);
#pragma unroll
    for (int p = 0; p < PER; p++) {
        const int i = four_at(p);
        const float4 g = four_of(gamma, i, cols), b = beta ? four_of(beta, i, cols) : make_float4(0, 0, 0, 0);

        if (i < cols)
            put_four(y + at + i, make_float4(v[p].x * s * g.x + b.x, v[p].y * s * g.y + b.y, v[p].z * s * g.z + b.z,
                                             v[p].w * s * g.w + b.w));
    }
    if (threadIdx.x == 0) {
        rstd[row] = s;
        if (beta)
            mean[row] = m;
    }
}

/* All that a norm's backward makes of NORM_ROWS rows, which reads dy and x once: dx, and parts of the gradients of
 * gamma and beta, whose sums stay in the registers of those whose columns they are. by: of beta, NULL: none. */
template <int PER>
__global__ void norm_backward_rows(const float *dy, const float *x, const float *gamma, const float *mean,
                                   const float *rstd, int rows, int cols, float *dx, bool add, float *part, float *by)
{
    __shared__ float room[WARP];
    const int from = (int)blockIdx.x * NORM_ROWS, to = from + NORM_ROWS < rows ? from + NORM_ROWS : rows;
    float4 of_gamma[PER], of_beta[PER];

#pragma unroll
    for (int p = 0; p < PER; p++)
        of_gamma[p] = of_beta[p] = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int row = from; row < to; row++) {
        const size_t at = (size_t)row * (size_t)cols;
        const float m = mean ? mean[row] : 0, s = rstd[row];
        float4 g[PER], n[PER]; /* dy, then dy gamma; and what the norm made of x */
        float sum_g = 0, sum_gn = 0;

#pragma unroll
        for (int p = 0; p < PER; p++) {
            g[p] = four_of(dy + at, four_at(p), cols);
            n[p] = four_of(x + at, four_at(p), cols);
        }
#pragma unroll
        for (int p = 0; p < PER; p++) {
            const float4 d = g[p], c = four_of(gamma, four_at(p), cols);

            n[p] = make_float4((n[p].x - m) * s, (n[p].y - m) * s, (n[p].z - m) * s, (n[p].w - m) * s);
            of_gamma[p] = make_float4(of_gamma[p].x + d.x * n[p].x, of_gamma[p].y + d.y * n[p].y,
                                      of_gamma[p].z + d.z * n[p].z, of_gamma[p].w + d.w * n[p].w);
            of_beta[p] = make_float4(of_beta[p].x + d.x, of_beta[p].y + d.y, of_beta[p].z + d.z, of_beta[p].w + d.w);
            g[p] = make_float4(d.x * c.x, d.y * c.y, d.z * c.z, d.w * c.w);
            sum_g += sum_of_four(g[p]);
            sum_gn += sum_of_four(make_float4(g[p].x * n[p].x, g[p].y * n[p].y, g[p].z * n[p].z, g[p].w * n[p].w));
        }
        sum_gn = over_block(sum_gn, sum_of(), room) / (float)cols;
        sum_g = mean ? over_block(sum_g, sum_of(), room) / (float)cols : 0;
#pragma unroll
        for (int p = 0; p < PER; p++) {
            const int i = four_at(p);
            const float4 before = add ? four_of(dx + at, i, cols) : make_float4(0, 0, 0, 0);

            if (i < cols)
                put_four(dx + at + i, make_float4(before.x + s * (g[p].x - sum_g - n[p].x * sum_gn),
                                                  before.y + s * (g[p].y - sum_g - n[p].y * sum_gn),
                                                  before.z + s * (g[p].z - sum_g - n[p].z * sum_gn),
                                                  before.w + s * (g[p].w - sum_g - n[p].w * sum_gn)));
        }
    }
#pragma unroll
    for (int p = 0; p < PER; p++)
        if (four_at(p) < cols) {
            const size_t at = (size_t)blockIdx.x * (size_t)cols + (size_t)four_at(p);

            put_four(part + at, of_gamma[p]);
            if (by)
                put_four(by + at, of_beta[p]);
        }
}

/* Fours of a thread for rows of so many columns; 0: such rows are not kept. */
int fours_of(int cols)
{
    const int of_a_turn = THREADS * 4;

    if (cols <= 0 || cols % 4 != 0 || cols > 8 * of_a_turn)
        return 0;
    return cols <= of_a_turn ? 1 : cols <= 2 * of_a_turn ? 2 : cols <= 4 * of_a_turn ? 4 : 8;
}

#define BY_FOURS(n, kernel, ...)                                                                                       \
    do {                                                                                                               \
        if ((n) == 1)                                                                                                  \
            kernel(1, __VA_ARGS__);                                                                                    \
        else if ((n) == 2)                                                                                             \
            kernel(2, __VA_ARGS__);                                                                                    \
        else if ((n) == 4)                                                                                             \
            kernel(4, __VA_ARGS__);                                                                                    \
        else                                                                                                           \
            kernel(8, __VA_ARGS__);                                                                                    \
    } while (0)

/* --- columns ------------------------------------------------------------------------------------------------------ */

template <typename T> struct element { /* of a matrix */
    const T *x;
    size_t ld;

    __device__ float operator()(int row, int col) const
    {
        return get(x + (size_t)row * ld + (size_t)col);
    }
};

struct normed { /* dy times what the norm made of x */
    const float *dy, *x, *mean, *rstd;
    size_t ld;

    __device__ float operator()(int row, int col) const
    {
        const size_t at = (size_t)row * ld + (size_t)col;

        return dy[at] * ((x[at] - (mean ? mean[row] : 0)) * rstd[row]);
    }
};

/* part[p, col] = sum of f(row, col) over rows p*PIECE .. : threads side by side hold columns. */
template <typename F> __global__ void add_pieces(F f, int rows, int cols, float *part)
{
    __shared__ float room[DEEP][SIDE];
    const int side = (int)threadIdx.x % SIDE, deep = (int)threadIdx.x / SIDE;
    const int col = (int)blockIdx.x * SIDE + side, from = (int)blockIdx.y * PIECE;
    const int to = from + PIECE < rows ? from + PIECE : rows;
    float sum = 0;

    for (int row = from + deep; col < cols && row < to; row += DEEP)
        sum += f(row, col);
    room[deep][side] = sum;
    __syncthreads();
    if (deep == 0 && col < cols) {
        for (int i = 1; i < DEEP; i++)
            sum += room[i][side];
        part[(size_t)blockIdx.y * (size_t)cols + (size_t)col] = sum;
    }
}

/* The same of a matrix whose rows are whole units (wide.h): a thread has eight columns, and eight rows of them under
 * way. Sums have the same order. */
template <typename T> __global__ void add_wide_pieces(const T *x, size_t ld, int rows, int cols, float *part)
{
    __shared__ float room[DEEP][SIDE * UNIT];
    const int side = (int)threadIdx.x % SIDE, deep = (int)threadIdx.x / SIDE;
    const int col = ((int)blockIdx.x * SIDE + side) * UNIT, from = (int)blockIdx.y * PIECE;
    const int to = from + PIECE < rows ? from + PIECE : rows;
    float sum[UNIT] = {0};

    for (int row = from + deep; col < cols && row < to; row += DEEP * UNDER_WAY) {
        eight<T> v[UNDER_WAY];

#pragma unroll
        for (int k = 0; k < UNDER_WAY; k++)
            if (row + k * DEEP < to)
                v[k].load(x + (size_t)(row + k * DEEP) * ld + (size_t)col);
#pragma unroll
        for (int k = 0; k < UNDER_WAY; k++)
            if (row + k * DEEP < to)
#pragma unroll
                for (int e = 0; e < UNIT; e++)
                    sum[e] += v[k].at(e);
    }
#pragma unroll
    for (int e = 0; e < UNIT; e++)
        room[deep][side * UNIT + e] = sum[e];
    __syncthreads();
    for (int e = deep; e < UNIT && col < cols; e += DEEP) {
        float all = room[0][side * UNIT + e];

        for (int i = 1; i < DEEP; i++)
            all += room[i][side * UNIT + e];
        part[(size_t)blockIdx.y * (size_t)cols + (size_t)(col + e)] = all;
    }
}

/* y[col] += the sum of all parts: eight sums of every eighth, then those. */
__global__ void add_parts(const float *part, int pieces, int cols, float *y)
{
    __shared__ float room[DEEP][SIDE];
    const int side = (int)threadIdx.x % SIDE, deep = (int)threadIdx.x / SIDE, col = (int)blockIdx.x * SIDE + side;
    float sum = 0;

#pragma unroll 8
    for (int p = deep; p < pieces; p += DEEP)
        sum += col < cols ? part[(size_t)p * (size_t)cols + (size_t)col] : 0;
    room[deep][side] = sum;
    __syncthreads();
    if (deep > 0 || col >= cols)
        return;
    for (int i = 1; i < DEEP; i++)
        sum += room[i][side];
    y[col] += sum;
}

void run_parts(void *stream, const float *part, int pieces, int cols, float *y)
{
    LAUNCH(add_parts, blocks_for((size_t)cols, SIDE), SIDE * DEEP, 0, stream, part, pieces, cols, y);
}

int pieces_of(int rows)
{
    return (rows + PIECE - 1) / PIECE;
}

template <typename F> int add_columns(void *stream, F f, int rows, int cols, float *y, float *work)
{
    if (rows <= 0 || cols <= 0)
        return cudaSuccess;
    LAUNCH(add_pieces<F>, dim3(blocks_for((size_t)cols, SIDE), (unsigned)pieces_of(rows)), SIDE * DEEP, 0, stream, f,
           rows, cols, work);
    run_parts(stream, work, pieces_of(rows), cols, y);
    return cudaGetLastError();
}

template <typename T> int add_matrix(void *stream, const T *x, int rows, int cols, int ld, float *y, float *work)
{
    if (rows <= 0 || cols <= 0 || cols % UNIT != 0 || ld % UNIT != 0 || !is_wide(x))
        return add_columns(stream, element<T>{x, (size_t)ld}, rows, cols, y, work);
    LAUNCH(add_wide_pieces<T>, dim3(blocks_for((size_t)cols, SIDE * UNIT), (unsigned)pieces_of(rows)), SIDE * DEEP, 0,
           stream, x, (size_t)ld, rows, cols, work);
    run_parts(stream, work, pieces_of(rows), cols, y);
    return cudaGetLastError();
}

__global__ void embedding_backward(const float *dy, int cols, const int32_t *row, const int32_t *start,
                                   const int32_t *order, float *dtable)
{
    const int u = (int)blockIdx.x, col = (int)(blockIdx.y * THREADS + threadIdx.x);
    float *to = dtable + (size_t)row[u] * (size_t)cols + (size_t)col;
    float sum;

    if (col >= cols)
        return;
    sum = *to;
    for (int i = start[u]; i < start[u + 1]; i++)
        sum += dy[(size_t)order[i] * (size_t)cols + (size_t)col];
    *to = sum;
}

/* --- loss --------------------------------------------------------------------------------------------------------- */

/* Columns of a slice that are of the vocabulary and not its padding. */
__host__ __device__ inline int live_columns(int cols, int first, int vocab)
{
    return first >= vocab ? 0 : vocab - first < cols ? vocab - first : cols;
}

/* The largest of some numbers and the sum of their exponentials over its own; none: max is -INFINITY, sum 0. */
struct soft {
    float max, sum;
};

__device__ inline soft joined(soft a, soft b)
{
    const float max = fmaxf(a.max, b.max);

    if (max == -INFINITY)
        return soft{max, a.sum + b.sum}; /* 0, or NaN where numbers were */
    return soft{max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

/* Sums are made anew only where a number is larger than all before. */
__device__ inline void take(soft &s, float z)
{
    if (z > s.max) {
        s.sum *= expf(s.max - z);
        s.max = z;
    }
    s.sum += expf(z - s.max);
}

#define SOFT_FOURS 4 /* under way */

/* One pass. wide: rows lie on boundaries of 16 bytes. */
__global__ void xent_partial(const float *logits, int cols, int live, int first, const int32_t *target, bool wide,
                             float *stats)
{
    __shared__ float max_room[WARP], sum_room[WARP];
    const size_t t = blockIdx.x;
    const float *z = logits + t * (size_t)cols;
    const int64_t at = (int64_t)target[t] - first;
    const int fours = wide ? live / 4 : 0;
    soft s[4] = {{-INFINITY, 0}, {-INFINITY, 0}, {-INFINITY, 0}, {-INFINITY, 0}};
    float max;

    for (int i = (int)threadIdx.x; i < fours; i += SOFT_FOURS * THREADS) {
        float4 v[SOFT_FOURS];

#pragma unroll
        for (int k = 0; k < SOFT_FOURS; k++)
            v[k] = i + k * THREADS < fours ? ((const float4 *)z)[i + k * THREADS]
                                           : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
#pragma unroll
        for (int k = 0; k < SOFT_FOURS; k++)
            if (i + k * THREADS < fours) {
                take(s[0], v[k].x);
                take(s[1], v[k].y);
                take(s[2], v[k].z);
                take(s[3], v[k].w);
            }
    }
    for (int i = 4 * fours + (int)threadIdx.x; i < live; i += THREADS)
        take(s[0], z[i]);
    s[0] = joined(joined(s[0], s[1]), joined(s[2], s[3]));
    max = over_block(s[0].max, max_of(), max_room);
    s[0].sum = over_block(s[0].max == -INFINITY ? s[0].sum : s[0].sum * expf(s[0].max - max), sum_of(), sum_room);
    if (threadIdx.x == 0) {
        stats[3 * t] = max;
        stats[3 * t + 1] = s[0].sum;
        stats[3 * t + 2] = target[t] >= 0 && at >= 0 && at < live ? z[at] : 0;
    }
}

/* wide: rows lie on boundaries of 16 bytes, and are whole units. */
template <typename T>
__global__ void xent_finish(const float *logits, const float *stats, int n, int tokens, int cols, int live, int first,
                            const int32_t *target, float weight, float *loss, bool wide, T *dz)
{
    const size_t t = blockIdx.x;
    const int own = target[t], units = wide ? cols / UNIT : 0;
    float max = -INFINITY, sum = 0, z_own = 0;

    for (int k = 0; k < n; k++) { /* every thread does the same */
        const float *s = stats + ((size_t)k * (size_t)tokens + t) * 3;

        max = fmaxf(max, s[0]);
        z_own += s[2];
    }
    for (int k = 0; k < n; k++) {
        const float *s = stats + ((size_t)k * (size_t)tokens + t) * 3;

        sum += s[1] * expf(s[0] - max);
    }
    if (threadIdx.x == 0)
        loss[t] = own < 0 ? 0 : logf(sum) + max - z_own;
    auto gradient = [&](float z, int i) {
        const float p = own < 0 || i >= live ? 0 : expf(z - max) / sum - (own == first + i ? 1.0f : 0.0f);

        return p * weight;
    };
    for (int u = (int)threadIdx.x; dz && u < units; u += 2 * THREADS) {
        const size_t at = t * (size_t)cols + (size_t)u * UNIT;
        const bool more = u + THREADS < units;
        eight<float> z[2];

        z[0].load(logits + at);
        z[1].load(logits + (more ? at + (size_t)(THREADS * UNIT) : at));
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float d[UNIT];

#pragma unroll
            for (int e = 0; e < UNIT; e++)
                d[e] = gradient(z[k].at(e), (u + k * THREADS) * UNIT + e);
            if (k == 0 || more)
                store_eight(dz + at + (size_t)(k * THREADS * UNIT), d);
        }
    }
    for (int i = (int)threadIdx.x; dz && !wide && i < cols; i += THREADS)
        put(dz + t * (size_t)cols + (size_t)i, gradient(logits[t * (size_t)cols + (size_t)i], i));
}

#define SQUARES_FOURS 4 /* under way */

/* wide: blocks begin on boundaries of 16 bytes. */
__global__ void sum_squares(const float *x, size_t n, size_t block, bool wide, double *ret)
{
    __shared__ double room[WARP];
    const size_t from = (size_t)blockIdx.x * block, to = n - from < block ? n : from + block;
    const size_t fours = wide ? (to - from) / 4 : 0;
    double sum = 0;

    for (size_t i = threadIdx.x; i < fours; i += SQUARES_FOURS * THREADS) {
        float4 v[SQUARES_FOURS];

#pragma unroll
        for (int k = 0; k < SQUARES_FOURS; k++)
            v[k] = i + (size_t)(k * THREADS) < fours ? ((const float4 *)(x + from))[i + (size_t)(k * THREADS)]
                                                     : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < SQUARES_FOURS; k++)
            sum += (double)v[k].x * (double)v[k].x + (double)v[k].y * (double)v[k].y + (double)v[k].z * (double)v[k].z +
                   (double)v[k].w * (double)v[k].w;
    }
    for (size_t i = from + 4 * fours + threadIdx.x; i < to; i += THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = over_block(sum, sum_of(), room);
    if (threadIdx.x == 0)
        ret[blockIdx.x] = sum;
}

#define KEPT_FORWARD(per, T)                                                                                           \
    LAUNCH((norm_forward_kept<T, per>), (unsigned)rows, THREADS, 0, stream, x, gamma, beta, eps, cols, (T *)y, mean,   \
           rstd)

template <typename T>
void run_norm(void *stream, const float *x, const float *gamma, const float *beta, float eps, int rows, int cols,
              void *y, float *mean, float *rstd)
{
    const int fours = is_wide(x) && is_wide(gamma) && is_wide(beta) && is_wide(y) ? fours_of(cols) : 0;

    if (fours > 0)
        BY_FOURS(fours, KEPT_FORWARD, T);
    else
        LAUNCH(norm_forward<T>, (unsigned)rows, THREADS, 0, stream, x, gamma, beta, eps, cols, (T *)y, mean, rstd);
}

} // namespace

int launch_layernorm_forward(void *stream, enum kern_type type, const float *x, const float *gamma, const float *beta,
                             float eps, int rows, int cols, void *y, float *mean, float *rstd)
{
    if (rows <= 0)
        return cudaSuccess;
    if (type == KERN_BF16)
        run_norm<bf16>(stream, x, gamma, beta, eps, rows, cols, y, mean, rstd);
    else
        run_norm<float>(stream, x, gamma, beta, eps, rows, cols, y, mean, rstd);
    return cudaGetLastError();
}

int launch_rmsnorm_forward(void *stream, enum kern_type type, const float *x, const float *gamma, float eps, int rows,
                           int cols, void *y, float *rstd)
{
    return launch_layernorm_forward(stream, type, x, gamma, NULL, eps, rows, cols, y, NULL, rstd);
}

size_t launch_columns_floats(int rows, int cols)
{
    return (size_t)pieces_of(rows) * (size_t)cols;
}

size_t launch_norm_floats(int rows, int cols)
{
    const size_t kept = blocks_for((size_t)(rows > 0 ? rows : 0), NORM_ROWS) * (size_t)cols;
    const size_t others = launch_columns_floats(rows, cols);

    return 2 * (kept > others ? kept : others);
}

#define BACKWARD_ROWS(per, add)                                                                                        \
    LAUNCH(norm_backward_rows<per>, (unsigned)blocks, THREADS, 0, stream, dy, x, gamma, mean, rstd, rows, cols, dx,    \
           add, work, dbeta ? of_beta : NULL)

int launch_norm_backward(void *stream, const float *dy, const float *x, const float *gamma, const float *mean,
                         const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, float *dbeta,
                         float *work)
{
    const bool wide = is_wide(dy) && is_wide(x) && is_wide(gamma) && is_wide(dx);
    const int fours = wide ? fours_of(cols) : 0, blocks = (rows + NORM_ROWS - 1) / NORM_ROWS;
    float *of_beta = work + launch_norm_floats(rows, cols) / 2;
    int e = cudaSuccess;

    if (rows <= 0)
        return cudaSuccess;
    if (fours > 0) {
        BY_FOURS(fours, BACKWARD_ROWS, add);
        run_parts(stream, work, blocks, cols, dgamma);
        if (dbeta)
            run_parts(stream, of_beta, blocks, cols, dbeta);
        return cudaGetLastError();
    }
    e = add_columns(stream, normed{dy, x, mean, rstd, (size_t)cols}, rows, cols, dgamma, work);
    if (e == cudaSuccess && dbeta)
        e = add_matrix(stream, dy, rows, cols, cols, dbeta, of_beta);
    if (e != cudaSuccess)
        return e;
    LAUNCH(norm_backward, (unsigned)rows, THREADS, 0, stream, dy, x, gamma, mean, rstd, cols, dx,
           add); /* last: dx may be dy */
    return cudaGetLastError();
}

int launch_bias_gradient(void *stream, enum kern_type type, const void *dy, int rows, int cols, int ld, float *db,
                         float *work)
{
    if (type == KERN_BF16)
        return add_matrix(stream, (const bf16 *)dy, rows, cols, ld, db, work);
    return add_matrix(stream, (const float *)dy, rows, cols, ld, db, work);
}

int launch_embedding_backward(void *stream, const float *dy, int cols, const int32_t *row, const int32_t *start,
                              int unique, const int32_t *order, float *dtable)
{
    if (unique > 0)
        LAUNCH(embedding_backward, dim3((unsigned)unique, blocks_for((size_t)cols, THREADS)), THREADS, 0, stream, dy,
               cols, row, start, order, dtable);
    return cudaGetLastError();
}

int launch_xent_partial(void *stream, const float *logits, int tokens, int cols, int first, int vocab,
                        const int32_t *target, float *stats)
{
    const int live = live_columns(cols, first, vocab);

    if (tokens <= 0)
        return cudaSuccess;
    LAUNCH(xent_partial, (unsigned)tokens, THREADS, 0, stream, logits, cols, live, first, target,
           cols % 4 == 0 && is_wide(logits), stats);
    return cudaGetLastError();
}

int launch_xent_finish(void *stream, const float *logits, const float *stats, int n, int tokens, int cols, int first,
                       int vocab, const int32_t *target, float weight, float *loss, enum kern_type type, void *dz)
{
    const int live = live_columns(cols, first, vocab);

    const bool wide = cols % UNIT == 0 && is_wide(logits) && is_wide(dz);

    if (tokens <= 0)
        return cudaSuccess;
    if (type == KERN_BF16)
        LAUNCH(xent_finish<bf16>, (unsigned)tokens, THREADS, 0, stream, logits, stats, n, tokens, cols, live, first,
               target, weight, loss, wide, (bf16 *)dz);
    else
        LAUNCH(xent_finish<float>, (unsigned)tokens, THREADS, 0, stream, logits, stats, n, tokens, cols, live, first,
               target, weight, loss, wide, (float *)dz);
    return cudaGetLastError();
}

int launch_sum_squares(void *stream, const float *x, size_t n, size_t block, double *ret)
{
    if (n > 0)
        LAUNCH(sum_squares, blocks_for(n, block), THREADS, 0, stream, x, n, block, block % 4 == 0 && is_wide(x), ret);
    return cudaGetLastError();
}
