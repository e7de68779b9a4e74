#include <math.h>
#include <string.h>

#include "scheduler/diagnose/lag_priv.h"

/* Numbers in the order of floats, for those between the smallest and the largest of them. */
static int64_t key_of(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits < 0 ? -(int64_t)(bits & INT32_MAX) : bits;
}

static float float_of(int64_t key)
{
    int32_t bits = (int32_t)(key < 0 ? -key : key);
    float x;

    memcpy(&x, &bits, sizeof(x));
    return key < 0 ? -x : x;
}

static int count_below(const float *v, size_t n, float x)
{
    int below = 0;

    for (size_t i = 0; i < n; i++)
        below += v[i] < x;
    return below;
}

/* By halves of the numbers that may be it: counting takes far less time than moving does. */
float lag_median(const float *v, size_t n)
{
    float least = INFINITY, most = -INFINITY, upper, lower = -INFINITY;
    int64_t lo, hi;

    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    lo = key_of(least);
    hi = key_of(most);
    while (lo < hi) { /* the largest of which no more than half are below */
        int64_t mid = lo + (hi - lo + 1) / 2;

        if ((size_t)count_below(v, n, float_of(mid)) <= n / 2)
            lo = mid;
        else
            hi = mid - 1;
    }
    upper = float_of(lo);
    if (n % 2 == 1 || (size_t)count_below(v, n, upper) < n / 2)
        return upper;
    for (size_t i = 0; i < n; i++)
        lower = v[i] < upper && v[i] > lower ? v[i] : lower;
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
