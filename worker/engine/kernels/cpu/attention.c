/* Attention in blocks of 96 queries and 256 keys: memory grows with the length, not with its square
 *
 * Keys and values are packed a block at a time and meet all queries of the item then. Forward: one item is 256 queries
 * of one head, with the running maximum and sum of FlashAttention (Dao et al. 2022) over the blocks of keys. Backward:
 * one item is one key-value head of one document and owns its whole dk and dv, so nothing is added by two threads and
 * the order of each sum is fixed. */
#include "worker/engine/kernels/cpu/block.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PACK_QUERIES 16 /* fewer do not pay for packing the keys they see */

struct item {
    int doc, head; /* backward: key-value head */
    int query;     /* forward: first query, from the document's start */
    int length;    /* of the document */
};

struct attention_job {
    struct kern_stream *stream;
    const struct kern_attention *a;
    const struct item *item;
    atomic_int code;
};

/* The keys and values of one head of a document that are here, and their gradients. */
struct keys {
    const float *k, *v;
    float *dk, *dv;
    int ld, n;       /* n: of them, after the document's last row here some that nobody sees */
    int past, first; /* of the document: rows before its first here, keys before these */
};

static int min_int(int x, int y)
{
    return x < y ? x : y;
}

/* Most work first; the order of equals is fixed by their numbers. */
static int by_work(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    int wa = a->length + a->query, wb = b->length + b->query;

    if (wa != wb)
        return wa > wb ? -1 : 1;
    if (a->doc != b->doc)
        return a->doc < b->doc ? -1 : 1;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return (a->query > b->query) - (a->query < b->query);
}

/* Of a document, about how many keys its rows see together. */
static double pairs_of(const struct kern_attention *a, int doc)
{
    double length = a->cu[doc + 1] - a->cu[doc], each = 0.5 * length + (a->kv ? a->past[doc] : 0);

    if (a->window > 0 && a->window < each)
        each = a->window;
    if (a->kv && a->kv_len && a->kv_len[doc] < each)
        each = a->kv_len[doc];
    return each * length;
}

/* Items of all documents, `heads` and steps of `step` queries (0: the document whole; where there are pieces, which may
 * add to the same keys, all of them in one item, which names the first). */
static int list_items(struct kern_stream *s, const struct kern_attention *a, int heads, int step, struct item **ret,
                      int *ret_n, double *ret_pairs, struct merr *err)
{
    size_t n = 0;
    void *work;
    struct item *item;
    int rc, docs = a->kv && step == 0 ? min_int(a->docs, 1) : a->docs;

    *ret_pairs = 0;
    for (int d = 0; d < a->docs; d++) {
        int length = a->cu[d + 1] - a->cu[d];

        *ret_pairs += pairs_of(a, d) * heads;
        n += (size_t)heads * (size_t)(step > 0 ? (length + step - 1) / step : length > 0);
    }
    rc = cpu_work(s, n * sizeof(*item), &work, err);
    if (rc < 0)
        return rc;
    item = work;
    n = 0;
    for (int d = 0; d < docs; d++) {
        int length = a->cu[d + 1] - a->cu[d];

        for (int h = 0; h < heads; h++)
            for (int q = 0; q<length; q += step> 0 ? step : length)
                item[n++] = (struct item){.doc = d, .head = h, .query = q, .length = step > 0 ? 0 : length};
    }
    qsort(item, n, sizeof(*item), by_work);
    *ret = item;
    *ret_n = (int)n;
    return 0;
}

static struct cpu_drop drop_of(const struct kern_attention *a, int doc, int head)
{
    return (struct cpu_drop){
        .key = {a->drop_keys[2 * head], a->drop_keys[2 * head + 1]},
        .threshold = a->drop_threshold,
        .scale = 1.0f / (1.0f - a->dropout),
        .sample = a->samples[doc],
    };
}

/* Addresses in qkv of a row of the batch: a head's queries, keys, values. */
static size_t q_at(const struct kern_attention *a, int row, int head)
{
    return (size_t)row * (size_t)a->ld + (size_t)head * (size_t)a->dim;
}

static size_t k_at(const struct kern_attention *a, int row, int kv)
{
    return q_at(a, row, a->heads + kv);
}

static size_t v_at(const struct kern_attention *a, int row, int kv)
{
    return q_at(a, row, a->heads + a->kv_heads + kv);
}

static struct keys keys_of(const struct kern_attention *a, int doc, int kv)
{
    const float *from = a->qkv;
    float *to = a->dqkv;
    size_t k, v;

    if (!a->kv) {
        k = k_at(a, a->cu[doc], kv);
        v = v_at(a, a->cu[doc], kv);
    } else {
        k = ((size_t)a->kv_at[doc] * 2 * (size_t)a->kv_heads + (size_t)kv) * (size_t)a->dim;
        v = k + (size_t)a->kv_heads * (size_t)a->dim;
        from = a->kv;
        to = a->dkv;
    }
    return (struct keys){
        .k = from + k,
        .v = from + v,
        .dk = to ? to + k : NULL,
        .dv = to ? to + v : NULL,
        .ld = a->kv ? 2 * a->kv_heads * a->dim : a->ld,
        .n = a->kv && a->kv_len ? a->kv_len[doc] : (a->kv ? a->past[doc] : 0) + a->cu[doc + 1] - a->cu[doc],
        .past = a->kv ? a->past[doc] : 0,
        .first = a->kv && a->kv_len ? a->kv_first[doc] : 0,
    };
}

static size_t out_at(const struct kern_attention *a, int row, int head)
{
    return ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)a->dim;
}

/* Up to CPU_SPAN queries of one head against the keys before and of themselves. */
struct span {
    const float *q, *k, *v; /* first query; the head's first key and value */
    int ldq, ldk;
    float *out;
    int ldo;
    int rows, query; /* query: keys before the first row's own, below 0 where that comes before all keys */
    int keys;        /* of them all */
    int window;      /* 0: none */
    int first;       /* place of the first key in its document */
    int dim;
    float scale;
};

/* Keys of a window that lie before all that row sees, of those from key on. */
static int skipped(int window, int row, int key)
{
    return window > 0 ? row - window + 1 - key : LOOPS_NO_SKIP;
}

/* The first block of keys that row sees any of, by its first key. */
static int first_block(int window, int row)
{
    int skip = skipped(window, row, 0);

    return skip > 0 ? skip / CPU_KEYS * CPU_KEYS : 0;
}

/* `rows` queries, the first of which comes after `before` of the block's n keys: none looks past its own, and with a
 * window none further back. */
static struct block_shape shape_of(int rows, int n, int dim, int before, int window)
{
    return (struct block_shape){.rows = rows,
                                .keys = min_int(n, before + rows),
                                .dim = dim,
                                .valid = before + 1,
                                .skip = skipped(window, before, 0)};
}

/* What CPU_QUERIES queries, from row r on, take from a block of keys that begins at key k. */
static int attend_block(const struct kern_stream *s, struct cpu_scratch *w, const struct span *x, int r, int k,
                        const struct block_right right[2], struct cpu_drop *drop)
{
    const struct block_shape shape =
        shape_of(min_int(CPU_QUERIES, x->rows - r), right[0].n, x->dim, x->query + r - k, x->window);
    bool more = k > first_block(x->window, x->query + r);
    float *out = x->out + (size_t)r * (size_t)x->ldo;
    int rc = block_scores(&shape, x->q + (size_t)r * (size_t)x->ldq, x->ldq, &right[0], w->scores, CPU_SCORES_LD);

    if (rc < 0)
        return rc;
    if (drop) {
        drop->query = x->first + x->query + r;
        drop->column = x->first + k;
    }
    s->loops->scores_forward(w->scores, CPU_SCORES_LD, shape.rows, shape.keys, shape.valid, shape.skip, x->scale,
                             w->max + r, w->sum + r, w->alpha, drop);
    for (int i = 0; i < shape.rows && more; i++)
        s->loops->scale_row(out + (size_t)i * (size_t)x->ldo, x->dim, w->alpha[i]);
    return block_values(&shape, w->scores, CPU_SCORES_LD, &right[1], more, out, x->ldo);
}

/* Whether queries [r, r + CPU_QUERIES) see some of the keys from k on. */
static bool sees_block(const struct span *x, int r, int k)
{
    return k < x->query + min_int(r + CPU_QUERIES, x->rows) && k >= first_block(x->window, x->query + r);
}

/* Whether they see some block, of n keys. */
static bool sees_some(const struct span *x, int r, int n)
{
    int k = first_block(x->window, x->query + r);

    return k < n && sees_block(x, r, k);
}

/* out = softmax(scale · q·k') · v; the rows' maxima and sums are left in w. */
static int attend(const struct kern_stream *s, struct cpu_scratch *w, const struct span *x, struct cpu_drop *drop)
{
    int keys = min_int(x->keys, x->query + x->rows), rc = 0;
    bool pack = x->rows >= PACK_QUERIES;

    for (int r = 0; r < x->rows; r++) {
        w->max[r] = -INFINITY;
        w->sum[r] = 0;
    }
    for (int r = 0; r < x->rows; r++) /* of those that see nothing, nothing comes */
        if (!sees_some(x, r / CPU_QUERIES * CPU_QUERIES, keys))
            memset(x->out + (size_t)r * (size_t)x->ldo, 0, (size_t)x->dim * sizeof(float));
    for (int k = first_block(x->window, x->query); k < keys; k += CPU_KEYS) {
        size_t at = (size_t)k * (size_t)x->ldk;
        int n = min_int(CPU_KEYS, keys - k);
        const struct block_right right[2] = {
            block_right(s, true, x->k + at, x->ldk, n, x->dim, pack ? w->keys[0] : NULL),
            block_right(s, false, x->v + at, x->ldk, n, x->dim, pack ? w->keys[1] : NULL),
        };

        for (int r = 0; r < x->rows && rc == 0; r += CPU_QUERIES)
            if (sees_block(x, r, k))
                rc = attend_block(s, w, x, r, k, right, drop);
    }
    for (int r = 0; r < x->rows; r++)
        s->loops->scale_row(x->out + (size_t)r * (size_t)x->ldo, x->dim, w->sum[r] > 0 ? 1.0f / w->sum[r] : 0);
    return rc;
}

static void forward_item(void *arg, int number, int worker)
{
    struct attention_job *job = arg;
    const struct kern_attention *a = job->a;
    struct cpu_scratch *w = &job->stream->scratch[worker];
    const float *qkv = a->qkv;
    struct item it = job->item[number];
    int row = a->cu[it.doc] + it.query, rc;
    struct keys keys = keys_of(a, it.doc, it.head / (a->heads / a->kv_heads));
    struct span x = {
        .q = qkv + q_at(a, row, it.head),
        .k = keys.k,
        .v = keys.v,
        .ldq = a->ld,
        .ldk = keys.ld,
        .out = (float *)a->out + out_at(a, row, it.head),
        .ldo = a->heads * a->dim,
        .rows = min_int(CPU_SPAN, a->cu[it.doc + 1] - row),
        .query = keys.past - keys.first + it.query,
        .keys = keys.n,
        .window = a->window,
        .first = keys.first,
        .dim = a->dim,
        .scale = a->scale,
    };
    struct cpu_drop drop = {.scale = 0};

    if (a->dropout > 0)
        drop = drop_of(a, it.doc, it.head);
    rc = attend(job->stream, w, &x, a->dropout > 0 ? &drop : NULL);
    for (int r = 0; r < x.rows; r++)
        a->lse[(size_t)(row + r) * (size_t)a->heads + (size_t)it.head] = w->max[r] + logf(w->sum[r]);
    if (rc < 0)
        atomic_store(&job->code, rc);
}

int cpu_attention_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    struct attention_job job = {.stream = s, .a = a};
    struct item *item;
    double pairs;
    int n, rc = list_items(s, a, a->heads, CPU_SPAN, &item, &n, &pairs, err);

    if (rc < 0)
        return rc;
    job.item = item;
    cpu_run(s, n, pairs * a->dim * 4e-5, forward_item, &job);
    rc = atomic_load(&job.code);
    return rc < 0 ? merr_set(err, rc, "oneDNN failed in attention over %d tokens", a->tokens) : 0;
}

/* A block of keys and values of one head. */
struct key_block {
    struct keys at;
    int key;                      /* the first */
    struct block_right turned[2]; /* keys, values */
    struct block_right k;
};

/* What one block of queries against one block of keys adds to dq (more: after another), dk, dv. */
static int backward_block(const struct attention_job *job, struct cpu_scratch *w, const struct key_block *b,
                          const struct block_shape *shape, int row, int head, bool more, const struct cpu_drop *drop)
{
    const struct kern_attention *a = job->a;
    const struct kern_stream *s = job->stream;
    int ldo = a->heads * a->dim, rc;
    size_t col = (size_t)b->key * (size_t)b->at.ld;
    const float *dout = (const float *)a->dout + out_at(a, row, head);
    const float *q = (const float *)a->qkv + q_at(a, row, head);
    float *dq = (float *)a->dqkv + q_at(a, row, head);
    struct block_right queries = block_right(s, false, q, a->ld, shape->rows, a->dim, w->queries[0]);
    struct block_right gradients = block_right(s, false, dout, ldo, shape->rows, a->dim, w->queries[1]);

    rc = block_scores(shape, q, a->ld, &b->turned[0], w->scores, CPU_SCORES_LD);
    if (rc == 0)
        rc = block_scores(shape, dout, ldo, &b->turned[1], w->gradient, CPU_SCORES_LD);
    if (rc < 0)
        return rc;
    s->loops->scores_backward(w->scores, w->gradient, CPU_SCORES_LD, shape->rows, shape->keys, shape->valid,
                              shape->skip, a->scale, w->max, w->sum, drop);
    rc = block_values(shape, w->gradient, CPU_SCORES_LD, &b->k, more, dq, a->ld);
    if (rc == 0)
        rc = block_sums(shape, w->gradient, CPU_SCORES_LD, &queries, b->at.dk + col, b->at.ld);
    if (rc == 0)
        rc = block_sums(shape, w->scores, CPU_SCORES_LD, &gradients, b->at.dv + col, b->at.ld);
    return rc;
}

static int backward_queries(const struct attention_job *job, struct cpu_scratch *w, const struct key_block *b,
                            const struct item *it, int head, int query)
{
    const struct kern_attention *a = job->a;
    int row = a->cu[it->doc] + query, before = b->at.past - b->at.first + query;
    const struct block_shape shape =
        shape_of(min_int(CPU_QUERIES, it->length - query), b->k.n, a->dim, before - b->key, a->window);
    struct cpu_drop drop = {.scale = 0};

    if (shape.keys <= 0 || b->key < first_block(a->window, before)) /* all of them come later, or too early */
        return 0;
    if (a->dropout > 0)
        drop = drop_of(a, it->doc, head);
    drop.query = b->at.past + query;
    drop.column = b->at.first + b->key;
    for (int r = 0; r < shape.rows; r++) { /* here max holds the log-sum-exp of the rows, sum their dout · out */
        size_t at = out_at(a, row + r, head);

        w->max[r] = a->lse[(size_t)(row + r) * (size_t)a->heads + (size_t)head];
        w->sum[r] = job->stream->loops->dot((const float *)a->dout + at, (const float *)a->out + at, a->dim);
    }
    return backward_block(job, w, b, &shape, row, head, b->key > first_block(a->window, before),
                          a->dropout > 0 ? &drop : NULL);
}

static int backward_doc(const struct attention_job *job, struct cpu_scratch *w, const struct item *it)
{
    const struct kern_attention *a = job->a;
    const struct kern_stream *s = job->stream;
    int group = a->heads / a->kv_heads, begin = a->cu[it->doc], rc = 0;
    struct key_block b = {.at = keys_of(a, it->doc, it->head)};
    int keys = min_int(b.at.n, b.at.past - b.at.first + it->length);
    float *dqkv = a->dqkv;

    for (int r = begin; r < begin + it->length && a->kv && a->kv_len; r++) /* some may see nothing here */
        memset(dqkv + q_at(a, r, it->head * group), 0, (size_t)(group * a->dim) * sizeof(float));

    for (int r = begin; r < begin + it->length && !a->kv; r++) {
        memset(dqkv + k_at(a, r, it->head), 0, (size_t)a->dim * sizeof(float));
        memset(dqkv + v_at(a, r, it->head), 0, (size_t)a->dim * sizeof(float));
    }
    for (b.key = 0; b.key < keys; b.key += CPU_KEYS) {
        const float *k = b.at.k + (size_t)b.key * (size_t)b.at.ld, *v = b.at.v + (size_t)b.key * (size_t)b.at.ld;
        int n = min_int(CPU_KEYS, keys - b.key);

        b.turned[0] = block_right(s, true, k, b.at.ld, n, a->dim, w->keys[0]);
        b.turned[1] = block_right(s, true, v, b.at.ld, n, a->dim, w->keys[1]);
        b.k = block_right(s, false, k, b.at.ld, n, a->dim, w->keys[2]);
        for (int h = it->head * group; h < (it->head + 1) * group; h++)
            for (int q = 0; q < it->length && rc == 0; q += CPU_QUERIES)
                rc = backward_queries(job, w, &b, it, h, q);
    }
    return rc;
}

static void backward_item(void *arg, int number, int worker)
{
    struct attention_job *job = arg;
    const struct kern_attention *a = job->a;
    struct item it = job->item[number];
    int rc = 0;

    do {
        it.length = a->cu[it.doc + 1] - a->cu[it.doc];
        rc = backward_doc(job, &job->stream->scratch[worker], &it);
    } while (rc == 0 && a->kv && ++it.doc < a->docs);
    if (rc < 0)
        atomic_store(&job->code, rc);
}

int cpu_attention_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    struct attention_job job = {.stream = s, .a = a};
    struct item *item;
    double pairs;
    int n, rc = list_items(s, a, a->kv_heads, 0, &item, &n, &pairs, err);

    if (rc < 0)
        return rc;
    job.item = item;
    cpu_run(s, n, pairs * (a->heads / a->kv_heads) * a->dim * 1e-4, backward_item, &job);
    rc = atomic_load(&job.code);
    return rc < 0 ? merr_set(err, rc, "oneDNN failed in attention over %d tokens", a->tokens) : 0;
}

/* --- with kept keys and values ---------------------------------------------------------------------------- */

struct cached_job {
    struct kern_stream *stream;
    const struct kern_cached *a;
    atomic_int code;
};

static void cached_item(void *arg, int number, int worker)
{
    struct cached_job *job = arg;
    const struct kern_cached *a = job->a;
    int head = number % a->heads, row = number / a->heads * CPU_SPAN, width = a->kv_heads * a->dim, rc;
    size_t kv = (size_t)(head / (a->heads / a->kv_heads)) * (size_t)a->dim, at = (size_t)head * (size_t)a->dim;
    struct span x = {
        .q = a->qkv + (size_t)row * (size_t)a->ld + at,
        .k = a->keys + kv,
        .v = a->values + kv,
        .ldq = a->ld,
        .ldk = width,
        .out = a->out + (size_t)row * (size_t)(a->heads * a->dim) + at,
        .ldo = a->heads * a->dim,
        .rows = min_int(CPU_SPAN, a->rows - row),
        .query = a->past + row,
        .keys = a->past + a->rows,
        .window = a->window,
        .dim = a->dim,
        .scale = a->scale,
    };

    rc = attend(job->stream, &job->stream->scratch[worker], &x, NULL);
    if (rc < 0)
        atomic_store(&job->code, rc);
}

int cpu_attention_cached(struct kern_stream *s, const struct kern_cached *a, struct merr *err)
{
    size_t dim = (size_t)a->dim, width = (size_t)a->kv_heads * dim;
    struct cached_job job = {.stream = s, .a = a};
    int blocks = (a->rows + CPU_SPAN - 1) / CPU_SPAN, rc;

    for (int r = 0; r < a->rows; r++) {
        const float *row = a->qkv + (size_t)r * (size_t)a->ld + (size_t)a->heads * dim;
        size_t at = (size_t)(a->past + r) * width;

        memcpy(a->keys + at, row, width * sizeof(float));
        memcpy(a->values + at, row + width, width * sizeof(float));
    }
    cpu_run(s, blocks * a->heads, (double)a->rows * (a->past + a->rows) * a->heads * a->dim * 4e-5, cached_item, &job);
    rc = atomic_load(&job.code);
    return rc < 0 ? merr_set(err, rc, "oneDNN failed in attention over %d tokens", a->past + a->rows) : 0;
}
