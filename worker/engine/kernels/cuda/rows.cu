/* Kernels that add up along rows (one block of threads a row) or columns (pieces of rows first, then the pieces). */
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"

#define THREADS 256
#define PIECE 128 /* rows that are added up first */
#define SIDE 32   /* columns of a block of threads, and its rows in turn */
#define DEEP 8

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

__global__ void add_parts(const float *part, int pieces, int cols, float *y)
{
    const int col = (int)(blockIdx.x * THREADS + threadIdx.x);
    float sum = 0;

    if (col >= cols)
        return;
    for (int p = 0; p < pieces; p++)
        sum += part[(size_t)p * (size_t)cols + (size_t)col];
    y[col] += sum;
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
    LAUNCH(add_parts, blocks_for((size_t)cols, THREADS), THREADS, 0, stream, work, pieces_of(rows), cols, y);
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

__global__ void xent_partial(const float *logits, int cols, int live, int first, const int32_t *target, float *stats)
{
    __shared__ float room[WARP];
    const size_t t = blockIdx.x;
    const float *z = logits + t * (size_t)cols;
    const int64_t at = (int64_t)target[t] - first;
    float max = -INFINITY, sum = 0;

    for (int i = (int)threadIdx.x; i < live; i += THREADS)
        max = fmaxf(max, z[i]);
    max = over_block(max, max_of(), room);
    for (int i = (int)threadIdx.x; i < live; i += THREADS)
        sum += expf(z[i] - max);
    sum = over_block(sum, sum_of(), room);
    if (threadIdx.x == 0) {
        stats[3 * t] = max;
        stats[3 * t + 1] = sum;
        stats[3 * t + 2] = target[t] >= 0 && at >= 0 && at < live ? z[at] : 0;
    }
}

template <typename T>
__global__ void xent_finish(const float *logits, const float *stats, int n, int tokens, int cols, int live, int first,
                            const int32_t *target, float weight, float *loss, T *dz)
{
    const size_t t = blockIdx.x;
    const int own = target[t];
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
    for (int i = (int)threadIdx.x; dz && i < cols; i += THREADS) {
        const size_t at = t * (size_t)cols + (size_t)i;
        const float p = own < 0 || i >= live ? 0 : expf(logits[at] - max) / sum - (own == first + i ? 1.0f : 0.0f);

        put(dz + at, p * weight);
    }
}

__global__ void sum_squares(const float *x, size_t n, size_t block, double *ret)
{
    __shared__ double room[WARP];
    const size_t from = (size_t)blockIdx.x * block, to = n - from < block ? n : from + block;
    double sum = 0;

    for (size_t i = from + threadIdx.x; i < to; i += THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = over_block(sum, sum_of(), room);
    if (threadIdx.x == 0)
        ret[blockIdx.x] = sum;
}

} // namespace

int launch_layernorm_forward(void *stream, enum kern_type type, const float *x, const float *gamma, const float *beta,
                             float eps, int rows, int cols, void *y, float *mean, float *rstd)
{
    if (rows <= 0)
        return cudaSuccess;
    if (type == KERN_BF16)
        LAUNCH(norm_forward<bf16>, (unsigned)rows, THREADS, 0, stream, x, gamma, beta, eps, cols, (bf16 *)y, mean,
               rstd);
    else
        LAUNCH(norm_forward<float>, (unsigned)rows, THREADS, 0, stream, x, gamma, beta, eps, cols, (float *)y, mean,
               rstd);
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

int launch_norm_backward(void *stream, const float *dy, const float *x, const float *gamma, const float *mean,
                         const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, float *dbeta,
                         float *work)
{
    const size_t ld = (size_t)cols;
    int e;

    if (rows <= 0)
        return cudaSuccess;
    e = add_columns(stream, normed{dy, x, mean, rstd, ld}, rows, cols, dgamma, work);
    if (e == cudaSuccess && dbeta)
        e = add_columns(stream, element<float>{dy, ld}, rows, cols, dbeta, work + launch_columns_floats(rows, cols));
    if (e != cudaSuccess)
        return e;
    /* last: dx may be dy */
    LAUNCH(norm_backward, (unsigned)rows, THREADS, 0, stream, dy, x, gamma, mean, rstd, cols, dx, add);
    return cudaGetLastError();
}

int launch_bias_gradient(void *stream, enum kern_type type, const void *dy, int rows, int cols, int ld, float *db,
                         float *work)
{
    if (type == KERN_BF16)
        return add_columns(stream, element<bf16>{(const bf16 *)dy, (size_t)ld}, rows, cols, db, work);
    return add_columns(stream, element<float>{(const float *)dy, (size_t)ld}, rows, cols, db, work);
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

    if (tokens > 0)
        LAUNCH(xent_partial, (unsigned)tokens, THREADS, 0, stream, logits, cols, live, first, target, stats);
    return cudaGetLastError();
}

int launch_xent_finish(void *stream, const float *logits, const float *stats, int n, int tokens, int cols, int first,
                       int vocab, const int32_t *target, float weight, float *loss, enum kern_type type, void *dz)
{
    const int live = live_columns(cols, first, vocab);

    if (tokens <= 0)
        return cudaSuccess;
    if (type == KERN_BF16)
        LAUNCH(xent_finish<bf16>, (unsigned)tokens, THREADS, 0, stream, logits, stats, n, tokens, cols, live, first,
               target, weight, loss, (bf16 *)dz);
    else
        LAUNCH(xent_finish<float>, (unsigned)tokens, THREADS, 0, stream, logits, stats, n, tokens, cols, live, first,
               target, weight, loss, (float *)dz);
    return cudaGetLastError();
}

int launch_sum_squares(void *stream, const float *x, size_t n, size_t block, double *ret)
{
    if (n > 0)
        LAUNCH(sum_squares, blocks_for(n, block), THREADS, 0, stream, x, n, block, ret);
    return cudaGetLastError();
}
