#include "server/cluster/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/cluster/rates.h"

#define LEARN 0.1     /* share of the newest step: what a share of a processor allows comes in bursts */
#define LINES_FIRST 3 /* of a run that say nothing: memory and caches are cold */
#define LINES_OFF 8   /* in a row */
#define OFF 1.1
#define TIMES_MOST 5 /* that a change is made harder */
#define ALIKE 1.05   /* times that differ by less are one */

/* The part of replicas that are as fast as this one, added when there is none; NULL: too many different. */
static struct rates_est *part_of(struct rates_est *parts, size_t *n, double ms)
{
    for (size_t i = 0; i < *n; i++) {
        double other = (double)parts[i].worker_ns * 1e-6;

        if (ms < other * ALIKE && other < ms * ALIKE)
            return &parts[i];
    }
    if (*n == RATES_TYPES_MAX)
        return NULL;
    parts[*n] = (struct rates_est){.worker_ns = ms * 1e6 < 1 ? 1 : (int64_t)(ms * 1e6)};
    return &parts[(*n)++];
}

/* Replicas that have none get one from who takes longest of those that have more. */
static void give_each_one(const double *ms, size_t n, int *ret)
{
    for (size_t i = 0; i < n; i++) {
        size_t from = n;

        for (size_t k = 0; k < n && ret[i] < 1; k++)
            if (ret[k] > 1 && (from == n || ms[k] * ret[k] > ms[from] * ret[from]))
                from = k;
        if (from == n)
            continue;
        ret[from]--;
        ret[i]++;
    }
}

bool shares_divide(const double *ms, size_t n, int workers, int *ret)
{
    struct rates_est parts[RATES_TYPES_MAX];
    size_t n_parts = 0;

    for (size_t i = 0; i < n; i++) {
        struct rates_est *p = ms[i] > 0 && ms[i] < 1e9 ? part_of(parts, &n_parts, ms[i]) : NULL;

        if (!p)
            return false;
        p->devices++;
    }
    if (n_parts < 2 || rates_map_workers(parts, n_parts, workers) == 0)
        return false;
    if (n > (size_t)workers)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct rates_est *p = part_of(parts, &n_parts, ms[i]);

        ret[i] = p->each - (p->fewer > 0);
        p->fewer -= p->fewer > 0;
    }
    give_each_one(ms, n, ret);
    return true;
}

/* Rank order: tp fastest, then cp, then dp, then pp. */
size_t shares_replica(const struct layout *l, size_t rank)
{
    return rank / (size_t)(l->tp * l->cp) % (size_t)l->dp;
}

size_t shares_first(const struct layout *l, size_t replica)
{
    return replica * (size_t)(l->tp * l->cp);
}

int shares_workers(const struct job *j, const struct pace *pace, size_t rank)
{
    int begin, end;

    if (j->places[rank].leaves > 0)
        return j->places[rank].leaves;
    plan_leaves(pace->workers, j->layout.dp, (int)shares_replica(&j->layout, rank), &begin, &end);
    return end - begin;
}

/* --- when to lay them anew ------------------------------------------------------------------------------- */

void shares_begin(struct shares_watch *w, uint32_t generation, uint64_t devices, uint64_t laid)
{
    bool same = w->generation != 0 && w->devices == devices;

    w->times = same ? w->times + (w->laid != laid && w->times < TIMES_MOST) : 0;
    w->generation = generation;
    w->devices = devices;
    w->laid = laid;
    w->lines = w->off = 0;
}

void shares_watch(struct shares_watch *w, double times)
{
    w->off = times > 1 + (OFF - 1) * (1 << w->times) ? w->off + 1 : 0;
}

bool shares_are_off(const struct shares_watch *w, uint32_t generation)
{
    return w->generation == generation && w->off >= LINES_OFF;
}

static void begin(const struct job *j, struct pace *pace)
{
    uint64_t devices = 0, laid = 0;

    for (size_t i = 0; i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        uint64_t of[4] = {devices, hash_xxh3(p->node, strlen(p->node)), (uint64_t)p->slot, 0};
        uint64_t with[2] = {laid, (uint64_t)shares_workers(j, pace, i)};

        devices = hash_xxh3(of, sizeof(of));
        laid = hash_xxh3(with, sizeof(with));
    }
    shares_begin(&pace->shares, j->generation, devices, laid);
}

static void learn_time(const struct cluster *cl, struct pace *pace, const struct job_place *p, double ms)
{
    struct leaf_time *t = pace_leaf_time(pace, p->class_);

    if (!(ms > 0) || cluster_slowness(cl, p) > 1)
        return;
    if (!t && pace->n_leaf_times < PACE_LEAF_TIMES_MAX) {
        t = &pace->leaf_times[pace->n_leaf_times++];
        *t = (struct leaf_time){.ms = ms};
        (void)snprintf(t->class_, sizeof(t->class_), "%s", p->class_);
    }
    if (t)
        t->ms += LEARN * (ms - t->ms);
}

void shares_learn(const struct cluster *cl, const struct job *j, struct pace *pace, uint32_t generation,
                  const json_t *leaf_ms)
{
    if (!j->live || j->generation != generation || pace->learned_generation != generation ||
        json_array_size(leaf_ms) != (size_t)j->layout.dp ||
        shares_first(&j->layout, (size_t)j->layout.dp) > j->n_places)
        return; /* a run's first step is slow for other reasons */
    if (pace->shares.generation != generation)
        begin(j, pace);
    if (++pace->shares.lines <= LINES_FIRST)
        return;
    for (size_t r = 0; r < (size_t)j->layout.dp; r++) /* the first rank speaks for its replica */
        learn_time(cl, pace, &j->places[shares_first(&j->layout, r)], json_number_value(json_array_get(leaf_ms, r)));
    shares_watch(&pace->shares, shares_off_by(cl, j, pace));
}

/* What one worker takes on each replica: as long as on the slowest of its devices. New. */
static double *times_of(const struct cluster *cl, const struct pace *pace, const struct layout *l,
                        const struct job_place *p, size_t n)
{
    double *ms = calloc((size_t)l->dp, sizeof(*ms));

    for (size_t i = 0; ms && i < n; i++) {
        double one = pace_worker_ms(pace, p[i].class_) * cluster_slowness(cl, &p[i]), *at = &ms[shares_replica(l, i)];

        *at = one <= 0 || *at < 0 ? -1 : one > *at ? one : *at; /* below 0: not known */
    }
    return ms;
}

void shares_set(const struct cluster *cl, const struct pace *pace, const struct layout *l, struct job_place *p,
                size_t n)
{
    double *ms = times_of(cl, pace, l, p, n);
    int *leaves = calloc((size_t)l->dp, sizeof(*leaves));
    bool laid = ms && leaves && shares_divide(ms, (size_t)l->dp, pace->workers, leaves);

    for (size_t i = 0; i < n; i++)
        p[i].leaves = laid ? leaves[shares_replica(l, i)] : 0;
    free(leaves);
    free(ms);
}

/* The time of the slowest replica. */
static double slowest(const double *ms, size_t n, const int *leaves)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = ms[i] * leaves[i] > most ? ms[i] * leaves[i] : most;
    return most;
}

/* As even as can be. */
static void divide_evenly(int workers, size_t n, int *ret)
{
    for (size_t i = 0; i < n; i++) {
        int begin, end;

        plan_leaves(workers, (int)n, (int)i, &begin, &end);
        ret[i] = end - begin;
    }
}

double shares_off_by(const struct cluster *cl, const struct job *j, const struct pace *pace)
{
    size_t dp = (size_t)j->layout.dp;
    double *ms = times_of(cl, pace, &j->layout, j->places, j->n_places), off = 1;
    int *best = calloc(dp, sizeof(*best)), *now = calloc(dp, sizeof(*now));
    bool known = ms && best && now;

    for (size_t i = 0; known && i < dp; i++)
        known = ms[i] > 0;
    if (known) {
        if (!shares_divide(ms, dp, pace->workers, best))
            divide_evenly(pace->workers, dp, best);
        for (size_t i = 0; i < j->n_places; i++)
            now[shares_replica(&j->layout, i)] = shares_workers(j, pace, i);
        off = slowest(ms, dp, now) / slowest(ms, dp, best);
    }
    free(now);
    free(best);
    free(ms);
    return off;
}
