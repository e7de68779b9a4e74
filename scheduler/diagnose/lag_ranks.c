#include "scheduler/diagnose/lag_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_REPLICA 64
#define SIGMAS 5
#define SIGMA_LEAST 0.003
#define SIGMA_FEW 0.02
#define SLOWER 0.0296        /* ln 1.03 */
#define SLOWER_CPU 0.0488    /* ln 1.05 */
#define SLOWER_FEW 0.0953    /* ln 1.10 */
#define SLOWER_ALWAYS 0.2231 /* ln 1.25: of few ranks, since their run began */
#define EARLY_CAP 0.15       /* see rule C in early() */
#define EARLY_SLACK 0.02
#define EARLY_ALARM 0.35

/* --- residuals ----------------------------------------------------------------------------------------- */

/* Per step of the window, what the role's ranks usually take; of those that are told. */
static size_t gather(const struct lag *l, const struct window *w, const uint32_t *rank, size_t n, size_t most, int at)
{
    size_t by = n > most ? n / most : 1, got = 0;

    for (size_t i = 0; i < n; i += by)
        if (w->told[rank[i]].cost[at] > 0)
            l->scratch[got++] = w->told[rank[i]].cost[at];
    return got;
}

/* ln x for x about 1: early() looks at small deviations only. */
static float ln_near(float ratio)
{
    float d = ratio - 1;

    return d > 0.3f ? 0.26f : d < -0.3f ? -0.35f : d - d * d / 2 + d * d * d / 3;
}

/* Rule C, CUSUM: small deviations add up. Draws attention to a rank early, and to others that are well; never more. */
static void early(struct lag *l, uint32_t rank, float x, uint64_t step)
{
    struct past *p = &l->past[rank];

    p->early += (x > EARLY_CAP ? (float)EARLY_CAP : x) - (float)EARLY_SLACK;
    p->early = p->early > 0 ? p->early : 0;
    if (p->early == 0)
        p->early_step = 0;
    if (p->early >= (float)EARLY_ALARM && p->early_step == 0)
        p->early_step = step;
}

/* Turn the costs of the ranks of a large role into ratios to what the role takes, */
static void compare_many(struct lag *l, struct window *w, const uint32_t *rank, size_t n)
{
    for (int at = 0; at < LAG_WINDOW; at++) {
        size_t got = gather(l, w, rank, n, SAMPLE, at);
        float usual = lag_median(l->scratch, got);

        for (size_t i = 0; i < n && usual > 0; i++)
            w->told[rank[i]].cost[at] /= usual;
    }
}

/* What all ranks of a replica have in common, such as longer sequences, is no rank's fault. */
static void divide_by_replica(struct lag *l, struct window *w)
{
    for (size_t k = 0; k < l->replicas; k++) {
        const uint32_t *rank = l->by_replica + l->replica_at[k];
        size_t n = l->replica_at[k + 1] - l->replica_at[k];

        if (!l->spread[k])
            continue;
        for (int at = 0; at < LAG_WINDOW; at++) {
            size_t got = gather(l, w, rank, n, SAMPLE_REPLICA, at);
            float usual = got >= REPLICA_LEAST ? lag_median(l->scratch, got) : 0;

            for (size_t i = 0; i < n && usual > 0; i++)
                w->told[rank[i]].cost[at] /= usual;
        }
    }
}

static void find_medians(struct lag *l, const struct window *w, const uint32_t *rank, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct told *t = &w->told[rank[i]];
        float v[LAG_WINDOW];
        size_t got = 0;

        for (int at = 0; at < LAG_WINDOW; at++) {
            if (t->cost[at] <= 0)
                continue;
            v[got++] = t->cost[at];
            early(l, rank[i], ln_near(t->cost[at]), w->number * LAG_WINDOW + (uint64_t)at);
        }
        l->more[LAG_BUSY][rank[i]] = got >= STEPS_LEAST ? logf(lag_median_few(v, got)) : NAN;
    }
}

/* By window: processor time for each unit of work, which other load on a host changes little. */
static float processor_cost(const struct told *t)
{
    return t->n >= STEPS_LEAST && t->sum.cpu > 0 ? logf(t->sum.cpu / t->sum.work) : NAN;
}

/* The robust deviation of a value of the ranks, whose median goes to *ret_mid. */
static float sigma_of(const struct lag *l, const float *value, const uint32_t *rank, size_t n, float *ret_mid)
{
    size_t by = n > SAMPLE ? n / SAMPLE : 1, got = 0;
    float mid, sigma;

    for (size_t i = 0; i < n; i += by)
        if (!isnan(value[rank[i]]))
            l->scratch[got++] = value[rank[i]];
    mid = *ret_mid = lag_median(l->scratch, got);
    for (size_t i = 0; i < got; i++)
        l->scratch[i] = fabsf(l->scratch[i] - mid);
    sigma = 1.4826f * lag_median(l->scratch, got);
    return sigma > (float)SIGMA_LEAST ? sigma : (float)SIGMA_LEAST;
}

/* Rule W. */
static void hit_many(struct lag *l, const struct window *w, const uint32_t *rank, size_t n)
{
    float mid, sigma = sigma_of(l, l->more[LAG_BUSY], rank, n, &mid);

    for (size_t i = 0; i < n; i++) {
        float x = l->more[LAG_BUSY][rank[i]];

        l->sigmas[rank[i]] = x / sigma;
        l->hit[LAG_BUSY][rank[i]] = !isnan(x) && x > (float)SLOWER && x > SIGMAS * sigma;
        l->more[LAG_CPU][rank[i]] = processor_cost(&w->told[rank[i]]);
    }
    sigma = sigma_of(l, l->more[LAG_CPU], rank, n, &mid);
    for (size_t i = 0; i < n; i++) {
        float x = l->more[LAG_CPU][rank[i]] -= mid;

        l->hit[LAG_CPU][rank[i]] = !isnan(x) && x > (float)SLOWER_CPU && x > SIGMAS * sigma;
    }
}

/* --- few ranks ----------------------------------------------------------------------------------------- */

/* The median of a value of the others of the role; of a role of one rank: of all other ranks'. */
static float beside(struct lag *l, const float *value, const uint32_t *rank, size_t n, uint32_t me)
{
    size_t got = 0;

    for (size_t i = 0; i < n && n > 1; i++)
        if (rank[i] != me && !isnan(value[rank[i]]))
            l->scratch[got++] = value[rank[i]];
    for (size_t i = 0; i < l->n && n == 1; i++)
        if (i != me && !isnan(value[i]))
            l->scratch[got++] = value[i];
    return got > 0 ? lag_median(l->scratch, got) : NAN;
}

static float busy_cost(const struct told *t)
{
    float v[LAG_WINDOW];
    size_t got = 0;

    for (int at = 0; at < LAG_WINDOW; at++)
        if (t->cost[at] > 0)
            v[got++] = t->cost[at];
    return got >= STEPS_LEAST ? logf(lag_median_few(v, got)) : NAN;
}

static void learn_few(struct usual *u, float own, float apart)
{
    float weight = u->windows < PAST_LEAST ? 1.0f / (float)(u->windows + 1) : (float)PAST_WEIGHT;
    float off = fabsf(apart - u->apart);

    u->own += weight * (own - u->own);
    if (u->windows > 0)
        u->spread += weight * (1.2533f * off - u->spread);
    u->apart += weight * (apart - u->apart);
    u->windows++;
}

/* Ranks of a role with few members: slower than they were, in comparison with the others, or much slower since the
 * beginning. own: of all ranks; change: by how much that is more than it was. */
static void hit_few(struct lag *l, enum lag_measure m, const float *own, const float *change, const uint32_t *rank,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t me = rank[i];
        struct usual *u = &l->past[me].usual[m];
        float sigma = u->spread > (float)SIGMA_FEW ? u->spread : (float)SIGMA_FEW;
        float apart = n > 1 ? own[me] - beside(l, own, rank, n, me) : change[me] - beside(l, change, rank, n, me);
        float more = apart - u->apart;
        bool past = u->windows >= PAST_LEAST; /* of two ranks, the other may be faster than it was */

        if (isnan(apart))
            continue;
        if (past && more > (float)SLOWER_FEW && more > SIGMAS * sigma && (l->n > 2 || change[me] > more / 4)) {
            l->hit[m][me] = true;
        } else if (n > 1 && apart > (float)SLOWER_ALWAYS && apart > SIGMAS * sigma) {
            l->hit[m][me] = true;
            more = apart;
        }
        l->more[m][me] = more;
        if (m == LAG_BUSY || l->hit[m][me])
            l->sigmas[me] = more / sigma;
        if (!l->hit[m][me] || !past)
            learn_few(u, own[me], apart);
    }
}

static int compare_few(struct lag *l, const struct window *w)
{
    float *own = calloc(2 * l->n + 1, sizeof(*own)), *change;

    if (!own)
        return -ENOMEM;
    change = own + l->n;
    for (int m = 0; m < LAG_MEASURES; m++) {
        for (size_t i = 0; i < l->n; i++) {
            const struct usual *u = &l->past[i].usual[m];

            own[i] = m == LAG_BUSY ? busy_cost(&w->told[i]) : processor_cost(&w->told[i]);
            change[i] = u->windows > 0 ? own[i] - u->own : 0;
        }
        for (size_t k = 0; k < l->roles; k++) {
            size_t n = l->role_at[k + 1] - l->role_at[k];

            if (n > 0 && n < FEW)
                hit_few(l, (enum lag_measure)m, own, change, l->by_role + l->role_at[k], n);
        }
    }
    free(own);
    return 0;
}

/* More processor time than the others need counts where the time that it computes is longer, too: the times of one
 * step vary with what else the host does, and the rank may have used it while it waited. Of few ranks a longer time
 * counts only where more processor time explains it, or the lack of it: on a busy host some of both comes by chance. */
static void settle(struct lag *l, uint32_t rank, bool few)
{
    float busy = l->more[LAG_BUSY][rank], cpu = l->more[LAG_CPU][rank];
    bool explained = isnan(cpu) || l->hit[LAG_CPU][rank] || cpu < busy / 2;

    l->excess[rank] = 0;
    if (l->hit[LAG_BUSY][rank] && (!few || explained))
        l->excess[rank] = busy;
    else if (l->hit[LAG_CPU][rank] && busy > cpu / 4)
        l->excess[rank] = cpu;
}

void lag_compare(struct lag *l, struct window *w)
{
    memset(l->sigmas, 0, l->n * sizeof(*l->sigmas));
    for (int m = 0; m < LAG_MEASURES; m++) {
        memset(l->hit[m], 0, l->n * sizeof(*l->hit[m]));
        for (size_t i = 0; i < l->n; i++)
            l->more[m][i] = NAN;
    }
    (void)compare_few(l, w); /* without memory they are judged another time */
    for (size_t k = 0; k < l->roles; k++)
        if (l->role_at[k + 1] - l->role_at[k] >= FEW)
            compare_many(l, w, l->by_role + l->role_at[k], l->role_at[k + 1] - l->role_at[k]);
    divide_by_replica(l, w);
    for (size_t k = 0; k < l->roles; k++) {
        const uint32_t *rank = l->by_role + l->role_at[k];
        size_t n = l->role_at[k + 1] - l->role_at[k];

        if (n >= FEW) {
            find_medians(l, w, rank, n);
            hit_many(l, w, rank, n);
        }
        for (size_t i = 0; i < n; i++)
            settle(l, rank[i], n < FEW);
    }
}
