#include "scheduler/cluster/slow.h"

#include <math.h>
#include <stdlib.h>

#define PEERS_MAX 256 /* that a replica is compared with */
#define STEP_MOST 2.0 /* a report counts as at most that many times what was thought, or as that part of it */
#define MS_MOST 1e12
#define SMOOTH_DEVICE 3 /* square roots: a report's weight is 1/8 */
#define SMOOTH_USUAL 6  /* 1/64; SMOOTH_DEVICE at first */

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The median of the times of the others of the class that are not slow; 0: there is none. */
static double median_beside(const struct slow_replica *v, size_t n, size_t me)
{
    double ms[PEERS_MAX];
    size_t k = 0;

    for (size_t i = 0; i < n && k < PEERS_MAX; i++)
        if (i != me && v[i].class_ == v[me].class_ && !v[i].slow && v[i].ms > 0)
            ms[k++] = v[i].ms;
    if (k == 0)
        return 0;
    qsort(ms, k, sizeof(*ms), by_size);
    return (ms[(k - 1) / 2] + ms[k / 2]) / 2;
}

static bool has_less(const struct slow_replica *v, size_t n, size_t me)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].class_ == v[me].class_ && v[i].workers > v[me].workers + 1) /* one more is as even as can be */
            return true;
    return false;
}

void slow_compare(const struct slow_replica *v, size_t n, struct slow_ratio *ret)
{
    for (size_t i = 0; i < n; i++) {
        double beside;

        ret[i] = (struct slow_ratio){.ratio = 0};
        if (v[i].class_ == SLOW_NO_CLASS || !(v[i].ms > 0) || v[i].ms > MS_MOST)
            continue;
        beside = median_beside(v, n, i);
        ret[i].alone = beside <= 0;
        if (ret[i].alone)
            beside = v[i].usual_ms;
        ret[i].ratio = beside > 0 ? v[i].ms / beside : 0;
        ret[i].eased = has_less(v, n, i);
    }
}

/* Move towards a value by that root of their ratio: only square roots, which are the same on every host. */
static double smooth(double at, double value, int roots)
{
    double times = value / at;

    times = times > STEP_MOST ? STEP_MOST : times < 1 / STEP_MOST ? 1 / STEP_MOST : times;
    for (int i = 0; i < roots; i++)
        times = sqrt(times);
    return at * times;
}

bool slow_suspect(const struct slow_device *d, const struct slow_rules *rules)
{
    return d->slow || d->ratio >= (1 + rules->ratio) / 2;
}

void slow_usual(struct slow_usual *u, double ms, bool suspect)
{
    bool young = u->n < SLOW_USUAL_FIRST;

    if (!(ms > 0) || ms > MS_MOST || (suspect && !young))
        return;
    u->ms = u->n > 0 ? smooth(u->ms, ms, young ? SMOOTH_DEVICE : SMOOTH_USUAL) : ms;
    u->n += young;
}

static void find(struct slow_device *d, const struct slow_rules *rules, int64_t now_us)
{
    int64_t times = INT64_C(1) << (d->times < 8 ? d->times : 8);

    d->slow = true;
    d->found_us = now_us;
    d->retry_at_us = now_us + rules->retry_us * (times < SLOW_RETRY_TIMES ? times : SLOW_RETRY_TIMES);
    d->times++;
}

enum slow_news slow_take(struct slow_device *d, const struct slow_rules *rules, const struct slow_ratio *r,
                         int64_t now_us)
{
    int64_t after_us = r->alone ? SLOW_ALONE * rules->after_us : rules->after_us;

    if (!(rules->ratio > 1) || !(r->ratio > 0))
        return SLOW_NO_NEWS;
    if (d->slow && r->eased && r->ratio <= d->ratio) {
        d->in_row = 0;
        return SLOW_NO_NEWS;
    }
    d->ratio = smooth(d->ratio > 0 ? d->ratio : 1, r->ratio, SMOOTH_DEVICE);
    if (d->slow ? d->ratio >= (1 + rules->ratio) / 2 : d->ratio <= rules->ratio) {
        d->in_row = 0;
        return SLOW_NO_NEWS;
    }
    if (d->in_row++ == 0)
        d->since_us = now_us;
    if (d->in_row < SLOW_REPORTS || now_us - d->since_us < after_us)
        return SLOW_NO_NEWS;
    d->in_row = 0;
    if (d->slow) {
        (void)slow_forgive(d);
        return SLOW_WELL;
    }
    find(d, rules, now_us);
    return SLOW_FOUND;
}

bool slow_confirm(struct slow_device *d, const struct slow_rules *rules, double ratio, int64_t now_us)
{
    if (d->slow || !(rules->ratio > 1) || !(ratio > rules->ratio))
        return false;
    d->ratio = ratio;
    d->in_row = 0;
    find(d, rules, now_us);
    return true;
}

void slow_begin(struct slow_device *d)
{
    d->in_row = 0;
    if (!d->slow)
        d->ratio = 0;
}

bool slow_expire(struct slow_device *d, int64_t now_us)
{
    if (!d->slow || now_us < d->retry_at_us)
        return false;
    d->slow = false; /* times stays: when it is slow still, the next trial is later */
    slow_begin(d);
    return true;
}

bool slow_forgive(struct slow_device *d)
{
    bool was = d->slow;

    *d = (struct slow_device){.ratio = 0};
    return was;
}
