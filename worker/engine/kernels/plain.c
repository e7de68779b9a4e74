/* The plain table: plain_math over floats, behind the calls of struct kern_ops. Nothing is queued: a call has run
 * when it returns. */
#include "worker/engine/kernels/kernels.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "worker/engine/kernels/host.h"

typedef float real;
#include "worker/engine/kernels/plain_math.h"

struct kern_stream {
    struct kern_cfg cfg; /* kept for the looks of it in a debugger: one thread does all */
};

/* A typed matrix as floats: itself when it holds such, else a copy with the same stride. */
struct wide {
    float *f;       /* NULL: there is none, or no memory for it */
    uint16_t *bf16; /* what f is a copy of; NULL: f is the matrix itself */
    size_t rows, cols, ld;
};

static struct wide wide_open(enum kern_type type, const void *p, size_t rows, size_t cols, size_t ld)
{
    struct wide w = {.rows = rows, .cols = cols, .ld = ld};

    if (type == KERN_F32 || !p) {
        w.f = (float *)p;
        return w;
    }
    w.bf16 = (uint16_t *)p;
    w.f = malloc((rows * ld + 1) * sizeof(*w.f));
    for (size_t r = 0; w.f && r < rows; r++)
        for (size_t i = 0; i < cols; i++)
            w.f[r * ld + i] = bf16_to_float(w.bf16[r * ld + i]);
    return w;
}

/* Whether there was memory for all n. */
static bool wide_all(const struct wide *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w[i].bf16 && !w[i].f)
            return false;
    return true;
}

static void wide_round(const struct wide *w)
{
    for (size_t r = 0; w->bf16 && r < w->rows; r++)
        for (size_t i = 0; i < w->cols; i++)
            w->bf16[r * w->ld + i] = bf16_from_float(w->f[r * w->ld + i]);
}

/* Let go of n matrices, the first of which are outputs. Returns 0, or -ENOMEM when they were not all there. */
static int wide_close(struct wide *w, int n, int outputs, struct merr *err)
{
    bool all = wide_all(w, n);

    for (int i = 0; i < n; i++) {
        if (all && i < outputs)
            wide_round(&w[i]);
        if (w[i].bf16)
            free(w[i].f);
    }
    return all ? 0 : merr_set(err, -ENOMEM, "no memory to compute on bf16 in f32");
}

static int plain_stream_new(const struct kern_cfg *cfg, struct kern_stream **ret, struct merr *err)
{
    struct kern_stream *s = calloc(1, sizeof(*s));

    assert(cfg->threads >= 1);
    if (!s)
        return merr_set(err, -ENOMEM, "no memory for a kernel stream");
    s->cfg = *cfg;
    *ret = s;
    return 0;
}

static void plain_stream_free(struct kern_stream *s)
{
    int saved = errno;

    free(s);
    errno = saved;
}

static int plain_stream_sync(struct kern_stream *s, struct merr *err)
{
    (void)s;
    (void)err;
    return 0;
}

static int plain_mem_alloc(struct kern_stream *s, size_t bytes, void **ret, struct merr *err)
{
    (void)s;
    return host_alloc(bytes, ret, err);
}

static void plain_mem_free(struct kern_stream *s, void *p)
{
    (void)s;
    host_free(p);
}

static int plain_copy_rows(struct kern_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                           size_t bytes, int rows, struct merr *err)
{
    (void)s;
    (void)err;
    for (size_t r = 0; r < (size_t)rows; r++)
        memcpy((char *)dst + r * dst_stride, (const char *)src + r * src_stride, bytes);
    return 0;
}

static int plain_copy(struct kern_stream *s, void *dst, const void *src, size_t bytes, struct merr *err)
{
    (void)s;
    (void)err;
    memmove(dst, src, bytes);
    return 0;
}

static int plain_fill(struct kern_stream *s, float *dst, float value, size_t n, struct merr *err)
{
    (void)s;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dst[i] = value;
    return 0;
}

static int plain_to_bf16(struct kern_stream *s, const float *x, size_t n, void *y, struct merr *err)
{
    uint16_t *to = y;

    (void)s;
    (void)err;
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_from_float(x[i]);
    return 0;
}

/* The activation of what backward will see: of the rounded numbers. */
static void gelu_of_rounded(const struct wide *c, const struct wide *aux)
{
    for (size_t r = 0; r < c->rows; r++)
        for (size_t i = 0; i < c->cols; i++) {
            size_t at = r * c->ld + i;

            aux->f[at] = bf16_to_float(bf16_from_float(aux->f[at]));
            c->f[at] = (float)pm_gelu((double)aux->f[at]);
        }
}

static int plain_gemm(struct kern_stream *s, const struct kern_gemm *g, struct merr *err)
{
    size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k, lda = (size_t)g->lda, ldb = (size_t)g->ldb;
    bool gelu = g->epilogue == KERN_BIAS_GELU;
    struct wide w[] = {
        wide_open(g->c_type, g->c, m, n, (size_t)g->ldc),
        wide_open(g->c_type, gelu ? g->aux : NULL, m, n, (size_t)g->ldc),
        wide_open(g->type, g->a, g->trans_a ? k : m, g->trans_a ? m : k, lda),
        wide_open(g->type, g->b, g->trans_b ? n : k, g->trans_b ? k : n, ldb),
    };
    const struct pm_gemm p = {
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .a = w[2].f,
        .lda = lda,
        .b = w[3].f,
        .ldb = ldb,
        .c = w[0].f,
        .ldc = (size_t)g->ldc,
        .accumulate = g->accumulate,
        .bias = g->epilogue != KERN_PLAIN ? g->bias : NULL,
        .aux = w[1].f,
    };

    (void)s;
    assert(!g->accumulate || (g->epilogue == KERN_PLAIN && g->c_type == KERN_F32));
    assert(!g->onto || (g->onto != g->c && !g->accumulate && !gelu && g->c_type == KERN_F32));
    if (wide_all(w, 4)) {
        pm_gemm(&p);
        if (gelu && g->c_type == KERN_BF16)
            gelu_of_rounded(&w[0], &w[1]);
        for (size_t r = 0; g->onto && r < m; r++)
            for (size_t i = 0; i < n; i++)
                w[0].f[r * w[0].ld + i] += g->onto[r * (size_t)g->ldc + i];
    }
    return wide_close(w, 4, 2, err);
}

static void plain_weights_changed(struct kern_stream *s, const void *p, size_t bytes)
{
    (void)s;
    (void)p;
    (void)bytes;
}

/* w: out, dqkv, qkv, dout */
static struct pm_attention attention_of(const struct kern_attention *a, const struct wide w[5])
{
    return (struct pm_attention){
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .dim = a->dim,
        .ld = a->ld,
        .cu = a->cu,
        .docs = a->docs,
        .scale = (double)a->scale,
        .qkv = w[2].f,
        .out = w[0].f,
        .lse = a->lse,
        .dropout = (double)a->dropout,
        .drop_threshold = a->drop_threshold,
        .drop_keys = a->drop_keys,
        .samples = a->samples,
        .dout = w[3].f,
        .dqkv = w[1].f,
        .kv = w[4].f,
        .past = a->past,
        .kv_at = a->kv_at,
        .kv_first = a->kv_first,
        .kv_len = a->kv_len,
        .dkv = a->dkv,
        .window = a->window,
    };
}

static int attend(const struct kern_attention *a, bool backward, struct merr *err)
{
    size_t rows = (size_t)a->tokens, ld = (size_t)a->ld, width = (size_t)a->heads * (size_t)a->dim;
    size_t columns = (size_t)(a->heads + 2 * a->kv_heads) * (size_t)a->dim, apart = columns - width;
    size_t own = a->kv ? width : columns;
    struct wide w[] = {
        wide_open(a->type, a->out, rows, width, width),
        wide_open(a->type, backward ? a->dqkv : NULL, rows, own, ld),
        wide_open(a->type, a->qkv, rows, own, ld),
        wide_open(a->type, backward ? a->dout : NULL, rows, width, width),
        wide_open(a->type, a->kv, (size_t)a->kv_rows, apart, apart),
    };
    const struct pm_attention p = attention_of(a, w);

    if (wide_all(w, 5) && backward)
        pm_attention_backward(&p);
    else if (wide_all(w, 5))
        pm_attention_forward(&p);
    return wide_close(w, 5, 2, err);
}

static int plain_attention_forward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    (void)s;
    return attend(a, false, err);
}

static int plain_attention_backward(struct kern_stream *s, const struct kern_attention *a, struct merr *err)
{
    (void)s;
    return attend(a, true, err);
}

static int plain_attention_cached(struct kern_stream *s, const struct kern_cached *a, struct merr *err)
{
    size_t dim = (size_t)a->dim, width = (size_t)a->kv_heads * dim;
    int group = a->heads / a->kv_heads;

    (void)s;
    (void)err;
    for (int r = 0; r < a->rows; r++) {
        const float *row = a->qkv + (size_t)r * (size_t)a->ld;
        size_t at = (size_t)(a->past + r) * width;

        memcpy(a->keys + at, row + (size_t)a->heads * dim, width * sizeof(float));
        memcpy(a->values + at, row + (size_t)a->heads * dim + width, width * sizeof(float));
        for (int h = 0; h < a->heads; h++) {
            int n = a->past + r + 1, first = a->window > 0 && n > a->window ? n - a->window : 0;
            size_t kv = (size_t)(h / group) * dim + (size_t)first * width;

            pm_attend(row + (size_t)h * dim, a->keys + kv, a->values + kv, width, n - first, a->dim, (double)a->scale,
                      a->out + ((size_t)r * (size_t)a->heads + (size_t)h) * dim);
        }
    }
    return 0;
}

static int plain_attention_merge(struct kern_stream *s, enum kern_type type, float *out, float *lse, const void *part,
                                 const float *part_lse, int rows, int heads, int dim, struct merr *err)
{
    size_t width = (size_t)heads * (size_t)dim;
    struct wide w = wide_open(type, part, (size_t)rows, width, width);

    (void)s;
    if (wide_all(&w, 1))
        pm_attention_merge(out, lse, w.f, part_lse, rows * heads, dim);
    return wide_close(&w, 1, 0, err);
}

static int plain_head_norm_forward(struct kern_stream *s, enum kern_type type, void *x, const float *gamma, float eps,
                                   int rows, int heads, int dim, int ld, void *raw, struct merr *err)
{
    size_t width = (size_t)heads * (size_t)dim;
    struct wide w[] = {wide_open(type, x, (size_t)rows, width, (size_t)ld),
                       wide_open(type, raw, (size_t)rows, width, width)};

    (void)s;
    if (wide_all(w, 2))
        pm_head_norm_forward(w[0].f, gamma, (double)eps, rows, heads, dim, ld, w[1].f);
    return wide_close(w, 2, 2, err);
}

static int plain_head_norm_backward(struct kern_stream *s, enum kern_type type, void *dx, const void *raw,
                                    const float *gamma, float eps, int rows, int heads, int dim, int ld, float *dgamma,
                                    struct merr *err)
{
    size_t width = (size_t)heads * (size_t)dim;
    struct wide w[] = {wide_open(type, dx, (size_t)rows, width, (size_t)ld),
                       wide_open(type, raw, (size_t)rows, width, width)};

    (void)s;
    if (wide_all(w, 2))
        pm_head_norm_backward(w[0].f, w[1].f, gamma, (double)eps, rows, heads, dim, ld, dgamma);
    return wide_close(w, 2, 1, err);
}

static int plain_layernorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma,
                                   const float *beta, float eps, int rows, int cols, void *y, float *mean, float *rstd,
                                   struct merr *err)
{
    struct wide w = wide_open(type, y, (size_t)rows, (size_t)cols, (size_t)cols);

    (void)s;
    if (wide_all(&w, 1))
        pm_layernorm_forward(x, gamma, beta, (double)eps, rows, cols, w.f, mean, rstd);
    return wide_close(&w, 1, 1, err);
}

static int plain_layernorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                                    const float *mean, const float *rstd, int rows, int cols, float *dx, bool add,
                                    float *dgamma, float *dbeta, struct merr *err)
{
    (void)s;
    (void)err;
    pm_layernorm_backward(dy, x, gamma, mean, rstd, rows, cols, dx, add, dgamma, dbeta);
    return 0;
}

static int plain_rmsnorm_forward(struct kern_stream *s, enum kern_type type, const float *x, const float *gamma,
                                 float eps, int rows, int cols, void *y, float *rstd, struct merr *err)
{
    struct wide w = wide_open(type, y, (size_t)rows, (size_t)cols, (size_t)cols);

    (void)s;
    if (wide_all(&w, 1))
        pm_rmsnorm_forward(x, gamma, (double)eps, rows, cols, w.f, rstd);
    return wide_close(&w, 1, 1, err);
}

static int plain_rmsnorm_backward(struct kern_stream *s, const float *dy, const float *x, const float *gamma,
                                  const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma,
                                  struct merr *err)
{
    (void)s;
    (void)err;
    pm_rmsnorm_backward(dy, x, gamma, rstd, rows, cols, dx, add, dgamma);
    return 0;
}

static int plain_rope(struct kern_stream *s, enum kern_type type, void *x, int rows, int heads, int dim, int ld,
                      const int32_t *position, const float *freq, bool inverse, struct merr *err)
{
    struct wide w = wide_open(type, x, (size_t)rows, (size_t)heads * (size_t)dim, (size_t)ld);

    (void)s;
    if (wide_all(&w, 1))
        pm_rope(w.f, rows, heads, dim, ld, position, freq, inverse);
    return wide_close(&w, 1, 1, err);
}

static int plain_gelu_forward(struct kern_stream *s, enum kern_type type, const void *x, size_t n, void *y,
                              struct merr *err)
{
    struct wide w[] = {wide_open(type, y, 1, n, n), wide_open(type, x, 1, n, n)};

    (void)s;
    for (size_t i = 0; wide_all(w, 2) && i < n; i++)
        w[0].f[i] = (float)pm_gelu((double)w[1].f[i]);
    return wide_close(w, 2, 1, err);
}

static int plain_gelu_backward(struct kern_stream *s, enum kern_type type, const void *x, const void *dy, size_t n,
                               void *dx, struct merr *err)
{
    struct wide w[] = {wide_open(type, dx, 1, n, n), wide_open(type, x, 1, n, n), wide_open(type, dy, 1, n, n)};

    (void)s;
    for (size_t i = 0; wide_all(w, 3) && i < n; i++)
        w[0].f[i] = (float)((double)w[2].f[i] * pm_gelu_slope((double)w[1].f[i]));
    return wide_close(w, 3, 1, err);
}

static int plain_swiglu_forward(struct kern_stream *s, enum kern_type type, const void *gate_up, int rows, int cols,
                                void *y, struct merr *err)
{
    size_t n = (size_t)rows * (size_t)cols;
    struct wide w[] = {wide_open(type, y, 1, n, n), wide_open(type, gate_up, 1, 2 * n, 2 * n)};

    (void)s;
    if (wide_all(w, 2))
        pm_swiglu_forward(w[1].f, rows, cols, w[0].f);
    return wide_close(w, 2, 1, err);
}

static int plain_swiglu_backward(struct kern_stream *s, enum kern_type type, const void *gate_up, const void *dy,
                                 int rows, int cols, void *dgate_up, struct merr *err)
{
    size_t n = (size_t)rows * (size_t)cols;
    struct wide w[] = {wide_open(type, dgate_up, 1, 2 * n, 2 * n), wide_open(type, gate_up, 1, 2 * n, 2 * n),
                       wide_open(type, dy, 1, n, n)};

    (void)s;
    if (wide_all(w, 3))
        pm_swiglu_backward(w[1].f, w[2].f, rows, cols, w[0].f);
    return wide_close(w, 3, 1, err);
}

static int plain_add(struct kern_stream *s, float *y, const float *x, size_t n, struct merr *err)
{
    (void)s;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
    return 0;
}

static int plain_add_bias(struct kern_stream *s, float *y, const float *bias, int rows, int cols, struct merr *err)
{
    (void)s;
    (void)err;
    for (int r = 0; r < rows; r++, y += cols)
        for (int i = 0; i < cols; i++)
            y[i] += bias[i];
    return 0;
}

static int plain_bias_gradient(struct kern_stream *s, enum kern_type type, const void *dy, int rows, int cols, int ld,
                               float *db, struct merr *err)
{
    struct wide w = wide_open(type, dy, (size_t)rows, (size_t)cols, (size_t)ld);

    (void)s;
    if (wide_all(&w, 1))
        pm_bias_gradient(w.f, rows, cols, ld, db);
    return wide_close(&w, 1, 0, err);
}

static int plain_dropout(struct kern_stream *s, const struct kern_dropout *d, const float *x, float *y,
                         struct merr *err)
{
    float scale = 1 / (1 - d->p);

    (void)s;
    (void)err;
    for (int r = 0; r < d->rows; r++) {
        for (int i = 0; i < d->cols; i++) {
            size_t at = (size_t)r * (size_t)d->ld + (size_t)i;
            uint32_t column = (uint32_t)(d->col0 + i), word[4];
            const uint32_t ctr[4] = {column / 4, (uint32_t)d->position[r], (uint32_t)d->sample[r],
                                     (uint32_t)(d->sample[r] >> 32)};

            philox4x32(ctr, d->key, word);
            y[at] = word[column % 4] < d->threshold ? 0 : x[at] * scale;
        }
    }
    return 0;
}

static void look_up_bf16(const uint16_t *table, int first, int rows, int cols, const int32_t *token, int tokens,
                         float *y)
{
    for (int t = 0; t < tokens; t++, y += cols) {
        int64_t row = (int64_t)token[t] - first;

        for (int i = 0; i < cols; i++)
            y[i] = row >= 0 && row < rows ? bf16_to_float(table[(size_t)row * (size_t)cols + (size_t)i]) : 0;
    }
}

static int plain_embedding_forward(struct kern_stream *s, enum kern_type type, const void *table, int first, int rows,
                                   int cols, const int32_t *token, int tokens, float *y, struct merr *err)
{
    (void)s;
    (void)err;
    if (type == KERN_F32)
        pm_embedding_forward(table, first, rows, cols, token, tokens, y);
    else
        look_up_bf16(table, first, rows, cols, token, tokens, y);
    return 0;
}

static int plain_embedding_backward(struct kern_stream *s, const float *dy, int first, int rows, int cols,
                                    const int32_t *token, int tokens, float *dtable, struct merr *err)
{
    (void)s;
    (void)err;
    pm_embedding_backward(dy, first, rows, cols, token, tokens, dtable);
    return 0;
}

static int plain_xent_partial(struct kern_stream *s, const float *logits, int tokens, int cols, int first, int vocab,
                              const int32_t *target, float *stats, struct merr *err)
{
    (void)s;
    (void)err;
    pm_xent_partial(logits, tokens, cols, first, vocab, target, stats);
    return 0;
}

static int plain_xent_finish(struct kern_stream *s, const float *logits, const float *stats, int n, int tokens,
                             int cols, int first, int vocab, const int32_t *target, float weight, float *loss,
                             enum kern_type type, void *dz, struct merr *err)
{
    struct wide w = wide_open(type, dz, (size_t)tokens, (size_t)cols, (size_t)cols);

    (void)s;
    if (wide_all(&w, 1))
        pm_xent_finish(logits, stats, n, tokens, cols, first, vocab, target, (double)weight, loss, w.f);
    return wide_close(&w, 1, 1, err);
}

static int plain_adamw(struct kern_stream *s, const struct kern_adamw *a, struct merr *err)
{
    const struct kern_adamw_step *now = a->step;

    (void)s;
    (void)err;
    for (size_t i = 0; i < a->n; i++) {
        float g = a->g[i] * now->grad_scale;
        float m = a->beta1 * a->m[i] + (1 - a->beta1) * g;
        float v = a->beta2 * a->v[i] + (1 - a->beta2) * (g * g);

        a->m[i] = m;
        a->v[i] = v;
        a->w[i] = a->w[i] - now->lr * a->weight_decay * a->w[i] -
                  now->lr * (m * now->inv_bias1) / (sqrtf(v * now->inv_bias2) + a->eps);
    }
    return 0;
}

static int plain_sum_squares(struct kern_stream *s, const float *x, size_t n, size_t block, double *ret,
                             struct merr *err)
{
    (void)s;
    (void)err;
    assert(block > 0);
    for (size_t at = 0; at < n; at += block) {
        double sum = 0;

        for (size_t i = at; i < n && i < at + block; i++)
            sum += (double)x[i] * (double)x[i];
        *ret++ = sum;
    }
    return 0;
}

const struct kern_ops *kern_plain(void)
{
    static const struct kern_ops ops = {
        .name = "plain",
        .parts = true,
        .stream_new = plain_stream_new,
        .stream_free = plain_stream_free,
        .stream_sync = plain_stream_sync,
        .mem_alloc = plain_mem_alloc,
        .mem_free = plain_mem_free,
        .copy = plain_copy,
        .copy_rows = plain_copy_rows,
        .fill = plain_fill,
        .to_bf16 = plain_to_bf16,
        .gemm = plain_gemm,
        .weights_changed = plain_weights_changed,
        .attention_forward = plain_attention_forward,
        .attention_backward = plain_attention_backward,
        .attention_cached = plain_attention_cached,
        .attention_merge = plain_attention_merge,
        .head_norm_forward = plain_head_norm_forward,
        .head_norm_backward = plain_head_norm_backward,
        .layernorm_forward = plain_layernorm_forward,
        .layernorm_backward = plain_layernorm_backward,
        .rmsnorm_forward = plain_rmsnorm_forward,
        .rmsnorm_backward = plain_rmsnorm_backward,
        .rope = plain_rope,
        .gelu_forward = plain_gelu_forward,
        .gelu_backward = plain_gelu_backward,
        .swiglu_forward = plain_swiglu_forward,
        .swiglu_backward = plain_swiglu_backward,
        .add = plain_add,
        .add_bias = plain_add_bias,
        .bias_gradient = plain_bias_gradient,
        .dropout = plain_dropout,
        .embedding_forward = plain_embedding_forward,
        .embedding_backward = plain_embedding_backward,
        .xent_partial = plain_xent_partial,
        .xent_finish = plain_xent_finish,
        .adamw = plain_adamw,
        .sum_squares = plain_sum_squares,
    };

    return &ops;
}
