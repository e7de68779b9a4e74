#include "worker/engine/model/param.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "worker/engine/model/family.h"
#include "worker/engine/model/param_build.h"
#include "worker/engine/model/site.h"

enum { ID_EMBEDDING = 0, ENDS_MAX = 6 };

static size_t padded(size_t n)
{
    return (n + PARAM_BLOCK - 1) / PARAM_BLOCK * PARAM_BLOCK;
}

static struct param *add(struct param_builder *b, const char *name, int ndim, uint64_t rows, uint64_t cols)
{
    struct param *q = &b->p->v[b->p->n++];
    const char *prefix = b->c->family->layer, *number = strstr(prefix, "%d");

    *q = (struct param){.ndim = ndim, .shape = {rows, cols}, .id = b->id++};
    if (b->layer >= 0)
        (void)snprintf(q->name, sizeof(q->name), "%.*s%d%s%s", (int)(number - prefix), prefix, b->layer, number + 2,
                       name);
    else
        (void)snprintf(q->name, sizeof(q->name), "%s", name);
    q->decay = ndim > 1;
    return q;
}

static int place(struct param_builder *b, struct param *q)
{
    struct params *p = b->p;

    q->n = 0;
    for (int i = 0; i < q->boxes; i++) {
        q->box[i].at = q->n;
        q->n += (size_t)q->box[i].len[0] * (q->ndim > 1 ? (size_t)q->box[i].len[1] : 1);
    }
    q->at = p->rest_n;
    p->rest_n += padded(q->n);
    return (int)(q - p->v);
}

static void box(struct param *q, uint64_t row, uint64_t rows, uint64_t col, uint64_t cols)
{
    q->box[q->boxes++] = (struct param_box){.off = {row, col}, .len = {rows, cols}};
}

int param_whole(struct param_builder *b, const char *name, int ndim, uint64_t rows, uint64_t cols, float std,
                float constant)
{
    struct param *q = add(b, name, ndim, rows, cols);

    q->std = std;
    q->constant = constant;
    q->copy = b->c->tp_index > 0;
    box(q, 0, rows, 0, cols);
    return place(b, q);
}

/* This rank's part of n, cut over tp. */
static uint64_t part_of(const struct param_builder *b, struct param *q, uint64_t n, uint64_t *ret_from)
{
    int copies = b->copies > 1 ? b->copies : 1, parts = b->c->tp / copies;

    q->copy = b->c->tp_index % copies > 0;
    if (copies > 1)
        q->sum = PARAM_SUM_KV;
    *ret_from = n / parts * (b->c->tp_index / copies);
    return n / parts;
}

int param_columns(struct param_builder *b, const char *name, int ndim, uint64_t rows, int parts, uint64_t cols,
                  float std)
{
    struct param *q = add(b, name, ndim, ndim > 1 ? rows : (uint64_t)parts * cols, ndim > 1 ? parts * cols : 0);
    uint64_t from, mine = part_of(b, q, cols, &from);

    q->std = std;
    if (b->c->tp == 1) {
        box(q, 0, ndim > 1 ? rows : (uint64_t)parts * cols, 0, (uint64_t)parts * cols);
        return place(b, q);
    }
    for (int i = 0; i < parts; i++, from += cols) {
        if (ndim > 1)
            box(q, 0, rows, from, mine);
        else
            box(q, from, mine, 0, 0);
    }
    return place(b, q);
}

int param_rows_of(struct param_builder *b, const char *name, const uint64_t *rows, int n, uint64_t cols, float std)
{
    struct param *q = add(b, name, 2, 0, cols);

    assert(n <= PARAM_BOXES_MAX);
    q->std = std;
    for (int i = 0; i < n; i++) {
        uint64_t from, mine = part_of(b, q, rows[i], &from);

        if (b->c->tp > 1)
            box(q, q->shape[0] + from, mine, 0, cols);
        q->shape[0] += rows[i];
    }
    if (b->c->tp == 1)
        box(q, 0, q->shape[0], 0, cols);
    return place(b, q);
}

int param_rows(struct param_builder *b, const char *name, uint64_t rows, uint64_t cols, float std)
{
    return param_rows_of(b, name, &rows, 1, cols, std);
}

/* Rows of the padded vocabulary; the box leaves the padding out, which may be all of it. */
static int vocabulary(struct param_builder *b, int id, const char *name)
{
    const struct model_cfg *c = b->c;
    struct param *q;
    int first = c->vocab_first < c->vocab ? c->vocab_first : c->vocab;
    int end = c->vocab_first + c->vocab_local < c->vocab ? c->vocab_first + c->vocab_local : c->vocab;
    size_t n = (size_t)c->vocab_local * c->hidden;

    b->id = id;
    q = add(b, name, 2, c->vocab, c->hidden);
    q->std = PARAM_STD;
    if (end > first)
        box(q, first, end - first, 0, c->hidden);
    (void)place(b, q);
    b->p->rest_n += padded(n) - padded(q->n);
    q->n = n;
    return (int)(q - b->p->v);
}

/* The tied tensor, when held, comes after the rest in both arenas. */
static void tied_tensor(struct param_builder *b, bool first, bool last)
{
    struct params *p = b->p;
    int i = vocabulary(b, ID_EMBEDDING, b->c->family->embedding);

    p->tied_n = p->rest_n - p->v[i].at;
    p->rest_n = p->v[i].at;
    p->wte = first ? i : -1;
    p->head = last ? i : -1;
    p->v[i].copy = !first;
}

static struct norm_params last_norm(struct param_builder *b)
{
    const struct family *f = b->c->family;
    char name[PARAM_NAME_MAX];
    struct norm_params n = {.b = -1};

    (void)snprintf(name, sizeof(name), "%s.weight", f->norm);
    n.w = param_whole(b, name, 1, b->c->hidden, 0, 0, 1);
    (void)snprintf(name, sizeof(name), "%s.bias", f->norm);
    if (f->norm_bias)
        n.b = param_whole(b, name, 1, b->c->hidden, 0, 0, 0);
    return n;
}

/* Tensors from..n of the table change places so that the early ones come first; *ret_late is where the others begin. */
static void early_first(struct params *p, int from, size_t *ret_late)
{
    size_t at = p->v[from].at;

    for (int late = 0; late <= 1; late++) {
        if (late)
            *ret_late = at;
        for (int i = from; i < p->n; i++)
            if (p->v[i].early != late) {
                p->v[i].at = at;
                at += padded(p->v[i].n);
            }
    }
    assert(at == p->rest_n);
}

static void mark_norm(struct param_builder *b, const struct norm_params *n)
{
    const int v[] = {n->w, n->b};

    for (int i = 0; i < 2 && v[i] >= 0; i++) {
        b->p->v[v[i]].early = true;
        b->p->v[v[i]].sum = b->c->sequence_parallel ? PARAM_SUM_TP : PARAM_SUM_NONE;
    }
}

/* Each rank of tp has seen its own heads alone. */
static void mark_head_norms(struct param_builder *b, const struct layer_params *l)
{
    for (int i = 0; i < 2; i++) {
        int w = i == 0 ? l->q_norm : l->k_norm;

        if (w < 0)
            continue;
        b->p->v[w].early = true;
        b->p->v[w].sum = b->c->tp > 1 ? PARAM_SUM_TP : PARAM_SUM_NONE;
    }
}

static void add_chunks(struct param_builder *b, int ids, int per_layer)
{
    struct params *p = b->p;

    for (int i = 0; i < p->chunks; i++) {
        const struct layer_range *r = &p->chunk[i];
        int from = p->n;

        assert(r->begin >= (i ? p->chunk[i - 1].end : 0) && r->begin < r->end && r->end <= b->c->layers);
        p->chunk_at[i] = i ? p->rest_n : 0;
        b->id = ids + r->begin * per_layer;
        for (b->layer = r->begin; b->layer < r->end; b->layer++) {
            p->layer[b->layer] = (struct layer_params){.q_norm = -1, .k_norm = -1};
            b->c->family->tensors(b, &p->layer[b->layer]);
            mark_head_norms(b, &p->layer[b->layer]);
            mark_norm(b, &p->layer[b->layer].norm1);
            mark_norm(b, &p->layer[b->layer].norm2);
        }
        early_first(p, from, &p->blocks_at[i]);
        for (int l = r->begin; l < r->end; l++)
            p->layer[l].at = p->v[p->layer[l].qkv.w[0]].at; /* the first of the late ones in every family */
        assert(b->id == ids + r->end * per_layer);
    }
    p->chunk_at[p->chunks] = p->rest_n;
    b->layer = -1;
}

static int compare_places(const void *x, const void *y)
{
    const struct param *a = *(const struct param *const *)x, *b = *(const struct param *const *)y;

    return a->at != b->at ? (a->at < b->at ? -1 : 1) : (a > b) - (a < b);
}

static void sort_by_place(struct params *p)
{
    for (int i = 0; i < p->n; i++)
        p->by_place[i] = &p->v[i];
    qsort(p->by_place, p->n, sizeof(*p->by_place), compare_places);
    for (int i = 0; i < p->n; i++) {
        struct param *q = &p->v[p->by_place[i] - p->v];

        if (q->ndim > 1)
            continue;
        q->vector_at = p->vector_n;
        p->vector_n += padded(q->n);
    }
}

static int layers_of(const struct layer_range *chunk, int chunks)
{
    int n = 0;

    for (int i = 0; i < chunks; i++)
        n += chunk[i].end - chunk[i].begin;
    return n;
}

int params_init(struct params *p, const struct model_cfg *c, const struct layer_range *chunk, int chunks, bool first,
                bool last, struct merr *err)
{
    const struct family *f = c->family;
    struct param_builder b = {.p = p, .c = c, .layer = -1};
    /* numbers: the embedding, learned positions, the blocks, the last norm, an untied head */
    int per_layer = f->layer_tensors(c), ids = ID_EMBEDDING + 1 + !!f->positions, id_end = ids + c->layers * per_layer;
    int id_head = id_end + 1 + f->norm_bias;

    assert(chunks >= 1 && chunks <= PARAM_CHUNKS_MAX);
    *p = (struct params){
        .chunks = chunks, .wte = -1, .wpe = -1, .norm = {-1, -1}, .head = -1, .tensors = id_head + !c->tied};
    memcpy(p->chunk, chunk, chunks * sizeof(*chunk));
    p->v = calloc((size_t)layers_of(chunk, chunks) * per_layer + ENDS_MAX, sizeof(*p->v));
    p->by_place = calloc((size_t)layers_of(chunk, chunks) * per_layer + ENDS_MAX, sizeof(*p->by_place));
    p->layer = calloc(c->layers, sizeof(*p->layer));
    if (!p->v || !p->by_place || !p->layer) {
        params_clear(p);
        return merr_set(err, -ENOMEM, "no memory for the table of parameters");
    }
    b.id = ID_EMBEDDING + 1;
    if (first && f->positions)
        p->wpe = param_whole(&b, f->positions, 2, c->context, c->hidden, PARAM_STD, 0);
    if (first && !c->tied)
        p->wte = vocabulary(&b, ID_EMBEDDING, f->embedding);
    add_chunks(&b, ids, per_layer);
    b.id = id_end;
    if (last) {
        p->norm = last_norm(&b);
        mark_norm(&b, &p->norm);
    }
    if (last && !c->tied)
        p->head = vocabulary(&b, id_head, f->head);
    if (c->tied && (first || last))
        tied_tensor(&b, first, last);
    p->weight_n = p->rest_n + p->tied_n;
    p->grad_head_at = c->tied && first && last ? p->weight_n : 0;
    p->grad_n = p->weight_n + (p->grad_head_at ? p->tied_n : 0);
    sort_by_place(p);
    return 0;
}

void params_clear(struct params *p)
{
    free(p->v);
    free(p->by_place);
    free(p->layer);
    p->v = NULL;
    p->by_place = NULL;
    p->layer = NULL;
    p->n = 0;
}

int params_place(const struct model_cfg *c, int id, const struct plan_split *split, char *name)
{
    struct params p;
    struct layer_range r;
    int found = -1;

    (void)snprintf(name, PARAM_NAME_MAX, "tensor %d", id);
    for (int s = 0; found < 0 && s < split->stages; s++) {
        plan_split_layers(split, s, &r.begin, &r.end);
        if (params_init(&p, c, &r, 1, s == 0, s == split->stages - 1, NULL) != 0)
            return 0;
        for (int i = 0; i < p.n; i++)
            if (p.v[i].id == id) { /* the tied one: at the first stage */
                (void)snprintf(name, PARAM_NAME_MAX, "%s", p.v[i].name);
                found = s;
            }
        params_clear(&p);
    }
    return found < 0 ? 0 : found;
}

/* Elements [from, from + n) of the logical tensor in its row-major order: four of them to a counter. */
static void normal_row(const uint32_t key[2], uint64_t from, size_t n, float std, float *out)
{
    float eight[8];

    for (size_t i = 0, take; i < n; i += take) {
        size_t skip = (from + i) % 8;

        take = 8 - skip < n - i ? 8 - skip : n - i;
        philox_normal8(key, (from + i) / 8 * 2, eight);
        for (size_t k = 0; k < take; k++)
            out[i + k] = std * eight[skip + k];
    }
}

#define FILL_ROWS 64 /* go to one thread */
#define FILL_THREADS_MAX 64

struct filler { /* one thread's part of filling */
    const struct params *p;
    uint64_t seed;
    float *weights;
    size_t begin, end; /* of the arena */
    int index, threads;
    size_t turn; /* pieces of FILL_ROWS met so far, of all tensors */
};

static void fill_box(struct filler *f, const struct param *q, const struct param_box *x, const uint32_t key[2])
{
    uint64_t rows = q->ndim > 1 ? x->len[0] : 1, cols = q->ndim > 1 ? x->len[1] : x->len[0];
    uint64_t stride = q->ndim > 1 ? q->shape[1] : q->shape[0], col = q->ndim > 1 ? x->off[1] : x->off[0];

    for (uint64_t r = 0; r < rows; r++) {
        size_t at = q->at + x->at + r * cols, from = at > f->begin ? at : f->begin;
        size_t to = at + cols < f->end ? at + cols : f->end;

        f->turn += r % FILL_ROWS == 0;
        if (f->turn % (size_t)f->threads != (size_t)f->index || from >= to)
            continue;
        if (q->std > 0)
            normal_row(key, (q->ndim > 1 ? x->off[0] + r : 0) * stride + col + (from - at), to - from, q->std,
                       f->weights + (from - f->begin));
        else
            for (size_t i = from; i < to; i++)
                f->weights[i - f->begin] = q->constant;
    }
}

static void *fill_part(void *arg)
{
    struct filler *f = arg;

    for (int i = 0; i < f->p->n; i++) {
        const struct param *q = &f->p->v[i];
        uint64_t h = hash_xxh3(q->name, strlen(q->name));
        uint32_t key[2];

        philox_key(f->seed, SITE_INIT, (uint32_t)h, (uint32_t)(h >> 32), key);
        for (int j = 0; j < q->boxes; j++)
            fill_box(f, q, &q->box[j], key);
    }
    return NULL;
}

void params_fill_part(const struct params *p, uint64_t seed, int threads, size_t begin, size_t end, float *weights)
{
    struct filler part[FILL_THREADS_MAX];
    pthread_t thread[FILL_THREADS_MAX];
    bool started[FILL_THREADS_MAX] = {false};

    threads = threads < FILL_THREADS_MAX ? threads : FILL_THREADS_MAX;
    for (int i = 0; i < threads; i++) {
        part[i] = (struct filler){
            .p = p, .seed = seed, .weights = weights, .begin = begin, .end = end, .index = i, .threads = threads};
        started[i] = i > 0 && pthread_create(&thread[i], NULL, fill_part, &part[i]) == 0;
    }
    for (int i = 0; i < threads; i++)
        if (!started[i]) /* the first, and those there was no thread for */
            (void)fill_part(&part[i]);
    for (int i = 0; i < threads; i++)
        if (started[i])
            (void)pthread_join(thread[i], NULL);
}

void params_fill(const struct params *p, uint64_t seed, int threads, float *weights)
{
    params_fill_part(p, seed, threads, 0, p->weight_n, weights);
}

void params_cut(size_t n, int d, int i, size_t *ret_begin, size_t *ret_end)
{
    size_t blocks = n / PARAM_BLOCK;

    assert(n % PARAM_BLOCK == 0 && d >= 1 && i >= 0 && i < d);
    *ret_begin = blocks * i / d * PARAM_BLOCK;
    *ret_end = blocks * (i + 1) / d * PARAM_BLOCK;
}
