/* The best assignment of all where jobs are few: branch and bound on the bound that the prices gave.
 *
 * At any prices a plan is worth at most the bound less the regret of each choice: what the job could have above its
 * price at most, less what it has. A choice whose regret is the whole gap matters to no better plan. The rest is
 * searched depth first, the jobs that are undecided last, so that a search cut short has tried what is closest. On
 * nodes a branch also ends where what is chosen so far is not to be had side by side. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"

#define STEPS_MAX 20000   /* choices tried */
#define ROUNDING 1e-9     /* of a bound */
#define NODES_MAX 2000000 /* pairs of a job and a node that may be looked at */

struct option {
    double regret;
    int16_t choice;
};

struct branch { /* a job with its options by rising regret */
    struct rjob *job;
    size_t first, n;
    double undecided; /* least regret of another option than the first */
};

struct search {
    struct round *r;
    struct branch *branches;
    size_t n;
    struct option *options;
    int16_t *best; /* choice of each job in the best plan so far */
    int32_t *most; /* devices of each type that branches from i on could take: RATES_TYPES_MAX a row */
    double bound;  /* at these prices, of all plans */
    double aim;    /* a better plan is worth more */
    double fixed;  /* worth of what is no branch */
    int steps;
    bool on_nodes;
    int64_t looks; /* left, at whether choices find nodes */
    bool failed;   /* for lack of memory */
};

static void search_clear(struct search *s)
{
    free(s->branches);
    free(s->options);
    free(s->best);
    free(s->most);
}

static int by_regret(const void *a, const void *b)
{
    const struct option *x = a, *y = b;

    if (x->regret != y->regret)
        return x->regret < y->regret ? -1 : 1;
    return x->choice - y->choice;
}

static int by_decided(const void *a, const void *b)
{
    const struct branch *x = a, *y = b;

    if (x->undecided != y->undecided)
        return x->undecided > y->undecided ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* What a choice is worth above its price; less than nothing where there is no room for it even alone. */
static double surplus(const struct round *r, const struct rjob *j, int c)
{
    const struct sched_shape *s;
    double cost;

    if (c == NONE)
        return 0;
    if (!choice_fits(r, j, c))
        return -INFINITY;
    s = &cand_of(r, j, c)->shape;
    cost = r->tenant_prices[j->job->tenant] * shape_size(s) + r->prices[s->type[0]] * s->n[0];
    return cand_of(r, j, c)->utility - (s->type[1] >= 0 ? cost + r->prices[s->type[1]] * s->n[1] : cost);
}

/* A job's options that could be part of a better plan. */
static void add_branch(struct search *s, struct rjob *j, size_t *io_options)
{
    struct branch b = {.job = j, .first = *io_options, .undecided = s->bound - s->aim};
    struct option *o = s->options + b.first;
    double most = 0;

    for (int c = 0; c < j->n; c++)
        most = surplus(s->r, j, c) > most ? surplus(s->r, j, c) : most;
    for (int c = NONE; c < j->n; c++) {
        double regret = most - surplus(s->r, j, c);

        if (s->bound - regret > s->aim)
            o[b.n++] = (struct option){.regret = regret, .choice = (int16_t)c};
    }
    qsort(o, b.n, sizeof(*o), by_regret);
    if (b.n > 1)
        b.undecided = o[1].regret - o[0].regret;
    s->branches[s->n++] = b;
    *io_options += b.n;
}

static void count_most(struct search *s)
{
    for (size_t i = s->n; i-- > 0;) {
        int32_t *row = s->most + i * RATES_TYPES_MAX, most[RATES_TYPES_MAX] = {0};
        const struct branch *b = &s->branches[i];

        for (size_t k = 0; k < b->n; k++) {
            const struct sched_shape *shape;

            if (s->options[b->first + k].choice == NONE)
                continue;
            shape = &cand_of(s->r, b->job, s->options[b->first + k].choice)->shape;
            for (int t = 0; t < 2; t++)
                if (shape->type[t] >= 0 && shape->n[t] > most[shape->type[t]])
                    most[shape->type[t]] = shape->n[t];
        }
        for (int t = 0; t < RATES_TYPES_MAX; t++)
            row[t] = row[t + RATES_TYPES_MAX] + most[t];
    }
}

/* On nodes what runs and would go on as it does is left alone: restarts are not worth the little that is lost there. */
static bool is_branch(const struct rjob *j, bool nodes)
{
    return !j->pinned && !(nodes && j->current != NONE && j->chosen == j->current);
}

/* What no plan is worth more than at these prices, with what is no branch alone chosen. */
static double bound_of(const struct round *r)
{
    double bound = 0;

    for (size_t i = 0; i < r->n_jobs; i++) {
        const struct rjob *j = &r->jobs[i];
        double most = j->chosen != NONE ? cand_of(r, j, j->chosen)->utility : 0;

        for (int c = 0; c < j->n && j->chosen == NONE; c++)
            most = fmax(most, surplus(r, j, c));
        bound += most;
    }
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        bound += r->prices[t] * (r->total[t] - r->used[t]);
    for (size_t t = 0; t < r->in->n_tenants; t++)
        if (r->tenant_cap[t] < INT32_MAX)
            bound += r->tenant_prices[t] * (r->tenant_cap[t] - r->tenant_used[t]);
    return bound;
}

static int search_init(struct search *s, struct round *r, double aim, bool nodes)
{
    size_t options = 0;

    *s = (struct search){
        .r = r, .aim = aim, .on_nodes = nodes, .looks = NODES_MAX / (int64_t)(r->n_jobs * r->in->n_nodes + 1)};
    s->branches = calloc(r->n_jobs + 1, sizeof(*s->branches));
    s->options = calloc(r->n_cands + r->n_jobs + 1, sizeof(*s->options));
    s->best = calloc(r->n_jobs + 1, sizeof(*s->best));
    s->most = calloc((r->n_jobs + 1) * RATES_TYPES_MAX, sizeof(*s->most));
    if (!s->branches || !s->options || !s->best || !s->most) {
        search_clear(s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < r->n_jobs; i++) {
        struct rjob *j = &r->jobs[i];

        s->best[i] = j->chosen;
        if (!is_branch(j, nodes))
            s->fixed += j->chosen == NONE ? 0 : cand_of(r, j, j->chosen)->utility;
        else
            choice_set(r, j, NONE);
    }
    s->bound = (nodes ? bound_of(r) : r->dual) * (1 + ROUNDING);
    for (size_t i = 0; i < r->n_jobs; i++)
        if (is_branch(&r->jobs[i], nodes) && r->jobs[i].n > 0)
            add_branch(s, &r->jobs[i], &options);
    qsort(s->branches, s->n, sizeof(*s->branches), by_decided);
    count_most(s);
    return 0;
}

/* What devices are worth that no branch from i on can take. */
static double left_over(const struct search *s, size_t i)
{
    const int32_t *most = s->most + i * RATES_TYPES_MAX;
    double worth = 0;

    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        int32_t left = s->r->total[t] - s->r->used[t] - most[t];

        if (left > 0)
            worth += s->r->prices[t] * left;
    }
    return worth;
}

static void note(struct search *s, double worth)
{
    s->aim = worth * (1 + ROUNDING);
    for (size_t i = 0; i < s->r->n_jobs; i++)
        s->best[i] = s->r->jobs[i].chosen;
}

/* Whether what is chosen so far finds nodes; true when that is not asked. */
static bool on_nodes(struct search *s)
{
    int status;

    if (!s->on_nodes)
        return true;
    if (s->looks-- <= 0)
        return false;
    status = place_possible(s->r);
    s->failed = s->failed || status < 0;
    return status > 0;
}

/* Choose for the branches from i on; the ones before took worth and regret. */
static void descend(struct search *s, size_t i, double worth, double regret)
{
    const struct branch *b = &s->branches[i];

    if (i == s->n) {
        if (worth > s->aim)
            note(s, worth);
        return;
    }
    for (size_t k = 0; k < b->n && s->steps < STEPS_MAX; k++) {
        const struct option *o = &s->options[b->first + k];
        double u = o->choice == NONE ? 0 : cand_of(s->r, b->job, o->choice)->utility;

        if (s->bound - regret - o->regret <= s->aim)
            return;
        s->steps++;
        if (o->choice != NONE && !choice_fits(s->r, b->job, o->choice))
            continue;
        choice_set(s->r, b->job, o->choice);
        if (s->bound - regret - o->regret - left_over(s, i + 1) > s->aim && (o->choice == NONE || on_nodes(s)))
            descend(s, i + 1, worth + u, regret + o->regret);
        choice_set(s->r, b->job, NONE);
    }
}

static int improve(struct round *r, double least, bool nodes)
{
    struct search s;

    if (r->dual <= r->value + least)
        return 0;
    if (search_init(&s, r, r->value + least, nodes) < 0)
        return -ENOMEM;
    descend(&s, 0, s.fixed, 0);
    for (size_t i = 0; i < r->n_jobs; i++)
        choice_set(r, &r->jobs[i], s.best[i]);
    if (!nodes && s.steps < STEPS_MAX && s.aim < r->dual)
        r->dual = s.aim; /* nothing is worth more */
    search_clear(&s);
    return s.failed ? -ENOMEM : 0;
}

int exact_improve(struct round *r, double least)
{
    return improve(r, least, false);
}

int exact_improve_on_nodes(struct round *r, double least)
{
    return improve(r, least, true);
}
