/* Attention in tiles of 32 queries by 32 keys, the matrix of probabilities never in memory: for f32, for what does not
 * suit tensor cores (attention_tensor.h), and as their plain twin. All arithmetic is f32 for either type of numbers, so
 * a bf16 result differs from the processor's by its last rounding alone. Each output tile belongs to one block of
 * threads, which adds up in the order of the other tiles: no atomics, the same bits each time.
 *
 * A block has 256 threads. Thread t owns row t/8 of its tile: of the tile of scores the four columns from 4 (t%8) on,
 * of the output every eighth column from t%8 on. Tiles in shared memory have rows of dim + 1 floats, so that the
 * threads of a warp, which read one column of several rows, meet different banks. */
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "worker/engine/kernels/cuda/attention_tensor.h"
#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/launches.h"

#define TILE ATTENTION_TILE
#define LANES 8 /* threads of a row */
#define THREADS (TILE * LANES)
#define FOUR (TILE / LANES) /* scores of a thread */
#define CACHED_THREADS 128

namespace
{

struct shape {                        /* of a call */
    int heads, kv_heads, dim, stride; /* stride: of tiles, floats */
    size_t ld, key_ld, k_at, v_at;    /* rows of queries; rows of keys, and where in them keys and values begin */
    float scale, keep;                /* 1 / (1 - p), or 0: no dropout */
    uint32_t threshold;
    const uint32_t *keys;
    const uint64_t *samples;
};

template <typename T> struct tensors {
    const T *qkv, *dout, *saved; /* saved: the forward pass's out */
    const T *keys;               /* qkv, or where keys of pieces lie apart */
    T *out, *dqkv;
    float *dkv;         /* of those that lie apart, else NULL */
    float *lse, *delta; /* [tokens, heads] */
};

/* Rows row0 .. row0 + rows - 1 (further ones are zeros) of dim columns into a tile. */
template <typename T> __device__ void load_tile(const shape &a, const T *from, size_t ld, int rows, float *tile)
{
    for (int i = (int)threadIdx.x; i < TILE * a.dim; i += THREADS) {
        const int r = i / a.dim, c = i % a.dim;

        tile[r * a.stride + c] = r < rows ? get(from + (size_t)r * ld + (size_t)c) : 0;
    }
}

/* s[v] = row of x times row first + v of y */
__device__ void products(const shape &a, const float *x, const float *y, int first, float s[FOUR])
{
#pragma unroll
    for (int v = 0; v < FOUR; v++)
        s[v] = 0;
    for (int c = 0; c < a.dim; c++) {
        const float xc = x[c];

#pragma unroll
        for (int v = 0; v < FOUR; v++)
            s[v] += xc * y[(first + v) * a.stride + c];
    }
}

/* What dropout multiplies the probabilities of (head, query, four keys from key on) by; positions in the document, key
 * a multiple of four. */
__device__ void keep_of(const shape &a, int doc, int head, int query, int key, float keep[FOUR])
{
    uint32_t word[4];

#pragma unroll
    for (int v = 0; v < FOUR; v++)
        keep[v] = 1;
    if (a.keep == 0) /* the same for all threads */
        return;
    const uint64_t sample = a.samples[doc];
    const uint32_t ctr[4] = {(uint32_t)key / 4, (uint32_t)query, (uint32_t)sample, (uint32_t)(sample >> 32)};

    philox4x32(ctr, a.keys + 2 * head, word);
#pragma unroll
    for (int v = 0; v < FOUR; v++)
        keep[v] = word[v] < a.threshold ? 0 : a.keep;
}

/* x of the eight threads of a row as one. */
template <typename F> __device__ float over_row(float x, F f)
{
    for (int m = LANES / 2; m > 0; m /= 2)
        x = f(x, __shfl_xor_sync(ALL_LANES, x, m));
    return x;
}

__device__ int min_of(int a, int b)
{
    return a < b ? a : b;
}

/* Columns of a tensor's row. */
struct columns {
    size_t q, k, v;
};

__device__ columns columns_of(const shape &a, int head)
{
    const int kv = head / (a.heads / a.kv_heads);
    columns c;

    c.q = (size_t)head * (size_t)a.dim;
    c.k = a.k_at + (size_t)kv * (size_t)a.dim;
    c.v = a.v_at + (size_t)kv * (size_t)a.dim;
    return c;
}

/* Keys, or values, of a piece's document from k0 on into a tile. at: their column. */
template <typename T>
__device__ void load_keys(const shape &a, const tensors<T> &t, const attention_tile &tile, int k0, size_t at, float *to)
{
    load_tile(a, t.keys + (size_t)(tile.key0 + k0) * a.key_ld + at, a.key_ld, min_of(TILE, tile.keys - k0), to);
}

/* Where a row of the piece is in its document. */
__device__ int place_of(const attention_tile &tile, int row)
{
    return tile.past + row - tile.begin;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <typename T, int DIM> __global__ void forward(const shape a, const tensors<T> t, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    float *q = (float *)bytes, *k = q + TILE * a.stride, *v = k + TILE * a.stride, *p = v + TILE * a.stride;
    const attention_tile tile = tiles[blockIdx.x];
    const int head = (int)blockIdx.y, i = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const int row = tile.first + i, rows = min_of(TILE, tile.end - tile.first), place = place_of(tile, row);
    const int last = place_of(tile, tile.first + rows - 1);
    const columns at = columns_of(a, head);
    float max = -INFINITY, sum = 0, acc[DIM / LANES];

#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        acc[c] = 0;
    load_tile(a, t.qkv + (size_t)tile.first * a.ld + at.q, a.ld, rows, q);
    for (int k0 = 0; k0 <= last; k0 += TILE) {
        float s[FOUR], keep[FOUR], top = -INFINITY, shrink;

        __syncthreads(); /* whoever still reads the last keys */
        load_keys(a, t, tile, k0, at.k, k);
        load_keys(a, t, tile, k0, at.v, v);
        __syncthreads();
        products(a, q + i * a.stride, k, lane * FOUR, s);
        keep_of(a, tile.doc, head, place, k0 + lane * FOUR, keep);
#pragma unroll
        for (int j = 0; j < FOUR; j++) {
            s[j] = k0 + lane * FOUR + j <= place ? s[j] * a.scale : -INFINITY;
            top = fmaxf(top, s[j]);
        }
        top = fmaxf(max, over_row(top, max_of())); /* finite: each row sees the document's first key */
        shrink = expf(max - top);
        max = top;
        top = 0;
#pragma unroll
        for (int j = 0; j < FOUR; j++) {
            s[j] = expf(s[j] - max);
            top += s[j];
            p[i * (TILE + 1) + lane * FOUR + j] = s[j] * keep[j];
        }
        sum = sum * shrink + over_row(top, sum_of());
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DIM / LANES; c++)
            acc[c] *= shrink;
        for (int j = 0; j < TILE; j++) {
            const float pj = p[i * (TILE + 1) + j];

#pragma unroll
            for (int c = 0; c < DIM / LANES; c++)
                if (c * LANES + lane < a.dim)
                    acc[c] += pj * v[j * a.stride + c * LANES + lane];
        }
    }
    if (i >= rows)
        return;
    if (lane == 0)
        t.lse[(size_t)row * (size_t)a.heads + (size_t)head] = max + logf(sum);
#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        if (c * LANES + lane < a.dim)
            put(t.out + ((size_t)row * (size_t)a.heads + (size_t)head) * (size_t)a.dim + c * LANES + lane,
                acc[c] / sum);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* delta = dout · out of each row and head: eight threads each. */
template <typename T> __global__ void row_products(const shape a, const tensors<T> t, size_t n)
{
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    float sum = 0;

    for (int c = (int)threadIdx.x % LANES; at < n && c < a.dim; c += LANES)
        sum += get(t.dout + at * (size_t)a.dim + c) * get(t.saved + at * (size_t)a.dim + c);
    sum = over_row(sum, sum_of());
    if (at < n && threadIdx.x % LANES == 0)
        t.delta[at] = sum;
}

struct pair {         /* what a tile of queries and one of keys make, of a thread's four keys */
    float kept[FOUR]; /* probability after dropout */
    float ds[FOUR];   /* gradient of the score, times the scale */
};

/* q, k, v, dout: tiles. query: row of this thread's; key0: place of the tile's first key. */
template <typename T>
__device__ pair pair_of(const shape &a, const tensors<T> &t, const attention_tile &tile, int head, int query, int key0,
                        const float *q, const float *k, const float *v, const float *dout)
{
    const int i = (int)threadIdx.x / LANES, first = (int)threadIdx.x % LANES * FOUR;
    const bool is_row = query < tile.end;
    const int place = place_of(tile, query);
    const size_t at = (size_t)query * (size_t)a.heads + (size_t)head;
    const float lse = is_row ? t.lse[at] : 0, delta = is_row ? t.delta[at] : 0;
    float s[FOUR], dp[FOUR], keep[FOUR];
    pair r;

    products(a, q + i * a.stride, k, first, s);
    products(a, dout + i * a.stride, v, first, dp);
    keep_of(a, tile.doc, head, place, key0 + first, keep);
#pragma unroll
    for (int j = 0; j < FOUR; j++) {
        const float p = is_row && key0 + first + j <= place ? expf(s[j] * a.scale - lse) : 0;

        r.kept[j] = p * keep[j];
        r.ds[j] = p * (keep[j] * dp[j] - delta) * a.scale;
    }
    return r;
}

/* Gradient of a tile of queries. */
template <typename T, int DIM>
__global__ void backward_q(const shape a, const tensors<T> t, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    float *q = (float *)bytes, *k = q + TILE * a.stride, *v = k + TILE * a.stride, *dout = v + TILE * a.stride;
    float *ds = dout + TILE * a.stride;
    const attention_tile tile = tiles[blockIdx.x];
    const int head = (int)blockIdx.y, i = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const int row = tile.first + i, rows = min_of(TILE, tile.end - tile.first);
    const int last = place_of(tile, tile.first + rows - 1);
    const size_t width = (size_t)a.heads * (size_t)a.dim;
    const columns at = columns_of(a, head);
    float acc[DIM / LANES];

#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        acc[c] = 0;
    load_tile(a, t.qkv + (size_t)tile.first * a.ld + at.q, a.ld, rows, q);
    load_tile(a, t.dout + (size_t)tile.first * width + at.q, width, rows, dout);
    for (int k0 = 0; k0 <= last; k0 += TILE) {
        __syncthreads();
        load_keys(a, t, tile, k0, at.k, k);
        load_keys(a, t, tile, k0, at.v, v);
        __syncthreads();
        const pair x = pair_of(a, t, tile, head, row, k0, q, k, v, dout);

#pragma unroll
        for (int j = 0; j < FOUR; j++)
            ds[i * (TILE + 1) + lane * FOUR + j] = x.ds[j];
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            const float d = ds[i * (TILE + 1) + j];

#pragma unroll
            for (int c = 0; c < DIM / LANES; c++)
                if (c * LANES + lane < a.dim)
                    acc[c] += d * k[j * a.stride + c * LANES + lane];
        }
    }
#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        if (i < rows && c * LANES + lane < a.dim)
            put(t.dqkv + (size_t)row * a.ld + at.q + c * LANES + lane, acc[c]);
}

/* Gradients of a tile of keys and values, from all heads that share them. */
template <typename T, int DIM>
__global__ void backward_kv(const shape a, const tensors<T> t, const attention_tile *tiles)
{
    SHARED_BYTES(bytes);
    float *q = (float *)bytes, *k = q + TILE * a.stride, *v = k + TILE * a.stride, *dout = v + TILE * a.stride;
    float *ds = dout + TILE * a.stride, *kept = ds + TILE * (TILE + 1);
    const attention_tile tile = tiles[blockIdx.x];
    const int group = a.heads / a.kv_heads, i = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const int rows = min_of(TILE, tile.keys - tile.first), before = tile.first - tile.past;
    const int row0 = tile.begin + (before > 0 ? before : 0); /* the first that sees any of these keys */
    const size_t width = (size_t)a.heads * (size_t)a.dim;
    const columns at = columns_of(a, (int)blockIdx.y * group);
    float dk[DIM / LANES], dv[DIM / LANES];

#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        dk[c] = dv[c] = 0;
    load_keys(a, t, tile, tile.first, at.k, k);
    load_keys(a, t, tile, tile.first, at.v, v);
    for (int h = 0; h < group; h++) {
        const int head = (int)blockIdx.y * group + h;
        const size_t q_at = (size_t)head * (size_t)a.dim;

        for (int q0 = row0; q0 < tile.end; q0 += TILE) {
            __syncthreads();
            load_tile(a, t.qkv + (size_t)q0 * a.ld + q_at, a.ld, min_of(TILE, tile.end - q0), q);
            load_tile(a, t.dout + (size_t)q0 * width + q_at, width, min_of(TILE, tile.end - q0), dout);
            __syncthreads();
            const pair x = pair_of(a, t, tile, head, q0 + i, tile.first, q, k, v, dout);

#pragma unroll
            for (int j = 0; j < FOUR; j++) {
                ds[i * (TILE + 1) + lane * FOUR + j] = x.ds[j];
                kept[i * (TILE + 1) + lane * FOUR + j] = x.kept[j];
            }
            __syncthreads();
            for (int j = 0; j < TILE; j++) { /* queries; this thread's row is a key now */
                const float d = ds[j * (TILE + 1) + i], p = kept[j * (TILE + 1) + i];

#pragma unroll
                for (int c = 0; c < DIM / LANES; c++)
                    if (c * LANES + lane < a.dim) {
                        dk[c] += d * q[j * a.stride + c * LANES + lane];
                        dv[c] += p * dout[j * a.stride + c * LANES + lane];
                    }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < DIM / LANES; c++)
        if (i < rows && c * LANES + lane < a.dim) {
            const size_t to = (size_t)(tile.key0 + tile.first + i) * a.key_ld + (size_t)(c * LANES + lane);

            if (t.dkv) {
                t.dkv[to + at.k] += dk[c];
                t.dkv[to + at.v] += dv[c];
            } else {
                put(t.dqkv + to + at.k, dk[c]);
                put(t.dqkv + to + at.v, dv[c]);
            }
        }
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

shape shape_of(const struct kern_attention *a)
{
    shape s;

    s.heads = a->heads;
    s.kv_heads = a->kv_heads;
    s.dim = a->dim;
    s.stride = a->dim + 1;
    s.ld = (size_t)a->ld;
    s.key_ld = a->kv ? (size_t)(2 * a->kv_heads * a->dim) : s.ld;
    s.k_at = a->kv ? 0 : (size_t)(a->heads * a->dim);
    s.v_at = s.k_at + (size_t)(a->kv_heads * a->dim);
    s.scale = a->scale;
    s.keep = a->dropout > 0 ? 1 / (1 - a->dropout) : 0;
    s.threshold = a->drop_threshold;
    s.keys = a->drop_keys;
    s.samples = a->samples;
    return s;
}

template <typename T> tensors<T> tensors_of(const struct kern_attention *a, float *delta)
{
    tensors<T> t;

    t.qkv = (const T *)a->qkv;
    t.keys = (const T *)(a->kv ? a->kv : a->qkv);
    t.dkv = a->kv ? a->dkv : NULL;
    t.dout = (const T *)a->dout;
    t.saved = (const T *)a->out;
    t.out = (T *)a->out;
    t.dqkv = (T *)a->dqkv;
    t.lse = a->lse;
    t.delta = delta;
    return t;
}

/* Shared memory of so many tiles of rows and of scores. */
size_t tiles_bytes(int stride, int tiles, int scores)
{
    return ((size_t)(tiles * TILE * stride) + (size_t)(scores * TILE * (TILE + 1))) * sizeof(float);
}

/* Asking for more than 48 KiB takes the kernel's consent. */
template <typename K> int allow(K kernel, const shape &s, int tiles, int scores, size_t *ret_bytes)
{
    *ret_bytes = tiles_bytes(s.stride, tiles, scores);
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)*ret_bytes);
}

template <typename T, int DIM>
int run_forward(void *stream, const struct kern_attention *a, const attention_tiles *tiles)
{
    const shape s = shape_of(a);
    const tensors<T> t = tensors_of<T>(a, NULL);
    const dim3 grid((unsigned)tiles->queries, (unsigned)a->heads);
    size_t bytes;
    int e = allow(forward<T, DIM>, s, 3, 1, &bytes);

    if (e != cudaSuccess)
        return e;
    LAUNCH((forward<T, DIM>), grid, THREADS, bytes, stream, s, t, tiles->query);
    return cudaGetLastError();
}

/* Pieces may share a document, whose gradients then grow piece by piece: each is a launch. Other documents have their
 * keys to themselves and go together. */
template <typename T, int DIM>
void launch_keys(void *stream, const struct kern_attention *a, const shape &s, const tensors<T> &t,
                 const attention_tiles *tiles, size_t bytes)
{
    const int step = a->kv ? 1 : a->docs;

    for (int d = 0; d < a->docs; d += step) {
        const int n = tiles->key_first[d + step] - tiles->key_first[d];
        const attention_tile *first = tiles->key + tiles->key_first[d];
        const dim3 grid((unsigned)n, (unsigned)a->kv_heads);

        if (n > 0)
            LAUNCH((backward_kv<T, DIM>), grid, THREADS, bytes, stream, s, t, first);
    }
}

template <typename T, int DIM>
int run_backward(void *stream, const struct kern_attention *a, const attention_tiles *tiles, float *delta)
{
    const shape s = shape_of(a);
    const tensors<T> t = tensors_of<T>(a, delta);
    const size_t n = (size_t)a->tokens * (size_t)a->heads;
    const dim3 by_head((unsigned)tiles->queries, (unsigned)a->heads);
    size_t bytes, bytes_kv;
    int e = allow(backward_q<T, DIM>, s, 4, 1, &bytes);

    if (e == cudaSuccess)
        e = allow(backward_kv<T, DIM>, s, 4, 2, &bytes_kv);
    if (e != cudaSuccess)
        return e;
    LAUNCH(row_products<T>, blocks_for(n, TILE), THREADS, 0, stream, s, t, n);
    LAUNCH((backward_q<T, DIM>), by_head, THREADS, bytes, stream, s, t, tiles->query);
    launch_keys<T, DIM>(stream, a, s, t, tiles, bytes_kv);
    return cudaGetLastError();
}

/* --- one sequence with kept keys and values ----------------------------------------------------------------------- */

__global__ void keep_keys(const struct kern_cached a)
{
    const int width = a.kv_heads * a.dim, row = (int)blockIdx.x;
    const float *from = a.qkv + (size_t)row * (size_t)a.ld + (size_t)(a.heads * a.dim);
    const size_t to = (size_t)(a.past + row) * (size_t)width;

    for (int i = (int)threadIdx.x; i < width; i += CACHED_THREADS) {
        a.keys[to + (size_t)i] = from[i];
        a.values[to + (size_t)i] = from[width + i];
    }
}

/* One row and head a block; a thread has a key of each tile, then columns of the output. */
__global__ void cached(const struct kern_cached a)
{
    __shared__ float room[WARP], q[ATTENTION_DIM_MAX], p[CACHED_THREADS];
    const int row = (int)blockIdx.x, head = (int)blockIdx.y, thread = (int)threadIdx.x, n = a.past + row + 1;
    const size_t width = (size_t)(a.kv_heads * a.dim), kv = (size_t)(head / (a.heads / a.kv_heads) * a.dim);
    float max = -INFINITY, sum = 0, acc[ATTENTION_DIM_MAX / CACHED_THREADS] = {0};

    for (int c = thread; c < a.dim; c += CACHED_THREADS)
        q[c] = a.qkv[(size_t)row * (size_t)a.ld + (size_t)(head * a.dim + c)];
    __syncthreads();
    for (int k0 = 0; k0 < n; k0 += CACHED_THREADS) {
        const float *k = a.keys + (size_t)(k0 + thread) * width + kv;
        float s = 0, top, shrink;

        for (int c = 0; k0 + thread < n && c < a.dim; c++)
            s += q[c] * k[c];
        s = k0 + thread < n ? s * a.scale : -INFINITY;
        top = fmaxf(max, over_block(s, max_of(), room));
        shrink = expf(max - top);
        max = top;
        s = expf(s - max);
        p[thread] = s;
        sum = sum * shrink + over_block(s, sum_of(), room); /* its barriers are also those of p */
        for (int c = 0; c < ATTENTION_DIM_MAX / CACHED_THREADS; c++) {
            const int col = c * CACHED_THREADS + thread;

            acc[c] *= shrink;
            for (int j = 0; col < a.dim && j < CACHED_THREADS && k0 + j < n; j++)
                acc[c] += p[j] * a.values[(size_t)(k0 + j) * width + kv + (size_t)col];
        }
        __syncthreads(); /* before p is written again */
    }
    for (int c = 0; c < ATTENTION_DIM_MAX / CACHED_THREADS; c++)
        if (c * CACHED_THREADS + thread < a.dim)
            a.out[(size_t)(row * a.heads + head) * (size_t)a.dim + (size_t)(c * CACHED_THREADS + thread)] =
                acc[c] / sum;
}

} // namespace

#define BY_TYPE_AND_DIM(run, a, ...)                                                                                   \
    ((a)->type == KERN_BF16 ? ((a)->dim <= 64    ? run<bf16, 64>(__VA_ARGS__)                                          \
                               : (a)->dim <= 128 ? run<bf16, 128>(__VA_ARGS__)                                         \
                                                 : run<bf16, 256>(__VA_ARGS__))                                        \
                            : ((a)->dim <= 64    ? run<float, 64>(__VA_ARGS__)                                         \
                               : (a)->dim <= 128 ? run<float, 128>(__VA_ARGS__)                                        \
                                                 : run<float, 256>(__VA_ARGS__)))

size_t launch_attention_shared(const struct kern_attention *a, bool backward)
{
    if (attention_tensor_suits(a)) /* whose largest block finds room on each GPU that they are built for */
        return 0;
    return backward ? tiles_bytes(a->dim + 1, 4, 2) : tiles_bytes(a->dim + 1, 3, 1);
}

struct attention_cut launch_attention_cut(const struct kern_attention *a)
{
    struct attention_cut cut = {TILE, TILE};

    if (attention_tensor_suits(a))
        cut = {ATTENTION_TENSOR_QUERIES, ATTENTION_TENSOR_KEYS};
    return cut;
}

int launch_attention_forward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles)
{
    if (tiles->queries > 0 && attention_tensor_suits(a))
        return launch_attention_tensor_forward(stream, a, tiles);
    return tiles->queries > 0 ? BY_TYPE_AND_DIM(run_forward, a, stream, a, tiles) : (int)cudaSuccess;
}

int launch_attention_backward(void *stream, const struct kern_attention *a, const struct attention_tiles *tiles,
                              float *delta)
{
    if (tiles->queries > 0 && attention_tensor_suits(a))
        return launch_attention_tensor_backward(stream, a, tiles, delta);
    return tiles->queries > 0 ? BY_TYPE_AND_DIM(run_backward, a, stream, a, tiles, delta) : (int)cudaSuccess;
}

int launch_attention_cached(void *stream, const struct kern_cached *a)
{
    if (a->rows <= 0)
        return cudaSuccess;
    LAUNCH(keep_keys, (unsigned)a->rows, CACHED_THREADS, 0, stream, *a);
    LAUNCH(cached, dim3((unsigned)a->rows, (unsigned)a->heads), CACHED_THREADS, 0, stream, *a);
    return cudaGetLastError();
}
