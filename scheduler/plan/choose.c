/* What search.c takes as given: cp, sequence parallelism and the number of virtual workers. Each is tried where the
 * wish leaves it open, beginning with what a job has that does not ask. */
#include <errno.h>

#include "base/try.h"
#include "scheduler/plan/search.h"

struct choice {
    const struct plan_site *site;
    struct plan_wish wish; /* of the next attempt */
    struct plan_job job;
    bool found;
    struct plan_result best;
    int first;       /* how the first attempt failed, */
    struct merr why; /* in words */
};

/* Keep o among those that were beaten: before the slower ones and those that do not fit. */
static void note_beaten(struct plan_result *p, const struct plan_option *o)
{
    int at = 0, last = p->n_beaten < PLAN_BEATEN_MAX ? p->n_beaten : PLAN_BEATEN_MAX - 1;

    while (at < last && p->beaten[at].fits && p->beaten[at].cost.step_s <= o->cost.step_s)
        at++;
    if (at == last && p->n_beaten == PLAN_BEATEN_MAX)
        return;
    for (int i = last; i > at; i--)
        p->beaten[i] = p->beaten[i - 1];
    p->beaten[at] = *o;
    p->n_beaten = last + 1;
}

/* What was looked at besides. */
static void add(struct plan_result *p, const struct plan_result *other)
{
    note_beaten(p, &other->best);
    for (int i = 0; i < other->n_beaten; i++)
        if (other->beaten[i].fits)
            note_beaten(p, &other->beaten[i]);
    p->considered += other->considered;
    p->unfit += other->unfit;
}

/* The more unusual one is taken when it is faster by more than what counts as alike. */
static bool wins(const struct choice *c, const struct plan_result *p)
{
    return p->best.cost.step_s * PLAN_ALIKE < c->best.best.cost.step_s;
}

/* Returns 0, also when there is no such layout, or -ENOMEM. */
static int attempt(struct choice *c, struct merr *err)
{
    struct plan_result p;
    struct merr why = {""};
    int r;

    c->wish.most_s = c->found ? c->best.best.cost.step_s / PLAN_ALIKE : 0;
    r = plan_layouts(&c->job, &c->wish, c->site, &p, &why);

    if (r == -ENOMEM)
        return merr_set(err, r, "%s", why.text);
    if (r != 0) {
        c->why = c->first == 0 ? why : c->why;
        c->first = c->first == 0 ? r : c->first;
        return 0;
    }
    if (!c->found) {
        c->best = p;
    } else if (wins(c, &p)) {
        struct plan_result was = c->best;

        c->best = p;
        add(&c->best, &was);
    } else {
        add(&c->best, &p);
    }
    c->found = true;
    return 0;
}

static bool stays(const struct choice *c, double before_s)
{
    return c->found && before_s > 0 && c->best.best.cost.step_s >= before_s;
}

/* Ranks of cp exchange something in each block, so that they share a node; each has two equal pieces of a sequence. */
static bool cp_goes(const struct choice *c, int cp)
{
    return cp <= c->site->node_devices && cp <= plan_site_devices(c->site) && c->job.length % (2 * cp) == 0;
}

static bool workers_go(const struct plan_job *job, const struct plan_wish *wish, int v)
{
    return job->sequences % v == 0 && (wish->micro == PLAN_AUTO || job->sequences / v % wish->micro == 0);
}

/* The least number of virtual workers from least on that the batch can be split over; 0: none. */
static int workers_from(const struct plan_job *job, const struct plan_wish *wish, int least)
{
    for (int v = least; v <= job->sequences; v++)
        if (workers_go(job, wish, v))
            return v;
    return 0;
}

/* More virtual workers, about twice as many each time, where more replicas could run. */
static int attempt_more_workers(struct choice *c, const struct plan_wish *wish, struct merr *err)
{
    int devices = plan_site_devices(c->site), was = c->job.virtual_workers;

    for (int v = workers_from(&c->job, wish, was + 1); v > 0 && was < devices; v = workers_from(&c->job, wish, 2 * v)) {
        double before_s = c->best.best.cost.step_s;

        was = c->job.virtual_workers = v;
        TRY(attempt(c, err));
        if (stays(c, before_s))
            break;
    }
    c->job.virtual_workers = c->best.job.virtual_workers;
    return 0;
}

static int attempt_sequence_parallel(struct choice *c, const struct plan_wish *wish, struct merr *err)
{
    int r;

    if (!wish->any_sequence_parallel || wish->tp == 1 || c->site->node_devices < 2)
        return 0;
    c->job.sequence_parallel = true;
    c->wish.least_tp = 2;
    r = attempt(c, err);
    c->job.sequence_parallel = false;
    c->wish.least_tp = wish->least_tp;
    return r;
}

static int attempt_all(struct choice *c, const struct plan_wish *wish, struct merr *err)
{
    TRY(attempt(c, err));
    if (wish->any_workers && c->found)
        TRY(attempt_more_workers(c, wish, err));
    TRY(attempt_sequence_parallel(c, wish, err));
    for (int cp = 2; wish->any_cp && cp_goes(c, cp); cp *= 2) {
        double before_s = c->found ? c->best.best.cost.step_s : 0;

        c->wish.cp = cp;
        TRY(attempt(c, err));
        TRY(attempt_sequence_parallel(c, wish, err));
        if (stays(c, before_s))
            break;
    }
    c->wish.cp = wish->cp;
    return 0;
}

/* Fewer: each leaf of the tree that waits for its sibling is a buffer as large as the gradients. */
static int attempt_fewer_workers(struct choice *c, const struct plan_wish *wish, struct merr *err)
{
    struct plan_wish fixed = *wish;

    fixed.any_workers = false;
    for (int v = c->job.virtual_workers - 1; v >= 1 && !c->found; v--) {
        if (!workers_go(&c->job, wish, v))
            continue;
        c->job.virtual_workers = v;
        TRY(attempt_all(c, &fixed, err));
    }
    return 0;
}

static int choose(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                  struct plan_result *ret, struct merr *err)
{
    struct choice c = {.site = site, .wish = *wish, .job = *job};

    if (!wish->any_cp && !wish->any_workers && !wish->any_sequence_parallel)
        return plan_layouts(job, wish, site, ret, err);
    TRY(attempt_all(&c, wish, err));
    if (wish->any_workers && !c.found && c.first == -E2BIG)
        TRY(attempt_fewer_workers(&c, wish, err));
    if (!c.found)
        return merr_set(err, c.first, "%s", c.why.text);
    *ret = c.best;
    return 0;
}

int plan_search(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                struct plan_result *ret, struct merr *err)
{
    struct plan_site here = *site;
    int r;

    here.kept = kept_new(); /* without memory for it each is made anew */
    r = choose(job, wish, &here, ret, err);
    kept_free(here.kept);
    return r;
}
