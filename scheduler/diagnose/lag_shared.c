#include <math.h>
#include <string.h>

#include "scheduler/diagnose/lag_priv.h"

#define MEDIAN_FEW 48

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

static void sort_few(float *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        float at = v[i];
        size_t k = i;

        for (; k > 0 && v[k - 1] > at; k--)
            v[k] = v[k - 1];
        v[k] = at;
    }
}

/* The keys of the smallest and the largest; some side by side. */
static void find_range(const float *v, size_t n, int64_t *ret_lo, int64_t *ret_hi)
{
    float least[8], most[8];
    size_t i = 0;

    for (int k = 0; k < 8; k++)
        least[k] = most[k] = v[0];
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) {
            least[k] = v[i + (size_t)k] < least[k] ? v[i + (size_t)k] : least[k];
            most[k] = v[i + (size_t)k] > most[k] ? v[i + (size_t)k] : most[k];
        }
    for (; i < n; i++) {
        least[0] = v[i] < least[0] ? v[i] : least[0];
        most[0] = v[i] > most[0] ? v[i] : most[0];
    }
    sort_few(least, 8);
    sort_few(most, 8);
    *ret_lo = key_of(least[0]);
    *ret_hi = key_of(most[7]);
}

/* By halves of the numbers that may be it, counting those below, until few values are left between: counting takes far
 * less time than moving does. */
float lag_median(const float *v, size_t n)
{
    size_t below = 0, up_to = n, got = 0; /* values below lo; and up to hi */
    float few[MEDIAN_FEW + 1], upper, lower = -INFINITY, from, to;
    bool odd = n % 2 == 1;
    int64_t lo, hi;

    if (n == 0)
        return 0;
    find_range(v, n, &lo, &hi);
    while (lo < hi && up_to - below > MEDIAN_FEW) { /* the largest of which no more than half are below */
        int64_t mid = lo + (hi - lo + 1) / 2;
        size_t under = (size_t)count_below(v, n, float_of(mid));

        if (under <= n / 2) {
            lo = mid;
            below = under;
        } else {
            hi = mid - 1;
            up_to = under;
        }
    }
    from = float_of(lo);
    to = float_of(hi);
    for (size_t i = 0; i < n && lo < hi; i++) {
        few[got] = v[i];
        got += v[i] >= from && v[i] <= to;
    }
    sort_few(few, got);
    upper = lo < hi ? few[n / 2 - below] : from;
    if (lo < hi && n / 2 > below)
        return odd ? upper : (few[n / 2 - below - 1] + upper) / 2;
    if (odd || (size_t)count_below(v, n, upper) < n / 2)
        return upper;
    for (size_t i = 0; i < n; i++)
        lower = v[i] < upper && v[i] > lower ? v[i] : lower;
    return (lower + upper) / 2;
}

float lag_median_few(float *v, size_t n)
{
    sort_few(v, n);
    return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Merge exchange (Batcher, 1968): a sequence of comparisons that is the same whatever the values are. */
void lag_sort_lanes(float (*v)[LAG_LANES], int n)
{
    int half = 1;

    while (2 * half < n)
        half *= 2;
    for (int p = half; p > 0; p /= 2)
        for (int q = half, r = 0, d = p;; d = q - p, q /= 2, r = p) {
            for (int at = 0; at + d < n; at++) {
                float *restrict a = v[at], *restrict b = v[at + d];

                for (int i = 0; i < LAG_LANES && (at & p) == r; i++) {
                    float lo = a[i] < b[i] ? a[i] : b[i], hi = a[i] < b[i] ? b[i] : a[i];

                    a[i] = lo;
                    b[i] = hi;
                }
            }
            if (q == p)
                break;
        }
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
