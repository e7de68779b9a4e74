/* loops_body - the loops of loops.h, included by one file for each build
 *
 * The including file sets LOOPS_TABLE and LOOPS_NAME; there is no guard, as it is the whole of that file.
 */
#include "worker/engine/kernels/cpu/loops.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "worker/engine/kernels/cpu/loops_vector.h"

/* --- norms ------------------------------------------------------------------------------------------------ */

#define CHAINS 4 /* sums in turns: one alone waits for itself */

static inline float row_sum(const float *x, int n)
{
    v8 sum[CHAINS] = {0};
    int from = 0;

    for (; from + CHAINS * 8 <= n; from += CHAINS * 8)
        for (int j = 0; j < CHAINS; j++)
            sum[j] += load8(x + from + j * 8, 8);
    EACH8(i, k, n - from)
    sum[0] += load8(x + from + i, k);
    return sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* The sum of (x - mean)^2 */
static inline float row_squares(const float *x, int n, float mean)
{
    v8 sum[CHAINS] = {0};
    int from = 0;

    for (; from + CHAINS * 8 <= n; from += CHAINS * 8)
        for (int j = 0; j < CHAINS; j++) {
            v8 d = load8(x + from + j * 8, 8) - mean;

            sum[j] += d * d;
        }
    EACH8(i, k, n - from)
    {
        v8 d = only8(load8(x + from + i, k) - mean, k);

        sum[0] += d * d;
    }
    return sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void layernorm_forward(const float *x, const float *gamma, const float *beta, float eps, int rows, int cols,
                              float *y, float *mean, float *rstd)
{
    for (int r = 0; r < rows; r++, x += cols, y += cols) {
        float m = row_sum(x, cols) / (float)cols;
        float s = 1.0f / sqrtf(row_squares(x, cols, m) / (float)cols + eps);

        EACH(i, k, cols)
        store(y + i, (load(x + i, k) - m) * s * load(gamma + i, k) + load(beta + i, k), k);
        mean[r] = m;
        rstd[r] = s;
    }
}

static void layernorm_backward(const float *dy, const float *x, const float *gamma, const float *mean,
                               const float *rstd, int rows, int cols, float *dx, bool add, float *dgamma, float *dbeta)
{
    for (int r = 0; r < rows; r++, dy += cols, x += cols, dx += cols) {
        v8 sum_g = {0}, sum_gn = {0};
        float m = mean[r], s = rstd[r], g_mean, gn_mean;

        EACH(i, k, cols)
        {
            vf d = load(dy + i, k), n = (load(x + i, k) - m) * s, g = d * load(gamma + i, k);

            for (int j = 0; j < EIGHTS; j++) {
                sum_g += eight_of(g, j);
                sum_gn += eight_of(g, j) * eight_of(n, j); /* dead lanes have g = 0 */
            }
            store(dgamma + i, load(dgamma + i, k) + d * n, k);
            store(dbeta + i, load(dbeta + i, k) + d, k);
        }
        g_mean = sum_of(sum_g) / (float)cols;
        gn_mean = sum_of(sum_gn) / (float)cols;
        EACH(i, k, cols)
        {
            vf n = (load(x + i, k) - m) * s, g = load(dy + i, k) * load(gamma + i, k);
            vf d = s * (g - g_mean - n * gn_mean);

            store(dx + i, add ? load(dx + i, k) + d : d, k);
        }
    }
}

static void rmsnorm_forward(const float *x, const float *gamma, float eps, int rows, int cols, float *y, float *rstd)
{
    for (int r = 0; r < rows; r++, x += cols, y += cols) {
        float s = 1.0f / sqrtf(row_squares(x, cols, 0) / (float)cols + eps);

        EACH(i, k, cols)
        store(y + i, load(x + i, k) * s * load(gamma + i, k), k);
        rstd[r] = s;
    }
}

static void rmsnorm_backward(const float *dy, const float *x, const float *gamma, const float *rstd, int rows, int cols,
                             float *dx, bool add, float *dgamma)
{
    for (int r = 0; r < rows; r++, dy += cols, x += cols, dx += cols) {
        v8 sum = {0};
        float s = rstd[r], mean;

        EACH(i, k, cols)
        {
            vf d = load(dy + i, k), n = load(x + i, k) * s, g = d * load(gamma + i, k);

            for (int j = 0; j < EIGHTS; j++)
                sum += eight_of(g, j) * eight_of(n, j);
            store(dgamma + i, load(dgamma + i, k) + d * n, k);
        }
        mean = sum_of(sum) / (float)cols;
        EACH(i, k, cols)
        {
            vf d = s * (load(dy + i, k) * load(gamma + i, k) - load(x + i, k) * s * mean);

            store(dx + i, add ? load(dx + i, k) + d : d, k);
        }
    }
}

#define ROPE_BLOCK 64 /* pairs of columns whose angles are held at once */

/* Cosines and sines of one position, and what takes them on to the next. */
struct rope_angles {
    double c[ROPE_BLOCK], s[ROPE_BLOCK], step_c[ROPE_BLOCK], step_s[ROPE_BLOCK];
    float cf[ROPE_BLOCK], sf[ROPE_BLOCK];
};

/* In double: a float angle of some thousand radians has lost its third decimal. */
static void rope_start(struct rope_angles *a, int n, const float *freq, int32_t position)
{
    for (int i = 0; i < n; i++) {
        double angle = (double)position * (double)freq[i];

        a->c[i] = cos(angle);
        a->s[i] = sin(angle);
    }
}

/* One position on by the sum of angles; over the rows of one call the error stays far below a float's last bit. */
static void rope_next(struct rope_angles *a, int n)
{
    for (int i = 0; i < n; i++) {
        double c = a->c[i] * a->step_c[i] - a->s[i] * a->step_s[i];

        a->s[i] = a->s[i] * a->step_c[i] + a->c[i] * a->step_s[i];
        a->c[i] = c;
    }
}

/* Pairs [0, n) of each head, half columns apart. */
static void rope_block(float *x, int rows, int heads, int dim, int ld, const int32_t *position, const float *freq,
                       int n, bool inverse)
{
    struct rope_angles a;
    int half = dim / 2;

    for (int i = 0; i < n && rows > 1; i++) {
        a.step_c[i] = cos((double)freq[i]);
        a.step_s[i] = sin((double)freq[i]);
    }
    for (int r = 0; r < rows; r++, x += ld) {
        if (r > 0 && position[r] == position[r - 1] + 1)
            rope_next(&a, n);
        else
            rope_start(&a, n, freq, position[r]);
        for (int i = 0; i < n; i++) {
            a.cf[i] = (float)a.c[i];
            a.sf[i] = (float)(inverse ? -a.s[i] : a.s[i]);
        }
        for (int h = 0; h < heads; h++) {
            float *p = x + (size_t)h * (size_t)dim;

            EACH(i, k, n)
            {
                vf lo = load(p + i, k), hi = load(p + half + i, k), c = load(a.cf + i, k), s = load(a.sf + i, k);

                store(p + i, lo * c - hi * s, k);
                store(p + half + i, hi * c + lo * s, k);
            }
        }
    }
}

static void rope(float *x, int rows, int heads, int dim, int ld, const int32_t *position, const float *freq,
                 bool inverse)
{
    int half = dim / 2;

    for (int from = 0; from < half; from += ROPE_BLOCK)
        rope_block(x + from, rows, heads, dim, ld, position, freq + from,
                   half - from < ROPE_BLOCK ? half - from : ROPE_BLOCK, inverse);
}

/* --- activations ------------------------------------------------------------------------------------------ */

/* 1 / (1 + e^x) */
STEP gates(const vf *x, vf *y, int w)
{
    exp_wide(x, y, w);
    SIDE_BY_SIDE(j, w)
    y[j] = 1.0f / (1.0f + y[j]);
}

/* (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), as the sigmoid of 2u: no cancellation where x < 0 */
STEP gelu_gates(const vf *x, vf *y, int w)
{
    SIDE_BY_SIDE(j, w)
    y[j] = x[j] * (all(-1.5957691216f) + all(-1.5957691216f * 0.044715f) * (x[j] * x[j]));
    gates(y, y, w);
}

STEP gelu_forward_step(int i, int w, int k, const float *x, float *y)
{
    vf v[WIDE], s[WIDE];

    SIDE_BY_SIDE(j, w)
    v[j] = load(x + i + j * LANES, k);
    gelu_gates(v, s, w);
    SIDE_BY_SIDE(j, w)
    store(y + i + j * LANES, v[j] * s[j], k);
}

static void gelu_forward(const float *x, size_t n, float *y)
{
    IN_STEPS((int)n, gelu_forward_step, x, y);
}

STEP gelu_backward_step(int i, int w, int k, const float *x, const float *dy, float *dx)
{
    vf v[WIDE], s[WIDE];

    SIDE_BY_SIDE(j, w)
    v[j] = load(x + i + j * LANES, k);
    gelu_gates(v, s, w);
    SIDE_BY_SIDE(j, w)
    {
        vf inner = all(1.5957691216f) + all(1.5957691216f * 3 * 0.044715f) * (v[j] * v[j]);

        store(dx + i + j * LANES, load(dy + i + j * LANES, k) * (s[j] + v[j] * inner * (s[j] - s[j] * s[j])), k);
    }
}

static void gelu_backward(const float *x, const float *dy, size_t n, float *dx)
{
    IN_STEPS((int)n, gelu_backward_step, x, dy, dx);
}

STEP swiglu_forward_step(int i, int w, int k, const float *gate, const float *up, float *y)
{
    vf s[WIDE];

    SIDE_BY_SIDE(j, w)
    s[j] = -load(gate + i + j * LANES, k);
    gates(s, s, w);
    SIDE_BY_SIDE(j, w)
    store(y + i + j * LANES, load(gate + i + j * LANES, k) * s[j] * load(up + i + j * LANES, k), k);
}

static void swiglu_forward(const float *gate_up, int rows, int cols, float *y)
{
    for (int r = 0; r < rows; r++, gate_up += 2 * (size_t)cols, y += cols)
        IN_STEPS(cols, swiglu_forward_step, gate_up, gate_up + cols, y);
}

STEP swiglu_backward_step(int i, int w, int k, const float *gate_up, int cols, const float *dy, float *dgate_up)
{
    vf s[WIDE];

    SIDE_BY_SIDE(j, w)
    s[j] = -load(gate_up + i + j * LANES, k);
    gates(s, s, w);
    SIDE_BY_SIDE(j, w)
    {
        const float *at = gate_up + i + j * LANES;
        float *to = dgate_up + i + j * LANES;
        vf gate = load(at, k), up = load(at + cols, k), d = load(dy + i + j * LANES, k) * s[j];

        store(to, d * up * (1.0f + gate * (1.0f - s[j])), k);
        store(to + cols, d * gate, k);
    }
}

static void swiglu_backward(const float *gate_up, const float *dy, int rows, int cols, float *dgate_up)
{
    for (int r = 0; r < rows; r++, gate_up += 2 * (size_t)cols, dgate_up += 2 * (size_t)cols, dy += cols)
        IN_STEPS(cols, swiglu_backward_step, gate_up, cols, dy, dgate_up);
}

/* --- sums and dropout ------------------------------------------------------------------------------------- */

static void add(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void add_bias(float *y, size_t ld, const float *bias, int rows, int cols)
{
    for (int r = 0; r < rows; r++, y += ld)
        EACH(i, k, cols)
    store(y + i, load(y + i, k) + load(bias + i, k), k);
}

STEP bias_gelu_step(int i, int w, int k, float *c, float *aux, const float *bias)
{
    vf v[WIDE], s[WIDE];

    SIDE_BY_SIDE(j, w)
    {
        v[j] = load(c + i + j * LANES, k) + load(bias + i + j * LANES, k);
        store(aux + i + j * LANES, v[j], k);
    }
    gelu_gates(v, s, w);
    SIDE_BY_SIDE(j, w)
    store(c + i + j * LANES, v[j] * s[j], k);
}

static void bias_gelu(float *c, float *aux, size_t ld, const float *bias, int rows, int cols)
{
    for (int r = 0; r < rows; r++, c += ld, aux += ld)
        IN_STEPS(cols, bias_gelu_step, c, aux, bias);
}

/* Columns in strips that stay in registers; of each the rows from first to last. */
static void bias_gradient(const float *dy, int rows, int cols, size_t ld, float *db)
{
    int i = 0;

    for (; i + 4 * LANES <= cols; i += 4 * LANES) {
        vf a = {0}, b = {0}, c = {0}, d = {0};

        for (int r = 0; r < rows; r++) {
            const float *p = dy + (size_t)r * ld + i;

            a += load(p, LANES);
            b += load(p + LANES, LANES);
            c += load(p + 2 * LANES, LANES);
            d += load(p + 3 * LANES, LANES);
        }
        store(db + i, load(db + i, LANES) + a, LANES);
        store(db + i + LANES, load(db + i + LANES, LANES) + b, LANES);
        store(db + i + 2 * LANES, load(db + i + 2 * LANES, LANES) + c, LANES);
        store(db + i + 3 * LANES, load(db + i + 3 * LANES, LANES) + d, LANES);
    }
    for (; i < cols; i += LANES) {
        int k = cols - i < LANES ? cols - i : LANES;
        vf sum = {0};

        for (int r = 0; r < rows; r++)
            sum += load(dy + (size_t)r * ld + i, k);
        store(db + i, load(db + i, k) + sum, k);
    }
}

/* The halves of each lane's 64-bit product with m. */
static inline void multiply8(v8u a, uint32_t m, v8u *hi, v8u *lo)
{
#ifdef __AVX2__
    const __m256i factor = _mm256_set1_epi32((int)m);
    __m256i even = _mm256_mul_epu32((__m256i)a, factor);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), factor);

    *hi = (v8u)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *lo = (v8u)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#else
    for (int j = 0; j < 8; j++) {
        uint64_t p = (uint64_t)a[j] * m;

        (*hi)[j] = (uint32_t)(p >> 32);
        (*lo)[j] = (uint32_t)p;
    }
#endif
}

/* The words of eight counters {first + 0..7, position, sample}, as philox4x32 gives them: word[4j+w]. */
static void philox8(uint32_t first, uint32_t position, uint64_t sample, const uint32_t key[2], uint32_t word[32])
{
    const v8u zero = {0}, lane = {0, 1, 2, 3, 4, 5, 6, 7};
    v8u c0 = lane + first, c1 = zero + position, c2 = zero + (uint32_t)sample, c3 = zero + (uint32_t)(sample >> 32);
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        v8u hi0 = zero, lo0 = zero, hi1 = zero, lo1 = zero;

        multiply8(c0, 0xD2511F53u, &hi0, &lo0);
        multiply8(c2, 0xCD9E8D57u, &hi1, &lo1);
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < 8; j++) {
        word[4 * j] = c0[j];
        word[4 * j + 1] = c1[j];
        word[4 * j + 2] = c2[j];
        word[4 * j + 3] = c3[j];
    }
}

/* keep[i], i < n: 0 where column + i is dropped, else scale. */
static void keep_row(float *keep, int n, uint32_t column, uint32_t position, uint64_t sample, const uint32_t key[2],
                     uint32_t threshold, float scale)
{
    int skip = (int)(column % 4);
    uint32_t word[32];

    for (int i = -skip; i < n; i += 32) {
        philox8((uint32_t)((int64_t)column + i) / 4, position, sample, key, word);
        for (int j = i < 0 ? -i : 0; j < 32 && i + j < n; j++)
            keep[i + j] = word[j] < threshold ? 0 : scale;
    }
}

static void dropout(const struct kern_dropout *d, int first, int rows, const float *x, float *y)
{
    float keep[512], scale = 1.0f / (1.0f - d->p);

    for (int r = first; r < first + rows; r++) {
        const float *from = x + (size_t)r * (size_t)d->ld;
        float *to = y + (size_t)r * (size_t)d->ld;

        for (int at = 0; at < d->cols; at += 512) {
            int n = d->cols - at < 512 ? d->cols - at : 512;

            keep_row(keep, n, (uint32_t)(d->col0 + at), (uint32_t)d->position[r], d->sample[r], d->key, d->threshold,
                     scale);
            /* chosen, not multiplied: a dropped infinity is 0 */
            for (int i = 0; i < n; i++)
                to[at + i] = keep[i] == 0 ? 0 : from[at + i] * scale;
        }
    }
}

/* --- loss ------------------------------------------------------------------------------------------------- */

STEP max_step(int i, int w, int k, const float *x, vf *max)
{
    SIDE_BY_SIDE(j, w)
    max[j] = larger(only(load(x + i + j * LANES, k), k, -INFINITY), max[j]);
}

/* The largest of x, -inf when there is none; what is not a number is not seen. */
static inline float row_max(const float *x, int n)
{
    vf max[WIDE];

    SIDE_BY_SIDE(j, WIDE)
    max[j] = all(-INFINITY);
    IN_STEPS(n, max_step, x, max);
    return max_of(larger(larger(max[0], max[1]), larger(max[2], max[3])));
}

/* e^(scale·x - top) of a row to y (NULL: nowhere) and into sums. */
STEP exp_sum_step(int i, int w, int k, const float *x, float scale, float top, float *y, v8 *sum)
{
    vf v[WIDE];

    SIDE_BY_SIDE(j, w)
    v[j] = load(x + i + j * LANES, k) * scale - top;
    exp_wide(v, v, w);
    SIDE_BY_SIDE(j, w)
    {
        if (y)
            store(y + i + j * LANES, v[j], k);
        for (int e = 0; e < EIGHTS; e++)
            sum[w == 1 ? 0 : (j * EIGHTS + e) % CHAINS] += eight_of(only(v[j], k, 0), e);
    }
}

static inline float row_exp_sum(const float *x, int n, float scale, float top, float *y)
{
    v8 sum[CHAINS] = {0};

    IN_STEPS(n, exp_sum_step, x, scale, top, y, sum);
    return sum_of((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void xent_partial(const float *logits, int tokens, int cols, int first, int live, const int32_t *target,
                         float *stats)
{
    for (int t = 0; t < tokens; t++, logits += cols, stats += 3) {
        int64_t at = (int64_t)target[t] - first;

        stats[0] = row_max(logits, live);
        stats[1] = row_exp_sum(logits, live, 1, stats[0], NULL);
        stats[2] = target[t] >= 0 && at >= 0 && at < live ? logits[at] : 0;
    }
}

STEP xent_gradient_step(int i, int w, int k, const float *logits, float max, float factor, float *dz)
{
    vf v[WIDE];

    SIDE_BY_SIDE(j, w)
    v[j] = load(logits + i + j * LANES, k) - max;
    exp_wide(v, v, w);
    SIDE_BY_SIDE(j, w)
    store(dz + i + j * LANES, v[j] * factor, k);
}

static void xent_gradient(const float *logits, int cols, int live, int64_t target, float max, float sum, float weight,
                          float *dz)
{
    IN_STEPS(live, xent_gradient_step, logits, max, weight / sum, dz);
    if (target >= 0 && target < live)
        dz[target] -= weight;
    memset(dz + live, 0, (size_t)(cols - live) * sizeof(*dz));
}

static void xent_finish(const float *logits, const float *stats, int n, size_t stride, int tokens, int cols, int first,
                        int live, const int32_t *target, float weight, float *loss, float *dz)
{
    for (int t = 0; t < tokens; t++) {
        const float *own = stats + 3 * (size_t)t;
        size_t at = (size_t)t * (size_t)cols;
        float max = -INFINITY, sum = 0, score = 0;

        for (int k = 0; k < n; k++)
            max = own[3 * (size_t)k * stride] > max ? own[3 * (size_t)k * stride] : max;
        for (int k = 0; k < n; k++) {
            const float *s = own + 3 * (size_t)k * stride;

            sum += s[1] * exp1(s[0] - max);
            score += s[2];
        }
        loss[t] = target[t] < 0 ? 0 : (float)(log((double)sum) + (double)max - (double)score);
        if (dz && target[t] < 0)
            memset(dz + at, 0, (size_t)cols * sizeof(*dz));
        else if (dz)
            xent_gradient(logits + at, cols, live, (int64_t)target[t] - first, max, sum, weight, dz + at);
    }
}

/* --- attention -------------------------------------------------------------------------------------------- */

static inline int row_columns(int valid, int row, int cols)
{
    return valid + row < 0 ? 0 : valid + row < cols ? valid + row : cols;
}

static void drop_row(const struct cpu_drop *d, int row, int n, float *keep)
{
    keep_row(keep, n, (uint32_t)d->column, (uint32_t)(d->query + row), d->sample, d->key, d->threshold, d->scale);
}

static void scores_forward(float *s, size_t ld, int rows, int cols, int valid, int skip, float scale, float *m,
                           float *l, float *alpha, const struct cpu_drop *drop)
{
    float keep[LOOPS_KEYS_MAX];

    for (int r = 0; r < rows; r++, s += ld) {
        int n = row_columns(valid, r, cols), from = row_columns(skip, r, n);
        float top = n > from ? row_max(s + from, n - from) * scale : -INFINITY, sum;

        top = top > m[r] ? top : m[r];
        sum = row_exp_sum(s + from, n - from, scale, top, s + from);
        memset(s, 0, (size_t)from * sizeof(*s));
        memset(s + n, 0, (size_t)(cols - n) * sizeof(*s));
        alpha[r] = m[r] == top ? 1.0f : exp1(m[r] - top);
        l[r] = l[r] * alpha[r] + sum;
        m[r] = top;
        if (!drop)
            continue;
        drop_row(drop, r, n, keep);
        EACH(i, k, n)
        store(s + i, load(s + i, k) * load(keep + i, k), k);
    }
}

/* Whether keep is NULL is known where this is inlined: were it asked here, a build might round products it does not add
 * at once, and another not. */
STEP scores_backward_step(int i, int w, int k, float *s, float *dp, float scale, float lse, float dot,
                          const float *keep)
{
    vf p[WIDE];

    SIDE_BY_SIDE(j, w)
    p[j] = load(s + i + j * LANES, k) * scale - lse;
    exp_wide(p, p, w);
    SIDE_BY_SIDE(j, w)
    {
        vf d = load(dp + i + j * LANES, k), kept = keep ? load(keep + i + j * LANES, k) : all(1.0f);

        store(s + i + j * LANES, p[j] * kept, k);
        store(dp + i + j * LANES, p[j] * (d * kept - dot) * scale, k);
    }
}

static void scores_backward(float *s, float *dp, size_t ld, int rows, int cols, int valid, int skip, float scale,
                            const float *lse, const float *dot, const struct cpu_drop *drop)
{
    float keep[LOOPS_KEYS_MAX];

    for (int r = 0; r < rows; r++, s += ld, dp += ld) {
        int n = row_columns(valid, r, cols), from = row_columns(skip, r, n);

        if (drop) {
            drop_row(drop, r, n, keep);
            IN_STEPS(n - from, scores_backward_step, s + from, dp + from, scale, lse[r], dot[r], keep + from);
        } else {
            IN_STEPS(n - from, scores_backward_step, s + from, dp + from, scale, lse[r], dot[r], NULL);
        }
        memset(s, 0, (size_t)from * sizeof(*s));
        memset(dp, 0, (size_t)from * sizeof(*dp));
        memset(s + n, 0, (size_t)(cols - n) * sizeof(*s));
        memset(dp + n, 0, (size_t)(cols - n) * sizeof(*dp));
    }
}

static void scale_row(float *x, int n, float by)
{
    EACH(i, k, n)
    store(x + i, load(x + i, k) * by, k);
}

static float dot(const float *x, const float *y, int n)
{
    v8 sum = {0};

    EACH8(i, k, n)
    sum += load8(x + i, k) * load8(y + i, k);
    return sum_of(sum);
}

/* --- bf16 ------------------------------------------------------------------------------------------------- */

/* The compiler makes vectors of these. */
static void widen(const uint16_t *restrict x, size_t n, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_to_float(x[i]);
}

static void narrow(const float *restrict x, size_t n, uint16_t *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_from_float(x[i]);
}

/* Squares of 16, so that each line of memory is used up while it is in the cache. */
static void widen_turned(const uint16_t *x, size_t ld, int rows, int cols, float *y)
{
    for (int r0 = 0; r0 < rows; r0 += 16) {
        int r1 = rows - r0 < 16 ? rows : r0 + 16;

        for (int c = 0; c < cols; c++)
            for (int r = r0; r < r1; r++)
                y[(size_t)r * (size_t)cols + (size_t)c] = bf16_to_float(x[(size_t)c * ld + (size_t)r]);
    }
}

/* --- optimizer -------------------------------------------------------------------------------------------- */

static void adamw(const struct kern_adamw *a, size_t first, size_t n)
{
    float *restrict w = a->w + first, *restrict m = a->m + first, *restrict v = a->v + first;
    const float *restrict g = a->g + first;
    const float scale = a->step->grad_scale, beta1 = a->beta1, beta2 = a->beta2, eps = a->eps, lr = a->step->lr;
    const float decay = lr * a->weight_decay, bias1 = a->step->inv_bias1, bias2 = a->step->inv_bias2;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] * scale;
        float mean = beta1 * m[i] + (1 - beta1) * d;
        float var = beta2 * v[i] + (1 - beta2) * (d * d);

        m[i] = mean;
        v[i] = var;
        w[i] = w[i] - decay * w[i] - lr * (mean * bias1) / (sqrtf(var * bias2) + eps);
    }
}

static double sum_squares(const float *x, size_t n)
{
    v4d a = {0}, b = {0};
    size_t i = 0;
    double tail = 0;

    for (; i + 8 <= n; i += 8) {
        v4d lo = __builtin_convertvector(*(const v4_at *)(x + i), v4d);
        v4d hi = __builtin_convertvector(*(const v4_at *)(x + i + 4), v4d);

        a += lo * lo;
        b += hi * hi;
    }
    for (; i < n; i++)
        tail += (double)x[i] * (double)x[i];
    a += b;
    return ((a[0] + a[2]) + (a[1] + a[3])) + tail;
}

const struct cpu_loops LOOPS_TABLE = {
    .name = LOOPS_NAME,
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
    .bias_gelu = bias_gelu,
    .bias_gradient = bias_gradient,
    .dropout = dropout,
    .xent_partial = xent_partial,
    .xent_finish = xent_finish,
    .scores_forward = scores_forward,
    .scores_backward = scores_backward,
    .scale_row = scale_row,
    .dot = dot,
    .widen = widen,
    .widen_turned = widen_turned,
    .narrow = narrow,
    .adamw = adamw,
    .sum_squares = sum_squares,
};
