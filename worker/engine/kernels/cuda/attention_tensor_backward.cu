/* Attention of bf16 on tensor cores, backward: one kernel for the gradients of keys and values, one for those of
 * queries. Each makes the probabilities again from lse, and owns what it writes: no atomics, the same bits each time.
 * Probabilities and gradients of scores are rounded to bf16 where they meet a matrix, beyond what attention.cu rounds.
 *
 * Keys: a block has 128 keys and their values, eight warps of 16 each, and goes through all queries that see any of
 * them, of all heads that share them. Scores are made transposed (keys by queries), so that what a lane holds of them
 * is what the products with dout and with queries take: nothing but tensors passes through shared memory.
 * Queries: a block has 128 queries and what came back for them, four warps of 32 each, and goes through keys.
 * What is gone through comes in two stages, one filled while the other is in use. docs/gpu.md has the sizes. */
#include "worker/engine/kernels/cuda/attention_tensor.h"

using namespace attention_tensor;

namespace
{

constexpr int KEYS = ATTENTION_TENSOR_KEYS, QUERIES = ATTENTION_TENSOR_QUERIES;
constexpr int KEY_WARPS = KEYS / 16, KEY_THREADS = KEY_WARPS * WARP;
constexpr int M = 2, QUERY_WARPS = QUERIES / 16 / M, QUERY_THREADS = QUERY_WARPS * WARP; /* of queries: 16 M a warp */

/* What s (scores, of columns with one lse each or rows) and dp become: probabilities after dropout, but for the scale
 * that it multiplies by, and the gradient of scores, but for theirs. */
template <bool DROPS> __device__ void gradient(const call &a, float &s, float &dp, float lse2, float delta, bool kept)
{
    const float p = power_of_2(fmaf(s, a.scale2, -lse2));

    dp = p * ((DROPS ? (kept ? dp * a.keep : 0) : dp) - delta);
    s = !DROPS || kept ? p : 0;
}

__device__ void exchange(uint32_t &x, uint32_t &y)
{
    const uint32_t before = x;

    x = y;
    y = before;
}

/* Begin to copy lse, then delta, of N rows: those from `rows` on become zeros. */
template <int N> __device__ void begin_sums(const call &a, uint32_t to, int head, int row, int rows)
{
    for (int i = (int)threadIdx.x; i < 2 * N; i += (int)blockDim.x)
        copy_4(to + (uint32_t)i * 4, (i < N ? a.lse : a.delta) + (size_t)(row + i % N) * (size_t)a.heads + (size_t)head,
               i % N < rows);
}

/* --- keys and values ---------------------------------------------------------------------------------------------- */

/* Queries of a step: registers are what there is least of; of shared memory, where a block has 99 KiB. */
template <int DIM, bool DROPS> constexpr int queries_step = DIM == 64 || DROPS ? 32 : DIM == 96 ? 64 : 48;
constexpr int SMALL_STEP = 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900 /* where two would not have registers enough */
template <int DIM, bool DROPS> constexpr int key_blocks = 1;
#else
template <int DIM, bool DROPS> constexpr int key_blocks = DIM == 64 && !DROPS ? 2 : 1; /* on a multiprocessor */
#endif

/* A stage: queries, dout, and lse and delta of each. */
template <int DIM, int STEP> constexpr uint32_t stage_bytes = 2 * STEP *DIM * 2 + 2 * STEP * 4;

/* The next queries of a block, from row `row` on, of one of its heads. */
template <int DIM, int STEP> __device__ void begin_queries(const call &a, uint32_t stage, int head, int row, int end)
{
    const size_t width = (size_t)a.heads * (size_t)a.dim, column = (size_t)head * (size_t)a.dim;

    begin_tile<DIM, STEP, KEY_THREADS>(stage, a.qkv + (size_t)row * a.ld + column, a.ld, end - row, a.dim);
    begin_tile<DIM, STEP, KEY_THREADS>(stage + STEP * DIM * 2, a.dout + (size_t)row * width + column, width, end - row,
                                       a.dim);
    begin_sums<STEP>(a, stage + 2 * STEP * DIM * 2, head, row, end - row);
}

__device__ void put_two(const call &a, size_t at, float x, float y)
{
    if (a.dkv) {
        a.dkv[at] += x;
        a.dkv[at + 1] += y;
    } else {
        *(uint32_t *)(a.dqkv + at) = two_bf16(x, y);
    }
}

template <int DIM, bool DROPS, int STEP>
__global__ void __launch_bounds__(KEY_THREADS, (key_blocks<DIM, DROPS>))
    of_keys(const call a, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    const uint32_t k_tile = shared_at(bytes), v_tile = k_tile + KEYS * DIM * 2, stages = v_tile + KEYS * DIM * 2;
    const attention_tile tile = tiles[blockIdx.y]; /* those that most queries see first */
    const int group = a.heads / a.kv_heads, warp = (int)threadIdx.x / WARP, before = tile.first - tile.past;
    const int row0 = tile.begin + (before > 0 ? before : 0); /* the first that sees any of these keys */
    const int end = tile.end, past = tile.past - tile.begin; /* rows and places in the document differ by that */
    const int first = tile.first + warp * 16;                /* the warp's first key */
    const uint32_t own = (uint32_t)(warp * 16 * DIM * 2);
    float dk[1][DIM / 8][4], dv[1][DIM / 8][4];

#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dk[0][n][e] = dv[0][n][e] = 0;
    {
        const bf16 *from = a.keys + (size_t)(tile.key0 + tile.first) * a.key_ld + (size_t)((int)blockIdx.x * a.dim);

        begin_tile<DIM, KEYS, KEY_THREADS>(k_tile, from + a.k_at, a.key_ld, tile.keys - tile.first, a.dim);
        begin_tile<DIM, KEYS, KEY_THREADS>(v_tile, from + a.v_at, a.key_ld, tile.keys - tile.first, a.dim);
    }
    begin_queries<DIM, STEP>(a, stages, (int)blockIdx.x * group, row0, tile.end);
    copies_begun();
    int head = (int)blockIdx.x * group, row = row0, left = (end - row0 + STEP - 1) / STEP * group;
    uint32_t stage = stages, other = stages + stage_bytes<DIM, STEP>;
    for (; left > 0; left--, exchange(stage, other)) {
        const int place = row + past, of_head = head;
        float s[1][STEP / 8][4], dp[1][STEP / 8][4];

        copies_wait();
        __syncthreads(); /* this stage is there; nobody reads the other one any more */
        row += STEP;
        if (row >= end) {
            row = row0;
            head++;
        }
        if (left > 1) {
            begin_queries<DIM, STEP>(a, other, head, row, end);
            copies_begun();
        }
        if (place + STEP - 1 < first) /* before all keys of the warp; the same for all its lanes */
            continue;
        multiply_rows<DIM, 1, STEP>(s, reader<DIM>::by_rows(k_tile + own), reader<DIM>::by_chunks(stage));
        multiply_rows<DIM, 1, STEP>(dp, reader<DIM>::by_rows(v_tile + own),
                                    reader<DIM>::by_chunks(stage + STEP * DIM * 2));
        const int lane = (int)threadIdx.x % WARP, t = lane % 4;

        if (place < first + 15) {                              /* some queries do not see some keys */
            const int last = place - first + 2 * t - lane / 4; /* what the first column sees, from the lane's key on */

#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (e / 2 * 8 > last + n * 8 + e % 2)
                        s[0][n][e] = -INFINITY;
        }
        const float *lse = (const float *)(bytes + (stage - k_tile) + 2 * STEP * DIM * 2) + 2 * t, *delta = lse + STEP;
        const uint64_t sample = DROPS ? a.samples[tiles[blockIdx.y].doc] : 0;
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
            const uint32_t kept = DROPS ? kept_of_keys(a, a.drop_keys + 2 * of_head, sample, place + n * 8, first) : 15;

#pragma unroll
            for (int e = 0; e < 4; e++)
                gradient<DROPS>(a, s[0][n][e], dp[0][n][e], lse[n * 8 + e % 2] * LOG2_E, delta[n * 8 + e % 2],
                                kept >> e & 1);
        }
        add_product<DIM, 1, STEP>(dv, s, reader<DIM>::by_rows(stage + STEP * DIM * 2));
        add_product<DIM, 1, STEP>(dk, dp, reader<DIM>::by_rows(stage));
    }
    const attention_tile again = tiles[blockIdx.y]; /* so that it took no registers meanwhile */
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = again.first + warp * 16 + h * 8 + g;
        const size_t to = (size_t)(again.key0 + r) * a.key_ld + (size_t)((int)blockIdx.x * a.dim + 2 * t);

        if (r >= again.keys)
            continue;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
            if (n * 8 < a.dim) {
                put_two(a, to + a.k_at + n * 8, dk[0][n][2 * h] * a.scale, dk[0][n][2 * h + 1] * a.scale);
                put_two(a, to + a.v_at + n * 8, dv[0][n][2 * h] * a.keep, dv[0][n][2 * h + 1] * a.keep);
            }
    }
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

/* Keys of a step. */
template <int DIM, bool DROPS> constexpr int keys_step = DIM == 128 && DROPS ? 16 : 32;

template <int DIM, bool DROPS>
__global__ void __launch_bounds__(QUERY_THREADS, 2) of_queries(const call a, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    constexpr int STEP = keys_step<DIM, DROPS>;
    constexpr uint32_t STAGE = 2 * STEP * DIM * 2; /* keys, values */
    const uint32_t q_tile = shared_at(bytes), d_tile = q_tile + QUERIES * DIM * 2, stages = d_tile + QUERIES * DIM * 2;
    const float *const sums = (const float *)(bytes + (stages - q_tile) + 2 * STAGE); /* lse, delta of all rows */
    const attention_tile tile = tiles[gridDim.y - 1 - blockIdx.y]; /* those that see most keys first */
    const int head = (int)blockIdx.x, warp = (int)threadIdx.x / WARP;
    const int rows = min_of(QUERIES, tile.end - tile.first), place = place_of(tile, tile.first);
    const int first = place + warp * 16 * M, keys = place + rows; /* the warp's first row; keys that the tile sees */
    const bf16 *from = a.keys + (size_t)tile.key0 * a.key_ld + a.k_at + (size_t)(head / (a.heads / a.kv_heads) * a.dim);
    const uint32_t own = (uint32_t)(warp * 16 * M * DIM * 2);
    float dq[M][DIM / 8][4];

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dq[m][n][e] = 0;
    {
        const size_t width = (size_t)a.heads * (size_t)a.dim, column = (size_t)head * (size_t)a.dim;

        begin_tile<DIM, QUERIES, QUERY_THREADS>(q_tile, a.qkv + (size_t)tile.first * a.ld + column, a.ld, rows, a.dim);
        begin_tile<DIM, QUERIES, QUERY_THREADS>(d_tile, a.dout + (size_t)tile.first * width + column, width, rows,
                                                a.dim);
        begin_sums<QUERIES>(a, stages + 2 * STAGE, head, tile.first, rows);
        begin_tile<DIM, STEP, QUERY_THREADS>(stages, from, a.key_ld, keys, a.dim);
        begin_tile<DIM, STEP, QUERY_THREADS>(stages + STAGE / 2, from + (a.v_at - a.k_at), a.key_ld, keys, a.dim);
        copies_begun();
    }
    uint32_t stage = stages, other = stages + STAGE;
    for (int k0 = 0; k0 < keys; k0 += STEP, exchange(stage, other)) {
        float s[M][STEP / 8][4], dp[M][STEP / 8][4];

        copies_wait();
        __syncthreads(); /* this stage is there; nobody reads the other one any more */
        from += STEP * a.key_ld;
        if (k0 + STEP < keys) {
            begin_tile<DIM, STEP, QUERY_THREADS>(other, from, a.key_ld, keys - k0 - STEP, a.dim);
            begin_tile<DIM, STEP, QUERY_THREADS>(other + STAGE / 2, from + (a.v_at - a.k_at), a.key_ld,
                                                 keys - k0 - STEP, a.dim);
            copies_begun();
        }
        if (k0 < first + 16 * M) { /* any row of the warp sees any; the same for all its lanes */
            multiply_rows<DIM, M, STEP, 4>(s, reader<DIM>::by_rows(q_tile + own), reader<DIM>::by_chunks(stage));
            multiply_rows<DIM, M, STEP, 4>(dp, reader<DIM>::by_rows(d_tile + own),
                                           reader<DIM>::by_chunks(stage + STAGE / 2));
            if (k0 + STEP - 1 > first) { /* some rows do not see some keys */
                uint32_t lane = threadIdx.x % WARP;
                compute_here(lane);
                const int last = first - k0 + (int)lane / 4 - (int)lane % 4 * 2; /* what the lane's first row sees */

#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            if (n * 8 + e % 2 > last + m * 16 + e / 2 * 8)
                                s[m][n][e] = -INFINITY;
            }
            const uint64_t sample = DROPS ? a.samples[tiles[gridDim.y - 1 - blockIdx.y].doc] : 0;
            const float *const mine = sums + warp * 16 * M + (int)threadIdx.x % WARP / 4;
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float lse2[2] = {mine[m * 16] * LOG2_E, mine[m * 16 + 8] * LOG2_E};
                const float delta[2] = {mine[QUERIES + m * 16], mine[QUERIES + m * 16 + 8]};

#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    const uint32_t kept =
                        DROPS ? kept_of_queries(a, a.drop_keys + 2 * head, sample, first + m * 16, k0 + n * 8) : 15;

#pragma unroll
                    for (int e = 0; e < 4; e++)
                        gradient<DROPS>(a, s[m][n][e], dp[m][n][e], lse2[e / 2], delta[e / 2], kept >> e & 1);
                }
            }
            add_product<DIM, M, STEP>(dq, dp, reader<DIM>::by_rows(stage));
        }
    }
    const attention_tile again = tiles[gridDim.y - 1 - blockIdx.y]; /* so that it took no registers meanwhile */
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = again.first + warp * 16 * M + m * 16 + h * 8 + g;

            if (r >= again.end)
                continue;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++)
                if (n * 8 < a.dim)
                    *(uint32_t *)(a.dqkv + (size_t)r * a.ld + (size_t)(head * a.dim + n * 8 + 2 * t)) =
                        two_bf16(dq[m][n][2 * h] * a.scale, dq[m][n][2 * h + 1] * a.scale);
        }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

constexpr int ROW_LANES = 8, ROW_THREADS = 256;

/* delta = dout · out of each row and head: eight lanes each, eight numbers at a time. */
__global__ void row_products(const call a, size_t n)
{
    const size_t at = ((size_t)blockIdx.x * ROW_THREADS + threadIdx.x) / ROW_LANES;
    float sum = 0;

    for (int c = (int)threadIdx.x % ROW_LANES * 8; at < n && c < a.dim; c += ROW_LANES * 8) {
        const uint4 x = *(const uint4 *)(a.dout + at * (size_t)a.dim + c);
        const uint4 y = *(const uint4 *)(a.saved + at * (size_t)a.dim + c);
        const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum = fmaf(bf16_to_float((uint16_t)xs[i]), bf16_to_float((uint16_t)ys[i]), sum);
            sum = fmaf(bf16_to_float((uint16_t)(xs[i] >> 16)), bf16_to_float((uint16_t)(ys[i] >> 16)), sum);
        }
    }
    for (int m = ROW_LANES / 2; m > 0; m /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, m);
    if (at < n && threadIdx.x % ROW_LANES == 0)
        a.delta[at] = sum;
}

template <int DIM, int STEP> constexpr size_t key_bytes = 2 * KEYS *DIM * 2 + 2 * stage_bytes<DIM, STEP>;

template <int DIM, bool DROPS, int STEP>
int run_keys(void *stream, const call &a, const struct attention_tiles *tiles, int docs)
{
    const int piece = a.dkv ? 1 : docs; /* gradients of a document that pieces share grow piece by piece */
    const int e = cudaFuncSetAttribute((const void *)of_keys<DIM, DROPS, STEP>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)key_bytes<DIM, STEP>);

    if (e != cudaSuccess)
        return e;
    for (int d = 0; d < docs; d += piece) {
        const int n = tiles->key_first[d + piece] - tiles->key_first[d];
        const attention_tile *first = tiles->key + tiles->key_first[d];
        const dim3 by_keys((unsigned)a.kv_heads, (unsigned)n);

        if (n > 0)
            LAUNCH((of_keys<DIM, DROPS, STEP>), by_keys, KEY_THREADS, (key_bytes<DIM, STEP>), stream, a, first);
    }
    return cudaGetLastError();
}

template <int DIM, bool DROPS> int run(void *stream, const call &a, const struct attention_tiles *tiles, int docs)
{
    constexpr int STEP = queries_step<DIM, DROPS>;
    const size_t query_bytes = 2 * QUERIES * DIM * 2 + 2 * 2 * keys_step<DIM, DROPS> * DIM * 2 + 2 * QUERIES * 4;
    const dim3 by_head((unsigned)a.heads, (unsigned)tiles->queries);
    const int e = cudaFuncSetAttribute((const void *)of_queries<DIM, DROPS>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)query_bytes);

    if (e != cudaSuccess)
        return e;
    LAUNCH((of_queries<DIM, DROPS>), by_head, QUERY_THREADS, query_bytes, stream, a, tiles->query);
    return key_bytes<DIM, STEP> <= tiles->shared_most ? run_keys<DIM, DROPS, STEP>(stream, a, tiles, docs)
                                                      : run_keys<DIM, DROPS, SMALL_STEP>(stream, a, tiles, docs);
}

} // namespace

#define BY_DIM(a, drops, ...)                                                                                          \
    ((a)->dim <= 64   ? run<64, drops>(__VA_ARGS__)                                                                    \
     : (a)->dim <= 96 ? run<96, drops>(__VA_ARGS__)                                                                    \
                      : run<128, drops>(__VA_ARGS__))

int launch_attention_tensor_backward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles,
                                     float *delta)
{
    const call c = attention_tensor_call(a, delta);
    const size_t n = (size_t)a->tokens * (size_t)a->heads;

    LAUNCH(row_products, blocks_for(n, ROW_THREADS / ROW_LANES), ROW_THREADS, 0, stream, c, n);
    return a->dropout > 0 ? BY_DIM(a, true, stream, c, tiles, a->docs) : BY_DIM(a, false, stream, c, tiles, a->docs);
}
