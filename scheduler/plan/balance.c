#include "scheduler/plan/balance.h"

#include <assert.h>
#include <float.h>

/* Blocks that a stage takes within a time; at least one, whatever it takes. */
static int within(const struct plan_stage *s, double time_s, int layers)
{
    double n = (time_s - s->fixed_s) / s->block_s + 1e-9;
    int most = s->most < layers ? s->most : layers;

    return n < 1 ? 1 : n > most ? most : (int)n;
}

static double stage_s(const struct plan_stage *s, int blocks)
{
    return s->fixed_s + s->block_s * blocks;
}

static int all_within(const struct plan_stage *stage, int n, double time_s, int layers)
{
    int all = 0;

    for (int i = 0; i < n && all < layers; i++)
        all += within(&stage[i], time_s, layers);
    return all;
}

/* The least time at which so many blocks of one stage end and all layers find a place; DBL_MAX: none. */
static double least_of(const struct plan_stage *stage, int n, int which, int layers, double at_least)
{
    const struct plan_stage *s = &stage[which];
    int lo = 1, hi = s->most < layers ? s->most : layers;

    while (lo <= hi) {
        int mid = lo + (hi - lo) / 2;
        double t = stage_s(s, mid);

        if (t >= at_least && all_within(stage, n, t, layers) >= layers)
            hi = mid - 1;
        else
            lo = mid + 1;
    }
    return hi + 1 <= (s->most < layers ? s->most : layers) ? stage_s(s, hi + 1) : DBL_MAX;
}

double plan_balance(const struct plan_stage *stage, int n, int layers, uint16_t *ret)
{
    double best = DBL_MAX, at_least = 0;
    int all = 0;

    assert(n >= 1);
    for (int i = 0; i < n; i++) { /* everybody has one block */
        double one = stage_s(&stage[i], 1);

        assert(stage[i].block_s > 0);
        if (stage[i].most < 1)
            return -1;
        at_least = one > at_least ? one : at_least;
        all += stage[i].most < layers ? stage[i].most : layers;
    }
    if (all < layers || layers < n)
        return -1;
    if (all_within(stage, n, at_least, layers) >= layers)
        best = at_least;
    for (int i = 0; i < n; i++) {
        double t = least_of(stage, n, i, layers, at_least);

        best = t < best ? t : best;
    }
    assert(best < DBL_MAX);
    all = 0;
    for (int i = 0; i < n; i++)
        all += ret[i] = (uint16_t)within(&stage[i], best, layers);
    for (; all > layers; all--) { /* surplus: from whoever is slowest */
        int slow = -1;

        for (int i = 0; i < n; i++)
            if (ret[i] > 1 && (slow < 0 || stage_s(&stage[i], ret[i]) > stage_s(&stage[slow], ret[slow])))
                slow = i;
        assert(slow >= 0);
        ret[slow]--;
    }
    return best;
}
