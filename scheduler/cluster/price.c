/* Assignment by prices: each job takes what is worth most above its price; prices follow demand; then repair and fill.
 *
 * The bound: for any prices >= 0, sum of each job's best surplus plus the price of all capacity is at least the value
 * of every feasible plan (Lagrangian dual of the multiple-choice knapsack). */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"
#include "scheduler/cluster/closing_priv.h"
#include "scheduler/cluster/tenants_priv.h"

#define ITERATIONS 60
#define CALM 20           /* iterations in a row that hardly bettered the bound: enough */
#define CALM_GAIN 1e-5    /* share of the bound that counts as a gain */
#define PASSES_MAX 200    /* of repair or fill */
#define SHARPENINGS 60    /* of the bound before an exact search */
#define KEEP_GAIN 0.002   /* a new plan must be better by this share than the old one filled up */
#define COLD_GAIN 0.004   /* and below which nothing better is looked for */
#define LOWERINGS 300     /* steps of prices before that */
#define IDLE_STEPS 8      /* of them until the aim is nearer */
#define LOOKS_FIRST 50000 /* at choices; each turn takes four times as many */
#define WIDE_TURNS 4
#define EXACT_GAIN 0.004 /* and one that an exact search finds by this */

struct change { /* of one job's choice */
    size_t job;
    int16_t to;
    double worth; /* loss, or gain below zero, per device */
    int64_t turn; /* of equals the least first */
};

struct bidder { /* of a job that is not pinned: what is looked at sixty times a round, side by side */
    double per_device;
    uint32_t job, tenant, first; /* and its first candidate */
    uint16_t n;
    int16_t chosen, best; /* now, and at the best prices so far */
    uint8_t mask;
    bool tight; /* some of its candidates fit into no plan */
};

struct market {
    struct bidder *bidders; /* n_bidders, in the order of jobs */
    size_t n_bidders;
    double price[RATES_TYPES_MAX];
    double *tenant;                                   /* price of a device within a tenant's limit */
    double best_price[RATES_TYPES_MAX], *best_tenant; /* where the bound is lowest */
    int32_t cap[RATES_TYPES_MAX];                     /* less what pinned jobs hold */
    int32_t *tenant_cap;
    int64_t demand[RATES_TYPES_MAX];
    int64_t *tenant_demand;
    double pinned; /* worth of pinned jobs */
    struct change *changes;
    int16_t *saved;
    double least[MASKS_MAX];  /* price of the cheapest type of each choice */
    int64_t spare[MASKS_MAX]; /* devices of its types that nobody has */
};

static double utility(const struct round *r, const struct rjob *j, int c)
{
    return c == NONE ? 0 : cand_of(r, j, c)->utility;
}

static double cost(const struct market *m, const struct bidder *b, const struct sched_shape *s)
{
    double t = m->tenant[b->tenant] * shape_size(s) + m->price[s->type[0]] * s->n[0];

    return s->type[1] >= 0 ? t + m->price[s->type[1]] * s->n[1] : t;
}

static void find_least(const struct round *r, struct market *m)
{
    for (size_t i = 0; i < r->n_masks; i++) {
        m->least[i] = INFINITY;
        for (int k = 0; k < RATES_TYPES_MAX; k++)
            if ((r->masks[i] >> k & 1) && m->price[k] < m->least[i])
                m->least[i] = m->price[k];
    }
}

/* At these prices nothing that the job could have is worth its price, and there is no need to look at it all. The
 * margin is for what rounding may have done to either side. */
static bool too_dear(const struct market *m, const struct bidder *b)
{
    return b->per_device * (1 + 1e-9) < m->least[b->mask] + m->tenant[b->tenant];
}

/* Whether any plan has room for it beside what is pinned. */
static bool could_fit(const struct market *m, const struct bidder *b, const struct sched_shape *s)
{
    return shape_size(s) <= m->tenant_cap[b->tenant] && s->n[0] <= m->cap[s->type[0]] &&
           (s->type[1] < 0 || s->n[1] <= m->cap[s->type[1]]);
}

/* What is worth most above its price, if anything is. Returns by how much. */
static double take_best(const struct round *r, struct market *m, struct bidder *b)
{
    const struct cand *cands = &r->cands[b->first];
    const struct sched_shape *s;
    double most = 0;

    for (int c = 0; c < b->n; c++) {
        double surplus = cands[c].utility - cost(m, b, &cands[c].shape);

        if (surplus > most && (!b->tight || could_fit(m, b, &cands[c].shape))) {
            most = surplus;
            b->chosen = (int16_t)c;
        }
    }
    if (b->chosen == NONE)
        return 0;
    s = &cands[b->chosen].shape;
    m->demand[s->type[0]] += s->n[0];
    if (s->type[1] >= 0)
        m->demand[s->type[1]] += s->n[1];
    m->tenant_demand[b->tenant] += shape_size(s);
    return most;
}

/* Each job's best choice at the present prices, all demand, and the bound. */
static double bid(const struct round *r, struct market *m)
{
    double bound = m->pinned;

    find_least(r, m);
    memset(m->demand, 0, sizeof(m->demand));
    memset(m->tenant_demand, 0, r->in->n_tenants * sizeof(*m->tenant_demand));
    for (int k = 0; k < RATES_TYPES_MAX; k++)
        bound += m->price[k] * m->cap[k];
    for (size_t t = 0; t < r->in->n_tenants; t++)
        if (m->tenant_cap[t] < INT32_MAX)
            bound += m->tenant[t] * m->tenant_cap[t];
    for (size_t i = 0; i < m->n_bidders; i++) {
        struct bidder *b = &m->bidders[i];

        b->chosen = NONE;
        if (!too_dear(m, b))
            bound += take_best(r, m, b);
    }
    return bound;
}

static double adjust(double price, int64_t demand, int32_t cap, double step, double floor)
{
    double over = cap > 0 ? ((double)demand - cap) / cap : demand > 0 ? 1 : 0, f;

    over = over > 1 ? 1 : over;
    f = 1 + step * over;
    if (over > 0 && price < floor)
        return floor;
    return price * (f > 0.2 ? f : 0.2);
}

static void keep_prices(struct round *r, struct market *m, double bound)
{
    r->dual = bound;
    memcpy(m->best_price, m->price, sizeof(m->price));
    memcpy(m->best_tenant, m->tenant, r->in->n_tenants * sizeof(*m->tenant));
}

static void add_bidder(const struct round *r, struct market *m, size_t i)
{
    const struct rjob *j = &r->jobs[i];
    struct bidder *b = &m->bidders[m->n_bidders++];

    *b = (struct bidder){.per_device = j->per_device,
                         .job = (uint32_t)i,
                         .tenant = j->job->tenant,
                         .first = j->first,
                         .n = j->n,
                         .mask = j->mask,
                         .best = NONE};
    for (int c = 0; c < j->n && !b->tight; c++)
        b->tight = !could_fit(m, b, &cand_of(r, j, c)->shape);
}

/* Find prices; leaves the choices of the best bound in chosen. */
static void find_prices(struct round *r, struct market *m)
{
    double step = 1, total_u = 0;
    int64_t devices = 0;
    int calm = 0;

    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct rjob *j = &r->jobs[i];

        total_u += j->n > 0 ? utility(r, j, j->n - 1) : 0;
        if (!j->pinned && j->n > 0)
            add_bidder(r, m, i);
    }
    for (int k = 0; k < RATES_TYPES_MAX; k++)
        devices += m->cap[k];
    double mean = total_u / (double)(devices + 1), floor = mean * 1e-3 + 1e-9;

    for (int k = 0; k < RATES_TYPES_MAX; k++)
        m->price[k] = r->prices[k] > 0 ? r->prices[k] : mean * 0.2;
    for (int it = 0; it < ITERATIONS && calm < CALM; it++) {
        double bound = bid(r, m);

        calm = it > 0 && bound > r->dual * (1 - CALM_GAIN) ? calm + 1 : 0;
        if (it == 0 || bound < r->dual) {
            keep_prices(r, m, bound);
            for (size_t i = 0; i < m->n_bidders; i++)
                m->bidders[i].best = m->bidders[i].chosen;
        }
        for (int k = 0; k < RATES_TYPES_MAX; k++)
            m->price[k] = adjust(m->price[k], m->demand[k], m->cap[k], step, floor);
        for (size_t t = 0; t < r->in->n_tenants; t++)
            if (m->tenant_cap[t] < INT32_MAX)
                m->tenant[t] = adjust(m->tenant[t], m->tenant_demand[t], m->tenant_cap[t], step, floor);
        step *= 0.92;
    }
    memcpy(r->prices, m->best_price, sizeof(r->prices));
    for (size_t i = 0; i < m->n_bidders; i++)
        r->jobs[m->bidders[i].job].chosen = m->bidders[i].best;
}

/* --- from choices to a plan that fits ----------------------------------------------------------------------- */

/* Of too many that reach a time at which nodes close the youngest get nothing. */
static void trim_closing(struct round *r)
{
    for (size_t i = r->n_jobs; i-- > 0 && r->n_horizons > 0;) {
        struct rjob *j = &r->jobs[i];
        const struct sched_shape *s = j->chosen == NONE ? NULL : &cand_of(r, j, j->chosen)->shape;

        if (s && (!closing_fits(r, j, s->type[0], 0) || (s->type[1] >= 0 && !closing_fits(r, j, s->type[1], 0))))
            choice_set(r, j, NONE);
    }
}

static void count_choices(struct round *r)
{
    memset(r->used, 0, sizeof(r->used));
    r->power_used = 0;
    memset(r->tenant_used, 0, r->in->n_tenants * sizeof(*r->tenant_used));
    if (r->tenants_nest)
        memset(r->tenant_type_used, 0, r->in->n_tenants * RATES_TYPES_MAX * sizeof(*r->tenant_type_used));
    closing_reset(r);
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];
        int16_t c = j->chosen;

        j->chosen = NONE;
        if (c != NONE)
            choice_set(r, j, c);
    }
    trim_closing(r);
}

static bool over(const struct round *r, const struct rjob *j, int c)
{
    const struct sched_shape *s;

    if (c == NONE)
        return false;
    s = &cand_of(r, j, c)->shape;
    return r->used[s->type[0]] > r->total[s->type[0]] ||
           (s->type[1] >= 0 && r->used[s->type[1]] > r->total[s->type[1]]) || tenants_over(r, j->job->tenant, s);
}

static int32_t count_of(const struct sched_shape *s, int type)
{
    return (s->type[0] == type ? s->n[0] : 0) + (s->type[1] == type ? s->n[1] : 0);
}

/* Devices that changing to c frees where they are short; <= 0: it frees none or takes others. */
static int32_t frees(const struct round *r, const struct rjob *j, int c)
{
    const struct sched_shape *from = &cand_of(r, j, j->chosen)->shape;
    int32_t n = tenants_relief(r, j->job->tenant, from, c == NONE ? NULL : &cand_of(r, j, c)->shape);

    if (n == INT32_MIN)
        return 0;

    for (int k = 0; k < 2; k++) {
        int type = from->type[k];

        if (type >= 0 && r->used[type] > r->total[type])
            n += from->n[k] - (c == NONE ? 0 : count_of(&cand_of(r, j, c)->shape, type));
    }
    for (int k = 0; c != NONE && k < 2; k++) { /* what it takes instead must be free */
        const struct sched_shape *to = &cand_of(r, j, c)->shape;
        int type = to->type[k];
        int32_t more = type < 0 ? 0 : to->n[k] - count_of(from, type);

        if (more > 0 && r->used[type] + more > r->total[type])
            return 0;
    }
    return n;
}

static int by_worth(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->worth != y->worth)
        return x->worth < y->worth ? -1 : 1;
    return (x->turn > y->turn) - (x->turn < y->turn);
}

/* The cheapest loss per device freed. */
static bool best_downgrade(const struct round *r, const struct rjob *j, struct change *ret)
{
    bool found = false;

    for (int c = NONE; c < j->n; c++) {
        int32_t n = c == j->chosen ? 0 : frees(r, j, c);
        double worth;

        if (n <= 0)
            continue;
        worth = (utility(r, j, j->chosen) - utility(r, j, c)) / n;
        if (!found || worth < ret->worth) {
            found = true;
            *ret = (struct change){.job = (size_t)(j - r->jobs),
                                   .to = (int16_t)c,
                                   .worth = worth,
                                   .turn = r->jobs - j}; /* the younger gives way */
        }
    }
    return found;
}

static void repair(struct round *r, struct market *m)
{
    for (;;) {
        size_t n = 0;

        for (size_t i = 0; i < r->n_jobs; i++) {
            struct rjob *j = &r->jobs[i];

            if (!j->pinned && over(r, j, j->chosen) && best_downgrade(r, j, &m->changes[n]))
                n++;
        }
        if (n == 0)
            return;
        qsort(m->changes, n, sizeof(*m->changes), by_worth);
        for (size_t i = 0; i < n; i++) {
            struct rjob *j = &r->jobs[m->changes[i].job];

            if (over(r, j, j->chosen) && frees(r, j, m->changes[i].to) > 0)
                choice_set(r, j, m->changes[i].to);
        }
    }
}

static void find_spare(const struct round *r, struct market *m)
{
    for (size_t i = 0; i < r->n_masks; i++) {
        m->spare[i] = 0;
        for (int k = 0; k < RATES_TYPES_MAX; k++)
            if ((r->masks[i] >> k & 1) && r->total[k] > r->used[k])
                m->spare[i] += r->total[k] - r->used[k];
    }
}

/* Give what is free to the best gain per device until nobody gains. */
static void fill(struct round *r, struct market *m, bool only_waiting)
{
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        size_t n = 0, applied = 0;

        find_spare(r, m);
        for (size_t i = 0; i < r->n_jobs; i++) {
            struct rjob *j = &r->jobs[i];
            struct change best = {.worth = 0};
            int32_t size = j->chosen == NONE ? 0 : shape_size(&cand_of(r, j, j->chosen)->shape);

            if (j->pinned || (only_waiting && j->current != NONE))
                continue;
            if (j->chosen == NONE && (j->n == 0 || shape_size(&cand_of(r, j, 0)->shape) > m->spare[j->mask]))
                continue; /* even the smallest does not fit */
            for (int c = 0; c < j->n; c++) {
                double gain = utility(r, j, c) - utility(r, j, j->chosen);
                int32_t more = shape_size(&cand_of(r, j, c)->shape) - size;

                gain /= more > 1 ? more : 1;
                if (c != j->chosen && gain > best.worth && gain > 1e-9 && choice_fits(r, j, c))
                    best = (struct change){.job = i, .to = (int16_t)c, .worth = gain};
            }
            if (best.worth > 0)
                m->changes[n++] = (struct change){.job = i, .to = best.to, .worth = -best.worth, .turn = (int64_t)i};
        }
        qsort(m->changes, n, sizeof(*m->changes), by_worth);
        for (size_t i = 0; i < n; i++) {
            struct rjob *j = &r->jobs[m->changes[i].job];

            if (choice_fits(r, j, m->changes[i].to)) {
                choice_set(r, j, m->changes[i].to);
                applied++;
            }
        }
        if (applied == 0)
            return;
    }
}

static double value_of(const struct round *r)
{
    double v = 0;

    for (size_t i = 0; i < r->n_jobs; i++)
        v += utility(r, &r->jobs[i], r->jobs[i].chosen);
    return v;
}

static void market_clear(struct market *m)
{
    free(m->tenant);
    free(m->best_tenant);
    free(m->tenant_cap);
    free(m->tenant_demand);
    free(m->changes);
    free(m->saved);
    free(m->bidders);
}

static int market_init(struct round *r, struct market *m)
{
    *m = (struct market){.pinned = 0};
    m->tenant = calloc(r->in->n_tenants, sizeof(*m->tenant));
    m->best_tenant = calloc(r->in->n_tenants, sizeof(*m->best_tenant));
    m->tenant_cap = calloc(r->in->n_tenants, sizeof(*m->tenant_cap));
    m->tenant_demand = calloc(r->in->n_tenants, sizeof(*m->tenant_demand));
    m->changes = malloc((r->n_jobs + 1) * sizeof(*m->changes));
    m->saved = malloc((r->n_jobs + 1) * sizeof(*m->saved));
    m->bidders = malloc((r->n_jobs + 1) * sizeof(*m->bidders));
    if (!m->tenant || !m->best_tenant || !m->tenant_cap || !m->tenant_demand || !m->changes || !m->saved ||
        !m->bidders) {
        market_clear(m);
        return -ENOMEM;
    }
    for (size_t i = 0; i < r->n_jobs; i++)
        r->jobs[i].chosen = !r->jobs[i].pinned           ? NONE
                            : r->jobs[i].granted != NONE ? r->jobs[i].granted
                                                         : r->jobs[i].current;
    count_choices(r);
    for (int k = 0; k < RATES_TYPES_MAX; k++)
        m->cap[k] = r->total[k] > r->used[k] ? r->total[k] - r->used[k] : 0;
    for (size_t t = 0; t < r->in->n_tenants; t++)
        m->tenant_cap[t] = r->tenant_cap[t] == INT32_MAX          ? INT32_MAX
                           : r->tenant_cap[t] > r->tenant_used[t] ? r->tenant_cap[t] - r->tenant_used[t]
                                                                  : 0;
    m->pinned = value_of(r);
    return 0;
}

/* The plan before, where it still fits, filled up. */
static double keep_and_fill(struct round *r, struct market *m)
{
    for (size_t i = 0; i < r->n_jobs; i++)
        r->jobs[i].chosen = r->jobs[i].granted != NONE ? r->jobs[i].granted : r->jobs[i].current;
    count_choices(r);
    repair(r, m);
    fill(r, m, true);
    fill(r, m, false);
    return value_of(r);
}

static double squared(double x)
{
    return x * x;
}

/* Along the excess of demand, as far as would close the gap were the bound linear (Polyak's step). */
static void step_prices(const struct round *r, struct market *m, double gap)
{
    double length = 0, step;

    for (int k = 0; k < RATES_TYPES_MAX; k++)
        length += squared((double)(m->demand[k] - m->cap[k]));
    for (size_t t = 0; t < r->in->n_tenants; t++)
        if (m->tenant_cap[t] < INT32_MAX)
            length += squared((double)(m->tenant_demand[t] - m->tenant_cap[t]));
    if (length == 0)
        return;
    step = gap / length;
    for (int k = 0; k < RATES_TYPES_MAX; k++)
        m->price[k] = fmax(0, m->price[k] + step * (double)(m->demand[k] - m->cap[k]));
    for (size_t t = 0; t < r->in->n_tenants; t++)
        if (m->tenant_cap[t] < INT32_MAX)
            m->tenant[t] = fmax(0, m->tenant[t] + step * (double)(m->tenant_demand[t] - m->tenant_cap[t]));
}

/* What runs changes for more than nothing. */
static double least_gain(const struct round *r)
{
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].current != NONE && !r->jobs[i].pinned)
            return EXACT_GAIN * fabs(r->value);
    return 1e-9;
}

/* Where jobs are few prices decide coarsely: lower the bound, then look for what is better. */
static int search_exactly(struct round *r, struct market *m)
{
    double least = least_gain(r);
    int status;

    if (r->n_jobs > EXACT_JOBS_MAX)
        return 0;
    memcpy(m->price, m->best_price, sizeof(m->price));
    memcpy(m->tenant, m->best_tenant, r->in->n_tenants * sizeof(*m->tenant));
    for (int i = 0; i < SHARPENINGS && r->dual > r->value + least; i++) {
        double bound = bid(r, m);

        if (bound < r->dual)
            keep_prices(r, m, bound);
        step_prices(r, m, bound - r->value);
    }
    memcpy(r->prices, m->best_price, sizeof(r->prices));
    memcpy(r->tenant_prices, m->best_tenant, r->in->n_tenants * sizeof(*r->tenant_prices));
    status = exact_improve(r, least);
    r->value = value_of(r);
    return status;
}

/* Towards a level below the bound that comes nearer as steps fail to get there. */
static void lower_bound(struct round *r, struct market *m)
{
    double below = (r->dual - r->value) / 2;

    for (int i = 0, idle = CALM; i < LOWERINGS && below > CALM_GAIN * r->dual; i++) {
        double bound;

        if (idle >= IDLE_STEPS) {
            memcpy(m->price, m->best_price, sizeof(m->price));
            memcpy(m->tenant, m->best_tenant, r->in->n_tenants * sizeof(*m->tenant));
            below /= i > 0 ? 2 : 1;
            idle = 0;
        }
        bound = bid(r, m);
        idle = bound < r->dual - 0.05 * below ? 0 : idle + 1;
        if (bound < r->dual)
            keep_prices(r, m, bound);
        step_prices(r, m, bound - (r->dual - below));
    }
    memcpy(r->prices, m->best_price, sizeof(r->prices));
    memcpy(r->tenant_prices, m->best_tenant, r->in->n_tenants * sizeof(*r->tenant_prices));
}

static bool is_cold(const struct round *r)
{
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].job->n_places > 0)
            return false;
    return true;
}

/* Where nothing runs, a bound that is far away is worth more looks: better prices, then ever wider searches. */
static int search_widely(struct round *r, struct market *m)
{
    int64_t looks = LOOKS_FIRST;

    if (r->dual <= r->value * (1 + COLD_GAIN) || !is_cold(r))
        return 0;
    lower_bound(r, m);
    for (int turn = 0; turn < WIDE_TURNS && r->looks > 0 && r->dual > r->value * (1 + COLD_GAIN); turn++) {
        if (beam_improve(r, 1e-9, looks < r->looks ? looks : r->looks) < 0)
            return -ENOMEM;
        r->value = value_of(r);
        looks *= 4;
    }
    return 0;
}

int price_choose(struct round *r)
{
    struct market m;
    double fresh, kept;
    int status;

    if (market_init(r, &m) < 0)
        return -ENOMEM;
    find_prices(r, &m);
    count_choices(r);
    repair(r, &m);
    fill(r, &m, false);
    fresh = value_of(r);
    for (size_t i = 0; i < r->n_jobs; i++)
        m.saved[i] = r->jobs[i].chosen;
    kept = keep_and_fill(r, &m);
    r->value = kept;
    if (fresh > kept + KEEP_GAIN * fabs(kept)) {
        for (size_t i = 0; i < r->n_jobs; i++)
            r->jobs[i].chosen = m.saved[i];
        count_choices(r);
        r->value = fresh;
    }
    status = search_exactly(r, &m);
    status = status < 0 ? status : search_widely(r, &m);
    market_clear(&m);
    return status;
}

/* Between full rounds: all that runs stays, save where devices were lost or an urgent job needs them; then those that
 * wait, best gain first, with what is not kept for urgent ones. */
int fill_choose(struct round *r)
{
    struct market m;
    int status;

    if (market_init(r, &m) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_jobs; i++)
        r->jobs[i].chosen = r->jobs[i].current;
    count_choices(r);
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];

        if (!j->urgent || j->job->class_ != SCHED_GUARANTEED || j->chosen != NONE || j->n == 0)
            continue;
        for (int c = 0; c < j->n && j->chosen == NONE; c++)
            if (choice_fits(r, j, c))
                choice_set(r, j, c);
        if (j->chosen == NONE)
            choice_set(r, j, 0); /* over what there is: repair takes it from the least worth */
    }
    repair(r, &m);
    status = reserve_between(r);
    if (status == 0) {
        fill(r, &m, true);
        reserve_backfill(r);
        reserve_end(r);
    }
    market_clear(&m);
    return status;
}
