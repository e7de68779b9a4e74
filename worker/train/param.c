#include "worker/train/param.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "worker/train/mesh.h"
#include "worker/train/site.h"

#define INIT_STD 0.02

struct builder {
    struct params *p;
    const struct gpt_cfg *c;
    int layer; /* -1: not in a block */
};

/* Numbers of tensors: embeddings, then 12 a layer, then the final norm, then an untied head. */
enum { ID_WTE, ID_WPE, ID_LAYERS, LAYER_TENSORS = 12 };

static struct param *add(struct builder *b, int id, const char *name, int ndim, uint64_t rows, uint64_t cols)
{
    struct param *q = &b->p->v[b->p->n++];

    *q = (struct param){.ndim = ndim, .shape = {rows, cols}, .id = id};
    if (b->layer >= 0)
        (void)snprintf(q->name, sizeof(q->name), "h.%d.%s", b->layer, name);
    else
        (void)snprintf(q->name, sizeof(q->name), "%s", name);
    q->decay = ndim > 1;
    return q;
}

static int place(struct builder *b, struct param *q)
{
    struct params *p = b->p;

    q->n = 0;
    for (int i = 0; i < q->boxes; i++) {
        q->box[i].at = q->n;
        q->n += (size_t)q->box[i].len[0] * (q->ndim > 1 ? (size_t)q->box[i].len[1] : 1);
    }
    q->at = p->rest_n;
    p->rest_n += (q->n + PARAM_BLOCK - 1) / PARAM_BLOCK * PARAM_BLOCK;
    return (int)(q - p->v);
}

static void box(struct param *q, uint64_t row, uint64_t rows, uint64_t col, uint64_t cols)
{
    q->box[q->boxes++] = (struct param_box){.off = {row, col}, .len = {rows, cols}};
}

/* A tensor that every tp rank holds whole. */
static int whole(struct builder *b, int id, const char *name, int ndim, uint64_t rows, uint64_t cols, float std,
                 float constant)
{
    struct param *q = add(b, id, name, ndim, rows, cols);

    q->std = std;
    q->constant = constant;
    box(q, 0, rows, 0, cols);
    return place(b, q);
}

/* parts tensors side by side along the last dimension, each cut over tp: q, k and v, or one. */
static int by_columns(struct builder *b, int id, const char *name, int ndim, uint64_t rows, int parts, uint64_t cols,
                      float std)
{
    int tp = b->c->tp;
    struct param *q = add(b, id, name, ndim, ndim > 1 ? rows : (uint64_t)parts * cols, ndim > 1 ? parts * cols : 0);
    uint64_t mine = cols / tp;

    q->std = std;
    q->sharded = true;
    if (tp == 1) {
        box(q, 0, ndim > 1 ? rows : (uint64_t)parts * cols, 0, (uint64_t)parts * cols);
        return place(b, q);
    }
    for (int i = 0; i < parts; i++) {
        uint64_t from = (uint64_t)i * cols + mine * b->c->tp_index;

        if (ndim > 1)
            box(q, 0, rows, from, mine);
        else
            box(q, from, mine, 0, 0);
    }
    return place(b, q);
}

static int by_rows(struct builder *b, int id, const char *name, uint64_t rows, uint64_t cols, float std)
{
    struct param *q = add(b, id, name, 2, rows, cols);
    uint64_t mine = rows / b->c->tp;

    q->std = std;
    q->sharded = true;
    box(q, mine * b->c->tp_index, mine, 0, cols);
    return place(b, q);
}

/* Rows of the padded vocabulary; the box leaves the padding out, which may be all of it. */
static int vocabulary(struct builder *b, int id, const char *name)
{
    const struct gpt_cfg *c = b->c;
    struct param *q = add(b, id, name, 2, c->vocab, c->hidden);
    int first = c->vocab_first < c->vocab ? c->vocab_first : c->vocab;
    int end = c->vocab_first + c->vocab_local < c->vocab ? c->vocab_first + c->vocab_local : c->vocab;
    size_t n = (size_t)c->vocab_local * c->hidden;

    q->std = INIT_STD;
    q->sharded = true;
    if (end > first)
        box(q, first, end - first, 0, c->hidden);
    (void)place(b, q);
    b->p->rest_n += (n + PARAM_BLOCK - 1) / PARAM_BLOCK * PARAM_BLOCK -
                    (q->n + PARAM_BLOCK - 1) / PARAM_BLOCK * PARAM_BLOCK;
    q->n = n;
    return (int)(q - b->p->v);
}

static void block(struct builder *b, struct layer_params *l)
{
    const struct gpt_cfg *c = b->c;
    int id = ID_LAYERS + b->layer * LAYER_TENSORS;
    float residual = (float)(INIT_STD / sqrt(2.0 * c->layers));

    l->ln1_w = whole(b, id, "ln_1.weight", 1, c->hidden, 0, 0, 1);
    l->ln1_b = whole(b, id + 1, "ln_1.bias", 1, c->hidden, 0, 0, 0);
    l->qkv_w = by_columns(b, id + 2, "attn.c_attn.weight", 2, c->hidden, 3, c->hidden, INIT_STD);
    l->qkv_b = by_columns(b, id + 3, "attn.c_attn.bias", 1, 0, 3, c->hidden, 0);
    l->proj_w = by_rows(b, id + 4, "attn.c_proj.weight", c->hidden, c->hidden, residual);
    l->proj_b = whole(b, id + 5, "attn.c_proj.bias", 1, c->hidden, 0, 0, 0);
    l->ln2_w = whole(b, id + 6, "ln_2.weight", 1, c->hidden, 0, 0, 1);
    l->ln2_b = whole(b, id + 7, "ln_2.bias", 1, c->hidden, 0, 0, 0);
    l->fc_w = by_columns(b, id + 8, "mlp.c_fc.weight", 2, c->hidden, 1, c->ffn, INIT_STD);
    l->fc_b = by_columns(b, id + 9, "mlp.c_fc.bias", 1, 0, 1, c->ffn, 0);
    l->out_w = by_rows(b, id + 10, "mlp.c_proj.weight", c->ffn, c->hidden, residual);
    l->out_b = whole(b, id + 11, "mlp.c_proj.bias", 1, c->hidden, 0, 0, 0);
}

/* The tied tensor, when held, comes after the rest in both arenas. */
static void tied_tensor(struct builder *b, bool first, bool last)
{
    struct params *p = b->p;
    int i = vocabulary(b, ID_WTE, "wte.weight");

    p->tied_n = p->rest_n - p->v[i].at;
    p->rest_n = p->v[i].at;
    p->wte = first ? i : -1;
    p->head = last ? i : -1;
    p->v[i].copy = !first;
}

int params_init(struct params *p, const struct gpt_cfg *c, int begin, int end, bool first, bool last,
                struct merr *err)
{
    struct builder b = {p, c, -1};
    int id_end = ID_LAYERS + c->layers * LAYER_TENSORS;

    *p = (struct params){.layer_begin = begin, .layer_end = end, .wte = -1, .wpe = -1, .lnf_w = -1, .lnf_b = -1,
                         .head = -1, .tensors = id_end + 2 + !c->tied};
    assert(begin >= 0 && begin < end && end <= c->layers);
    p->v = calloc((size_t)(end - begin) * LAYER_TENSORS + 6, sizeof(*p->v));
    p->layer = calloc(end - begin, sizeof(*p->layer));
    if (!p->v || !p->layer) {
        params_clear(p);
        return merr_set(err, -ENOMEM, "no memory for the table of parameters");
    }
    if (first)
        p->wpe = whole(&b, ID_WPE, "wpe.weight", 2, c->context, c->hidden, INIT_STD, 0);
    if (first && !c->tied)
        p->wte = vocabulary(&b, ID_WTE, "wte.weight");
    for (b.layer = begin; b.layer < end; b.layer++)
        block(&b, &p->layer[b.layer - begin]);
    b.layer = -1;
    if (last) {
        p->lnf_w = whole(&b, id_end, "ln_f.weight", 1, c->hidden, 0, 0, 1);
        p->lnf_b = whole(&b, id_end + 1, "ln_f.bias", 1, c->hidden, 0, 0, 0);
    }
    if (last && !c->tied)
        p->head = vocabulary(&b, id_end + 2, "lm_head.weight");
    if (c->tied && (first || last))
        tied_tensor(&b, first, last);
    p->weight_n = p->rest_n + p->tied_n;
    p->grad_head_at = c->tied && first && last ? p->weight_n : 0;
    p->grad_n = p->weight_n + (p->grad_head_at ? p->tied_n : 0);
    return 0;
}

void params_clear(struct params *p)
{
    free(p->v);
    free(p->layer);
    p->v = NULL;
    p->layer = NULL;
    p->n = 0;
}

int params_place(const struct gpt_cfg *c, int id, int pp, char *name)
{
    struct params p;
    int begin, end, found = -1;

    (void)snprintf(name, PARAM_NAME_MAX, "tensor %d", id);
    for (int s = 0; found < 0 && s < pp; s++) {
        mesh_split_layers(c->layers, pp, gpt_head_cost(c), s, &begin, &end);
        if (params_init(&p, c, begin, end, s == 0, s == pp - 1, NULL) != 0)
            return 0;
        for (int i = 0; i < p.n; i++)
            if (p.v[i].id == id && !p.v[i].copy) {
                (void)snprintf(name, PARAM_NAME_MAX, "%s", p.v[i].name);
                found = s;
            }
        params_clear(&p);
    }
    return found < 0 ? 0 : found;
}

/* Elements [from, from + n) of the logical tensor in its row-major order. */
static void normal_row(const uint32_t key[2], uint64_t from, size_t n, float std, float *out)
{
    uint64_t have = UINT64_MAX;
    float four[4];

    for (size_t i = 0; i < n; i++) {
        uint64_t group = (from + i) / 4;

        if (group != have) {
            uint32_t ctr[4] = {(uint32_t)group, (uint32_t)(group >> 32), 0, 0}, w[4];

            philox4x32(ctr, key, w);
            philox_normal2(w[0], w[1], four);
            philox_normal2(w[2], w[3], four + 2);
            have = group;
        }
        out[i] = std * four[(from + i) % 4];
    }
}

static void fill_box(const struct param *q, const struct param_box *x, const uint32_t key[2], float *out)
{
    uint64_t rows = q->ndim > 1 ? x->len[0] : 1, cols = q->ndim > 1 ? x->len[1] : x->len[0];
    uint64_t stride = q->ndim > 1 ? q->shape[1] : q->shape[0], col = q->ndim > 1 ? x->off[1] : x->off[0];

    for (uint64_t r = 0; r < rows; r++) {
        float *row = out + r * cols;

        if (q->std > 0)
            normal_row(key, (q->ndim > 1 ? x->off[0] + r : 0) * stride + col, cols, q->std, row);
        else
            for (uint64_t i = 0; i < cols; i++)
                row[i] = q->constant;
    }
}

void params_fill(const struct params *p, uint64_t seed, float *weights)
{
    for (int i = 0; i < p->n; i++) {
        const struct param *q = &p->v[i];
        uint64_t h = hash_xxh3(q->name, strlen(q->name));
        uint32_t key[2];

        philox_key(seed, SITE_INIT, (uint32_t)h, (uint32_t)(h >> 32), key);
        for (int j = 0; j < q->boxes; j++)
            fill_box(q, &q->box[j], key, weights + q->at + q->box[j].at);
    }
}

void params_cut(size_t n, int d, int i, size_t *ret_begin, size_t *ret_end)
{
    size_t blocks = n / PARAM_BLOCK;

    assert(n % PARAM_BLOCK == 0 && d >= 1 && i >= 0 && i < d);
    *ret_begin = blocks * i / d * PARAM_BLOCK;
    *ret_end = blocks * (i + 1) / d * PARAM_BLOCK;
}
