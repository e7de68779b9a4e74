/* Prices count devices, but whether a job finds them side by side only its nodes can say. Where jobs are few, a choice
 * that found no room is barred and the others are weighed anew; the best of these attempts counts, and what a search
 * that looks at the nodes with every choice still finds. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"

#define ATTEMPTS_MAX 4
#define LOSS 0.004 /* share of the worth that may be lost on the way to nodes */

struct attempts {
    struct rjob *best; /* jobs as the best attempt left them */
    struct sched_place *places;
    size_t n_places;
    int16_t *wished;
    double worth; /* of the best */
};

static void attempts_clear(struct attempts *a)
{
    free(a->best);
    free(a->places);
    free(a->wished);
}

static int attempts_init(struct attempts *a, const struct round *r)
{
    *a = (struct attempts){.worth = -INFINITY};
    a->best = calloc(r->n_jobs + 1, sizeof(*a->best));
    a->wished = calloc(r->n_jobs + 1, sizeof(*a->wished));
    if (a->best && a->wished)
        return 0;
    attempts_clear(a);
    return -ENOMEM;
}

static int keep(struct attempts *a, const struct round *r, double worth)
{
    struct sched_place *v = realloc(a->places, (r->n_places + 1) * sizeof(*v));

    if (!v)
        return -ENOMEM;
    a->places = v;
    a->n_places = r->n_places;
    a->worth = worth;
    if (r->n_places > 0)
        memcpy(v, r->places, r->n_places * sizeof(*v));
    memcpy(a->best, r->jobs, r->n_jobs * sizeof(*r->jobs));
    return 0;
}

/* What a job wished for and did not get it will not wish for again in this round. */
static void bar(struct attempts *a, struct round *r)
{
    for (size_t i = 0; i < r->n_jobs; i++)
        if (a->wished[i] != r->jobs[i].chosen)
            cand_of(r, &r->jobs[i], a->wished[i])->utility *= -1;
}

/* The choices of the best attempt into the round; nothing is barred any more. */
static void choose_best(const struct attempts *a, struct round *r)
{
    for (size_t c = 0; c < r->n_cands; c++)
        r->cands[c].utility = fabs(r->cands[c].utility);
    for (size_t i = 0; i < r->n_jobs; i++) {
        choice_set(r, &r->jobs[i], a->best[i].chosen);
        r->jobs[i] = a->best[i];
    }
}

static void restore(struct attempts *a, struct round *r)
{
    choose_best(a, r);
    free(r->places);
    r->places = a->places;
    r->n_places = r->places_cap = a->n_places;
    a->places = NULL;
}

/* What the plan is worth with what its jobs got. */
static double worth_of(const struct round *r)
{
    double worth = 0;

    for (size_t i = 0; i < r->n_jobs; i++)
        worth += r->jobs[i].chosen == NONE ? 0 : fabs(cand_of(r, &r->jobs[i], r->jobs[i].chosen)->utility);
    return worth;
}

/* One more attempt at what was chosen. Returns 1 when another may be better, 0, or -ENOMEM. */
static int attempt(struct attempts *a, struct round *r)
{
    double worth;

    for (size_t i = 0; i < r->n_jobs; i++)
        a->wished[i] = r->jobs[i].chosen;
    if (place_all(r) < 0)
        return -ENOMEM;
    worth = worth_of(r);
    if (worth > a->worth && keep(a, r, worth) < 0)
        return -ENOMEM;
    return worth < r->value * (1 - LOSS);
}

int attempts_choose(struct round *r)
{
    struct attempts a;
    double bound;
    int better = price_choose(r);

    if (better != 0 || r->n_jobs > EXACT_JOBS_MAX)
        return better != 0 ? better : place_all(r);
    if (attempts_init(&a, r) < 0)
        return -ENOMEM;
    bound = r->dual;
    better = attempt(&a, r);
    for (int more = ATTEMPTS_MAX - 1; better == 1 && more > 0; more--) {
        bar(&a, r);
        better = price_choose(r);
        if (better == 0)
            better = r->value > a.worth ? attempt(&a, r) : 0;
    }
    r->dual = bound;                                   /* with nothing barred */
    if (better >= 0 && a.worth < bound * (1 - LOSS)) { /* of two that need one place the wrong one may be barred */
        choose_best(&a, r);
        r->value = a.worth;
        better = exact_improve_on_nodes(r, LOSS * a.worth);
        if (better == 0)
            better = attempt(&a, r);
    }
    if (better >= 0)
        restore(&a, r);
    attempts_clear(&a);
    return better < 0 ? better : 0;
}
