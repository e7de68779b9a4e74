#include "scheduler/cluster/forecast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/word.h"
#include "scheduler/cluster/finish.h"

#define MASKS_MAX 64 /* choices of types that are told apart; the last stands for all others */

static const char *const basis_names[] = {[FORECAST_UNKNOWN] = "unknown",
                                          [FORECAST_BY_WORK] = "work-left",
                                          [FORECAST_BY_LIMITS] = "time-limits",
                                          [FORECAST_BY_ROUND] = "next-round",
                                          [FORECAST_BY_CALENDAR] = "calendar",
                                          [FORECAST_RESERVED] = "reserved",
                                          [FORECAST_BASES] = NULL};

struct release { /* devices of a type that come free */
    int64_t at_us;
    uint64_t job; /* 0: they are free */
    int32_t n;
    enum forecast_basis basis;
};

struct pool { /* of a type, by time; those before head are taken */
    struct release *v;
    size_t head, n, cap;
    int64_t left;
};

struct group { /* of jobs that wait, by the types that they may use */
    uint32_t types;
    int32_t jobs;
    int64_t devices;
};

struct outlook {
    const struct sched_input *in;
    const struct sched_plan *plan;
    struct pool pools[RATES_TYPES_MAX];
    size_t *waiting; /* indexes of jobs, in the order of the queue */
    size_t n_waiting;
    struct group groups[MASKS_MAX];
    size_t n_groups;
    int32_t *of_tenant;
};

const char *forecast_basis_name(enum forecast_basis basis)
{
    return basis_names[basis];
}

enum forecast_basis forecast_basis_parse(const char *name)
{
    int i = name ? word_index(name, basis_names) : -1;

    return i < 0 ? FORECAST_UNKNOWN : (enum forecast_basis)i;
}

static int by_time(const void *a, const void *b)
{
    const struct release *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

static int pool_grow(struct pool *p)
{
    size_t cap = p->cap ? 2 * p->cap : 64;
    struct release *v = p->n < p->cap ? p->v : realloc(p->v, cap * sizeof(*v));

    if (!v)
        return -ENOMEM;
    p->cap = p->n < p->cap ? p->cap : cap;
    p->v = v;
    return 0;
}

/* At the end, to be sorted. */
static int pool_add(struct pool *p, struct release r)
{
    if (r.n < 1)
        return 0;
    if (pool_grow(p) < 0)
        return -ENOMEM;
    p->v[p->n++] = r;
    p->left += r.n;
    return 0;
}

/* Where it belongs. */
static int pool_insert(struct pool *p, struct release r)
{
    size_t lo = p->head, hi = p->n;

    if (pool_grow(p) < 0)
        return -ENOMEM;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (by_time(&p->v[mid], &r) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(p->v + lo + 1, p->v + lo, (p->n++ - lo) * sizeof(r));
    p->v[lo] = r;
    p->left += r.n;
    return 0;
}

/* --- what runs -------------------------------------------------------------------------------------------- */

/* What the job's devices are by type as the plan leaves them. */
static void count_types(const struct outlook *o, size_t job, int32_t ret[RATES_TYPES_MAX])
{
    const struct sched_verdict *v = &o->plan->verdicts[job];

    memset(ret, 0, RATES_TYPES_MAX * sizeof(*ret));
    for (size_t p = v->first; p < v->first + v->n; p++)
        ret[o->in->nodes[o->plan->places[p].node].type] += o->plan->places[p].devices;
}

/* What the job gives up in a full round, and what comes free with its end. */
static int add_run(struct outlook *o, size_t job)
{
    const struct sched_config *cfg = &o->in->config;
    const struct sched_job *j = &o->in->jobs[job];
    int64_t soon = cfg->now_us + (cfg->hold_us > cfg->round_us ? cfg->hold_us : cfg->round_us);
    int64_t left = sched_left_us(j, o->plan->verdicts[job].shape.rate_ups);
    int32_t has[RATES_TYPES_MAX], surplus = -j->min;

    count_types(o, job, has);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        surplus += has[t];
    if (j->fixed || cfg->policy != SCHED_POLICY_MUSTER || surplus < 0)
        surplus = 0;
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        int32_t gives = surplus < has[t] ? surplus : has[t];
        bool limited = left == j->limit_us;

        surplus -= gives;
        if (pool_add(&o->pools[t],
                     (struct release){.at_us = soon, .job = j->id, .n = gives, .basis = FORECAST_BY_ROUND}) < 0)
            return -ENOMEM;
        if (left < SCHED_LEFT_UNKNOWN &&
            pool_add(&o->pools[t], (struct release){.at_us = cfg->now_us + left,
                                                    .job = j->id,
                                                    .n = has[t] - gives,
                                                    .basis = limited ? FORECAST_BY_LIMITS : FORECAST_BY_WORK}) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int fill_pools(struct outlook *o)
{
    int32_t idle[RATES_TYPES_MAX] = {0};

    for (size_t i = 0; i < o->in->n_nodes; i++) {
        const struct sched_node *n = &o->in->nodes[i];

        idle[n->type] += n->devices;
        if (n->opens_us > 0 && pool_add(&o->pools[n->type], (struct release){.at_us = n->opens_us,
                                                                             .n = n->drained + n->silent,
                                                                             .basis = FORECAST_BY_CALENDAR}) < 0)
            return -ENOMEM;
    }
    for (size_t p = 0; p < o->plan->n_places; p++)
        idle[o->in->nodes[o->plan->places[p].node].type] -= o->plan->places[p].devices;
    for (size_t i = 0; i < o->in->n_jobs; i++)
        if (o->plan->verdicts[i].n > 0 && add_run(o, i) < 0)
            return -ENOMEM;
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        if (pool_add(&o->pools[t], (struct release){.n = idle[t], .basis = FORECAST_BY_ROUND}) < 0)
            return -ENOMEM;
        if (o->pools[t].n > 1)
            qsort(o->pools[t].v, o->pools[t].n, sizeof(*o->pools[t].v), by_time);
    }
    return 0;
}

/* --- the queue -------------------------------------------------------------------------------------------- */

struct ticket {
    int64_t rank, weight, since_us;
    uint64_t id;
    size_t job;
};

static int by_turn(const void *a, const void *b)
{
    const struct ticket *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    if (x->since_us != y->since_us)
        return x->since_us < y->since_us ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* What a job weighs that should have ended at some time. */
static int64_t pressed(const struct sched_job *j, const struct sched_input *in)
{
    return (int64_t)((double)j->weight_milli * finish_urgency(j, in->config.now_us));
}

/* Guarantees, then who has waited for too long, then priority; of those alike who has waited longest. */
static struct ticket ticket_of(const struct sched_input *in, size_t job)
{
    const struct sched_job *j = &in->jobs[job];
    bool starves = j->class_ != SCHED_OPPORTUNISTIC && in->config.now_us - j->waiting_us >= in->config.starve_us;
    bool muster = in->config.policy == SCHED_POLICY_MUSTER;

    return (struct ticket){.rank = !muster                            ? 0
                                   : j->class_ == SCHED_GUARANTEED    ? 0
                                   : starves                          ? 1
                                   : j->class_ != SCHED_OPPORTUNISTIC ? 2
                                                                      : 3,
                           .weight = !muster || starves ? 0
                                     : j->finish_us > 0 ? pressed(j, in)
                                                        : j->weight_milli,
                           .since_us = muster ? j->waiting_us : j->submit_us,
                           .id = j->id,
                           .job = job};
}

static int line_up(struct outlook *o)
{
    struct ticket *t = calloc(o->in->n_jobs + 1, sizeof(*t));

    o->waiting = calloc(o->in->n_jobs + 1, sizeof(*o->waiting));
    o->of_tenant = calloc(o->in->n_tenants, sizeof(*o->of_tenant));
    if (!t || !o->waiting || !o->of_tenant) {
        free(t);
        return -ENOMEM;
    }
    for (size_t i = 0; i < o->in->n_jobs; i++)
        if (o->plan->verdicts[i].n == 0)
            t[o->n_waiting++] = ticket_of(o->in, i);
    qsort(t, o->n_waiting, sizeof(*t), by_turn);
    for (size_t i = 0; i < o->n_waiting; i++)
        o->waiting[i] = t[i].job;
    free(t);
    return 0;
}

/* How many are before the job, which is before those that come. */
static void count_ahead(struct outlook *o, const struct sched_job *j, int32_t least, struct forecast *f)
{
    uint32_t types = sched_job_types(j);
    int64_t devices = 0;
    size_t at = 0;

    for (size_t i = 0; i < o->n_groups; i++)
        if (o->groups[i].types & types) {
            f->ahead += o->groups[i].jobs;
            devices += o->groups[i].devices;
        }
    f->ahead_devices = devices < INT32_MAX ? (int32_t)devices : INT32_MAX;
    f->of_project = o->of_tenant[j->tenant]++;
    while (at < o->n_groups && at < MASKS_MAX - 1 && o->groups[at].types != types)
        at++;
    o->n_groups += at == o->n_groups;
    o->groups[at].types |= types;
    o->groups[at].jobs++;
    o->groups[at].devices += least;
}

/* The n devices of these types that come free first: the last of them. They are taken if that is wanted. NULL: so many
 * never do. */
static const struct release *gather(struct outlook *o, uint32_t types, int32_t n, bool take)
{
    size_t at[RATES_TYPES_MAX];
    const struct release *last = NULL;
    int64_t left = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        at[t] = o->pools[t].head;
        left += types >> t & 1 ? o->pools[t].left : 0;
    }
    while (n > 0 && left >= n) {
        int best = -1;

        for (int t = 0; t < RATES_TYPES_MAX; t++)
            if ((types >> t & 1) && at[t] < o->pools[t].n &&
                (best < 0 || by_time(&o->pools[t].v[at[t]], &o->pools[best].v[at[best]]) < 0))
                best = t;
        if (best < 0)
            return NULL;
        struct pool *p = &o->pools[best];
        struct release *r = &p->v[at[best]];
        int32_t some = n < r->n ? n : r->n;

        last = r;
        n -= some;
        left -= some;
        at[best]++;
        if (!take)
            continue;
        p->left -= some;
        r->n -= some;
        p->head = r->n == 0 ? at[best] : p->head;
    }
    return n > 0 ? NULL : last;
}

/* Of the types that it may use alone, or mix, those that come free first. */
static uint32_t choose_types(struct outlook *o, const struct sched_job *j, int32_t least)
{
    uint32_t types = sched_job_types(j), best = 0;
    int64_t best_us = INT64_MAX;

    if (j->hetero_ok)
        return types;
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        const struct release *r = types >> t & 1 ? gather(o, UINT32_C(1) << t, least, false) : NULL;

        if (r && r->at_us < best_us) {
            best = UINT32_C(1) << t;
            best_us = r->at_us;
        }
    }
    return best;
}

/* It starts in thought; what it takes comes free again where it is known when it ends. */
static int start(struct outlook *o, const struct sched_job *j, int32_t least, struct forecast *f)
{
    int64_t now = o->in->config.now_us, left;
    uint32_t types = choose_types(o, j, least);
    const struct release *last = types ? gather(o, types, least, true) : NULL;
    int type = 0;

    if (!last)
        return 0;
    f->basis = last->basis;
    f->after = last->job;
    f->start_us = last->at_us > now ? last->at_us : now + o->in->config.round_us;
    while (!(types >> type & 1))
        type++;
    left = sched_left_us(j, rates_at(j->profile, type, least, NULL));
    if (left >= SCHED_LEFT_UNKNOWN)
        return 0;
    return pool_insert(&o->pools[type],
                       (struct release){.at_us = f->start_us + left,
                                        .job = j->id,
                                        .n = least,
                                        .basis = left == j->limit_us ? FORECAST_BY_LIMITS : FORECAST_BY_WORK});
}

static int foresee(struct outlook *o, size_t job, bool looked_at, struct forecast *f)
{
    const struct sched_verdict *v = &o->plan->verdicts[job];
    const struct sched_job *j = &o->in->jobs[job];
    int32_t least, most;

    sched_job_range(j, &least, &most);
    count_ahead(o, j, least, f);
    if (!looked_at || v->reason == SCHED_LIMIT || v->reason == SCHED_TOO_BIG || most < least)
        return 0;
    if (start(o, j, least, f) < 0)
        return -ENOMEM;
    f->latest_us = v->starts_us;
    if (v->starts_us > 0 && (f->basis == FORECAST_UNKNOWN || v->starts_us < f->start_us)) {
        f->start_us = v->starts_us;
        f->basis = FORECAST_RESERVED;
    }
    return 0;
}

static int look_ahead(struct outlook *o, struct forecast *ret)
{
    if (line_up(o) < 0)
        return -ENOMEM;
    if (o->n_waiting == 0)
        return 0;
    if (fill_pools(o) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < o->n_waiting; i++) {
        struct forecast *f = &ret[o->waiting[i]];

        f->start_us = -1;
        if (foresee(o, o->waiting[i], i < FORECAST_JOBS_MAX, f) < 0)
            return -ENOMEM;
    }
    return 0;
}

int forecast_all(const struct sched_input *in, const struct sched_plan *plan, struct forecast *ret)
{
    struct outlook o = {.in = in, .plan = plan};
    int r;

    memset(ret, 0, in->n_jobs * sizeof(*ret));
    r = look_ahead(&o, ret);
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        free(o.pools[t].v);
    free(o.waiting);
    free(o.of_tenant);
    return r;
}
