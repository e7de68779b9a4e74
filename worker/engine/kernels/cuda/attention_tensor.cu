/* Attention of bf16 on tensor cores, forward: tiles of 128 queries by 64 keys (32 with dropout), the matrix of
 * probabilities never in memory. Products take bf16 and add in f32; scores, their largest and their sums are f32, and
 * probabilities are rounded to bf16 before they meet the values, which is the one rounding that attention.cu has not.
 *
 * A block has four warps and each warp 32 rows, so that what it reads of keys and values serves two products. Keys and
 * values have a tile each in shared memory, and each is filled while the other is in use: values while scores are made,
 * the next keys while probabilities are. A block owns its output: no atomics, the same bits each time.
 *
 * Of 128 dimensions a block takes 64 KiB of shared memory (48 with dropout) and 128 threads at most 255 registers: two
 * blocks on a multiprocessor of 8.0 and 9.0 alike. */
#include "worker/engine/kernels/cuda/attention_tensor.h"

using namespace attention_tensor;

namespace
{

constexpr int TILES_MAX = 65535; /* rows of a grid */
constexpr int QUERIES = ATTENTION_TENSOR_QUERIES, WARPS = 4, THREADS = WARPS * WARP, M = QUERIES / WARPS / 16;

template <int DIM, int KEYS> constexpr size_t shared_bytes = (size_t)(QUERIES + 2 * KEYS) * DIM * 2;

/* The largest of a row's four lanes. */
__device__ float over_four(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/* A row's running softmax: a warp's lane has rows g and g + 8 of each of its M sixteens. */
struct softmax {
    float max[M][2], sum[M][2]; /* sum: of this lane's columns */
};

/* Scores become probabilities of the rows' largest so far, what was added up before shrinks to it. */
template <int DIM, int KEYS>
__device__ void exponents(float (&s)[M][KEYS / 8][4], float (&acc)[M][DIM / 8][4], softmax &x, float scale2)
{
    float shrink[M][2];
    bool shrinks = false;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = x.max[m][h], base, sum = 0;

#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            top = over_four(top); /* finite: each row sees the document's first key */
            base = top * scale2;
            shrink[m][h] = power_of_2((x.max[m][h] - top) * scale2);
            shrinks = shrinks || x.max[m][h] != top;
            x.max[m][h] = top;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = power_of_2(fmaf(s[m][n][e], scale2, -base));
                    sum += s[m][n][e];
                }
            x.sum[m][h] = x.sum[m][h] * shrink[m][h] + sum;
        }
    if (!__any_sync(ALL_LANES, shrinks)) /* all would be multiplied by 1 */
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[m][n][e] *= shrink[m][e / 2];
}

template <int DIM, bool DROPS, int KEYS>
__global__ void __launch_bounds__(THREADS, 2) forward(const call a, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    const uint32_t q_tile = shared_at(bytes), k_tile = q_tile + QUERIES * DIM * 2, v_tile = k_tile + KEYS * DIM * 2;
    const attention_tile tile = tiles[gridDim.y - 1 - blockIdx.y]; /* those that see most keys first */
    const int head = (int)blockIdx.x, kv = head / (a.heads / a.kv_heads);
    const int warp = (int)threadIdx.x / WARP;
    const int rows = min_of(QUERIES, tile.end - tile.first), place = place_of(tile, tile.first);
    const int first = place + warp * 16 * M, keys = place + rows; /* the warp's first row; keys that the tile sees */
    const bf16 *from = a.keys + (size_t)tile.key0 * a.key_ld + a.k_at + (size_t)(kv * a.dim); /* the next keys */
    const reader<DIM> q = reader<DIM>::by_rows(q_tile + (uint32_t)(warp * 16 * M * DIM * 2));
    const reader<DIM> k = reader<DIM>::by_chunks(k_tile), v = reader<DIM>::by_rows(v_tile);
    float s[M][KEYS / 8][4], acc[M][DIM / 8][4];
    softmax x;

#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[m][n][e] = 0;
        x.max[m][0] = x.max[m][1] = -INFINITY;
        x.sum[m][0] = x.sum[m][1] = 0;
    }
    begin_tile<DIM, QUERIES, THREADS>(q_tile, a.qkv + (size_t)tile.first * a.ld + (size_t)(head * a.dim), a.ld, rows,
                                      a.dim);
    begin_tile<DIM, KEYS, THREADS>(k_tile, from, a.key_ld, keys, a.dim);
    copies_begun();
    for (int k0 = 0; k0 < keys; k0 += KEYS) {
        const bool sees = k0 < first + 16 * M; /* any row of the warp; the same for all its lanes */

        copies_wait();
        __syncthreads(); /* keys are there; nobody reads the last values any more */
        begin_tile<DIM, KEYS, THREADS>(v_tile, from + (a.v_at - a.k_at), a.key_ld, keys - k0, a.dim);
        copies_begun();
        from += KEYS * a.key_ld;
        if (sees)
            multiply_rows<DIM, M, KEYS>(s, q, k);
        copies_wait();
        __syncthreads(); /* values are there; nobody reads these keys any more */
        if (k0 + KEYS < keys) {
            begin_tile<DIM, KEYS, THREADS>(k_tile, from, a.key_ld, keys - k0 - KEYS, a.dim);
            copies_begun();
        }
        if (!sees)
            continue;
        if (k0 + KEYS - 1 > first) { /* some rows do not see some keys */
            uint32_t lane = threadIdx.x % WARP;
            compute_here(lane);
            const int last = first - k0 + (int)lane / 4 - (int)lane % 4 * 2; /* what the lane's first row sees */

#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (n * 8 + e % 2 > last + m * 16 + e / 2 * 8)
                            s[m][n][e] = -INFINITY;
        }
        exponents<DIM, KEYS>(s, acc, x, a.scale2);
        if (DROPS) {
            const uint64_t sample = a.samples[tiles[gridDim.y - 1 - blockIdx.y].doc];

#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    const uint32_t kept =
                        kept_of_queries(a, a.drop_keys + 2 * head, sample, first + m * 16, k0 + n * 8);

#pragma unroll
                    for (int e = 0; e < 4; e++)
                        s[m][n][e] = kept >> e & 1 ? s[m][n][e] : 0;
                }
        }
        add_product<DIM, M, KEYS>(acc, s, v);
    }
    const attention_tile again = tiles[gridDim.y - 1 - blockIdx.y]; /* so that it took no registers meanwhile */
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = warp * 16 * M + m * 16 + h * 8 + g;
            const size_t at = (size_t)(again.first + r) * (size_t)a.heads + (size_t)head;
            float sum = x.sum[m][h], factor;

            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            factor = DROPS ? a.keep / sum : 1 / sum;
            if (again.first + r >= again.end)
                continue;
            if (t == 0)
                a.lse[at] = (x.max[m][h] * a.scale2 + log2f(sum)) * LN_2;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++)
                if (n * 8 < a.dim)
                    *(uint32_t *)(a.out + at * (size_t)a.dim + (size_t)(n * 8 + 2 * t)) =
                        two_bf16(acc[m][n][2 * h] * factor, acc[m][n][2 * h + 1] * factor);
        }
}

template <int DIM, bool DROPS> int run(void *stream, const call &a, const struct attention_tiles *tiles)
{
    constexpr int KEYS = DROPS ? 32 : 64;
    constexpr size_t bytes = shared_bytes<DIM, KEYS>;
    const dim3 grid((unsigned)a.heads, (unsigned)tiles->queries);
    const int e = cudaFuncSetAttribute((const void *)forward<DIM, DROPS, KEYS>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

    if (e != cudaSuccess)
        return e;
    LAUNCH((forward<DIM, DROPS, KEYS>), grid, THREADS, bytes, stream, a, tiles->query);
    return cudaGetLastError();
}

bool on_boundary(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

} // namespace

bool attention_tensor_suits(const struct kern_attention *a)
{
    return a->type == KERN_BF16 && a->dim % 8 == 0 && a->dim <= 128 && a->ld % 8 == 0 && a->scale > 0 &&
           a->tokens / ATTENTION_TENSOR_QUERIES + a->docs <= TILES_MAX && /* of queries; of keys: */
           (a->kv ? a->kv_rows : a->tokens) / ATTENTION_TENSOR_KEYS + a->docs <= TILES_MAX && on_boundary(a->qkv) &&
           on_boundary(a->kv) && on_boundary(a->out) && on_boundary(a->dout) && on_boundary(a->dqkv) &&
           on_boundary(a->dkv);
}

call attention_tensor_call(const struct kern_attention *a, float *delta)
{
    call c;

    c.heads = a->heads;
    c.kv_heads = a->kv_heads;
    c.dim = a->dim;
    c.ld = (size_t)a->ld;
    c.key_ld = a->kv ? (size_t)(2 * a->kv_heads * a->dim) : c.ld;
    c.k_at = a->kv ? 0 : (size_t)(a->heads * a->dim);
    c.v_at = c.k_at + (size_t)(a->kv_heads * a->dim);
    c.scale = a->scale;
    c.scale2 = a->scale * LOG2_E;
    c.keep = a->dropout > 0 ? 1 / (1 - a->dropout) : 1;
    c.threshold = a->drop_threshold;
    c.drop_keys = a->drop_keys;
    c.samples = a->samples;
    c.qkv = (const bf16 *)a->qkv;
    c.keys = (const bf16 *)(a->kv ? a->kv : a->qkv);
    c.dout = (const bf16 *)a->dout;
    c.saved = (const bf16 *)a->out;
    c.out = (bf16 *)a->out;
    c.dqkv = (bf16 *)a->dqkv;
    c.dkv = a->kv ? a->dkv : NULL;
    c.lse = a->lse;
    c.delta = delta;
    return c;
}

#define BY_DIM(a, drops, ...)                                                                                          \
    ((a)->dim <= 64   ? run<64, drops>(__VA_ARGS__)                                                                    \
     : (a)->dim <= 96 ? run<96, drops>(__VA_ARGS__)                                                                    \
                      : run<128, drops>(__VA_ARGS__))

int launch_attention_tensor_forward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles)
{
    const call c = attention_tensor_call(a, NULL);

    return a->dropout > 0 ? BY_DIM(a, true, stream, c, tiles) : BY_DIM(a, false, stream, c, tiles);
}
