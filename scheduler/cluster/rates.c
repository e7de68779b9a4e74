#include "scheduler/cluster/rates.h"

#include <assert.h>

#define SPANNED 0.9 /* of the rates of both types: stages have whole layers */

static double step_seconds(const struct rates_point *at)
{
    return 1e6 / (double)at->rate_ups;
}

static int64_t rate_of(double seconds)
{
    double ups = 1e6 / seconds;

    return ups >= (double)RATES_UPS_MAX ? RATES_UPS_MAX : (int64_t)(ups + 0.5);
}

int64_t rates_at(const struct rates_profile *p, int type, int32_t count, bool *ret_modelled)
{
    const struct rates_point *at, *x, *y;
    int n, i = 0;
    double a, b;

    assert(type >= 0 && type < RATES_TYPES_MAX);
    at = p->points[type];
    n = p->n[type];
    if (ret_modelled)
        *ret_modelled = false;
    if (n == 0 || count < 1)
        return 0;
    while (i < n && at[i].count < count)
        i++;
    if (i < n && at[i].count == count)
        return at[i].rate_ups;
    if (ret_modelled)
        *ret_modelled = true;
    if (i == 0 || n == 1)
        return rate_of(step_seconds(&at[0]) * at[0].count / count);
    x = i < n ? &at[i - 1] : &at[n - 2];
    y = i < n ? &at[i] : &at[n - 1];
    b = (step_seconds(x) - step_seconds(y)) / (1.0 / x->count - 1.0 / y->count);
    b = b > 0 ? b : 0;
    a = step_seconds(y) - b / y->count;
    if (a < 0) { /* better than linear between the two: linear from the nearer one on */
        a = 0;
        b = step_seconds(i < n ? x : y) * (i < n ? x : y)->count;
    }
    return rate_of(a + b / count);
}

/* Workers that fit within a step time, not counting past want. */
static int64_t fit(const struct rates_est *parts, size_t n, int64_t step_ns, int64_t want)
{
    int64_t total = 0;

    for (size_t k = 0; k < n && total < want; k++) {
        int64_t each = step_ns / parts[k].worker_ns;

        total += parts[k].devices ? (each < want ? each : want) * parts[k].devices : 0;
    }
    return total;
}

/* The least a * worker_ns of one part with which all workers fit; INT64_MAX: none. */
static int64_t least_of(const struct rates_est *parts, size_t n, size_t part, int32_t workers)
{
    int64_t lo = 1, hi = workers;

    if (parts[part].devices == 0 || fit(parts, n, parts[part].worker_ns * hi, workers) < workers)
        return INT64_MAX;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (fit(parts, n, parts[part].worker_ns * mid, workers) >= workers)
            hi = mid;
        else
            lo = mid + 1;
    }
    return parts[part].worker_ns * lo;
}

static void divide(struct rates_est *parts, size_t n, int64_t step_ns, int32_t workers)
{
    int64_t surplus = -(int64_t)workers;
    bool done[RATES_TYPES_MAX] = {false};

    for (size_t k = 0; k < n; k++) {
        int64_t each = step_ns / parts[k].worker_ns;

        parts[k].each = parts[k].devices ? (int32_t)(each < workers ? each : workers) : 0;
        parts[k].fewer = 0;
        surplus += (int64_t)parts[k].each * parts[k].devices;
    }
    for (size_t turn = 0; turn < n && surplus > 0; turn++) {
        size_t slow = n;

        for (size_t k = 0; k < n; k++)
            if (!done[k] && (slow == n || parts[k].worker_ns > parts[slow].worker_ns))
                slow = k;
        done[slow] = true;
        if (parts[slow].devices == 0)
            continue;
        int64_t whole = surplus / parts[slow].devices;

        whole = whole < parts[slow].each ? whole : parts[slow].each;
        parts[slow].each -= (int32_t)whole;
        surplus -= whole * parts[slow].devices;
        if (parts[slow].each > 0 && surplus > 0) {
            parts[slow].fewer = (int32_t)(surplus < parts[slow].devices ? surplus : parts[slow].devices);
            surplus -= parts[slow].fewer;
        }
    }
    assert(surplus == 0);
}

int64_t rates_map_workers(struct rates_est *parts, size_t n, int32_t workers)
{
    int64_t best = INT64_MAX;

    assert(n <= RATES_TYPES_MAX);
    if (workers < 1)
        return 0;
    for (size_t k = 0; k < n; k++) {
        int64_t at;

        assert(parts[k].worker_ns >= 1);
        at = least_of(parts, n, k, workers);
        best = at < best ? at : best;
    }
    if (best == INT64_MAX)
        return 0;
    divide(parts, n, best, workers);
    return best;
}

/* A worker's local step on one device, from the rate of all workers on one. */
static int64_t worker_ns(const struct rates_profile *p, int type, int32_t workers)
{
    int64_t one = rates_at(p, type, 1, NULL);
    double ns = one > 0 ? 1e15 / ((double)one * workers) : 0;

    return one == 0 ? 0 : ns < 1 ? 1 : ns > 1e15 ? (int64_t)1e15 : (int64_t)(ns + 0.5);
}

/* Share of the ideal rate left on count equal devices, at most 1. */
static double efficiency(const struct rates_profile *p, int type, int32_t count, int32_t workers)
{
    double rounds = (double)((workers + count - 1) / count);
    double ideal = (double)rates_at(p, type, 1, NULL) * workers / rounds;
    double share = (double)rates_at(p, type, count, NULL) / ideal;

    return share < 1 ? share : 1;
}

int64_t rates_mixed(const struct rates_profile *p, int a, int32_t n_a, int b, int32_t n_b, int32_t workers,
                    double *ret_idle)
{
    struct rates_est part[2] = {{.devices = n_a}, {.devices = n_b}};
    double eff_a, eff_b, sum;
    int64_t ns;

    if (workers < 1 || n_a < 1 || n_b < 1 || n_a + n_b > workers)
        return 0;
    part[0].worker_ns = worker_ns(p, a, workers);
    part[1].worker_ns = worker_ns(p, b, workers);
    if (part[0].worker_ns == 0 || part[1].worker_ns == 0)
        return 0;
    ns = rates_map_workers(part, 2, workers);
    sum = (double)n_a / (double)part[0].worker_ns + (double)n_b / (double)part[1].worker_ns;
    *ret_idle = 1 - (double)workers / (double)ns / sum;
    eff_a = efficiency(p, a, n_a + n_b, workers);
    eff_b = efficiency(p, b, n_a + n_b, workers);
    return (int64_t)(1e15 / (double)ns * (eff_a < eff_b ? eff_a : eff_b));
}

int64_t rates_spanned(const struct rates_profile *p, int a, int32_t n_a, int b, int32_t n_b)
{
    double all = n_a + n_b, on_a = (double)rates_at(p, a, n_a + n_b, NULL);
    double on_b = (double)rates_at(p, b, n_a + n_b, NULL);

    return on_a > 0 && on_b > 0 ? (int64_t)(SPANNED * (on_a * n_a + on_b * n_b) / all) : 0;
}
