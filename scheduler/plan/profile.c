#include "scheduler/plan/profile.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#define AXES_MAX 3
#define TERMS (AXES_MAX + 1)
#define NEAR 1e-4 /* added to squares of distances, which are in doublings */
#define FAR 16
#define RIDGE 1e-6 /* of the slopes: where all sizes of an axis are alike it has none */

static const char *const op_names[PROFILE_OPS] = {
    "layernorm", "layernorm_back", "rmsnorm",   "rmsnorm_back", "gelu",       "gelu_back", "swiglu", "swiglu_back",
    "rope",      "residual",       "bias_back", "embed",        "embed_back", "loss",      "fill",   "add",
    "squares",   "adamw",          "to_bf16",
};

const char *profile_op_name(enum profile_op op)
{
    return op_names[op];
}

const struct profile_rates *profile_rates(const struct plan_profile *p, bool bf16)
{
    return bf16 && p->bf16.products > 0 ? &p->bf16 : &p->f32;
}

const struct profile_rates *profile_far(const struct plan_profile *p, bool bf16)
{
    const struct profile_rates *r = bf16 && p->bf16.products > 0 ? &p->far_bf16 : &p->far_f32;

    return r->products > 0 ? r : NULL;
}

/* --- between measured sizes ---------------------------------------------------------------------------------- */

struct fit { /* a plane through points about the one that is asked for, the nearest by far the heaviest */
    int axes;
    double at[AXES_MAX], low[AXES_MAX], high[AXES_MAX];
    double a[TERMS][TERMS], b[TERMS];
};

static void fit_widen(struct fit *f, const double *x)
{
    for (int i = 0; i < f->axes; i++) {
        f->low[i] = fmin(f->low[i], x[i]);
        f->high[i] = fmax(f->high[i], x[i]);
    }
}

/* All points have been told by fit_widen: from now on the point asked for lies among them. */
static void fit_begin(struct fit *f)
{
    for (int i = 0; i < f->axes; i++)
        f->at[i] = fmin(fmax(f->at[i], f->low[i]), f->high[i]);
}

/* The square of the distance to the point. */
static double fit_far(const struct fit *f, const double *x)
{
    double far = NEAR;

    for (int i = 0; i < f->axes; i++)
        far += (x[i] - f->at[i]) * (x[i] - f->at[i]);
    return far;
}

static void fit_add(struct fit *f, const double *x, double y)
{
    double term[TERMS] = {1}, far = fit_far(f, x), weight = 1 / (far * far);

    for (int i = 0; i < f->axes; i++)
        term[i + 1] = x[i] - f->at[i];
    for (int i = 0; i <= f->axes; i++) {
        for (int k = 0; k <= f->axes; k++)
            f->a[i][k] += weight * term[i] * term[k];
        f->b[i] += weight * term[i] * y;
    }
}

/* The plane's height at the point. */
static double fit_end(struct fit *f)
{
    int n = f->axes + 1;

    for (int i = 1; i < n; i++)
        f->a[i][i] += RIDGE * f->a[0][0];
    for (int i = n - 1; i > 0; i--) /* the matrix is symmetric and positive: no pivots are needed */
        for (int k = 0; k < i; k++) {
            double times = f->a[k][i] / f->a[i][i];

            for (int j = 0; j <= i; j++)
                f->a[k][j] -= times * f->a[i][j];
            f->b[k] -= times * f->b[i];
        }
    return f->b[0] / f->a[0][0];
}

static struct fit fit_at(int axes, const double *at)
{
    struct fit f = {.axes = axes};

    for (int i = 0; i < axes; i++) {
        f.at[i] = at[i];
        f.low[i] = INFINITY;
        f.high[i] = -INFINITY;
    }
    return f;
}

static double doublings(double n)
{
    return log2(n > 1 ? n : 1);
}

/* --- tables -------------------------------------------------------------------------------------------------- */

static void settle(struct profile_rates *r)
{
    for (int i = 0; i < r->products; i++) {
        struct profile_product *p = &r->product[i];
        const int size[AXES_MAX] = {p->rows, p->outputs, p->inputs};

        for (int k = 0; k < AXES_MAX; k++) {
            p->size[k] = doublings(size[k]);
            r->low[k] = i == 0 ? p->size[k] : fmin(r->low[k], p->size[k]);
            r->high[k] = i == 0 ? p->size[k] : fmax(r->high[k], p->size[k]);
        }
        for (int k = 0; k < PROFILE_FORMS; k++) {
            p->rate[k] = log2(p->flops[k]);
            r->least[k] = i == 0 ? p->rate[k] : fmin(r->least[k], p->rate[k]);
            r->most[k] = i == 0 ? p->rate[k] : fmax(r->most[k], p->rate[k]);
        }
    }
}

void profile_settle(struct plan_profile *p)
{
    settle(&p->f32);
    settle(&p->bf16);
    settle(&p->far_f32);
    settle(&p->far_bf16);
}

double profile_product_s(const struct profile_rates *r, enum profile_form form, double rows, double outputs,
                         double inputs)
{
    double at[AXES_MAX] = {doublings(rows), doublings(outputs), doublings(inputs)};
    double far[PROFILE_PRODUCTS_MAX], nearest = INFINITY;
    struct fit f = fit_at(AXES_MAX, at);

    assert(r->products > 0);
    fit_widen(&f, r->low);
    fit_widen(&f, r->high);
    fit_begin(&f);
    for (int i = 0; i < r->products; i++) {
        far[i] = fit_far(&f, r->product[i].size);
        nearest = far[i] < nearest ? far[i] : nearest;
    }
    for (int i = 0; i < r->products; i++)
        if (far[i] <= FAR * nearest) /* what is farther has next to no weight, and takes its time */
            fit_add(&f, r->product[i].size, r->product[i].rate[form]);
    return 2 * rows * outputs * inputs / exp2(fmin(fmax(fit_end(&f), r->least[form]), r->most[form]));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double profile_flops(const struct profile_rates *r)
{
    double rate[PROFILE_PRODUCTS_MAX];

    for (int i = 0; i < r->products; i++)
        rate[i] = r->product[i].flops[PROFILE_FORWARD];
    if (r->products > 0)
        qsort(rate, (size_t)r->products, sizeof(*rate), by_value);
    return r->products > 0 ? rate[r->products / 2] : 0;
}

/* What attention computes, up to a factor. */
static double attention_work(double length, double dim)
{
    return length * length * dim;
}

/* Heads whose size does not fill a kernel's tile take longer than larger ones that do: so what was measured of one size
 * says nothing of another that was, too. Returns the largest size up to dim, or with above the least from it on; 0:
 * there is none. */
static int dim_beside(const struct profile_rates *r, double dim, bool above)
{
    int best = 0;

    for (int i = 0; i < r->attentions; i++) {
        int d = r->attention[i].dim;

        if (above ? d >= dim && (best == 0 || d < best) : d <= dim && d > best)
            best = d;
    }
    return best;
}

/* Logarithm of the seconds of heads of a measured size, for each unit of work. */
static double attention_rate(const struct profile_rates *r, bool back, double length, int dim)
{
    const struct profile_attention *low = NULL, *high = NULL;
    double at_low, at_high, share;

    for (int i = 0; i < r->attentions; i++) {
        const struct profile_attention *a = &r->attention[i];

        if (a->dim != dim)
            continue;
        if (a->length <= length && (!low || a->length > low->length))
            low = a;
        if (a->length >= length && (!high || a->length < high->length))
            high = a;
    }
    low = low ? low : high;
    high = high ? high : low;
    at_low = log2(low->s[back] / attention_work(low->length, dim));
    at_high = log2(high->s[back] / attention_work(high->length, dim));
    share = high->length > low->length ? log2(length / low->length) / log2((double)high->length / low->length) : 0;
    return at_low + share * (at_high - at_low);
}

bool profile_attention_s(const struct profile_rates *r, bool back, double length, double dim, double *ret)
{
    int low = dim_beside(r, dim, false), high = dim_beside(r, dim, true);
    double rate, share;

    if (r->attentions == 0)
        return false;
    low = low > 0 ? low : high;
    high = high > 0 ? high : low;
    share = high > low ? log2(dim / low) / log2((double)high / low) : 0;
    rate = (1 - share) * attention_rate(r, back, length, low) + share * attention_rate(r, back, length, high);
    *ret = exp2(rate) * attention_work(length, dim);
    return true;
}

/* On the line between two measured sizes, in doublings. */
static double between(double size0, double s0, double size1, double s1, double size)
{
    double share = (log2(size) - log2(size0)) / (log2(size1) - log2(size0));

    return exp2(log2(s0) + share * (log2(s1) - log2(s0)));
}

bool profile_op_s(const struct profile_rates *r, enum profile_op op, double elements, double *ret)
{
    const struct profile_curve *c = &r->op[op];
    int i = 1;

    if (c->n == 0)
        return false;
    while (i < c->n - 1 && c->at[i].size < elements)
        i++;
    if (c->n == 1 || elements >= c->at[c->n - 1].size)
        *ret = c->at[c->n - 1].s * elements / c->at[c->n - 1].size;
    else if (elements <= c->at[0].size)
        *ret = c->at[0].s * elements / c->at[0].size;
    else
        *ret = between(c->at[i - 1].size, c->at[i - 1].s, c->at[i].size, c->at[i].s, elements);
    return true;
}

/* Of the table's rows for that many ranks, or of those nearest to it. */
static bool message_s(const struct profile_message *v, int n, int ranks, double bytes, double *ret)
{
    const struct profile_message *low = NULL, *high = NULL;
    int nearest = 0;

    for (int i = 0; i < n; i++)
        if (i == 0 || abs(v[i].ranks - ranks) < abs(nearest - ranks))
            nearest = v[i].ranks;
    for (int i = 0; i < n; i++) {
        if (v[i].ranks != nearest)
            continue;
        if (v[i].bytes <= bytes && (!low || v[i].bytes > low->bytes))
            low = &v[i];
        if (v[i].bytes > bytes && (!high || v[i].bytes < high->bytes))
            high = &v[i];
    }
    if (!low && !high)
        return false;
    if (!low) /* a smaller message takes no less time */
        *ret = high->s;
    else
        *ret = high ? between(low->bytes, low->s, high->bytes, high->s, bytes > 1 ? bytes : 1)
                    : low->s * bytes / low->bytes;
    if (nearest != ranks && nearest > 1) /* each of a ring's hops is one more */
        *ret *= (ranks - 1) / (double)ranks / ((nearest - 1) / (double)nearest);
    return true;
}

bool profile_all_reduce_s(const struct plan_profile *p, int ranks, double bytes, double *ret)
{
    return message_s(p->all_reduce, p->all_reduces, ranks, bytes, ret);
}

bool profile_message_s(const struct plan_profile *p, double bytes, double *ret)
{
    return message_s(p->message, p->messages, 2, bytes, ret);
}
