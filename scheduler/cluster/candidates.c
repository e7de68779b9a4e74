/* What a job could run on: counts of one type, mixes of two, and what each is worth. */
#include "scheduler/cluster/cache.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/cluster/closing_priv.h"
#include "scheduler/cluster/finish.h"
#include "scheduler/cluster/tenants_priv.h"

#define WORTH_MAX 1e12      /* of a candidate; more is as much */
#define LAMBDA 2.1          /* worth of running at all, in units of the smallest configuration */
#define GUARANTEE 1000.0    /* added for a guarantee within its quota */
#define STARVING 200.0      /* and for a job that waited too long */
#define HOLD 4.0            /* and, times its weight, for one within its time slice, or that is late */
#define MOVE_COST 0.06      /* taken from every change */
#define LATE_MILLI 2250     /* fairness forecast from which a short job need not wait for the end of slices */
#define WHOLE_NODES 24      /* multiples of a node that are tried per type */
#define IDLE_MAX 0.3        /* of what a mix can do may idle, unless the job takes no less */
#define DISLIKED 0.75       /* of its worth has a configuration of types that the job would rather not have */
#define LEARN_ROUNDS 3      /* for which a job waits at most until another one has shown how fast its kind is */
#define LEARN_LOOKS 1024    /* at jobs, for such */
#define FEW_DEVICES 32      /* of a type: every count is tried */
#define CANDIDATES_USUAL 20 /* of a job: room for so many is taken at once */

struct row { /* one job's candidates while they are collected */
    struct cand v[SCHED_CANDIDATES_MAX];
    int n;
};

static bool same_shape(const struct sched_shape *a, const struct sched_shape *b)
{
    return a->type[0] == b->type[0] && a->type[1] == b->type[1] && a->n[0] == b->n[0] && a->n[1] == b->n[1];
}

static void add(struct row *row, struct sched_shape shape)
{
    if (row->n == SCHED_CANDIDATES_MAX || shape.rate_ups <= 0)
        return;
    for (int i = 0; i < row->n; i++) {
        const struct sched_shape *s = &row->v[i].shape;

        if (same_shape(s, &shape))
            return;
    }
    row->v[row->n++] = (struct cand){.shape = shape};
}

static void add_count(struct row *row, const struct sched_job *job, int type, int32_t n)
{
    add(row, (struct sched_shape){
                 .type = {(int8_t)type, -1}, .n = {n, 0}, .rate_ups = rates_at(job->profile, type, n, NULL)});
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* What a job may hold: multiples of a replica. */
struct range {
    int32_t lo, hi, step;
};

static struct range range_of(const struct sched_job *job)
{
    struct range g = {.step = job->replica > 1 ? job->replica : 1};

    sched_job_range(job, &g.lo, &g.hi);
    return g;
}

/* Most devices of a type that it finds in one leaf, where it asks for that. */
static int32_t leaf_total(const struct round *r, const struct sched_job *job, int type)
{
    return job->within && r->leaf_most ? r->leaf_most[type] : INT32_MAX;
}

/* Powers of two inside a node, whole nodes above it, both ends of the range; of few devices every count. */
static void add_type(struct round *r, struct row *row, const struct rjob *j, int type, struct range g, int room)
{
    const struct sched_job *job = j->job;
    int32_t size = r->node_size[type], hi = least(g.hi, least(closing_total(r, j, type), leaf_total(r, job, type)));
    int end = row->n + room;

    hi -= hi % g.step;
    if (hi < g.lo || job->profile->n[type] == 0)
        return;
    if (end > SCHED_CANDIDATES_MAX)
        end = SCHED_CANDIDATES_MAX;
    add_count(row, job, type, g.lo);
    add_count(row, job, type, hi);
    for (int32_t n = g.step; n <= size && n <= hi && row->n < end; n *= 2)
        if (n >= g.lo)
            add_count(row, job, type, n);
    for (int32_t nodes = 1, by = 1, i = 0; i < WHOLE_NODES && row->n < end; i++, nodes += by) {
        int64_t n = (int64_t)nodes * size;

        n -= n % g.step;
        if (n > hi)
            break;
        if (n >= g.lo)
            add_count(row, job, type, (int32_t)n);
        if (i % 4 == 3)
            by *= 2;
    }
    for (int32_t n = g.lo; n <= hi && r->total[type] <= FEW_DEVICES && row->n < end; n += g.step)
        add_count(row, job, type, n);
}

/* Replicas of one device each lie beside each other on two types; larger ones are cut between two stages. */
static int64_t rate_of_mix(const struct sched_job *job, int a, int32_t n_a, int b, int32_t n_b, double *ret_idle)
{
    *ret_idle = 0;
    return job->replica > 1 ? rates_spanned(job->profile, a, n_a, b, n_b)
                            : rates_mixed(job->profile, a, n_a, b, n_b, job->workers, ret_idle);
}

static void add_mix(struct row *row, const struct sched_job *job, int a, int32_t n_a, int b, int32_t n_b,
                    double idle_max)
{
    int swap = a > b;
    double idle;
    int64_t rate = rate_of_mix(job, a, n_a, b, n_b, &idle);

    if (idle > idle_max)
        return;
    add(row, (struct sched_shape){.type = {(int8_t)(swap ? b : a), (int8_t)(swap ? a : b)},
                                  .n = {swap ? n_b : n_a, swap ? n_a : n_b},
                                  .rate_ups = rate});
}

/* Every way to make up the least count of two types, where devices are few; of pipelines by whole stages. */
static void add_least_mixes(struct round *r, struct row *row, const struct sched_job *job, struct range g)
{
    int32_t by = g.step > 1 ? job->stage * (g.lo / g.step) : 1;

    for (int a = 0; a < RATES_TYPES_MAX; a++)
        for (int b = a + 1; b < RATES_TYPES_MAX && (job->types >> a & 1); b++)
            for (int32_t n = by; n < g.lo && g.lo <= FEW_DEVICES && (job->types >> b & 1); n += by)
                if (n <= r->total[a] && g.lo - n <= r->total[b])
                    add_mix(row, job, a, n, b, g.lo - n, 1);
}

/* One more type beside each count of another that is a power of two: what it has now when it runs, else any. */
static void add_mixes(struct round *r, struct row *row, const struct sched_job *job, const struct sched_shape *now,
                      struct range g)
{
    int32_t hi = g.hi;

    for (int a = 0; a < RATES_TYPES_MAX; a++) {
        bool runs = now->type[0] == a && now->type[1] < 0;
        int32_t from = runs ? now->n[0] : 1, to = runs ? now->n[0] : least(r->total[a], hi);

        if (!(job->types >> a & 1) || (now->type[0] >= 0 && !runs) || job->profile->n[a] == 0)
            continue;
        for (int b = 0; b < RATES_TYPES_MAX; b++)
            for (int32_t n_a = from; b != a && n_a <= to && (job->types >> b & 1); n_a *= 2)
                for (int32_t n_b = 1; n_b <= least(r->total[b], hi - n_a); n_b *= 2)
                    if (n_a + n_b >= job->min && job->profile->n[b] > 0 && (runs || a < b))
                        add_mix(row, job, a, n_a, b, n_b, IDLE_MAX);
    }
}

/* What the job holds on nodes that are still there. *ret_lost: not all of it is. */
static struct sched_shape shape_now(const struct round *r, const struct sched_job *job, bool *ret_lost)
{
    struct sched_shape s = {.type = {-1, -1}};
    int32_t by_type[RATES_TYPES_MAX] = {0};
    double idle;
    int k = 0;

    *ret_lost = false;
    for (size_t i = 0; i < job->n_places; i++) {
        const struct sched_node *node = &r->in->nodes[job->places[i].node];

        if (node->devices < job->places[i].devices)
            *ret_lost = true;
        by_type[node->type] += job->places[i].devices;
    }
    for (int t = 0; t < RATES_TYPES_MAX && k < 2; t++)
        if (by_type[t] > 0) {
            s.type[k] = (int8_t)t;
            s.n[k++] = by_type[t];
        }
    if (k == 1)
        s.rate_ups = rates_at(job->profile, s.type[0], s.n[0], NULL);
    if (k == 2)
        s.rate_ups = rate_of_mix(job, s.type[0], s.n[0], s.type[1], s.n[1], &idle);
    return s;
}

static int by_size(const void *a, const void *b)
{
    const struct sched_shape *x = &((const struct cand *)a)->shape, *y = &((const struct cand *)b)->shape;
    int32_t n = shape_size(x), m = shape_size(y);

    if (n != m)
        return n < m ? -1 : 1;
    if (x->rate_ups != y->rate_ups)
        return x->rate_ups > y->rate_ups ? -1 : 1;
    if (x->type[0] != y->type[0])
        return x->type[0] - y->type[0];
    if (x->type[1] != y->type[1])
        return x->type[1] - y->type[1];
    return (x->n[0] > y->n[0]) - (x->n[0] < y->n[0]);
}

/* A configuration with more devices of the same types that is no faster is never chosen; the present one stays. */
static void prune(struct row *row, const struct sched_shape *now)
{
    int64_t best[RATES_TYPES_MAX + 1] = {0};
    int n = 0;

    for (int i = 0; i < row->n; i++) {
        const struct sched_shape *s = &row->v[i].shape;
        int key = s->type[1] < 0 ? s->type[0] : RATES_TYPES_MAX;

        if (key < RATES_TYPES_MAX && s->rate_ups <= best[key] && !same_shape(s, now))
            continue;
        if (s->rate_ups > best[key])
            best[key] = s->rate_ups;
        row->v[n++] = row->v[i];
    }
    row->n = n;
}

static bool in_range(const struct sched_job *job, const struct sched_shape *now, struct range g)
{
    int32_t n = shape_size(now);

    for (int k = 0; k < 2; k++)
        if (now->type[k] >= 0 && !(job->types >> now->type[k] & 1))
            return false;
    return n >= g.lo && n <= g.hi && n % g.step == 0;
}

static void collect(struct round *r, struct rjob *j, struct row *row, const struct sched_shape *now)
{
    const struct sched_job *job = j->job;
    struct range g = range_of(job);
    int types = 0, seen = 0, room = job->hetero_ok ? SCHED_CANDIDATES_MAX * 2 / 3 : SCHED_CANDIDATES_MAX;

    row->n = 0;
    if (now->rate_ups > 0 && !j->lost && (job->fixed || in_range(job, now, g)))
        add(row, *now);
    if (job->fixed && row->n > 0)
        return;
    if (now->type[0] >= 0 && row->n > 0 && g.hi > 2 * shape_size(now))
        g.hi = 2 * shape_size(now) > g.lo ? 2 * shape_size(now) : g.lo;
    else if (now->type[0] < 0 && r->in->config.policy == SCHED_POLICY_SIA) /* it starts on its least devices */
        g.hi = g.lo;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        types += (job->types >> t & 1) && r->total[t] > 0;
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        if ((sched_job_types(job) >> t & 1) && r->total[t] > 0)
            add_type(r, row, j, t, g, (room - row->n) / (types - seen));
        seen += (job->types >> t & 1) && r->total[t] > 0;
    }
    if (job->hetero_ok && job->workers > 0 && (g.step == 1 || job->stage > 0) &&
        r->in->config.policy == SCHED_POLICY_MUSTER) {
        add_least_mixes(r, row, job, g);
        if (g.step == 1)
            add_mixes(r, row, job, now, g);
    }
    qsort(row->v, (size_t)row->n, sizeof(*row->v), by_size);
    prune(row, now);
}

/* --- worth ----------------------------------------------------------------------------------------------- */

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* In coarse steps, so that the last bits of a sum decide nothing. Times of a snapshot can be any: what is beyond all
 * measure, or none, stays a number. */
static double millis(double x)
{
    x = x > 0 ? x < WORTH_MAX ? x : WORTH_MAX : 0;
    return (double)(int64_t)(x * 1e6 + 0.5) / 1e6;
}

/* The share a job was due over what it had, in coarse steps: jobs that are about even do not trade places. */
static double arrears(double due_us, double had_us)
{
    double ratio = (due_us + 6e7) / (had_us + 6e7);

    return ratio >= 16 ? 8 : ratio >= 4 ? 3 : ratio > 0.25 ? 1 : ratio > 0.0625 ? 0.33 : 0.125;
}

/* Tenant, job, class, finish-time fairness and, when not all minima fit, the share it was due over what it had. */
static double weight_of(const struct round *r, const struct rjob *j, double all_weights, double devices)
{
    const struct sched_job *job = j->job;
    const struct sched_tenant *tenant = &r->in->tenants[job->tenant];
    double own = (double)tenant->weight_milli * (double)job->weight_milli / 1e6, w = own;
    double age = (double)(r->in->config.now_us - job->submit_us), had, objective = objective_weight(r, j, own);

    if (objective > 0)
        return objective;
    w *= clamp((double)job->rho_milli / 1000.0, 1.0, 4.0) * sqrt((double)job->min);
    if (job->class_ == SCHED_OPPORTUNISTIC)
        w *= 0.25;
    if (job->finish_us > 0)
        w *= finish_urgency(job, r->in->config.now_us);
    if (!r->contended || age <= 0)
        return w;
    had = arrears(own / all_weights * devices * age, (double)job->attained_us);
    if (job->share_milli > 0) /* what its user is due comes first: a long queue is no claim to more */
        return w * (had < 1 ? had : 1) * (double)job->share_milli / 1000.0;
    return w * had;
}

/* Its devices were changed less than a time slice ago, or it is done with them within one. */
static bool in_slice(const struct round *r, const struct sched_job *job, const struct sched_shape *now)
{
    int64_t slice = sched_slice_us(r, job);

    return job->class_ != SCHED_OPPORTUNISTIC &&
           (r->in->config.now_us - job->changed_us < slice || sched_rest_us(job, now->rate_ups) < (double)slice);
}

/* It waits, will have taken more than twice its fair time, and would be done within a time slice on as few devices as
 * it can take: to wait until those of others are over costs it many times its own time, and them little. Or it has to
 * begin within a slice to have ended when it should. */
static bool is_late(const struct round *r, const struct sched_job *job, int32_t least_devices)
{
    int64_t best = 0;

    if (job->finish_us > 0 && job->n_places == 0 && job->class_ != SCHED_OPPORTUNISTIC &&
        finish_presses(job, r->in->config.now_us, sched_slice_us(r, job)))
        return true;
    if (job->n_places > 0 || job->rho_milli < LATE_MILLI || job->remaining_us < 0 || job->class_ == SCHED_OPPORTUNISTIC)
        return false;
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        if ((sched_job_types(job) >> t & 1) && r->total[t] > 0 && job->profile->n[t] > 0) {
            int64_t rate = rates_at(job->profile, t, least_devices, NULL);

            best = rate > best ? rate : best;
        }
    return sched_rest_us(job, best) < (double)sched_slice_us(r, job);
}

/* What restarts leave of a job's time if it goes on as it did so far (Pollux 2021). */
static double restart_factor(const struct round *r, const struct sched_job *job)
{
    double age = (double)(r->in->config.now_us - job->submit_us), cost = (double)job->restart_us;

    if (age + cost <= 0)
        return 1;
    return clamp((age - job->restarts * cost) / (age + cost), 0.05, 1.0);
}

/* And what one more leaves of the rest of its work. */
double candidates_rest_factor(const struct sched_job *job, int64_t rate_ups)
{
    double rest = sched_rest_us(job, rate_ups);

    return isinf(rest) ? 1 : rest / (rest + (double)job->restart_us + 1);
}

/* What a candidate is worth to a job of weight 1. */
static double worth_of(const struct cand *cand, double factor, double base, bool change)
{
    double x = (double)cand->shape.rate_ups * factor / base;

    x = x > 0.25 ? x : 0.25;
    return LAMBDA - 1 / sqrt(x) - (change ? MOVE_COST : 0);
}

double candidates_gain(const struct round *r, const struct sched_job *job, double times)
{
    const struct cand now = {.shape.rate_ups = RATES_UPS_MAX / 1000};
    const struct cand then = {.shape.rate_ups = (int64_t)((double)now.shape.rate_ups * times)};
    double base = (double)then.shape.rate_ups;

    return worth_of(&then, restart_factor(r, job), base, true) - worth_of(&now, 1, base, false);
}

static double bonus_of(const struct rjob *j)
{
    return !j->urgent ? 0 : j->job->class_ == SCHED_GUARANTEED ? GUARANTEE : STARVING;
}

static bool is_urgent_on(const struct rjob *j, const struct sched_shape *s)
{
    return (j->urgent_types >> s->type[0] & 1) && (s->type[1] < 0 || (j->urgent_types >> s->type[1] & 1));
}

/* By how much of it is of types that the job would rather have. */
static double liking(const struct sched_job *job, const struct sched_shape *s)
{
    int32_t liked = 0;

    for (int k = 0; k < 2; k++)
        liked += s->type[k] >= 0 && (job->prefer >> s->type[k] & 1) ? s->n[k] : 0;
    return DISLIKED + (1 - DISLIKED) * liked / shape_size(s);
}

/* worth: of each candidate to a job that waits; NULL: not known. */
static void value(struct round *r, struct rjob *j, const struct sched_shape *now, const double *worth)
{
    const struct sched_job *job = j->job;
    double base = 0, factor = restart_factor(r, job), hold = 0;

    if (j->current != NONE || r->in->config.policy != SCHED_POLICY_MUSTER || r->in->config.objective != SCHED_FAIR)
        worth = NULL;
    for (int c = 0; c < j->n && !worth; c++) {
        double rate = (double)cand_of(r, j, c)->shape.rate_ups;

        base = base == 0 || rate < base ? rate : base;
    }
    if (r->in->config.policy == SCHED_POLICY_MUSTER &&
        (now->type[0] >= 0 ? in_slice(r, job, now) : is_late(r, job, j->least)))
        hold = HOLD * j->weight;
    for (int c = 0; c < j->n; c++) {
        struct cand *cand = cand_of(r, j, c);
        bool change = j->current != NONE && c != j->current;
        double kept = change ? factor * candidates_rest_factor(job, cand->shape.rate_ups) : 1;
        double x = worth ? worth[c] : worth_of(cand, kept, base, change), per_device;

        (void)objective_worth(r, j, cand, base, kept, &x);

        x *= job->prefer ? liking(job, &cand->shape) : 1;

        cand->utility = millis(j->weight * x + (is_urgent_on(j, &cand->shape) ? bonus_of(j) : 0) + hold);
        assert(cand->utility >= 0);
        per_device = cand->utility / shape_size(&cand->shape);
        j->per_device = per_device > j->per_device ? per_device : j->per_device;
    }
}

int64_t candidates_hold_us(const struct round *r, const struct sched_job *job)
{
    int64_t hold = r->in->config.hold_us, restarts_us = job ? 4 * job->restart_us : 0;

    return restarts_us > hold ? restarts_us : hold;
}

static bool just_changed(const struct round *r, const struct sched_job *job)
{
    return r->in->config.now_us - job->changed_us < candidates_hold_us(r, job);
}

/* --- what rounds have found ------------------------------------------------------------------------------ */

static uint8_t mask_of(struct round *r, uint32_t types)
{
    for (size_t i = 1; i < r->n_masks; i++)
        if (r->masks[i] == types)
            return (uint8_t)i;
    if (r->n_masks == MASKS_MAX)
        return 0;
    r->masks[r->n_masks] = types;
    return (uint8_t)r->n_masks++;
}

/* Make room for a row's candidates and say where they are. */
static int room_for(struct round *r, struct rjob *j, int n)
{
    if (r->n_cands + (size_t)n > r->cands_cap) {
        size_t cap = r->cands_cap ? 2 * r->cands_cap : SCHED_CANDIDATES_MAX + CANDIDATES_USUAL * r->n_jobs;
        struct cand *v = realloc(r->cands, cap * sizeof(*v));

        if (!v)
            return -ENOMEM;
        r->cands = v;
        r->cands_cap = cap;
    }
    j->first = (uint32_t)r->n_cands;
    j->n = (uint16_t)n;
    r->n_cands += (size_t)n;
    return 0;
}

/* A job that waited before this one in the round and asks alike, or the place to note this one at. */
static const struct rjob **memo_of(const struct round *r, const struct sched_job *job, bool *ret_known)
{
    static const struct sched_shape nothing = {.type = {-1, -1}};
    struct cache_key key = cache_key_of(job, &nothing, false), other = {.profile = NULL};
    const struct rjob **at = &r->memo[hash_xxh3(&key, sizeof(key)) % ROUND_MEMO];

    if (*at)
        other = cache_key_of((*at)->job, &nothing, false);
    *ret_known = *at && memcmp(&key, &other, sizeof(key)) == 0;
    return at;
}

/* The candidates into the round, found now or for a job that waits and asks alike. */
static int find_row(struct round *r, struct rjob *j, const struct sched_shape *now)
{
    bool known = false;
    const struct rjob **at = r->memo && j->reach == 0 && j->job->n_places == 0 ? memo_of(r, j->job, &known) : NULL;
    const struct rjob *like = at && known ? *at : NULL;
    struct row row;

    if (!known)
        collect(r, j, &row, now);
    if (room_for(r, j, known ? like->n : row.n) < 0)
        return -ENOMEM;
    if (j->n > 0)
        memcpy(&r->cands[j->first], known ? &r->cands[like->first] : row.v, j->n * sizeof(row.v[0]));
    if (at && !known)
        *at = j;
    return 0;
}

/* The same with a cache of earlier rounds, which also knows what each is worth to a job that waits. */
static int recall_row(struct round *r, struct rjob *j, const struct sched_shape *now, const double **ret_worth)
{
    struct cache_key key = cache_key_of(j->job, now, j->lost);
    const struct cand *known;
    struct row row;
    int n;

    if (j->reach > 0 || j->job->within)
        return find_row(r, j, now);
    n = cache_find(r->in->cache, &key, &known, ret_worth);

    if (n < 0) {
        collect(r, j, &row, now);
        n = cache_keep(r->in->cache, &key, row.v, row.n, LAMBDA, &known, ret_worth);
    }
    if (n < 0 || room_for(r, j, n) < 0)
        return -ENOMEM;
    if (n > 0)
        memcpy(&r->cands[j->first], known, (size_t)n * sizeof(*known));
    return 0;
}

/* *ret_worth: of each candidate to a job that waits; NULL: not known. */
static int add_candidates(struct round *r, struct rjob *j, struct sched_shape *now, const double **ret_worth)
{
    int status;

    *now = shape_now(r, j->job, &j->lost);
    *ret_worth = NULL;
    status = r->in->cache ? recall_row(r, j, now, ret_worth) : find_row(r, j, now);
    if (status < 0)
        return status;
    j->mask = mask_of(r, sched_job_types(j->job));
    j->current = j->chosen = j->granted = NONE;
    for (int i = 0; i < j->n && now->type[0] >= 0 && !j->lost; i++)
        if (same_shape(&cand_of(r, j, i)->shape, now))
            j->current = (int16_t)i;
    return 0;
}

static bool starves(const struct round *r, const struct sched_job *job)
{
    return r->in->config.policy != SCHED_POLICY_SIA && r->in->config.policy != SCHED_POLICY_POLLUX &&
           job->n_places == 0 && job->class_ != SCHED_OPPORTUNISTIC &&
           r->in->config.now_us - job->waiting_us > r->in->config.starve_us;
}

/* Guarantees count by age against the quotas of their tenant and of those that it is within; a starving job keeps its
 * claim for one slice once it runs. */
static int mark_urgent(struct round *r)
{
    int32_t *left = calloc(r->in->n_tenants * (RATES_TYPES_MAX + 1), sizeof(*left));

    if (!left)
        return -ENOMEM;
    tenants_fill_quotas(r, left);
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];
        bool guaranteed = j->job->class_ == SCHED_GUARANTEED;

        j->urgent_types = guaranteed ? tenants_take_quota(r, j->job, left) : 0;
        if (j->urgent_types == 0 && starves(r, j->job))
            j->urgent_types = UINT32_MAX;
        j->urgent = j->urgent_types != 0;
    }
    free(left);
    return 0;
}

/* What nobody holds that keeps what it has, by type. */
static void count_free(const struct round *r, int32_t ret[RATES_TYPES_MAX])
{
    memcpy(ret, r->total, sizeof(r->total));
    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct sched_job *job = r->jobs[i].job;
        bool whole = true;

        for (size_t p = 0; p < job->n_places; p++)
            whole = whole && r->in->nodes[job->places[p].node].devices >= job->places[p].devices;
        for (size_t p = 0; whole && p < job->n_places; p++)
            ret[r->in->nodes[job->places[p].node].type] -= job->places[p].devices;
    }
}

/* Between full rounds nobody gives way to a job unless one is urgent: it waits where too little is free. */
static bool cannot_start(const struct round *r, const struct rjob *j)
{
    int64_t free_now = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++)
        free_now += sched_job_types(j->job) >> t & 1 ? r->free[t] : 0;
    return j->job->n_places == 0 && free_now < j->job->min;
}

/* What a job that is bound to the type that it starts on shall run on, others of its kind show in a moment: the oldest
 * of them, and those that may change types. It waits for them for a few rounds at most. */
static bool waits_to_learn(const struct round *r, size_t at)
{
    const struct sched_job *job = r->jobs[at].job;

    if (!job->unsure || job->hetero_ok || job->home >= 0 || __builtin_popcount(job->types) < 2 ||
        r->in->config.now_us - job->submit_us >= LEARN_ROUNDS * r->in->config.round_us)
        return false;
    for (size_t i = 0; i < r->n_jobs && i < LEARN_LOOKS; i++)
        if (i != at && r->jobs[i].job->profile == job->profile && (i < at || r->jobs[i].job->hetero_ok))
            return true;
    return false;
}

/* Urgent jobs are looked at before all others, by age whatever their size: what is kept for them goes by age, too. */
static double age_claim(const struct round *r, const struct rjob *j)
{
    double waited = (double)(r->in->config.now_us - j->job->waiting_us), starve = (double)r->in->config.starve_us + 1;

    return !j->urgent ? 0 : bonus_of(j) * 1000 * (1 + (waited > 0 ? waited / starve : 0));
}

/* What each job weighs, and which are not looked at. Returns whether an urgent one waits. */
static bool weigh_jobs(struct round *r)
{
    double weights = 0, devices = 0;
    int64_t minima = 0;
    bool reclaim = false;

    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct sched_job *job = r->jobs[i].job;

        weights += (double)r->in->tenants[job->tenant].weight_milli * (double)job->weight_milli / 1e6;
        minima += job->min;
        reclaim = reclaim || (r->jobs[i].urgent && job->n_places == 0);
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        devices += r->total[t];
    r->contended = (double)minima > devices;
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];
        int32_t most;

        sched_job_range(j->job, &j->least, &most);
        j->weight = weight_of(r, j, weights, devices);
        j->claim = j->weight * (LAMBDA - 1 + (is_late(r, j->job, j->least) ? HOLD : 0)) / j->least + age_claim(r, j);
    }
    return reclaim;
}

int candidates_fill(struct round *r)
{
    bool muster = policy_solves(r), reclaim;

    if (mark_urgent(r) < 0)
        return -ENOMEM;
    reclaim = weigh_jobs(r);
    count_free(r, r->free);
    if (muster && (reclaim || r->in->config.mode == SCHED_FULL))
        queue_cut(r);
    else if (muster)
        for (size_t i = 0; i < r->n_jobs; i++)
            r->jobs[i].crowded = cannot_start(r, &r->jobs[i]);
    for (size_t i = 0; i < r->n_jobs && r->in->config.policy == SCHED_POLICY_MUSTER; i++)
        r->jobs[i].crowded = r->jobs[i].crowded || waits_to_learn(r, i);
    if (r->in->cache)
        cache_enter(r->in->cache, r);
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];
        const double *worth;
        struct sched_shape now;

        j->current = j->chosen = j->granted = NONE;
        if (j->crowded)
            continue;
        if (add_candidates(r, j, &now, &worth) < 0)
            return -ENOMEM;
        j->pinned = j->current != NONE && (j->job->fixed || (just_changed(r, j->job) && !reclaim && muster));
        value(r, j, &now, worth);
    }
    return 0;
}
