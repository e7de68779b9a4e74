/* plain_math - every kernel as the plainest loop that computes it, for one element type
 *
 * Include it after `typedef float real;` (the plain table) or `typedef double real;` (gradient checks by central
 * differences in a test). Sums run in double, in the order they are written. The functions check nothing.
 */
#ifndef MUSTER_WORKER_KERNELS_PLAIN_MATH_H
#define MUSTER_WORKER_KERNELS_PLAIN_MATH_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"

#define GELU_K 0.7978845608028653559 /* sqrt(2/pi) */
#define GELU_A 0.044715

static inline double pm_gelu(double x)
{
    return 0.5 * x * (1 + tanh(GELU_K * (x + GELU_A * x * x * x)));
}

static inline double pm_gelu_slope(double x)
{
    double h = tanh(GELU_K * (x + GELU_A * x * x * x));

    return 0.5 * (1 + h) + 0.5 * x * (1 - h * h) * GELU_K * (1 + 3 * GELU_A * x * x);
}

struct pm_gemm {
    bool trans_a, trans_b;
    int m, n, k;
    const real *a;
    size_t lda;
    const real *b;
    size_t ldb;
    real *c;
    size_t ldc;
    bool accumulate;
    const real *bias; /* NULL: none */
    real *aux;        /* NULL: no gelu; else C before it */
};

static inline void pm_gemm(const struct pm_gemm *g)
{
    size_t step_a = g->trans_a ? g->lda : 1, step_b = g->trans_b ? 1 : g->ldb;

    for (int i = 0; i < g->m; i++) {
        for (int j = 0; j < g->n; j++) {
            const real *a = g->trans_a ? g->a + i : g->a + (size_t)i * g->lda;
            const real *b = g->trans_b ? g->b + (size_t)j * g->ldb : g->b + j;
            real *c = g->c + (size_t)i * g->ldc + j;
            double sum = 0;

            for (int p = 0; p < g->k; p++)
                sum += (double)a[(size_t)p * step_a] * (double)b[(size_t)p * step_b];
            if (g->bias)
                sum += (double)g->bias[j];
            if (g->aux) {
                g->aux[(size_t)i * g->ldc + j] = (real)sum;
                sum = pm_gelu((double)(real)sum);
            }
            *c = (real)(g->accumulate ? (double)*c + sum : sum);
        }
    }
}

/* --- attention ------------------------------------------------------------------------------------------ */

struct pm_attention {
    int heads, kv_heads, dim, ld;
    const int32_t *cu;
    int docs;
    double scale;
    const real *qkv;
    real *out, *lse;
    double dropout;
    uint32_t drop_threshold;
    const uint32_t *drop_keys;
    const uint64_t *samples;
    const real *dout;
    real *dqkv;
    const real *kv; /* NULL: keys and values of qkv */
    const int32_t *past, *kv_at, *kv_first, *kv_len;
    real *dkv;
    int window;
};

static inline const real *pm_row(const struct pm_attention *a, int row, int column)
{
    return a->qkv + (size_t)row * (size_t)a->ld + (size_t)column * (size_t)a->dim;
}

/* Keys of a document before its first row here. */
static inline int pm_past(const struct pm_attention *a, int doc)
{
    return a->kv ? a->past[doc] : 0;
}

/* The keys [*from, *to) of those here that row `at` of a document sees, as rows of it. */
static inline void pm_seen(const struct pm_attention *a, int doc, int at, int *from, int *to)
{
    int first = a->kv && a->kv_len ? a->kv_first[doc] : 0;

    *from = a->window > 0 && at - a->window + 1 > first ? at - a->window + 1 : first;
    *to = at + 1;
    if (a->kv && a->kv_len && first + a->kv_len[doc] < *to)
        *to = first + a->kv_len[doc];
}

/* Where key j of a document is for head kv (its value: kv_heads further): in kv and dkv, or in qkv and dqkv. */
static inline size_t pm_key(const struct pm_attention *a, int doc, int j, int kv)
{
    if (a->kv)
        return ((size_t)(a->kv_at[doc] + j - (a->kv_len ? a->kv_first[doc] : 0)) * 2 * (size_t)a->kv_heads +
                (size_t)kv) *
               (size_t)a->dim;
    return (size_t)(a->cu[doc] + j) * (size_t)a->ld + (size_t)(a->heads + kv) * (size_t)a->dim;
}

static inline double pm_dot(const real *x, const real *y, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* What the dropout of probabilities multiplies the one of (head, query, key) by; positions in the document. */
static inline double pm_keep(const struct pm_attention *a, int doc, int head, int query, int key)
{
    uint32_t ctr[4] = {(uint32_t)key / 4, (uint32_t)query, 0, 0}, word[4];

    if (a->dropout <= 0)
        return 1;
    ctr[2] = (uint32_t)a->samples[doc];
    ctr[3] = (uint32_t)(a->samples[doc] >> 32);
    philox4x32(ctr, a->drop_keys + 2 * head, word);
    return word[key % 4] < a->drop_threshold ? 0 : 1 / (1 - a->dropout);
}

static inline void pm_attention_forward(const struct pm_attention *a)
{
    int group = a->heads / a->kv_heads;
    const real *from = a->kv ? a->kv : a->qkv;

    for (int d = 0; d < a->docs; d++) {
        for (int r = a->cu[d]; r < a->cu[d + 1]; r++) {
            for (int h = 0; h < a->heads; h++) {
                const real *q = pm_row(a, r, h);
                real *out = a->out + ((size_t)r * (size_t)a->heads + (size_t)h) * (size_t)a->dim;
                int at = pm_past(a, d) + r - a->cu[d], kv = h / group;
                double max = -HUGE_VAL, sum = 0;
                int begin, end;

                pm_seen(a, d, at, &begin, &end);
                for (int j = begin; j < end; j++)
                    max = fmax(max, a->scale * pm_dot(q, from + pm_key(a, d, j, kv), a->dim));
                for (int j = begin; j < end; j++)
                    sum += exp(a->scale * pm_dot(q, from + pm_key(a, d, j, kv), a->dim) - max);
                /* cppcheck-suppress invalidFunctionArg ; 0 where it sees no keys: -inf is meant */
                a->lse[(size_t)r * (size_t)a->heads + (size_t)h] = (real)(max + log(sum));
                for (int i = 0; i < a->dim; i++)
                    out[i] = 0;
                for (int j = begin; j < end; j++) {
                    const real *v = from + pm_key(a, d, j, a->kv_heads + kv);
                    double p = exp(a->scale * pm_dot(q, from + pm_key(a, d, j, kv), a->dim) - max) / sum;

                    p *= pm_keep(a, d, h, at, j);
                    for (int i = 0; i < a->dim; i++)
                        out[i] = (real)((double)out[i] + p * (double)v[i]);
                }
            }
        }
    }
}

/* One query row of one head: what it adds to dq of its own row and to dk, dv of the rows before it. */
static inline void pm_attention_backward_row(const struct pm_attention *a, int d, int r, int h)
{
    int kv = h / (a->heads / a->kv_heads), query = pm_past(a, d) + r - a->cu[d];
    size_t ld = (size_t)a->ld, dim = (size_t)a->dim, at = ((size_t)r * (size_t)a->heads + (size_t)h) * dim;
    const real *from = a->kv ? a->kv : a->qkv;
    real *to = a->kv ? a->dkv : a->dqkv;
    const real *q = pm_row(a, r, h), *dout = a->dout + at;
    real *dq = a->dqkv + (size_t)r * ld + (size_t)h * dim;
    double lse = (double)a->lse[(size_t)r * (size_t)a->heads + (size_t)h];
    double row = pm_dot(dout, a->out + at, a->dim);
    int begin, end;

    pm_seen(a, d, query, &begin, &end);
    for (int j = begin; j < end; j++) {
        const real *k = from + pm_key(a, d, j, kv), *v = from + pm_key(a, d, j, a->kv_heads + kv);
        real *dk = to + pm_key(a, d, j, kv), *dv = to + pm_key(a, d, j, a->kv_heads + kv);
        double p = exp(a->scale * pm_dot(q, k, a->dim) - lse);
        double keep = pm_keep(a, d, h, query, j);
        double ds = p * (keep * pm_dot(dout, v, a->dim) - row) * a->scale;

        for (size_t i = 0; i < dim; i++) {
            dq[i] = (real)((double)dq[i] + ds * (double)k[i]);
            dk[i] = (real)((double)dk[i] + ds * (double)q[i]);
            dv[i] = (real)((double)dv[i] + keep * p * (double)dout[i]);
        }
    }
}

static inline void pm_attention_backward(const struct pm_attention *a)
{
    int columns = (a->heads + (a->kv ? 0 : 2 * a->kv_heads)) * a->dim;

    for (int r = 0; r < a->cu[a->docs]; r++)
        for (int i = 0; i < columns; i++)
            a->dqkv[(size_t)r * (size_t)a->ld + (size_t)i] = 0;
    for (int d = 0; d < a->docs; d++)
        for (int r = a->cu[d]; r < a->cu[d + 1]; r++)
            for (int h = 0; h < a->heads; h++)
                pm_attention_backward_row(a, d, r, h);
}

/* One query against n keys of its head, row stride ld. */
static inline void pm_attend(const real *q, const real *keys, const real *values, size_t ld, int n, int dim,
                             double scale, real *out)
{
    double max = -HUGE_VAL, sum = 0;

    for (int j = 0; j < n; j++)
        max = fmax(max, scale * pm_dot(q, keys + (size_t)j * ld, dim));
    for (int i = 0; i < dim; i++)
        out[i] = 0;
    for (int j = 0; j < n; j++) {
        double p = exp(scale * pm_dot(q, keys + (size_t)j * ld, dim) - max);

        sum += p;
        for (int i = 0; i < dim; i++)
            out[i] = (real)((double)out[i] + p * (double)values[(size_t)j * ld + (size_t)i]);
    }
    for (int i = 0; i < dim; i++)
        out[i] = (real)((double)out[i] / sum);
}

/* out[n, dim] and lse[n], of some keys, become those of these and of part's. */
static inline void pm_attention_merge(real *out, real *lse, const real *part, const real *part_lse, int n, int dim)
{
    for (int r = 0; r < n; r++, out += dim, part += dim) {
        double a = (double)lse[r], b = (double)part_lse[r], top = fmax(a, b), wa, wb;

        if (!isfinite(top)) /* neither saw a key */
            continue;
        wa = exp(a - top);
        wb = exp(b - top);
        lse[r] = (real)(top + log(wa + wb));
        for (int i = 0; i < dim; i++)
            out[i] = (real)((wa * (double)out[i] + wb * (double)part[i]) / (wa + wb));
    }
}

/* --- norms ---------------------------------------------------------------------------------------------- */

static inline void pm_layernorm_forward(const real *x, const real *gamma, const real *beta, double eps, int rows,
                                        int cols, real *y, real *mean, real *rstd)
{
    for (int r = 0; r < rows; r++, x += cols, y += cols) {
        double m = 0, var = 0, s;

        for (int i = 0; i < cols; i++)
            m += (double)x[i];
        m /= cols;
        for (int i = 0; i < cols; i++)
            var += ((double)x[i] - m) * ((double)x[i] - m);
        s = 1 / sqrt(var / cols + eps);
        for (int i = 0; i < cols; i++)
            y[i] = (real)(((double)x[i] - m) * s * (double)gamma[i] + (double)beta[i]);
        mean[r] = (real)m;
        rstd[r] = (real)s;
    }
}

static inline void pm_layernorm_backward(const real *dy, const real *x, const real *gamma, const real *mean,
                                         const real *rstd, int rows, int cols, real *dx, bool add, real *dgamma,
                                         real *dbeta)
{
    for (int r = 0; r < rows; r++, dy += cols, x += cols, dx += cols) {
        double m = (double)mean[r], s = (double)rstd[r], sum_g = 0, sum_gn = 0;

        for (int i = 0; i < cols; i++) {
            double n = ((double)x[i] - m) * s, g = (double)dy[i] * (double)gamma[i];

            sum_g += g;
            sum_gn += g * n;
            dgamma[i] = (real)((double)dgamma[i] + (double)dy[i] * n);
            dbeta[i] += dy[i];
        }
        sum_g /= cols;
        sum_gn /= cols;
        for (int i = 0; i < cols; i++) {
            double n = ((double)x[i] - m) * s, g = (double)dy[i] * (double)gamma[i];
            double d = s * (g - sum_g - n * sum_gn);

            dx[i] = (real)(add ? (double)dx[i] + d : d);
        }
    }
}

static inline void pm_rmsnorm_forward(const real *x, const real *gamma, double eps, int rows, int cols, real *y,
                                      real *rstd)
{
    for (int r = 0; r < rows; r++, x += cols, y += cols) {
        double s = 1 / sqrt(pm_dot(x, x, cols) / cols + eps);

        for (int i = 0; i < cols; i++)
            y[i] = (real)((double)x[i] * s * (double)gamma[i]);
        rstd[r] = (real)s;
    }
}

static inline void pm_rmsnorm_backward(const real *dy, const real *x, const real *gamma, const real *rstd, int rows,
                                       int cols, real *dx, bool add, real *dgamma)
{
    for (int r = 0; r < rows; r++, dy += cols, x += cols, dx += cols) {
        double s = (double)rstd[r], sum = 0;

        for (int i = 0; i < cols; i++) {
            double n = (double)x[i] * s;

            sum += (double)dy[i] * (double)gamma[i] * n;
            dgamma[i] = (real)((double)dgamma[i] + (double)dy[i] * n);
        }
        sum /= cols;
        for (int i = 0; i < cols; i++) {
            double d = s * ((double)dy[i] * (double)gamma[i] - (double)x[i] * s * sum);

            dx[i] = (real)(add ? (double)dx[i] + d : d);
        }
    }
}

/* Each head's dim columns of x, in place; raw[rows, heads·dim]: what they were. */
static inline void pm_head_norm_forward(real *x, const real *gamma, double eps, int rows, int heads, int dim, int ld,
                                        real *raw)
{
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++, raw += dim) {
            real *p = x + (size_t)r * (size_t)ld + (size_t)h * (size_t)dim, rstd;

            for (int i = 0; i < dim; i++)
                raw[i] = p[i];
            pm_rmsnorm_forward(raw, gamma, eps, 1, dim, p, &rstd);
        }
}

static inline void pm_head_norm_backward(real *dx, const real *raw, const real *gamma, double eps, int rows, int heads,
                                         int dim, int ld, real *dgamma)
{
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++, raw += dim) {
            real *p = dx + (size_t)r * (size_t)ld + (size_t)h * (size_t)dim;
            real rstd = (real)(1 / sqrt(pm_dot(raw, raw, dim) / dim + eps));

            pm_rmsnorm_backward(p, raw, gamma, &rstd, 1, dim, p, false, dgamma);
        }
}

static inline void pm_rope(real *x, int rows, int heads, int dim, int ld, const int32_t *position, const float *freq,
                           bool inverse)
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < dim / 2; i++) {
            double angle = (double)position[r] * (double)freq[i];
            double c = cos(angle), s = inverse ? -sin(angle) : sin(angle);

            for (int h = 0; h < heads; h++) {
                real *p = x + (size_t)r * (size_t)ld + (size_t)h * (size_t)dim;
                double lo = (double)p[i], hi = (double)p[i + dim / 2];

                p[i] = (real)(lo * c - hi * s);
                p[i + dim / 2] = (real)(hi * c + lo * s);
            }
        }
    }
}

/* --- activations, sums, dropout ------------------------------------------------------------------------- */

static inline void pm_swiglu_forward(const real *gate_up, int rows, int cols, real *y)
{
    for (int r = 0; r < rows; r++, gate_up += 2 * (size_t)cols, y += cols)
        for (int i = 0; i < cols; i++) {
            double gate = (double)gate_up[i];

            y[i] = (real)(gate / (1 + exp(-gate)) * (double)gate_up[cols + i]);
        }
}

static inline void pm_swiglu_backward(const real *gate_up, const real *dy, int rows, int cols, real *dgate_up)
{
    for (int r = 0; r < rows; r++, gate_up += 2 * (size_t)cols, dgate_up += 2 * (size_t)cols, dy += cols)
        for (int i = 0; i < cols; i++) {
            double gate = (double)gate_up[i], up = (double)gate_up[cols + i], s = 1 / (1 + exp(-gate));
            double d = (double)dy[i];

            dgate_up[i] = (real)(d * up * s * (1 + gate * (1 - s)));
            dgate_up[cols + i] = (real)(d * gate * s);
        }
}

static inline void pm_bias_gradient(const real *dy, int rows, int cols, int ld, real *db)
{
    for (int i = 0; i < cols; i++) {
        double sum = 0;

        for (int r = 0; r < rows; r++)
            sum += (double)dy[(size_t)r * (size_t)ld + (size_t)i];
        db[i] = (real)((double)db[i] + sum);
    }
}

/* --- embedding and loss --------------------------------------------------------------------------------- */

static inline void pm_embedding_forward(const real *table, int first, int rows, int cols, const int32_t *token,
                                        int tokens, real *y)
{
    for (int t = 0; t < tokens; t++, y += cols) {
        int64_t row = (int64_t)token[t] - first;

        for (int i = 0; i < cols; i++)
            y[i] = row >= 0 && row < rows ? table[(size_t)row * (size_t)cols + (size_t)i] : 0;
    }
}

static inline void pm_embedding_backward(const real *dy, int first, int rows, int cols, const int32_t *token,
                                         int tokens, real *dtable)
{
    for (int t = 0; t < tokens; t++, dy += cols) {
        int64_t row = (int64_t)token[t] - first;

        if (row >= 0 && row < rows)
            for (int i = 0; i < cols; i++)
                dtable[(size_t)row * (size_t)cols + (size_t)i] += dy[i];
    }
}

/* Columns of a slice that are of the vocabulary and not its padding. */
static inline int pm_columns(int cols, int first, int vocab)
{
    return first >= vocab ? 0 : vocab - first < cols ? vocab - first : cols;
}

static inline void pm_xent_partial(const real *logits, int tokens, int cols, int first, int vocab,
                                   const int32_t *target, real *stats)
{
    int live = pm_columns(cols, first, vocab);

    for (int t = 0; t < tokens; t++, logits += cols, stats += 3) {
        int64_t at = (int64_t)target[t] - first;
        double max = -HUGE_VAL, sum = 0;

        for (int i = 0; i < live; i++)
            max = (double)logits[i] > max ? (double)logits[i] : max;
        for (int i = 0; i < live; i++)
            sum += exp((double)logits[i] - max);
        stats[0] = (real)max;
        stats[1] = (real)sum;
        stats[2] = target[t] >= 0 && at >= 0 && at < live ? logits[at] : 0;
    }
}

static inline void pm_xent_finish(const real *logits, const real *stats, int n, int tokens, int cols, int first,
                                  int vocab, const int32_t *target, double weight, real *loss, real *dz)
{
    int live = pm_columns(cols, first, vocab);

    for (int t = 0; t < tokens; t++) {
        double max = -HUGE_VAL, sum = 0, own = 0;

        for (int k = 0; k < n; k++) {
            const real *s = stats + ((size_t)k * (size_t)tokens + (size_t)t) * 3;

            max = (double)s[0] > max ? (double)s[0] : max;
            own += (double)s[2];
        }
        for (int k = 0; k < n; k++) {
            const real *s = stats + ((size_t)k * (size_t)tokens + (size_t)t) * 3;

            sum += (double)s[1] * exp((double)s[0] - max);
        }
        loss[t] = target[t] < 0 ? 0 : (real)(log(sum) + max - own);
        for (int i = 0; dz && i < cols; i++) {
            size_t at = (size_t)t * (size_t)cols + (size_t)i;

            dz[at] = target[t] < 0 || i >= live
                         ? 0
                         : (real)((exp((double)logits[at] - max) / sum - (target[t] == first + i)) * weight);
        }
    }
}

#endif
