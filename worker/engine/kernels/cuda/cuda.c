/* The CUDA table: looks at the arguments, brings host arrays to the device, queues kernels.
 *
 * Where ranks are several, device memory is managed memory: after stream_sync the host may read and write it too, which
 * is how collectives over shared memory and the network reach it. As long as the host does not, it stays on the GPU. A
 * rank that is alone (kern_cfg, apart) has plain memory of the GPU. */
#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#include "compress/cuda/backend_parts.h"
#include "compress/cuda_backend.h"
#include "worker/engine/kernels/cuda/dnn.h"
#include "worker/engine/kernels/cuda/launches.h"
#include "worker/engine/kernels/cuda/lt.h"
#include "worker/engine/kernels/cuda/record.h"
#include "worker/engine/kernels/cuda/stream.h"

static int done(int e, const char *what, struct merr *err)
{
    return e == cudaSuccess ? 0 : cuda_failed(err, e, "%s failed on the GPU", what);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void mem_free(struct kern_stream *s, void *p)
{
    int saved = errno;

    if (stream_calm(s) == 0) {
        records_forget(s->records);
        (void)cudaFree(p);
    }
    errno = saved;
}

static int mem_alloc(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    size_t free = 0, all = 0;
    void *p = NULL;
    cudaError_t e = cudaMemGetInfo(&free, &all);
    int r;

    bytes = bytes > 0 ? bytes : 1;
    if (e == cudaSuccess && bytes > free) /* managed memory beyond it there is, but each kernel would fetch its pages */
        e = cudaErrorMemoryAllocation;
    if (e == cudaSuccess)
        e = s->apart ? cudaMalloc(&p, bytes) : cudaMallocManaged(&p, bytes, cudaMemAttachGlobal);
    if (e == cudaSuccess) /* by the GPU: there its pages will be */
        e = cudaMemsetAsync(p, 0, bytes, s->queue);
    if (e != cudaSuccess) {
        (void)cudaFree(p);
        return cuda_failed(err, (int)e, "no %zu bytes of tensors on the GPU", bytes);
    }
    r = stream_sync(s, err);
    if (r == 0)
        *ret = p;
    else
        mem_free(s, p);
    return r;
}

static bool is_host(const void *p)
{
    struct cudaPointerAttributes a;
    cudaError_t e = cudaPointerGetAttributes(&a, p);

    if (e != cudaSuccess)
        (void)cudaGetLastError();
    return e != cudaSuccess || (a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged); /* pinned or not */
}

static int copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err)
{
    int r = bytes > 0 ? done((int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->queue), "a copy", err) : 0;

    if (r == 0 && bytes > 0 && (is_host(dst) || is_host(src))) /* the caller may use the host's side at once */
        r = stream_sync(s, err);
    return r;
}

static int copy_rows(struct kern_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                     size_t bytes, int rows, struct merr *err)
{
    return done((int)cudaMemcpy2DAsync(dst, dst_stride, src, src_stride, bytes, (size_t)rows, cudaMemcpyDeviceToDevice,
                                       s->queue),
                "a copy of rows", err);
}

static int fill(struct kern_stream *s, float *dst, float value, size_t n, struct merr *err)
{
    return done(launch_fill(s->queue, dst, value, n), "a fill", err);
}

static int to_bf16(struct kern_stream *s, const float *x, size_t n, void *y, struct merr *err)
{
    return done(launch_to_bf16(s->queue, x, n, y), "a conversion to bf16", err);
}

/* --- matrix products ---------------------------------------------------------------------------------------------- */

/* No sum at all: C is 0, or what it was or lies under it. */
static int gemm_of_nothing(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    size_t bytes = (size_t)g->m * (size_t)g->ldc * sizeof(float);
    void *zeros;
    int r;

    if (g->accumulate)
        return 0;
    r = stream_work(s, bytes, &zeros, err);
    if (r)
        return r;
    if (g->onto)
        r = copy_rows(s, zeros, (size_t)g->ldc * sizeof(float), g->onto, (size_t)g->ldc * sizeof(float),
                      (size_t)g->n * sizeof(float), g->m, err);
    else
        r = done((int)cudaMemsetAsync(zeros, 0, bytes, s->queue), "a matrix product", err);
    if (r)
        return r;
    return done(launch_epilogue(s->queue, zeros, g->epilogue == KERN_PLAIN ? NULL : g->bias, g->m, g->n, g->ldc,
                                g->c_type, g->c, g->epilogue == KERN_BIAS_GELU ? g->aux : NULL),
                "a matrix product", err);
}

static int end_product(struct kern_stream *s, const struct kern_gemm *g, const float *acc, const float *bias,
                       struct merr *err)
{
    return done(launch_epilogue(s->queue, acc, bias, g->m, g->n, g->ldc, g->c_type, g->c,
                                g->epilogue == KERN_BIAS_GELU ? g->aux : NULL),
                "the end of a matrix product", err);
}

/* The bias of a bf16 result is added by cuBLASLt as bf16, as its interface has it: the sum is rounded once, but the
 * bias before. GELU must see the rounded sum, so that is left to a kernel of our own. */
static int gemm_to_bf16(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct kern_gemm sums = *g;
    bool gelu = g->epilogue == KERN_BIAS_GELU;
    void *bias;
    int r = stream_work(s, (size_t)g->n * kern_size(KERN_BF16), &bias, err);

    if (r == 0)
        r = done(launch_to_bf16(s->queue, g->bias, (size_t)g->n, bias), "a bias", err);
    if (r)
        return r;
    sums.c = gelu ? g->aux : g->c;
    r = lt_gemm(s->lt, s->queue, &sums, bias, err);
    if (r || !gelu)
        return r;
    return done(launch_gelu_forward(s->queue, KERN_BF16, g->aux, (size_t)g->m * (size_t)g->n, g->c), "gelu", err);
}

/* Where cuBLASLt adds no bias: the f32 sums wait in C, aux or workspace for a kernel of our own. */
static int gemm_apart(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct kern_gemm sums = *g;
    void *acc = g->epilogue == KERN_BIAS_GELU ? g->aux : g->c;
    int r = 0;

    if (g->c_type == KERN_BF16)
        r = stream_work(s, (size_t)g->m * (size_t)g->ldc * sizeof(float), &acc, err);
    sums.c = acc;
    sums.c_type = KERN_F32;
    if (r == 0)
        r = lt_gemm(s->lt, s->queue, &sums, NULL, err);
    return r ? r : end_product(s, g, acc, g->bias, err);
}

static int gemm_with_bias(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    struct kern_gemm sums = *g;
    bool gelu = g->epilogue == KERN_BIAS_GELU;
    int r = -ENOTSUP;

    if (g->c_type == KERN_F32) {
        sums.c = gelu ? g->aux : g->c;
        r = lt_gemm(s->lt, s->queue, &sums, g->bias, err);
        if (r == 0 && gelu)
            r = end_product(s, g, g->aux, NULL, err);
    } else if (!gelu || g->ldc == g->n) {
        r = gemm_to_bf16(s, g, err);
    }
    return r == -ENOTSUP ? gemm_apart(s, g, err) : r;
}

static int gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    int r = 0;

    assert(!g->accumulate || (g->epilogue == KERN_PLAIN && g->c_type == KERN_F32));
    assert(!g->onto || (g->onto != g->c && !g->accumulate && g->epilogue != KERN_BIAS_GELU && g->c_type == KERN_F32));
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->k == 0)
        return gemm_of_nothing(s, g, err);
    if (!s->lt)
        r = lt_new(&s->lt, err);
    if (r == 0)
        r = g->epilogue == KERN_PLAIN ? lt_gemm(s->lt, s->queue, g, NULL, err) : gemm_with_bias(s, g, err);
    return r == -ENOTSUP ? -EIO : r;
}

static void weights_changed(struct kern_stream *s, const void *p, size_t bytes)
{
    (void)s; /* nothing is packed */
    (void)p;
    (void)bytes;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static int check_attention(int heads, int kv_heads, int dim, struct merr *err)
{
    assert(kv_heads > 0 && heads % kv_heads == 0);
    if (dim > ATTENTION_DIM_MAX)
        return merr_set(err, -ENOTSUP, "attention on a GPU takes heads of at most %d dimensions, not %d",
                        ATTENTION_DIM_MAX, dim);
    return 0;
}

static int tiles_in(int rows, int of)
{
    return (rows + of - 1) / of;
}

/* A piece's tiles of so many rows, of its queries or of the keys it sees. */
static void cut(const struct kern_attention *a, int d, bool keys, int rows, struct attention_tile *v, int *n)
{
    int past = a->kv ? a->past[d] : 0, length = a->cu[d + 1] - a->cu[d];
    struct attention_tile t = {.begin = a->cu[d],
                               .end = a->cu[d + 1],
                               .doc = d,
                               .past = past,
                               .key0 = a->kv ? a->kv_at[d] : a->cu[d],
                               .keys = length ? past + length : 0};

    for (int i = 0; i < tiles_in(keys ? t.keys : length, rows); i++) {
        t.first = (keys ? 0 : t.begin) + i * rows;
        v[(*n)++] = t;
    }
}

struct tile_lists { /* of the host */
    struct attention_tile *query, *key;
    int queries, keys, *key_first;
};

static int list_tiles(struct kern_stream *s, const struct kern_attention *a, bool backward, struct tile_lists *ret,
                      struct merr *err)
{
    const struct attention_cut of = launch_attention_cut(a);
    size_t queries = 0, keys = 0;
    void *room;
    int r;

    for (int d = 0; d < a->docs; d++) {
        int length = a->cu[d + 1] - a->cu[d];

        queries += (size_t)tiles_in(length, of.queries);
        keys += backward ? (size_t)tiles_in((a->kv ? a->past[d] : 0) + length, of.keys) : 0;
    }
    r = stream_counts(s, (queries + keys) * sizeof(*ret->query) + ((size_t)a->docs + 1) * sizeof(int), &room, err);
    if (r)
        return r;
    *ret = (struct tile_lists){.query = room};
    ret->key = ret->query + queries;
    ret->key_first = (int *)(ret->key + keys);
    for (int d = 0; d < a->docs; d++) {
        ret->key_first[d] = ret->keys;
        cut(a, d, false, of.queries, ret->query, &ret->queries);
        if (backward)
            cut(a, d, true, of.keys, ret->key, &ret->keys);
    }
    ret->key_first[a->docs] = ret->keys;
    assert((size_t)ret->queries == queries && (size_t)ret->keys <= keys);
    return 0;
}

static int attend(struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err)
{
    bool drops = a->dropout > 0;
    struct kern_attention on_device = *a;
    struct attention_tiles tiles;
    struct tile_lists lists;
    struct upload up[4];
    void *delta = NULL;
    int r = check_attention(a->heads, a->kv_heads, a->dim, err);

    if (r == 0 && launch_attention_shared(a, backward) > s->shared_most)
        r = merr_set(err, -ENOTSUP,
                     "attention of heads of %d dimensions takes %zu bytes of a GPU's shared memory for a block, and "
                     "this one gives %zu: use smaller heads or another GPU",
                     a->dim, launch_attention_shared(a, backward), s->shared_most);
    if (r == 0)
        r = list_tiles(s, a, backward, &lists, err);
    if (r || lists.queries == 0)
        return r;
    up[0] = (struct upload){.host = lists.query, .bytes = (size_t)lists.queries * sizeof(*lists.query), .kept = true};
    up[1] = (struct upload){.host = lists.key, .bytes = (size_t)lists.keys * sizeof(*lists.key), .kept = true};
    up[2] = (struct upload){
        .host = a->drop_keys, .bytes = drops ? (size_t)a->heads * 2 * sizeof(uint32_t) : 0, .kept = true};
    up[3] = (struct upload){.host = a->samples, .bytes = drops ? (size_t)a->docs * sizeof(uint64_t) : 0};
    r = stream_upload(s, up, 4, err);
    if (r == 0 && backward)
        r = stream_work(s, (size_t)a->tokens * (size_t)a->heads * sizeof(float), &delta, err);
    if (r)
        return r;
    tiles = (struct attention_tiles){.query = up[0].device,
                                     .queries = lists.queries,
                                     .key = up[1].device,
                                     .key_first = lists.key_first,
                                     .shared_most = s->shared_most};
    on_device.drop_keys = up[2].device;
    on_device.samples = up[3].device;
    if (backward)
        return done(launch_attention_backward(s->queue, &on_device, &tiles, delta), "attention", err);
    return done(launch_attention_forward(s->queue, &on_device, &tiles), "attention", err);
}

/* By the library where it can: 1 when it does. It is looked for at the first call that might go by it. */
static int by_library(struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err)
{
    struct attention_library *l = &s->attention;

    if (l->off || !dnn_suits(a))
        return 0;
    if (!l->tried && record_capturing(s->records))
        return merr_set(err, -EAGAIN, "cuDNN was not looked for before calls were captured");
    if (!l->tried) {
        int r = dnn_new(&l->dnn, &l->why);

        l->tried = true;
        if (r < 0 && l->needed)
            return merr_set(err, r, "attention was to go by cuDNN: %s", l->why.text);
    }
    return l->dnn ? dnn_attention(l->dnn, s, a, backward, err) : 0;
}

static int attend_somehow(struct kern_stream *s, const struct kern_attention *a, bool backward, struct merr *err)
{
    int r = by_library(s, a, backward, err);

    if (r != 0) {
        s->attention.by_it += r > 0;
        return r < 0 ? r : 0;
    }
    s->attention.by_us++;
    return attend(s, a, backward, err);
}

static int attention_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    return attend_somehow(s, a, false, err);
}

static int attention_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    return attend_somehow(s, a, true, err);
}

static void attention_ways(const struct kern_stream *s, struct kern_attention_ways *ret)
{
    const struct attention_library *l = &s->attention;

    *ret = (struct kern_attention_ways){.library = l->dnn ? dnn_version(l->dnn) : 0,
                                        .by_library = l->by_it,
                                        .by_us = l->by_us,
                                        .why = l->dnn ? dnn_refused(l->dnn) : l->why.text};
}

static int attention_cached(struct kern_stream *s, const struct kern_cached *a, struct merr *err)
{
    int r = check_attention(a->heads, a->kv_heads, a->dim, err);

    return r ? r : done(launch_attention_cached(s->queue, a), "attention", err);
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

static int layernorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma,
                             const float *beta, float eps, int rows, int cols, void *y, float *mean, float *rstd,
                             struct merr *err)
{
    return done(launch_layernorm_forward(s->queue, type, x, gamma, beta, eps, rows, cols, y, mean, rstd), "a norm",
                err);
}

static int layernorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                              const float *mean, const float *rstd, int rows, int cols, float *dx, bool add,
                              float *dgamma, float *dbeta, struct merr *err)
{
    void *work;
    int r = stream_work(s, launch_norm_floats(rows, cols) * sizeof(float), &work, err);

    if (r)
        return r;
    return done(launch_norm_backward(s->queue, dy, x, gamma, mean, rstd, rows, cols, dx, add, dgamma, dbeta, work),
                "a norm's backward", err);
}

static int rmsnorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma, float eps,
                           int rows, int cols, void *y, float *rstd, struct merr *err)
{
    return done(launch_rmsnorm_forward(s->queue, type, x, gamma, eps, rows, cols, y, rstd), "a norm", err);
}

static int rmsnorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                            const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, struct merr *err)
{
    return layernorm_backward(s, dy, x, gamma, NULL, rstd, rows, cols, dx, add, dgamma, NULL, err);
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Positions that a table has for those of a call: a power of two; 0: too many for one. */
static int table_positions(const int32_t *position, int rows, int half)
{
    int32_t most = 0;
    size_t n = 256;

    for (int i = 0; i < rows; i++)
        most = position[i] > most ? position[i] : most;
    while (n <= (size_t)most)
        n *= 2;
    return n * (size_t)half * 2 * sizeof(float) <= TURN_BYTES_MOST ? (int)n : 0;
}

/* A table of the cosines and sines that a call takes is made once and kept, and grows with positions; recorded calls
 * know where it is, so they end with it. freq: where the frequencies are on the device. A call that is being captured
 * takes what there is. */
static int turns_for(struct kern_stream *s, const int32_t *position, int rows, int half, const float *freq,
                     const void *freq_there, struct turns *ret, struct merr *err)
{
    struct turn_table *t = &s->turns;
    bool same = t->p && t->half == half && memcmp(t->freq, freq, (size_t)half * sizeof(*freq)) == 0;
    int want = record_capturing(s->records) || half > TURN_FREQUENCIES ? 0 : table_positions(position, rows, half);
    size_t plane = (size_t)want * (size_t)half;
    cudaError_t e;

    if (want > 0 && (!same || want > t->positions)) {
        records_forget(s->records);
        if (t->p)
            (void)cudaFreeAsync(t->p, s->queue);
        *t = (struct turn_table){.half = half, .positions = want};
        e = cudaMallocAsync(&t->p, 2 * plane * sizeof(float), s->queue);
        if (e != cudaSuccess) {
            t->p = NULL;
            return cuda_failed(err, (int)e, "no %zu bytes for a table of rotations", 2 * plane * sizeof(float));
        }
        memcpy(t->freq, freq, (size_t)half * sizeof(*freq));
        e = (cudaError_t)launch_turns(s->queue, freq_there, half, want, t->p, (float *)t->p + plane);
        if (e != cudaSuccess)
            return done((int)e, "a table of rotations", err);
        same = true;
    }
    *ret = (struct turns){.positions = 0};
    if (same)
        *ret = (struct turns){
            .cosines = t->p, .sines = (float *)t->p + (size_t)t->positions * (size_t)half, .positions = t->positions};
    return 0;
}

static int rope(struct kern_stream *s, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                const int32_t *position, const float *freq, bool inverse, struct merr *err)
{
    struct upload up[] = {{.host = position, .bytes = (size_t)rows * sizeof(*position)},
                          {.host = freq, .bytes = (size_t)(dim / 2) * sizeof(*freq), .kept = true}};
    struct turns turns;
    int r = stream_upload(s, up, 2, err);

    if (r == 0)
        r = turns_for(s, position, rows, dim / 2, freq, up[1].device, &turns, err);
    if (r)
        return r;
    return done(launch_rope(s->queue, type, x, rows, heads, dim, ld, up[0].device, up[1].device, &turns, inverse),
                "a rotation", err);
}

static int gelu_forward(struct kern_stream *s, enum kern_type type, const void *x, size_t n, void *y, struct merr *err)
{
    return done(launch_gelu_forward(s->queue, type, x, n, y), "gelu", err);
}

static int gelu_backward(struct kern_stream *s, enum kern_type type, const void *x, const void *dy, size_t n, void *dx,
                         struct merr *err)
{
    return done(launch_gelu_backward(s->queue, type, x, dy, n, dx), "gelu's backward", err);
}

static int swiglu_forward(struct kern_stream *s, enum kern_type type, const void *gate_up, int rows, int cols, void *y,
                          struct merr *err)
{
    return done(launch_swiglu_forward(s->queue, type, gate_up, rows, cols, y), "swiglu", err);
}

static int swiglu_backward(struct kern_stream *s, enum kern_type type, const void *gate_up, const void *dy, int rows,
                           int cols, void *dgate_up, struct merr *err)
{
    return done(launch_swiglu_backward(s->queue, type, gate_up, dy, rows, cols, dgate_up), "swiglu's backward", err);
}

static int add(struct kern_stream *s, float *y, const float *x, size_t n, struct merr *err)
{
    return done(launch_add(s->queue, y, x, n), "a sum", err);
}

static int add_bias(struct kern_stream *s, float *y, const float *bias, int rows, int cols, struct merr *err)
{
    return done(launch_add_bias(s->queue, y, bias, rows, cols), "a sum with a bias", err);
}

static int bias_gradient(struct kern_stream *s, enum kern_type type, const void *dy, int rows, int cols, int ld,
                         float *db, struct merr *err)
{
    void *work;
    int r = stream_work(s, launch_columns_floats(rows, cols) * sizeof(float), &work, err);

    return r ? r : done(launch_bias_gradient(s->queue, type, dy, rows, cols, ld, db, work), "a bias's gradient", err);
}

static int dropout(struct kern_stream *s, const struct kern_dropout *d, const float *x, float *y, struct merr *err)
{
    struct upload up[] = {{.host = d->position, .bytes = (size_t)d->rows * sizeof(*d->position)},
                          {.host = d->sample, .bytes = (size_t)d->rows * sizeof(*d->sample)}};
    struct kern_dropout on_device = *d;
    int r = stream_upload(s, up, 2, err);

    if (r)
        return r;
    on_device.position = up[0].device;
    on_device.sample = up[1].device;
    return done(launch_dropout(s->queue, &on_device, x, y), "dropout", err);
}

/* --- embedding and loss ------------------------------------------------------------------------------------------- */

static int embedding_forward(struct kern_stream *s, enum kern_type type, const void *table, int first, int rows,
                             int cols, const int32_t *token, int tokens, float *y, struct merr *err)
{
    struct upload up = {.host = token, .bytes = (size_t)tokens * sizeof(*token)};
    int r = stream_upload(s, &up, 1, err);

    if (r)
        return r;
    return done(launch_embedding_forward(s->queue, type, table, first, rows, cols, up.device, tokens, y),
                "an embedding", err);
}

struct occurrences { /* of the table's rows among tokens, each row's in ascending order */
    int32_t *next;   /* [rows + 1]: where a row's occurrences begin; while they are put in order, where the next goes */
    int32_t *row, *start, *order; /* [unique], [unique + 1], [tokens] */
    int unique, tokens;
};

/* Counting sort. */
static int find_occurrences(struct kern_stream *s, const int32_t *token, int tokens, int first, int rows,
                            struct occurrences *o, struct merr *err)
{
    size_t n = (size_t)tokens, all = (size_t)rows + 1 + n + (n + 1) + n;
    void *room;
    int r = stream_counts(s, all * sizeof(int32_t), &room, err);

    if (r)
        return r;
    *o = (struct occurrences){.next = room};
    o->row = o->next + rows + 1;
    o->start = o->row + n;
    o->order = o->start + n + 1;
    memset(o->next, 0, ((size_t)rows + 1) * sizeof(int32_t));
    for (int t = 0; t < tokens; t++)
        if (token[t] >= first && token[t] - first < rows)
            o->next[token[t] - first + 1]++;
    for (int i = 0; i < rows; i++) {
        if (o->next[i + 1] > 0) {
            o->row[o->unique] = i;
            o->start[o->unique++] = o->next[i];
        }
        o->next[i + 1] += o->next[i];
    }
    o->tokens = o->next[rows];
    o->start[o->unique] = o->tokens;
    for (int t = 0; t < tokens; t++)
        if (token[t] >= first && token[t] - first < rows)
            o->order[o->next[token[t] - first]++] = t;
    return 0;
}

static int embedding_backward(struct kern_stream *s, const float *dy, int first, int rows, int cols,
                              const int32_t *token, int tokens, float *dtable, struct merr *err)
{
    struct occurrences o;
    struct upload up[3];
    int r;

    if (record_capturing(s->records))
        return merr_set(err, -EAGAIN, "an embedding's backward has as many blocks of threads as there are tokens");
    r = find_occurrences(s, token, tokens, first, rows, &o, err);
    if (r || o.unique == 0)
        return r;
    up[0] = (struct upload){.host = o.row, .bytes = (size_t)o.unique * sizeof(int32_t)};
    up[1] = (struct upload){.host = o.start, .bytes = ((size_t)o.unique + 1) * sizeof(int32_t)};
    up[2] = (struct upload){.host = o.order, .bytes = (size_t)o.tokens * sizeof(int32_t)};
    r = stream_upload(s, up, 3, err);
    if (r)
        return r;
    return done(
        launch_embedding_backward(s->queue, dy, cols, up[0].device, up[1].device, o.unique, up[2].device, dtable),
        "an embedding's backward", err);
}

static int xent_partial(struct kern_stream *s, const float *logits, int tokens, int cols, int first, int vocab,
                        const int32_t *target, float *stats, struct merr *err)
{
    struct upload up = {.host = target, .bytes = (size_t)tokens * sizeof(*target)};
    int r = stream_upload(s, &up, 1, err);

    if (r)
        return r;
    return done(launch_xent_partial(s->queue, logits, tokens, cols, first, vocab, up.device, stats), "the loss", err);
}

static int xent_finish(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens, int cols,
                       int first, int vocab, const int32_t *target, float weight, float *loss, enum kern_type type,
                       void *dz, struct merr *err)
{
    struct upload up = {.host = target, .bytes = (size_t)tokens * sizeof(*target)};
    int r = stream_upload(s, &up, 1, err);

    if (r)
        return r;
    return done(
        launch_xent_finish(s->queue, logits, stats, n, tokens, cols, first, vocab, up.device, weight, loss, type, dz),
        "the loss", err);
}

/* --- optimizer ---------------------------------------------------------------------------------------------------- */

/* The step's numbers are arguments of the kernel, or of a recorded one at their place on the device. */
static int adamw(struct kern_stream *s, const struct kern_adamw *a, struct merr *err)
{
    struct upload up = {.host = a->step, .bytes = sizeof(*a->step)};
    int r = record_upload(s->records, &up, 1, err);

    return r < 0 ? r : done(launch_adamw(s->queue, a, r > 0 ? up.device : NULL), "adamw", err);
}

/* ret is the host's: this waits. */
static int sum_squares(struct kern_stream *s, const float *x, size_t n, size_t block, double *ret, struct merr *err)
{
    size_t blocks;
    void *work;
    int r;

    assert(block > 0);
    blocks = (n + block - 1) / block;
    if (blocks == 0)
        return 0;
    r = stream_work(s, blocks * sizeof(double), &work, err);
    if (r == 0)
        r = done(launch_sum_squares(s->queue, x, n, block, work), "a sum of squares", err);
    return r ? r : copy(s, ret, work, blocks * sizeof(double), err);
}

static const struct kern_ops ops = {
    .name = "cuda",
    .device = &device_cuda_ops,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_sync = stream_sync,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .copy = copy,
    .copy_rows = copy_rows,
    .fill = fill,
    .to_bf16 = to_bf16,
    .gemm = gemm,
    .weights_changed = weights_changed,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .attention_cached = attention_cached,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward = rmsnorm_backward,
    .rope = rope,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .add = add,
    .add_bias = add_bias,
    .bias_gradient = bias_gradient,
    .dropout = dropout,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .xent_partial = xent_partial,
    .xent_finish = xent_finish,
    .adamw = adamw,
    .sum_squares = sum_squares,
    .recorded = record_calls,
    .recordings = record_told,
    .attention_ways = attention_ways,
};

static void *native_stream(struct kern_stream *s)
{
    return s->queue;
}

/* The one symbol of the library: see compress/cuda_backend.h. */
const struct cuda_backend *muster_cuda_backend(void);
__attribute__((visibility("default"))) const struct cuda_backend *muster_cuda_backend(void)
{
    static const struct cuda_backend backend = {
        .version = CUDA_BACKEND_VERSION,
        .codecs_bytes = sizeof(struct codec_cuda),
        .kernels_bytes = sizeof(struct kern_ops),
        .device_bytes = sizeof(struct device_ops),
        .codecs = &codec_cuda_ops,
        .kernels = &ops,
        .native_stream = native_stream,
    };

    return &backend;
}
