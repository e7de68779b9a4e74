#include "scheduler/plan/layout.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 3, 4))) static void reason(struct plan_reasons *why, const char *code, const char *fmt,
                                                         ...)
{
    struct plan_reason *r;
    va_list ap;

    if (why->n == PLAN_REASONS_MAX)
        return;
    r = &why->v[why->n++];
    (void)snprintf(r->code, sizeof(r->code), "%s", code);
    va_start(ap, fmt);
    (void)vsnprintf(r->text, sizeof(r->text), fmt, ap);
    va_end(ap);
}

static int or_one(int n)
{
    return n == PLAN_AUTO ? 1 : n;
}

int plan_replica_devices(const struct plan_facts *f)
{
    long tp = or_one(f->tp), pp = or_one(f->pp), cp = or_one(f->cp);

    if (tp < 1 || pp < 1 || cp < 1 || tp > PLAN_RANKS_MAX || pp > PLAN_RANKS_MAX || cp > PLAN_RANKS_MAX)
        return 0;
    return tp * pp * cp > PLAN_RANKS_MAX ? 0 : (int)(tp * pp * cp);
}

static void check_job(const struct plan_facts *f, struct plan_reasons *why)
{
    int tp = or_one(f->tp), pp = or_one(f->pp);

    if (plan_replica_devices(f) == 0) {
        reason(why, "layout-out-of-range", "tp %d, pp %d and cp %d make no replica of 1 to %d devices", f->tp, f->pp,
               f->cp, PLAN_RANKS_MAX);
        return;
    }
    if (f->heads > 0 && f->heads % tp != 0)
        reason(why, "heads-not-divisible", "%d heads cannot be split over tp %d", f->heads, tp);
    if (f->layers > 0 && f->layers < pp)
        reason(why, "too-few-layers", "%d layers cannot be split over pp %d", f->layers, pp);
    if (f->virtual_workers < 1)
        reason(why, "no-virtual-workers", "virtual_workers is %d: want at least 1", f->virtual_workers);
    else if (f->sequences < 1 || f->sequences % f->virtual_workers != 0)
        reason(why, "batch-not-divisible", "a batch of %d sequences cannot be split over %d virtual workers",
               f->sequences, f->virtual_workers);
    else if (f->micro < 0 || (f->micro > 0 && f->sequences / f->virtual_workers % f->micro != 0))
        reason(why, "micro-not-divisible", "micro-batches of %d cannot make up a virtual worker's %d sequences",
               f->micro, f->sequences / f->virtual_workers);
}

int plan_layout(const struct plan_facts *f, int devices, struct layout *ret, struct plan_reasons *why, struct merr *err)
{
    struct plan_reasons mine = {.n = 0};
    struct layout l = {.tp = or_one(f->tp), .pp = or_one(f->pp), .cp = or_one(f->cp)};
    int replica = plan_replica_devices(f), code = -EINVAL;

    if (!why)
        why = &mine;
    why->n = 0;
    check_job(f, why);
    if (why->n == 0 && devices < replica) {
        code = -ENOSPC;
        reason(why, "too-few-devices", "one replica takes %d devices (tp %d x pp %d x cp %d), there %s %d", replica,
               l.tp, l.pp, l.cp, devices == 1 ? "is" : "are", devices < 0 ? 0 : devices);
    }
    if (why->n > 0)
        return merr_set(err, code, "%s", why->v[0].text);

    assert(replica > 0);
    if (devices > PLAN_RANKS_MAX)
        devices = PLAN_RANKS_MAX;
    l.dp = devices / replica;
    if (l.dp > f->virtual_workers)
        l.dp = f->virtual_workers;
    l.world = replica * l.dp;
    *ret = l;
    return 0;
}

void plan_leaves(int virtual_workers, int dp, int r, int *ret_begin, int *ret_end)
{
    assert(dp >= 1 && r >= 0 && r < dp && virtual_workers >= 1);
    *ret_begin = (int)((long)r * virtual_workers / dp);
    *ret_end = (int)((long)(r + 1) * virtual_workers / dp);
}

void plan_leaves_shared(const int *share, int virtual_workers, int dp, int r, int *ret_begin, int *ret_end)
{
    int begin = 0;

    if (!share) {
        plan_leaves(virtual_workers, dp, r, ret_begin, ret_end);
        return;
    }
    assert(dp >= 1 && r >= 0 && r < dp);
    for (int i = 0; i < r; i++)
        begin += share[i];
    assert(begin + share[r] <= virtual_workers);
    *ret_begin = begin;
    *ret_end = begin + share[r];
}
