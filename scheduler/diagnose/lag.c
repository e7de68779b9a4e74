#include "scheduler/diagnose/lag.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/diagnose/lag_priv.h"

#define WELL_AGAIN 3 /* windows */
#define HOST_SHARE 0.05
#define AWAY_SHARE 0.2
/* What else runs on a processor changes within seconds, and until then takes processor time from the same work: it was
 * seen to double it for 3 s, and to add a fifth for longer. */
#define HELD_US 6e6f
#define MUCH 0.25f /* of the time a rank waits for a processor: less of it has what it seems hold for less time */
#define SLOWER_CROWDED 0.1398f /* ln 1.15 */
#define STEP_SHARE 0.01        /* of the step, that a slow rank makes longer */
#define ROLE_SLOWER 0.2231     /* ln 1.25 */
#define ROLE_WINDOWS 3

/* --- making ------------------------------------------------------------------------------------------- */

/* Order ranks by one of their numbers; at has one entry more than there are such numbers. */
static size_t order(const struct lag *l, size_t offset, uint32_t *by, uint32_t *at)
{
    size_t most = 0;

    for (size_t i = 0; i < l->n; i++) {
        uint32_t of = *(const uint32_t *)(const void *)((const char *)&l->place[i] + offset);

        at[of + 1]++;
        most = of + 1 > most ? of + 1 : most;
    }
    for (size_t i = 0; i < most; i++)
        at[i + 1] += at[i];
    for (size_t i = l->n; i-- > 0;) {
        uint32_t of = *(const uint32_t *)(const void *)((const char *)&l->place[i] + offset);

        by[--at[of + 1]] = (uint32_t)i;
    }
    for (size_t i = 0; i < most; i++)
        at[i] = at[i + 1];
    at[most] = (uint32_t)l->n;
    return most;
}

static void find_spread(struct lag *l)
{
    for (size_t k = 0; k < l->replicas; k++) {
        uint32_t from = l->replica_at[k], to = l->replica_at[k + 1];

        for (uint32_t i = from + 1; i < to && to - from >= REPLICA_LEAST; i++)
            l->spread[k] |= l->place[l->by_replica[i]].node != l->place[l->by_replica[from]].node;
        l->any_spread |= l->spread[k];
    }
}

static void count_teams(struct lag *l)
{
    for (int k = 0; k < LAG_KINDS; k++)
        for (size_t i = 0; i < l->n; i++) {
            struct team *t = &l->team[k][l->place[i].team[k]];

            if (t->members++ == 0)
                t->first = (uint32_t)i;
            t->apart = t->apart || l->place[i].node != l->place[t->first].node;
            if (l->place[i].team[k] >= l->teams[k])
                l->teams[k] = l->place[i].team[k] + 1;
        }
}

int lag_new(const struct lag_place *places, size_t n, struct lag **ret)
{
    struct lag *l = calloc(1, sizeof(*l));
    bool ok;

    if (!l)
        return -ENOMEM;
    l->n = n;
    l->scale = 1;
    ok = (l->place = calloc(n + 1, sizeof(*l->place))) && (l->by_role = calloc(n + 1, sizeof(*l->by_role))) &&
         (l->role_at = calloc(n + 2, sizeof(*l->role_at))) && (l->by_replica = calloc(n + 1, sizeof(*l->by_replica))) &&
         (l->replica_at = calloc(n + 2, sizeof(*l->replica_at))) && (l->spread = calloc(n + 1, sizeof(*l->spread))) &&
         (l->past = calloc(n + 1, sizeof(*l->past))) && (l->role_hits = calloc(n + 1, sizeof(*l->role_hits))) &&
         (l->role_told = calloc(n + 1, sizeof(*l->role_told))) && (l->excess = calloc(n + 1, sizeof(*l->excess))) &&
         (l->scratch = calloc(n + 1, sizeof(*l->scratch))) && (l->sigmas = calloc(n + 1, sizeof(*l->sigmas))) &&
         (l->cells = calloc(n + 1, sizeof(*l->cells))) && (l->early = calloc(n + 1, sizeof(*l->early))) &&
         (l->lasting = calloc(n + 1, sizeof(*l->lasting))) && (l->crowded = calloc(n + 1, sizeof(*l->crowded))) &&
         (l->crowding = calloc(n + 1, sizeof(*l->crowding))) && (l->withheld = calloc(n + 1, sizeof(*l->withheld)));
    for (int i = 0; i < LAG_LONG && ok; i++)
        ok = (l->late[i] = calloc(n + 1, sizeof(*l->late[i])));
    for (int k = 0; k < LAG_KINDS && ok; k++)
        ok = (l->team[k] = calloc(n + 1, sizeof(*l->team[k])));
    for (int m = 0; m < LAG_MEASURES && ok; m++)
        ok = (l->more[m] = calloc(n + 1, sizeof(*l->more[m]))) && (l->hit[m] = calloc(n + 1, sizeof(*l->hit[m])));
    if (!ok) {
        lag_free(l);
        return -ENOMEM;
    }
    memcpy(l->place, places, n * sizeof(*places));
    l->roles = order(l, offsetof(struct lag_place, role), l->by_role, l->role_at);
    for (size_t k = 0; k < l->roles; k++)
        l->any_few = l->any_few || (l->role_at[k + 1] > l->role_at[k] && l->role_at[k + 1] - l->role_at[k] < FEW);
    l->replicas = order(l, offsetof(struct lag_place, replica), l->by_replica, l->replica_at);
    find_spread(l);
    count_teams(l);
    *ret = l;
    return 0;
}

void lag_free(struct lag *l)
{
    if (!l)
        return;
    for (int i = 0; i < OPEN_MAX; i++) {
        free(l->window[i].told);
        free(l->window[i].cost);
        for (int k = 0; k < LAG_KINDS; k++)
            free(l->window[i].least[k]);
    }
    for (int k = 0; k < LAG_KINDS; k++)
        free(l->team[k]);
    free(l->place);
    free(l->by_role);
    free(l->role_at);
    free(l->by_replica);
    free(l->replica_at);
    free(l->spread);
    free(l->past);
    free(l->role_hits);
    free(l->role_told);
    for (int m = 0; m < LAG_MEASURES; m++) {
        free(l->more[m]);
        free(l->hit[m]);
    }
    for (int i = 0; i < LAG_LONG; i++)
        free(l->late[i]);
    free(l->cells);
    free(l->early);
    free(l->lasting);
    free(l->crowded);
    free(l->crowding);
    free(l->withheld);
    free(l->excess);
    free(l->scratch);
    free(l->sigmas);
    free(l);
}

/* --- telling ------------------------------------------------------------------------------------------- */

static struct window *oldest(struct lag *l)
{
    struct window *w = NULL;

    for (int i = 0; i < OPEN_MAX; i++)
        if (l->window[i].used && (!w || l->window[i].from < w->from))
            w = &l->window[i];
    return w;
}

/* Empty it; false: no memory. */
static bool window_reset(struct lag *l, struct window *w)
{
    if ((!w->told && !(w->told = calloc(l->n, sizeof(*w->told)))) ||
        (!w->cost && !(w->cost = calloc(2 * LAG_WINDOW * l->n, sizeof(*w->cost)))))
        return false;
    w->work = w->cost + LAG_WINDOW * l->n;
    memset(w->told, 0, l->n * sizeof(*w->told));
    memset(w->cost, 0, 2 * LAG_WINDOW * l->n * sizeof(*w->cost));
    for (int k = 0; k < LAG_KINDS; k++) {
        size_t n = l->teams[k] * LAG_WINDOW;

        if (!w->least[k] && !(w->least[k] = malloc((n + 1) * sizeof(*w->least[k]))))
            return false;
        for (size_t i = 0; i < n; i++)
            w->least[k][i] = -1;
    }
    w->closed = 0;
    w->span = 0;
    return true;
}

/* The window of a step; NULL: there is no room, no memory, or it is older than all that are told of. */
static struct window *window_of(struct lag *l, uint64_t step)
{
    uint64_t steps = (uint64_t)l->scale * LAG_WINDOW;
    struct window *unused = NULL;

    for (int i = 0; i < OPEN_MAX; i++) {
        if (l->window[i].used && l->window[i].from <= step && step < l->window[i].end)
            return &l->window[i];
        if (!l->window[i].used)
            unused = &l->window[i];
    }
    if (step < l->end || !unused || !window_reset(l, unused))
        return NULL;
    unused->used = true;
    unused->scale = l->scale;
    unused->from = step - step % steps > l->end ? step - step % steps : l->end;
    unused->end = l->end = step - step % steps + steps;
    return unused;
}

/* Add the share of what was told that is of one cell of the window. */
static void add(struct lag *l, struct window *w, size_t rank, uint64_t step, float share, float counts,
                const struct lag_sample *s)
{
    size_t cell = step / w->scale % LAG_WINDOW;
    struct told *t = &w->told[rank];

    w->cost[cell * l->n + rank] += share * s->busy;
    w->work[cell * l->n + rank] += share * s->work;
    t->counts += share * counts;
    t->sum.busy += share * s->busy;
    t->sum.data += share * s->data;
    t->sum.wall += share * s->wall;
    t->sum.cpu += share * s->cpu;
    t->sum.work += share * s->work;
    t->sum.kib += share * s->kib;
    t->sum.starved += share * s->starved;
    t->sum.throttled += share * s->throttled;
    for (int k = 0; k < LAG_KINDS; k++) {
        float *least = &w->least[k][l->place[rank].team[k] * LAG_WINDOW + cell], us = s->call[k] / counts;

        t->sum.call[k] += share * s->call[k];
        *least = *least < 0 || us < *least ? us : *least;
    }
}

static void close_for(struct lag *l, size_t rank, uint64_t end)
{
    for (int i = 0; i < OPEN_MAX; i++) {
        struct window *w = &l->window[i];

        if (!w->used || w->end > end)
            continue;
        w->closed += !w->told[rank].closed;
        w->told[rank].closed = true;
    }
}

void lag_take(struct lag *l, size_t rank, const struct lag_span *at, const struct lag_sample *s)
{
    bool counts = at->counts > 0 && s->work > 0 && s->busy > 0;
    uint64_t step = at->step, end = step + at->steps, stop;

    if (rank >= l->n || at->steps == 0 || at->steps > LAG_SPAN_MAX || at->counts > at->steps ||
        end < l->past[rank].end || step < l->past[rank].end || end > UINT64_MAX / 2)
        return;
    l->past[rank].end = end;
    while (l->scale < at->steps)
        l->scale *= 2;
    close_for(l, rank, step);
    for (; step < end; step = stop) {
        struct window *w = window_of(l, step);

        stop = w ? (step / w->scale + 1) * w->scale : step + 1;
        stop = stop > end ? end : stop;
        if (w)
            w->span = at->steps > w->span ? at->steps : w->span;
        if (w && counts)
            add(l, w, rank, step, (float)(stop - step) / (float)at->steps, (float)at->counts, s);
    }
    close_for(l, rank, end);
}

/* --- findings ------------------------------------------------------------------------------------------ */

/* Waiting for data: what the others of all roles do not. Data is loaded by the first and the last stage, so others of
 * the role are asked first. */
static float data_share(struct lag *l, const struct window *w, uint32_t rank)
{
    const struct lag_place *at = &l->place[rank];
    const uint32_t *of = l->by_role + l->role_at[at->role];
    size_t n = l->role_at[at->role + 1] - l->role_at[at->role], got = 0;
    const struct told *t = &w->told[rank];
    float mine = t->sum.wall > 0 ? t->sum.data / t->sum.wall : 0;

    if (mine < (float)HOST_SHARE)
        return 0;
    for (size_t i = 0; i < n && got < SAMPLE; i++)
        if (of[i] != rank && w->told[of[i]].sum.wall > 0)
            l->scratch[got++] = w->told[of[i]].sum.data / w->told[of[i]].sum.wall;
    return mine - lag_median(l->scratch, got);
}

/* Of the time that it was held, where processors are shared, as lag_lacks(): who needs clearly more processor time than
 * the others has to wait for more of it, too, and for longer by chance. */
static float held_lacks(const struct held *h)
{
    float busy = h->more[LAG_BUSY] / h->us, cpu = h->more[LAG_CPU] / h->us;

    return cpu > SLOWER_CROWDED && cpu > busy / 4 ? 0 : lag_lacks(busy, cpu);
}

static void classify(struct lag *l, const struct window *w, struct lag_finding *f)
{
    const struct lag_place *p = &l->place[f->rank];
    const struct held *h = &l->past[f->rank].held;
    float lost = l->crowded[p->role] ? held_lacks(h) : l->withheld[f->rank];
    bool link = false;

    lag_find_lateness(l, w, f);
    if (lost > 0) { /* in calls, too, which are long for all then: that says nothing of links */
        f->class_ = LAG_HOST;
        f->withheld = lost;
        return;
    }
    for (int k = 0; k < LAG_KINDS; k++) {
        struct team *t = &l->team[k][p->team[k]];

        link = link || lag_twice(t->hits);
        t->slow = t->slow || lag_twice(t->hits); /* this finding tells of it */
    }
    f->class_ = !link || f->p >= LATE ? LAG_COMPUTE : LAG_BOTH;
}

/* A rank whose processor is shared is slow only as others are by turns, until that has lasted. */
static void hold(struct lag *l, const struct window *w, uint32_t rank, bool hit)
{
    struct held *h = &l->past[rank].held;
    float wall = w->told[rank].sum.wall;

    h->missed = hit ? 0 : h->missed + 1;
    if (h->missed > 1)
        *h = (struct held){0};
    if (!hit)
        return;
    h->windows++;
    h->us += wall;
    h->starved += wall * l->crowding[l->place[rank].role];
    for (int m = 0; m < LAG_MEASURES; m++)
        h->more[m] += wall * (isnan(l->more[m][rank]) ? l->excess[rank] : l->more[m][rank]);
}

static bool is_sure(const struct lag *l, uint32_t rank)
{
    const struct past *p = &l->past[rank];
    const struct held *h = &p->held;
    float least = h->starved < MUCH * h->us ? HELD_US * h->starved / (MUCH * h->us) : HELD_US;

    if (!l->crowded[l->place[rank].role])
        return l->lasting[rank] || lag_twice(p->hits);
    return h->windows > 1 && h->us >= least && (h->more[LAG_CPU] > SLOWER_CROWDED * h->us || held_lacks(h) > 0);
}

/* There is news of the rank, or may be. */
static void judge_rank(struct lag *l, const struct window *w, uint32_t rank, float data, float away,
                       struct lag_verdict *v)
{
    const struct told *t = &w->told[rank];
    struct past *p = &l->past[rank];
    struct lag_finding f = {.rank = rank,
                            .role = l->place[rank].role,
                            .node = l->place[rank].node,
                            .kind = LAG_KINDS,
                            .p = 1,
                            .factor = exp((double)l->excess[rank]),
                            .sigmas = l->sigmas[rank],
                            .starved = t->sum.wall > 0 ? t->sum.starved / t->sum.wall : 0,
                            .throttled = t->sum.wall > 0 ? t->sum.throttled / t->sum.wall : 0,
                            .early = p->early_step};

    if (p->slow && p->quiet >= WELL_AGAIN) {
        p->slow = p->lacks = false;
        f.over = true;
        f.class_ = LAG_COMPUTE;
        f.factor = exp((double)(isnan(l->more[LAG_BUSY][rank]) ? 0 : l->more[LAG_BUSY][rank]));
        lag_add(v, &f);
    } else if (!p->slow && (p->hits & 1) && is_sure(l, rank)) {
        p->slow = true;
        classify(l, w, &f);
        p->lacks = f.class_ == LAG_HOST;
        lag_add(v, &f);
    } else if (!p->slow && ((p->data_hits & lag_twice(p->data_hits)) || (p->away_hits & lag_twice(p->away_hits)))) {
        p->slow = true;
        p->lacks = !(p->data_hits & lag_twice(p->data_hits));
        f.class_ = LAG_HOST;
        f.data = p->data_hits & lag_twice(p->data_hits);
        f.away = !f.data;
        f.withheld = f.data ? data : away;
        f.factor = 1 / (1 - (f.withheld < 0.99 ? f.withheld : 0.99));
        lag_find_lateness(l, w, &f);
        lag_add(v, &f);
    }
}

static void judge_ranks(struct lag *l, const struct window *w, struct lag_verdict *v)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct told *t = &w->told[i];
        struct past *p = &l->past[i];
        bool starves = t->sum.starved > (float)AWAY_SHARE * t->sum.wall;
        float data = data_share(l, w, i), away = starves ? lag_starved_more(l, w, i) : 0;
        bool hit = l->excess[i] > 0 && t->sum.busy * (1 - expf(-l->excess[i])) > (float)STEP_SHARE * t->sum.wall;
        bool stalls = data > (float)HOST_SHARE, lacks = away > (float)AWAY_SHARE;

        if (l->cells[i] < STEPS_LEAST)
            continue;
        hold(l, w, i, hit);
        p->hits = (uint8_t)(p->hits << 1 | hit);
        p->data_hits = (uint8_t)(p->data_hits << 1 | stalls);
        p->away_hits = (uint8_t)(p->away_hits << 1 | lacks);
        v->suspects += p->early_step > 0;
        p->quiet = hit || stalls || lacks || l->hit[LAG_CPU][i] ? 0 : (uint8_t)(p->quiet + (p->quiet < 255));
        if (hit || stalls || lacks || p->slow)
            judge_rank(l, w, i, data, away, v);
    }
}

/* A stage that takes longer than the others in all replicas: told once. */
static void judge_roles(struct lag *l, struct lag_verdict *v, const float *role)
{
    for (size_t k = 0; k < l->roles; k++) {
        size_t got = 0;
        float apart;

        for (size_t i = 0; i < l->roles; i++)
            if (i != k && role[i] > 0)
                l->scratch[got++] = role[i];
        apart = got > 0 && role[k] > 0 ? logf(role[k] / lag_median(l->scratch, got)) : 0;
        l->role_hits[k] = (uint8_t)(apart > (float)ROLE_SLOWER ? l->role_hits[k] + (l->role_hits[k] < 255) : 0);
        if (l->role_told[k] || l->role_hits[k] < ROLE_WINDOWS || l->role_hits[k] < l->judged)
            continue;
        l->role_told[k] = true;
        lag_add(v, &(struct lag_finding){.class_ = LAG_ROLE,
                                         .rank = l->by_role[l->role_at[k]],
                                         .role = (uint32_t)k,
                                         .node = UINT32_MAX,
                                         .kind = LAG_KINDS,
                                         .factor = exp((double)apart)});
    }
}

/* What each role takes for a unit of work. */
static float *role_costs(struct lag *l, const struct window *w)
{
    float *role = calloc(l->roles + 1, sizeof(*role));

    for (size_t k = 0; role && k < l->roles; k++) {
        const uint32_t *rank = l->by_role + l->role_at[k];
        size_t n = l->role_at[k + 1] - l->role_at[k], by = n > SAMPLE ? n / SAMPLE : 1, got = 0;

        for (size_t i = 0; i < n; i += by)
            if (l->cells[rank[i]] >= STEPS_LEAST)
                l->scratch[got++] = w->told[rank[i]].sum.busy / w->told[rank[i]].sum.work;
        role[k] = lag_median(l->scratch, got);
    }
    return role;
}

/* Enough steps of enough ranks. */
static bool says_something(const struct lag *l)
{
    size_t told = 0;

    for (size_t i = 0; i < l->n; i++)
        told += l->cells[i] >= STEPS_LEAST;
    return 2 * told > l->n;
}

static void judge(struct lag *l, struct window *w, struct lag_verdict *v)
{
    float *role = l->roles > 1 ? role_costs(l, w) : NULL;

    l->judged++;
    lag_compare(l, w);
    lag_measure_groups(l, w);
    judge_ranks(l, w, v);
    lag_judge_groups(l, v);
    if (role)
        judge_roles(l, v, role);
    free(role);
}

bool lag_judge(struct lag *l, struct lag_verdict *ret)
{
    struct window *w = oldest(l);
    size_t open = 0;

    for (int i = 0; i < OPEN_MAX; i++)
        open += l->window[i].used;
    if (!w || (w->closed < l->n && open < OPEN_MAX))
        return false;
    *ret = (struct lag_verdict){.first_step = w->from, .end_step = w->end};
    lag_count(l, w);
    if (says_something(l))
        judge(l, w, ret);
    w->used = false;
    while (l->scale == w->scale && l->scale > 1 && 2 * w->span <= w->scale) /* steps have become longer */
        w->scale = l->scale /= 2;
    return true;
}

bool lag_is_slow(const struct lag *l, size_t rank)
{
    return rank < l->n && l->past[rank].slow;
}

const char *lag_class_name(enum lag_class class_)
{
    static const char *const name[LAG_CLASSES] = {"none", "compute", "link", "compute and link", "stage", "host"};

    return name[class_];
}
