#include "scheduler/diagnose/lag_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_REPLICA 32
#define SIGMAS 5
#define SIGMA_LEAST 0.003
#define SIGMA_FEW 0.02
#define SLOWER 0.0296         /* ln 1.03 */
#define SLOWER_LASTING 0.0218 /* ln 1.022, on the average of LAG_LONG windows, */
#define LASTING_LEAST 0.006   /* and so much in each */
#define SIGMAS_LASTING 6
#define SLOWER_CPU 0.0488    /* ln 1.05 */
#define SLOWER_FEW 0.0953    /* ln 1.10 */
#define SLOWER_ALWAYS 0.2231 /* ln 1.25: of few ranks, since their run began */
#define EARLY_CAP 0.15f      /* see rule C in early() */
#define EARLY_SLACK 0.02f
#define EARLY_ALARM 0.35f
#define WITHHELD_LEAST 0.05f /* ln: of time computing, where it may be for want of a processor */
#define CROWDED 0.05f        /* of the time a rank waited for a processor */
#define UNUSUAL 3            /* spreads: what deviates by more is no more usual for it */

/* --- residuals ----------------------------------------------------------------------------------------- */

static float *cell_of(const struct lag *l, const struct window *w, int at)
{
    return w->cost + (size_t)at * l->n;
}

void lag_count(struct lag *l, struct window *w)
{
    memset(l->cells, 0, l->n * sizeof(*l->cells));
    for (int at = 0; at < LAG_WINDOW; at++) {
        float *restrict cost = cell_of(l, w, at), *restrict cells = l->cells;
        const float *restrict work = w->work + (size_t)at * l->n;

        for (size_t i = 0; i < l->n; i++) {
            cost[i] /= work[i] > 0 ? work[i] : 1;
            cells[i] += work[i] > 0 ? 1 : 0;
        }
    }
}

/* What ranks took in a cell, of those that are told: most of them, evenly. */
static size_t gather(const struct lag *l, const float *cost, const uint32_t *rank, size_t n, size_t most)
{
    size_t by = n > most ? n / most : 1, got = 0;

    for (size_t i = 0; i < n; i += by)
        if (cost[rank[i]] > 0)
            l->scratch[got++] = cost[rank[i]];
    return got;
}

/* Rule C, CUSUM: small deviations add up. Draws attention to a rank early, and to others that are well; never more. */
static float early(float sum, float cost)
{
    float d = cost - 1, x = d > 0.3f ? 0.26f : d < -0.3f ? -0.35f : d - d * d / 2 + d * d * d / 3; /* about ln */

    x = (x < EARLY_CAP ? x : EARLY_CAP) - EARLY_SLACK;
    sum += cost > 0 ? x : 0;
    return sum > 0 ? sum : 0;
}

/* The cell in which it was suspected first, where it is by the end of the window. */
static void note_early(struct lag *l, const struct window *w, uint32_t rank, float was)
{
    struct past *p = &l->past[rank];

    if (l->early[rank] == 0)
        p->early_step = 0;
    if (l->early[rank] < EARLY_ALARM || p->early_step > 0)
        return;
    for (int at = 0; at < LAG_WINDOW && p->early_step == 0; at++) {
        was = early(was, cell_of(l, w, at)[rank]);
        if (was >= EARLY_ALARM || at == LAG_WINDOW - 1)
            p->early_step = w->end - (uint64_t)(LAG_WINDOW - at) * w->scale;
    }
}

/* Turn the costs of the ranks of a large role into ratios to what the role takes, */
static void compare_many(struct lag *l, struct window *w, const uint32_t *rank, size_t n)
{
    bool row = rank[n - 1] - rank[0] + 1 == n; /* they stand side by side */

    for (int at = 0; at < LAG_WINDOW; at++) {
        float *cost = cell_of(l, w, at);
        size_t got = gather(l, cost, rank, n, SAMPLE);
        float usual = lag_median(l->scratch, got), by = usual > 0 ? 1 / usual : 1;

        for (size_t i = 0; i < n && row; i++)
            cost[rank[0] + i] *= by;
        for (size_t i = 0; i < n && !row; i++)
            cost[rank[i]] *= by;
    }
}

/* What ranks of each of some replicas, from one on, took in a cell: the median of some of them; 0: too few are told. */
static void replica_medians(const struct lag *l, const float *cost, size_t from, size_t n, float ret[LAG_LANES])
{
    float v[SAMPLE_REPLICA][LAG_LANES];
    uint8_t got[LAG_LANES] = {0};

    for (size_t k = 0; k < n; k++) {
        const uint32_t *rank = l->by_replica + l->replica_at[from + k];
        size_t ranks = l->replica_at[from + k + 1] - l->replica_at[from + k];
        size_t by = (ranks + SAMPLE_REPLICA - 1) / SAMPLE_REPLICA, at = 0;

        for (size_t i = 0; i < ranks && l->spread[from + k]; i += by) {
            bool told = cost[rank[i]] > 0;

            v[at++][k] = told ? cost[rank[i]] : INFINITY; /* the last ones */
            got[k] = (uint8_t)(got[k] + told);
        }
        for (; at < SAMPLE_REPLICA; at++)
            v[at][k] = INFINITY;
    }
    for (size_t k = n; k < LAG_LANES; k++)
        for (int i = 0; i < SAMPLE_REPLICA; i++)
            v[i][k] = INFINITY;
    lag_sort_lanes(v, SAMPLE_REPLICA);
    for (size_t k = 0; k < n; k++)
        ret[k] = got[k] < REPLICA_LEAST ? 0 : (v[(got[k] - 1) / 2][k] + v[got[k] / 2][k]) / 2;
}

/* What all ranks of a replica have in common, such as longer sequences, is no rank's fault. */
static void divide_by_replica(struct lag *l, struct window *w)
{
    for (size_t from = 0; l->any_spread && from < l->replicas; from += LAG_LANES) {
        size_t n = l->replicas - from < LAG_LANES ? l->replicas - from : LAG_LANES;

        for (int at = 0; at < LAG_WINDOW; at++) {
            float *cost = cell_of(l, w, at), usual[LAG_LANES];

            replica_medians(l, cost, from, n, usual);
            for (size_t k = 0; k < n; k++) {
                float by = usual[k] > 0 ? 1 / usual[k] : 1;

                for (uint32_t i = l->replica_at[from + k]; i < l->replica_at[from + k + 1]; i++)
                    cost[l->by_replica[i]] *= by;
            }
        }
    }
}

static float median_of_cells(const struct lag *l, const struct window *w, uint32_t rank)
{
    float v[LAG_WINDOW];
    size_t got = 0;

    for (int at = 0; at < LAG_WINDOW; at++)
        if (cell_of(l, w, at)[rank] > 0)
            v[got++] = cell_of(l, w, at)[rank];
    return got >= STEPS_LEAST ? lag_median_few(v, got) : NAN;
}

/* Of the ranks from one on, at most LAG_LANES, of which those of large roles are taken. */
static void find_medians(struct lag *l, const struct window *w, uint32_t from)
{
    uint32_t n = l->n - from < LAG_LANES ? (uint32_t)l->n - from : LAG_LANES;
    float v[LAG_WINDOW][LAG_LANES] = {{0}}, was[LAG_LANES], sum[LAG_LANES] = {0};

    memcpy(sum, l->early + from, n * sizeof(*sum));
    memcpy(was, sum, sizeof(was));
    for (int at = 0; at < LAG_WINDOW; at++) {
        memcpy(v[at], cell_of(l, w, at) + from, n * sizeof(v[0][0]));
        for (int i = 0; i < LAG_LANES; i++)
            sum[i] = early(sum[i], v[at][i]);
    }
    lag_sort_lanes(v, LAG_WINDOW);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = from + i, role = l->place[rank].role;

        if (l->role_at[role + 1] - l->role_at[role] < FEW)
            continue;
        l->early[rank] = sum[i];
        if (sum[i] == 0 ? l->past[rank].early_step > 0 : sum[i] >= EARLY_ALARM)
            note_early(l, w, rank, was[i]);
        l->more[LAG_BUSY][rank] =
            logf(l->cells[rank] == LAG_WINDOW ? (v[LAG_WINDOW / 2 - 1][i] + v[LAG_WINDOW / 2][i]) / 2
                                              : median_of_cells(l, w, rank));
    }
}

/* By window: processor time for each unit of work, which other load on a host changes little. */
static float processor_cost(const struct lag *l, const struct window *w, uint32_t rank)
{
    const struct told *t = &w->told[rank];

    return l->cells[rank] >= STEPS_LEAST && t->sum.cpu > 0 ? logf(t->sum.cpu / t->sum.work) : NAN;
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
        l->more[LAG_CPU][rank[i]] = processor_cost(l, w, rank[i]);
    }
    sigma = sigma_of(l, l->more[LAG_CPU], rank, n, &mid);
    for (size_t i = 0; i < n; i++) {
        float x = l->more[LAG_CPU][rank[i]] -= mid;

        l->hit[LAG_CPU][rank[i]] = !isnan(x) && x > (float)SLOWER_CPU && x > SIGMAS * sigma;
    }
}

/* Less than rule W finds counts where it stays: the average of some windows varies less than one of them does. */
static void hit_lasting(struct lag *l, const uint32_t *rank, size_t n)
{
    float *mean = l->excess, mid, sigma; /* which settle() sets */

    for (size_t i = 0; i < n; i++) {
        float sum = 0, least = INFINITY;

        for (int k = 0; k < LAG_LONG; k++) {
            float x = l->late[k][rank[i]];

            sum += x; /* NAN: it was not told */
            least = x < least ? x : least;
        }
        mean[rank[i]] = l->judged < LAG_LONG ? NAN : sum / LAG_LONG;
        l->lasting[rank[i]] = least > (float)LASTING_LEAST;
    }
    sigma = sigma_of(l, mean, rank, n, &mid);
    for (size_t i = 0; i < n; i++) {
        float x = mean[rank[i]];

        l->lasting[rank[i]] = l->lasting[rank[i]] && x > (float)SLOWER_LASTING && x > SIGMAS_LASTING * sigma;
        if (l->lasting[rank[i]] && !l->hit[LAG_BUSY][rank[i]]) {
            l->hit[LAG_BUSY][rank[i]] = true;
            l->more[LAG_BUSY][rank[i]] = x;
            l->sigmas[rank[i]] = x / sigma;
        }
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

static void learn_few(struct usual *u, float own, float apart)
{
    float weight = u->windows < PAST_LEAST ? 1.0f / (float)(u->windows + 1) : (float)PAST_WEIGHT;
    float off = apart - u->apart, most = UNUSUAL * (u->spread > (float)SIGMA_FEW ? u->spread : (float)SIGMA_FEW);

    if (u->windows >= PAST_LEAST)
        off = off > most ? most : off < -most ? -most : off;
    u->own += weight * (own - u->own);
    if (u->windows > 0)
        u->spread += weight * (1.2533f * fabsf(off) - u->spread);
    u->apart += weight * off;
    u->windows++;
}

/* Ranks of a role with few members: slower than they were, in comparison with the others, or much slower since the
 * beginning. own: of all ranks; change: by how much that is more than it was; apart: from the others, is set. */
static void hit_few(struct lag *l, enum lag_measure m, const float *own, const float *change, float *apart,
                    const uint32_t *rank, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t me = rank[i];
        const struct usual *u = &l->past[me].usual[m];
        float sigma = u->spread > (float)SIGMA_FEW ? u->spread : (float)SIGMA_FEW;
        float more;

        apart[me] = n > 1 ? own[me] - beside(l, own, rank, n, me) : change[me] - beside(l, change, rank, n, me);
        more = apart[me] - u->apart;
        if (isnan(apart[me]))
            continue;
        if (u->windows >= PAST_LEAST && more > (float)SLOWER_FEW && more > SIGMAS * sigma &&
            (l->n > 2 || change[me] > more / 4)) { /* of two ranks, the other may be faster than it was */
            l->hit[m][me] = true;
        } else if (n > 1 && apart[me] > (float)SLOWER_ALWAYS && apart[me] > SIGMAS * sigma) {
            l->hit[m][me] = true;
            more = apart[me];
        }
        l->more[m][me] = more;
        if (m == LAG_BUSY || l->hit[m][me])
            l->sigmas[me] = more / sigma;
    }
}

/* What is usual is learnt while nobody is slow: of a slow rank both measures deviate, and the others from it. */
static void learn_role(struct lag *l, float *const own[LAG_MEASURES], float *const apart[LAG_MEASURES],
                       const uint32_t *rank, size_t n)
{
    bool slow = false;

    for (size_t i = 0; i < n; i++)
        slow = slow || l->hit[LAG_BUSY][rank[i]] || l->hit[LAG_CPU][rank[i]];
    for (int m = 0; m < LAG_MEASURES; m++)
        for (size_t i = 0; i < n; i++) {
            struct usual *u = &l->past[rank[i]].usual[m];

            if (!isnan(apart[m][rank[i]]) && (!slow || u->windows < PAST_LEAST))
                learn_few(u, own[m][rank[i]], apart[m][rank[i]]);
        }
}

static int compare_few(struct lag *l, const struct window *w)
{
    float *of = calloc(3 * LAG_MEASURES * l->n + 1, sizeof(*of)), *own[LAG_MEASURES], *apart[LAG_MEASURES];

    if (!of)
        return -ENOMEM;
    for (int m = 0; m < LAG_MEASURES; m++) {
        float *change = of + 3 * (size_t)m * l->n;

        own[m] = change + l->n;
        apart[m] = own[m] + l->n;
        for (size_t i = 0; i < l->n; i++) {
            const struct usual *u = &l->past[i].usual[m];

            own[m][i] = m == LAG_BUSY ? logf(median_of_cells(l, w, (uint32_t)i)) : processor_cost(l, w, (uint32_t)i);
            change[i] = u->windows > 0 ? own[m][i] - u->own : 0;
        }
        for (size_t k = 0; k < l->roles; k++) {
            size_t n = l->role_at[k + 1] - l->role_at[k];

            if (n > 0 && n < FEW)
                hit_few(l, (enum lag_measure)m, own[m], change, apart[m], l->by_role + l->role_at[k], n);
        }
    }
    for (size_t k = 0; k < l->roles; k++) {
        size_t n = l->role_at[k + 1] - l->role_at[k];

        if (n > 0 && n < FEW)
            learn_role(l, own, apart, l->by_role + l->role_at[k], n);
    }
    free(of);
    return 0;
}

/* --- why ---------------------------------------------------------------------------------------------- */

/* By how much more of its time than the others of its role the rank had no processor though it could have run. */
float lag_starved_more(const struct lag *l, const struct window *w, uint32_t rank)
{
    uint32_t role = l->place[rank].role, n = l->role_at[role + 1] - l->role_at[role], by = n > SAMPLE ? n / SAMPLE : 1;
    const uint32_t *of = l->by_role + l->role_at[role];
    float cpu = l->more[LAG_CPU][rank];
    size_t got = 0;

    for (uint32_t i = 0; i < n; i += by)
        if (of[i] != rank && w->told[of[i]].sum.wall > 0)
            l->scratch[got++] = w->told[of[i]].sum.starved / w->told[of[i]].sum.wall;
    return w->told[rank].sum.starved / w->told[rank].sum.wall -
           lag_median(l->scratch, got) * (cpu > 0 ? expf(cpu) : 1); /* who needs more of it waits for more */
}

float lag_lacks(float busy, float cpu)
{
    return busy > WITHHELD_LEAST && cpu < busy / 2 ? 1 - expf(cpu - busy) : 0;
}

/* The share of its time computing that it had no processor, and would have needed one: it got less processor time than
 * that time needs, or the kernel counted that it waited for it. */
static float find_withheld(struct lag *l, const struct window *w, uint32_t rank)
{
    float busy = l->more[LAG_BUSY][rank], cpu = l->more[LAG_CPU][rank], share = lag_lacks(busy, cpu), starved;
    const struct lag_sample *s = &w->told[rank].sum;

    if (!(busy > WITHHELD_LEAST) || !(s->busy > 0) || (!isnan(cpu) && share == 0))
        return 0;
    starved = s->starved > 0 ? lag_starved_more(l, w, rank) * s->wall / s->busy : 0;
    if (starved > (1 - expf(-busy)) / 2 && starved > share)
        share = starved < 0.95f ? starved : 0.95f;
    return share;
}

/* Where processors compute: the most that a rank waited for one, as a share of its time. */
static float crowding(const struct lag *l, const struct window *w, const uint32_t *rank, size_t n)
{
    float most = 0;

    for (size_t i = 0; i < n; i++) {
        const struct lag_sample *s = &w->told[rank[i]].sum;

        if (!isnan(l->more[LAG_CPU][rank[i]]) && s->starved > most * s->wall)
            most = s->starved / s->wall;
    }
    return most;
}

/* More processor time than the others need counts where the time that it computes is longer, too: the times of one
 * step vary with what else the host does, and the rank may have used it while it waited. Of few ranks a longer time
 * counts only where more processor time explains it, or the lack of it: on a busy host some of both comes by chance. */
static void settle(struct lag *l, const struct window *w, uint32_t rank, bool few)
{
    float busy = l->more[LAG_BUSY][rank], cpu = l->more[LAG_CPU][rank];

    l->excess[rank] = 0;
    l->withheld[rank] = find_withheld(l, w, rank);
    if (l->hit[LAG_BUSY][rank] &&
        ((!few && !l->crowded[l->place[rank].role]) || isnan(cpu) || l->hit[LAG_CPU][rank] || l->withheld[rank] > 0))
        l->excess[rank] = busy;
    else if (l->hit[LAG_CPU][rank] && busy > cpu / 4)
        l->excess[rank] = cpu;
}

void lag_compare(struct lag *l, struct window *w)
{
    memset(l->sigmas, 0, l->n * sizeof(*l->sigmas));
    memset(l->lasting, 0, l->n * sizeof(*l->lasting));
    for (int m = 0; m < LAG_MEASURES; m++) {
        memset(l->hit[m], 0, l->n * sizeof(*l->hit[m]));
        for (size_t i = 0; i < l->n; i++)
            l->more[m][i] = NAN;
    }
    if (l->any_few)
        (void)compare_few(l, w); /* without memory they are judged another time */
    for (size_t k = 0; k < l->roles; k++)
        if (l->role_at[k + 1] - l->role_at[k] >= FEW)
            compare_many(l, w, l->by_role + l->role_at[k], l->role_at[k + 1] - l->role_at[k]);
    divide_by_replica(l, w);
    for (uint32_t i = 0; i < l->n; i += LAG_LANES)
        find_medians(l, w, i);
    memcpy(l->late[l->judged % LAG_LONG], l->more[LAG_BUSY], l->n * sizeof(*l->more[LAG_BUSY]));
    for (size_t k = 0; k < l->roles; k++) {
        const uint32_t *rank = l->by_role + l->role_at[k];
        size_t n = l->role_at[k + 1] - l->role_at[k];

        if (n >= FEW) {
            hit_many(l, w, rank, n);
            hit_lasting(l, rank, n);
        }
        l->crowding[k] = crowding(l, w, rank, n);
        l->crowded[k] = (uint8_t)((l->crowded[k] << 1 | (l->crowding[k] > CROWDED)) & 7);
        for (size_t i = 0; i < n; i++)
            settle(l, w, rank[i], n < FEW);
    }
}
