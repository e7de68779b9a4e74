/* fleet - steps of the ranks of a run that is not there: with noise, spikes, uneven replicas, and faults as wanted
 *
 * Each rank's time has noise of 1.5 %, 0.3 % of samples are 1.3 times as long, replicas differ by some percent from
 * step to step. In calls of its groups a rank waits for the latest member.
 */
#ifndef MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_FLEET_H
#define MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_FLEET_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/diagnose/lag.h"

#define FLEET_BUSY 800000.0f /* microseconds of computing a step */
#define FLEET_CALL 20000.0f  /* and in the calls of each group, when nobody is late */
#define FLEET_NONE UINT32_MAX

struct fleet {
    int tp, pp, dp, per_node;
    size_t n;
    uint64_t chance;
    float noise, spikes, imbalance, stage; /* stage: the last takes that many times as long */
    struct lag_place *place;
    float *busy, *replica;
    struct lag *lag;
    uint64_t step;
    /* the fault */
    uint32_t victim;                /* a rank */
    float slower, data, link, idle; /* its factor of computing; share of data; factor of its groups' calls of kind; the
                                       share of the slowing in which it had no processor */
    float away;                     /* the share of its steps in which the victim stands still in calls */
    float bytes, wall, starved;     /* its groups send so many times as much; a step to what is computed; share of it in
                                       which each rank has no processor */
    bool no_cpu, throttled;         /* processor time is not told; what the victim lacks is its limit */
    enum lag_kind kind;
};

static inline uint64_t fleet_draw(struct fleet *f)
{
    f->chance ^= f->chance << 13;
    f->chance ^= f->chance >> 7;
    f->chance ^= f->chance << 17;
    return f->chance * UINT64_C(0x2545F4914F6CDD1D);
}

static inline float fleet_uniform(struct fleet *f)
{
    return (float)(fleet_draw(f) >> 40) / (float)(1 << 24);
}

/* About normal, of standard deviation 1. */
static inline float fleet_normal(struct fleet *f)
{
    float sum = 0;

    for (int i = 0; i < 2; i++) {
        uint64_t x = fleet_draw(f);

        for (int k = 0; k < 4; k++)
            sum += (float)(x >> 16 * k & 65535) / 65536.0f;
    }
    return (sum - 4) * 1.2247449f;
}

static inline void fleet_make(struct fleet *f, int tp, int pp, int dp, uint64_t seed)
{
    memset(f, 0, sizeof(*f));
    f->tp = tp;
    f->pp = pp;
    f->dp = dp;
    f->n = (size_t)(tp * pp * dp);
    f->per_node = 8;
    f->chance = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
    f->noise = 0.015f;
    f->spikes = 0.003f;
    f->stage = 1;
    f->victim = FLEET_NONE;
    f->slower = f->link = f->bytes = 1;
    f->wall = 1.3f;
    f->place = calloc(f->n, sizeof(*f->place));
    f->busy = calloc(f->n, sizeof(*f->busy));
    f->replica = calloc(f->n, sizeof(*f->replica));
}

/* Places are set, or as here: tp fastest, then dp, then pp. */
static inline void fleet_start(struct fleet *f)
{
    for (size_t i = 0; i < f->n; i++) {
        uint32_t t = (uint32_t)(i % (size_t)f->tp), d = (uint32_t)(i / (size_t)f->tp % (size_t)f->dp);
        uint32_t stage = (uint32_t)(i / (size_t)(f->tp * f->dp));

        f->place[i] = (struct lag_place){
            .role = stage,
            .replica = d,
            .node = (uint32_t)(i / (size_t)f->per_node),
            .team = {stage * (uint32_t)f->dp + d, stage * (uint32_t)f->tp + t, (uint32_t)i},
        };
    }
    if (lag_new(f->place, f->n, &f->lag) < 0)
        abort();
}

static inline void fleet_clear(struct fleet *f)
{
    lag_free(f->lag);
    free(f->place);
    free(f->busy);
    free(f->replica);
}

static inline void fleet_compute(struct fleet *f)
{
    for (size_t i = 0; i < (size_t)f->dp; i++)
        f->replica[i] = f->imbalance > 0 ? 1 + f->imbalance * fleet_normal(f) : 1;
    for (size_t i = 0; i < f->n; i++) {
        float x = 1 + f->noise * fleet_normal(f);

        if (f->spikes > 0 && fleet_uniform(f) < f->spikes)
            x *= 1.3f;
        x *= f->replica[f->place[i].replica] * (f->place[i].role + 1 == (uint32_t)f->pp ? f->stage : 1);
        f->busy[i] = FLEET_BUSY * x * (i == f->victim ? f->slower : 1);
    }
}

/* All ranks do a step; flagged: it evaluates, and takes twice as long. */
static inline void fleet_step(struct fleet *f, bool flagged)
{
    float *latest = calloc(LAG_KINDS * f->n, sizeof(*latest));

    fleet_compute(f);
    for (int k = 0; k < LAG_KINDS; k++)
        for (size_t i = 0; i < f->n; i++) {
            float *at = &latest[(size_t)k * f->n + f->place[i].team[k]];

            *at = f->busy[i] > *at ? f->busy[i] : *at;
        }
    for (size_t i = 0; i < f->n; i++) {
        bool is = i == f->victim;
        struct lag_sample s = {.busy = f->busy[i], .wall = f->wall * FLEET_BUSY, .work = 4096, .kib = 4096};
        float lacks = is ? f->idle * (f->busy[i] - f->busy[i] / f->slower) : 0;

        s.data = is ? f->data * s.wall : 0.001f * s.wall;
        s.cpu = f->no_cpu ? 0 : f->busy[i] * 1.01f - lacks;
        s.starved = f->starved * s.wall + (f->no_cpu ? lacks : 0) + (is ? f->away * s.wall : 0);
        s.throttled = f->throttled ? lacks : 0;
        for (int k = 0; k < LAG_KINDS; k++) {
            bool hurt =
                f->victim != FLEET_NONE && k == (int)f->kind && f->place[i].team[k] == f->place[f->victim].team[k];

            if (hurt)
                s.kib *= f->bytes;
            s.call[k] = latest[(size_t)k * f->n + f->place[i].team[k]] - f->busy[i] +
                        FLEET_CALL * (hurt ? f->link : 1) * (1 + f->noise * fleet_normal(f));
        }
        if (flagged)
            s.busy *= 2;
        lag_take(f->lag, i, &(struct lag_span){f->step, 1, !flagged}, &s);
    }
    f->step++;
    free(latest);
}

/* Go on until there is news, for so many steps at most; returns how many were done, with *ret->n 0 where there is none.
 */
static inline int fleet_go(struct fleet *f, int steps, struct lag_verdict *ret)
{
    int i = 0;

    *ret = (struct lag_verdict){.n = 0};
    while (i < steps && ret->n == 0) {
        fleet_step(f, false);
        i++;
        if (f->step % LAG_WINDOW == 0 && !lag_judge(f->lag, ret))
            abort();
    }
    return i;
}

#endif
