#include <math.h>

#include "scheduler/diagnose/lag_priv.h"

/* The k-th smallest; v is reordered so that all before it are not larger. */
static float nth(float *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;

    while (lo < hi) {
        float pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;

        for (;;) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            float t = v[i];

            v[i++] = v[j];
            v[j--] = t;
        }
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return v[k];
}

float lag_median(float *v, size_t n)
{
    float upper, lower;

    if (n == 0)
        return 0;
    upper = nth(v, n, n / 2);
    if (n % 2)
        return upper;
    lower = v[0];
    for (size_t i = 1; i < n / 2; i++)
        lower = v[i] > lower ? v[i] : lower;
    return (lower + upper) / 2;
}

/* Of few values: cheaper than nth(). */
float lag_median_few(float *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        float at = v[i];
        size_t k = i;

        for (; k > 0 && v[k - 1] > at; k--)
            v[k] = v[k - 1];
        v[k] = at;
    }
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* The share of a rank's time computing in which it had no processor, and would have needed one. */
float lag_withheld(const struct lag *l, uint32_t rank)
{
    float busy = l->more[LAG_BUSY][rank], cpu = l->more[LAG_CPU][rank];

    return !isnan(cpu) && !l->hit[LAG_CPU][rank] && cpu < busy / 2 ? 1 - expf(cpu - busy) : 0;
}

bool lag_twice(uint8_t hits)
{
    return (hits & 1) + (hits >> 1 & 1) + (hits >> 2 & 1) >= 2;
}

void lag_add(struct lag_verdict *v, const struct lag_finding *f)
{
    size_t at = v->n < LAG_FOUND_MAX ? v->n : LAG_FOUND_MAX;

    while (at > 0 && v->found[at - 1].factor < f->factor) {
        if (at < LAG_FOUND_MAX)
            v->found[at] = v->found[at - 1];
        at--;
    }
    if (at < LAG_FOUND_MAX)
        v->found[at] = *f;
    v->n += v->n < LAG_FOUND_MAX;
}
