/* attention_tensor - what attention on tensor cores shares: its calls, its tiles in shared memory, its products (C++)
 *
 * A tile has rows of DIM bf16 in chunks of 16 bytes. Chunk c of row r stands where chunk c ^ turn_of(r) would, so that
 * the same chunk of eight rows one after another lies in all banks once: that is what load_matrices reads at a time.
 */
#ifndef MUSTER_WORKER_KERNELS_CUDA_ATTENTION_TENSOR_H
#define MUSTER_WORKER_KERNELS_CUDA_ATTENTION_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"
#include "worker/engine/kernels/cuda/tensor_core.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

namespace attention_tensor
{

struct call {
    int heads, kv_heads, dim;
    size_t ld, key_ld, k_at, v_at; /* rows of queries; rows of keys, and where in them keys and values begin */
    float scale, scale2;           /* scale2: to scores in powers of 2 */
    float keep;                    /* 1 / (1 - p) */
    uint32_t threshold;
    const uint32_t *drop_keys;
    const uint64_t *samples;
    const bf16 *qkv, *keys, *dout, *saved; /* keys: qkv, or where keys of pieces lie apart; saved: forward's out */
    bf16 *out, *dqkv;
    float *dkv;         /* of keys that lie apart, else NULL */
    float *lse, *delta; /* [tokens, heads] */
};

/* Where a row of the piece is in its document. */
__device__ inline int place_of(const attention_tile &tile, int row)
{
    return tile.past + row - tile.begin;
}

__device__ inline int min_of(int a, int b)
{
    return a < b ? a : b;
}

/* --- tiles in shared memory --------------------------------------------------------------------------------------- */

template <int DIM> __device__ constexpr int turn_of(int row)
{
    static_assert(DIM % 32 == 0, "rows of a tile are whole halves of all banks");
    return DIM % 64 == 0 ? row & 7 : row >> 1 & 3;
}

template <int DIM> __device__ constexpr uint32_t tile_at(int row, int chunk)
{
    return (uint32_t)(row * DIM * 2 + (chunk ^ turn_of<DIM>(row)) * 16);
}

/* Begin to copy ROWS rows of dim columns into a tile; those from `rows` on, and columns from dim on, become zeros. */
template <int DIM, int ROWS, int THREADS>
__device__ inline void begin_tile(uint32_t to, const bf16 *from, size_t ld, int rows, int dim)
{
    constexpr int CHUNKS = DIM / 8, STEP = THREADS / (8 * CHUNKS) * 8; /* by eights: a thread's rows turn alike */
    static_assert(STEP > 0 && ROWS % STEP == 0, "whole steps");
    uint32_t thread = threadIdx.x;
    compute_here(thread);
    const int row = (int)thread / CHUNKS, chunk = (int)thread % CHUNKS;
    const bf16 *p = from + (size_t)row * ld + (size_t)(chunk * 8);
    const size_t step = (size_t)STEP * ld;
    const int limit = chunk * 8 < dim ? rows - row : 0;

    if (row >= STEP) /* whole warps, with 96 dimensions */
        return;
    to += tile_at<DIM>(row, chunk);
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP, p += step)
        copy_16(to + (uint32_t)(r * DIM * 2), p, r < limit);
}

/* Where a lane reads a tile with load_matrices: 16 rows by 16 columns at a time. */
template <int DIM> struct reader {
    uint32_t row;  /* address of the lane's row */
    uint32_t turn; /* of its chunks, in bytes */

    /* Matrices of rows 0..7 and 8..15 of one chunk, then of the next: an A, or transposed two B side by side. */
    __device__ static reader by_rows(uint32_t tile)
    {
        const int lane = (int)threadIdx.x % WARP, r = lane % 16;

        return {tile + (uint32_t)(r * DIM * 2), (uint32_t)((lane / 16 ^ turn_of<DIM>(r)) * 16)};
    }

    /* Both chunks of rows 0..7, then of rows 8..15: two B whose columns are the tile's rows. */
    __device__ static reader by_chunks(uint32_t tile)
    {
        const int lane = (int)threadIdx.x % WARP, r = lane % 8 + lane / 16 * 8;

        return {tile + (uint32_t)(r * DIM * 2), (uint32_t)((lane / 8 % 2 ^ turn_of<DIM>(r)) * 16)};
    }

    /* Of the 16 rows from 16 rows on, columns from 16 columns on. */
    __device__ uint32_t at(int rows, int columns) const
    {
        return row + (uint32_t)(rows * 16 * DIM * 2) + ((uint32_t)(columns * 32) ^ turn);
    }
};

/* s = x · yᵀ: 16 M rows of x, from x's place on, with all N rows of y. UNROLL: of sixteen columns each; fewer than all
 * where reading ahead would take registers that there are not. */
template <int DIM, int M, int N, int UNROLL = DIM / 16>
__device__ inline void multiply_rows(float (&s)[M][N / 8][4], reader<DIM> x, reader<DIM> y)
{
    compute_here(x.turn);
    compute_here(y.turn);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = 0;
#pragma unroll UNROLL
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t a[M][4], b[4];

#pragma unroll
        for (int m = 0; m < M; m++)
            load_matrices(x.at(m, k), a[m]);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            load_matrices(y.at(n, k), b);
#pragma unroll
            for (int m = 0; m < M; m++) {
                product(s[m][2 * n], a[m], b[0], b[1]);
                product(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* acc += p · y, p rounded to bf16: 16 M rows of it, columns by the N rows of y. */
template <int DIM, int M, int N>
__device__ inline void add_product(float (&acc)[M][DIM / 8][4], const float (&p)[M][N / 8][4], reader<DIM> y)
{
    compute_here(y.turn);
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4], b[4];

#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = two_bf16(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < DIM / 16; n++) {
            load_matrices_transposed(y.at(k, n), b);
#pragma unroll
            for (int m = 0; m < M; m++) {
                product(acc[m][2 * n], a[m], b[0], b[1]);
                product(acc[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Which of four keys, from a multiple of four on, a query keeps: bits 0 to 3. */
__device__ inline uint32_t kept_of_four(const call &a, const uint32_t *key, uint64_t sample, int query, int first)
{
    const uint32_t ctr[4] = {(uint32_t)first / 4, (uint32_t)query, (uint32_t)sample, (uint32_t)(sample >> 32)};
    uint32_t word[4], bits = 0;

    philox4x32(ctr, key, word);
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits |= (word[i] >= a.threshold ? 1u : 0u) << i;
    return bits;
}

/* Which of its four numbers of a C a lane keeps, whose rows are queries and columns keys; query, key: of its corner.
 * Two lanes share the four keys of both their rows: each draws for one row. */
__device__ inline uint32_t kept_of_queries(const call &a, const uint32_t *drop, uint64_t sample, int query, int key)
{
    const int lane = (int)threadIdx.x % WARP, t = lane % 4, half = t % 2;
    uint32_t bits = kept_of_four(a, drop, sample, query + lane / 4 + 8 * half, key + t / 2 * 4) << 4 * half;

    bits |= __shfl_xor_sync(ALL_LANES, bits, 1);
    bits >>= 2 * half;
    return (bits & 3) | (bits >> 2 & 12);
}

/* The same where rows are keys and columns queries: four lanes share the four keys of two rows and two columns. */
__device__ inline uint32_t kept_of_keys(const call &a, const uint32_t *drop, uint64_t sample, int query, int key)
{
    const int lane = (int)threadIdx.x % WARP, g = lane / 4, t = lane % 4, one = g % 4;
    uint32_t bits = kept_of_four(a, drop, sample, query + 2 * t + one % 2, key + g / 4 * 4 + one / 2 * 8) << 4 * one;

    bits |= __shfl_xor_sync(ALL_LANES, bits, 4);
    bits |= __shfl_xor_sync(ALL_LANES, bits, 8);
    bits >>= one;
    return (bits & 1) | (bits >> 3 & 2) | (bits >> 6 & 4) | (bits >> 9 & 8);
}

} // namespace attention_tensor

/* Can these kernels compute it? bf16, heads of up to 128 dimensions by eights, rows on boundaries of 16 bytes. */
bool attention_tensor_suits(const struct kern_attention *a);
/* attention_tensor.cu and attention_tensor_backward.cu: as launch_attention_forward and _backward of launches.h. */
int launch_attention_tensor_forward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles);
/* delta: as in launches.h. */
int launch_attention_tensor_backward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles,
                                     float *delta);
attention_tensor::call attention_tensor_call(const struct kern_attention *a, float *delta);

#define ATTENTION_TENSOR_QUERIES 128 /* rows of a block's tile */
#define ATTENTION_TENSOR_KEYS 128

#endif
