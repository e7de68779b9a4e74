#include "scheduler/plan/search.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/plan/balance.h"
#include "scheduler/plan/dedicate.h"

#define CANDIDATES_MAX 65536
#define WEIGHED_MAX 160
#define TRIES_MAX 512    /* that fit or do not, where there is something to beat */
#define UNEVEN_GAIN 0.98 /* layers are shared out one by one when that is faster by this share */
#define CHUNKS_MAX 4
#define DEDICATED_MAX 4 /* layouts whose ranks are laid on the nodes anew */

struct candidate {
    int tp, cp, pp, dp, micro, chunks;
    enum plan_schedule schedule;
    enum plan_recompute recompute;
    double bound_s;
    int turn; /* of equals the first */
};

struct search {
    const struct plan_job *job;
    const struct plan_wish *wish;
    const struct plan_site *site;
    int devices;
    struct candidate *v;
    int n;
    int too_few;              /* layouts that would take more devices */
    struct plan_option least; /* of those that do not fit, the one that lacks least */
    bool any_unfit;
};

bool plan_wish_open(const struct plan_wish *w)
{
    return w->tp == PLAN_AUTO || w->pp == PLAN_AUTO || w->chunks == PLAN_AUTO || w->any_schedule || w->any_recompute ||
           w->any_cp || w->any_workers || w->any_sequence_parallel;
}

static int leaf_sequences(const struct plan_job *job)
{
    return job->sequences / job->virtual_workers;
}

static struct plan_shape shape_of(const struct search *s, const struct candidate *c)
{
    struct plan_shape shape = {.tp = c->tp,
                               .cp = c->cp,
                               .pp = c->pp,
                               .dp = c->dp,
                               .chunks = c->chunks,
                               .micro = c->micro,
                               .recompute = c->recompute,
                               .schedule = c->schedule == PLAN_ZB_H1 ? SCHEDULE_ZB_H1 : SCHEDULE_1F1B};

    if (s->wish->n_layers == c->pp * c->chunks && c->pp > 1) {
        shape.n_layers = s->wish->n_layers;
        memcpy(shape.layers, s->wish->layers, sizeof(shape.layers));
    }
    if (s->wish->n_remade == c->pp * c->chunks) {
        shape.n_remade = s->wish->n_remade;
        memcpy(shape.remade, s->wish->remade, sizeof(shape.remade));
    }
    return shape;
}

/* --- what there is to choose from ---------------------------------------------------------------------------- */

static void add(struct search *s, struct candidate c)
{
    struct plan_shape shape = shape_of(s, &c);

    if (s->n == CANDIDATES_MAX)
        return;
    c.bound_s = plan_cost_bound(s->job, &shape, s->site);
    c.turn = s->n;
    s->v[s->n++] = c;
}

static bool open_or(int wish, int value)
{
    return wish == PLAN_AUTO || wish == value;
}

static void add_recomputes(struct search *s, struct candidate c)
{
    for (int r = 0; r < PLAN_RECOMPUTES; r++) {
        c.recompute = (enum plan_recompute)r;
        if ((s->wish->any_recompute || s->wish->recompute == c.recompute) &&
            (c.schedule != PLAN_ZB_H1 || c.recompute == PLAN_RECOMPUTE_NONE))
            add(s, c);
    }
}

static void add_schedules(struct search *s, struct candidate c)
{
    const struct plan_wish *w = s->wish;
    int most = w->chunks == PLAN_AUTO ? CHUNKS_MAX : w->chunks;

    if (c.pp == 1) { /* there is no pipeline */
        c.chunks = 1;
        c.schedule = w->any_schedule ? PLAN_1F1B : w->schedule;
        add_recomputes(s, c);
        return;
    }
    for (int k = 0; k < PLAN_SCHEDULES; k++) {
        c.schedule = (enum plan_schedule)k;
        if (!w->any_schedule && w->schedule != c.schedule)
            continue;
        for (c.chunks = c.schedule == PLAN_INTERLEAVED ? 2 : 1; c.chunks <= most; c.chunks *= 2)
            if (open_or(w->chunks, c.chunks) && s->job->model.layers / c.pp >= c.chunks &&
                c.pp * c.chunks <= PLAN_STAGES_MAX && (c.chunks == 1 || c.schedule != PLAN_1F1B))
                add_recomputes(s, c);
        if (w->chunks > 1 && (w->chunks & (w->chunks - 1)) && c.schedule != PLAN_1F1B &&
            s->job->model.layers / c.pp >= w->chunks) { /* given, and no power of two */
            c.chunks = w->chunks;
            add_recomputes(s, c);
        }
    }
}

static void add_micros(struct search *s, struct candidate c)
{
    int leaf = leaf_sequences(s->job), fixed = s->wish->micro;

    if (fixed == PLAN_AUTO && !plan_wish_open(s->wish))
        fixed = plan_micro(leaf, s->job->length);
    for (c.micro = 1; c.micro <= leaf; c.micro++)
        if (leaf % c.micro == 0 && open_or(fixed, c.micro) &&
            (!s->job->sequence_parallel || (c.micro * s->job->length / c.cp) % c.tp == 0))
            add_schedules(s, c);
}

static void enumerate(struct search *s)
{
    const struct plan_job *job = s->job;
    int cp = s->wish->cp > 1 ? s->wish->cp : 1;
    struct plan_cut cut;

    for (int tp = 1; tp <= job->model.heads && tp <= PLAN_RANKS_MAX; tp++) {
        if (!open_or(s->wish->tp, tp) || tp < s->wish->least_tp || !plan_cut(&job->model, tp, &cut) ||
            (job->cp_heads && cut.kv / cut.dim % cp != 0) ||
            (s->wish->tp == PLAN_AUTO && tp > 1 && tp * cp > s->site->node_devices))
            continue;
        for (int pp = 1; pp <= job->model.layers && (long)tp * cp * pp <= PLAN_RANKS_MAX; pp++) {
            struct candidate c = {.tp = tp, .cp = cp, .pp = pp, .dp = s->devices / (tp * cp * pp)};

            if (!open_or(s->wish->pp, pp))
                continue;
            if (c.dp < 1) {
                s->too_few++;
                continue;
            }
            c.dp = c.dp > job->virtual_workers ? job->virtual_workers : c.dp;
            add_micros(s, c);
        }
    }
}

static int by_bound(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->bound_s != y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return (x->turn > y->turn) - (x->turn < y->turn);
}

/* --- weighing ------------------------------------------------------------------------------------------------ */

/* Share the layers out by the speed of each stage, and by what the ends do; false: the stages cannot hold them. */
static bool share_out(const struct search *s, struct plan_shape *shape)
{
    struct schedule_times t[PLAN_STAGES_MAX];
    struct plan_stage stage[PLAN_STAGES_MAX];
    struct plan_split split = plan_split_of(&s->job->model, shape);

    plan_stage_times(s->job, shape, s->site, t);
    for (int i = 0; i < split.stages; i++) {
        int begin, end;
        double b;

        plan_split_layers(&split, i, &begin, &end);
        b = (t[i].i + t[i].w) / (end - begin); /* the ends add to the forward alone */
        stage[i] = (struct plan_stage){.block_s = b * (shape->recompute == PLAN_RECOMPUTE_FULL ? 4.0 / 3 : 1.5),
                                       .most = s->job->model.layers};
        stage[i].fixed_s = t[i].f + t[i].i + t[i].w - (end - begin) * stage[i].block_s;
        stage[i].fixed_s = stage[i].fixed_s > 0 ? stage[i].fixed_s : 0;
    }
    if (plan_balance(stage, split.stages, s->job->model.layers, shape->layers) < 0)
        return false;
    shape->n_layers = split.stages;
    return true;
}

/* Weigh a shape; in a pipeline whose layers nobody gave also the one with layers shared out by speed, and keep the
 * better of the two. */
static int weigh(const struct search *s, const struct plan_shape *shape, struct plan_option *ret, struct merr *err)
{
    struct plan_option uneven;
    struct plan_shape other = *shape;
    int r = plan_weigh(s->job, shape, s->site, ret, err);

    if (r != 0 || shape->pp == 1 || shape->n_layers > 0 || !plan_wish_open(s->wish) || !share_out(s, &other))
        return r;
    if (plan_weigh(s->job, &other, s->site, &uneven, NULL) == 0 && uneven.fits >= ret->fits &&
        (uneven.fits > ret->fits || uneven.cost.step_s < ret->cost.step_s * UNEVEN_GAIN))
        *ret = uneven;
    return 0;
}

/* The shape with as few blocks made again as can be, by its kind of recomputation or, where it has none, by that which
 * takes less time. Returns 1; 0: it does not fit, or takes longer than longest_s; or an error. */
static int remake(const struct search *s, const struct plan_shape *shape, double longest_s, struct plan_option *ret,
                  struct merr *err)
{
    int found = 0;

    for (int kind = PLAN_RECOMPUTE_SELECTIVE; kind < PLAN_RECOMPUTES; kind++) {
        struct plan_shape other = *shape;
        struct plan_option o;
        int r;

        if (shape->recompute != PLAN_RECOMPUTE_NONE && (int)shape->recompute != kind)
            continue;
        other.recompute = (enum plan_recompute)kind;
        other.n_remade = 0;
        if (!plan_may_fit(s->job, &other, s->site, &o))
            continue;
        r = plan_remake_least(s->job, s->site, &other, err);
        if (r == 1 && plan_cost_bound(s->job, &other, s->site) > longest_s)
            continue;
        if (r == 1)
            r = plan_weigh(s->job, &other, s->site, &o, err) == 0 ? 1 : -ENOMEM;
        if (r < 0)
            return r;
        if (r == 0 || o.cost.step_s > longest_s || (found && o.cost.step_s >= ret->cost.step_s))
            continue;
        *ret = o;
        found = 1;
    }
    return found;
}

static int replica_of(const struct plan_option *o)
{
    return o->shape.tp * plan_cp(&o->shape) * o->shape.pp;
}

static bool better(const struct plan_option *a, const struct plan_option *b)
{
    if (a->cost.step_s * PLAN_ALIKE < b->cost.step_s || b->cost.step_s * PLAN_ALIKE < a->cost.step_s)
        return a->cost.step_s < b->cost.step_s;
    if (replica_of(a) != replica_of(b))
        return replica_of(a) < replica_of(b);
    if (a->shape.recompute != b->shape.recompute)
        return a->shape.recompute < b->shape.recompute;
    return a->cost.step_s < b->cost.step_s;
}

static double lack_of(const struct plan_option *o)
{
    return (double)plan_memory_all(&o->memory) / (o->room_bytes > 0 ? (double)o->room_bytes : 1);
}

static int by_step(const void *a, const void *b)
{
    const struct plan_option *x = a, *y = b;

    return (x->cost.step_s > y->cost.step_s) - (x->cost.step_s < y->cost.step_s);
}

/* Alternatives are of other layouts, not the same with another micro-batch: of each tp and pp the best. */
static void fill_beaten(struct plan_option *all, int n, const struct search *s, struct plan_result *p)
{
    qsort(all, (size_t)n, sizeof(*all), by_step);
    for (int i = 0; i < n && p->n_beaten < PLAN_BEATEN_MAX - 1; i++) {
        const struct plan_shape *x = &all[i].shape;
        bool known = memcmp(x, &p->best.shape, sizeof(*x)) == 0;

        for (int k = 0; k < p->n_beaten && !known; k++) {
            const struct plan_shape *y = &p->beaten[k].shape;

            known = x->tp == y->tp && x->pp == y->pp && x->schedule == y->schedule && x->chunks == y->chunks &&
                    x->recompute == y->recompute;
        }
        if (!known)
            p->beaten[p->n_beaten++] = all[i];
    }
    if (s->any_unfit)
        p->beaten[p->n_beaten++] = s->least;
}

/* As plan_weigh, but 0 when it does not fit, 1 when it does. */
static int weigh_one(const struct search *s, const struct candidate *c, double longest_s, struct plan_option *o,
                     struct merr *err)
{
    struct plan_shape shape = shape_of(s, c);
    struct plan_option lacking;
    int r;

    if (s->wish->least_recompute) {
        r = remake(s, &shape, INFINITY, o, err);
        shape.n_remade = 0;
        return r != 0 ? r : plan_weigh(s->job, &shape, s->site, o, err); /* what is lacking */
    }
    if (plan_may_fit(s->job, &shape, s->site, o)) {
        r = weigh(s, &shape, o, err);
        if (r != 0 || o->fits)
            return r != 0 ? r : 1;
    }
    if (!s->wish->any_recompute || c->recompute != PLAN_RECOMPUTE_NONE || c->schedule == PLAN_ZB_H1)
        return 0;
    lacking = *o;
    r = remake(s, &shape, longest_s, o, err);
    if (r == 0)
        *o = lacking;
    return r;
}

/* Weigh a candidate. Returns 1 when it can be had, 0 when not. */
static int try_candidate(struct search *s, const struct candidate *c, double longest_s, struct plan_option *o,
                         struct plan_result *p, struct merr *err)
{
    int r = weigh_one(s, c, longest_s, o, err);

    if (r != 0)
        return r == -EINVAL ? 0 : r; /* given layers do not go with it */
    p->unfit++;
    if (!s->any_unfit || lack_of(o) < lack_of(&s->least))
        s->least = *o;
    s->any_unfit = true;
    return 0;
}

/* Candidates in the order of their bounds until none can be the best. */
static int weigh_all(struct search *s, struct plan_result *p, struct merr *err)
{
    struct plan_option *all = calloc(WEIGHED_MAX, sizeof(*all));
    double most_s = s->wish->most_s > 0 ? s->wish->most_s : INFINITY;
    int n = 0, r = 0, tries = s->wish->most_s > 0 ? TRIES_MAX : s->n;

    if (!all)
        return merr_set(err, -ENOMEM, "no memory to weigh %d layouts", s->n);
    for (int i = 0; i < s->n && i < tries && n < WEIGHED_MAX && r >= 0; i++) {
        double longest_s = n > PLAN_BEATEN_MAX ? p->best.cost.step_s * PLAN_ALIKE : INFINITY;

        longest_s = longest_s < most_s ? longest_s : most_s;
        if (s->v[i].bound_s > longest_s)
            break;
        r = try_candidate(s, &s->v[i], longest_s, &all[n], p, err);
        if (r == 1 && (n == 0 || better(&all[n], &p->best)))
            p->best = all[n];
        n += r == 1;
    }
    if (r >= 0 && n > 0)
        fill_beaten(all, n, s, p);
    free(all);
    return r < 0 ? r : n;
}

/* --- unlike links -------------------------------------------------------------------------------------------- */

/* Lay the ranks of an option on the nodes; they stay where that is no better. net is given back as it was laid. */
static int lay(const struct search *s, const struct plan_net *given, struct plan_option *o, struct plan_net *net,
               double *ret_in_order_s, struct merr *err)
{
    struct plan_site site = *s->site;
    struct plan_messages before, after;
    struct plan_option in_order, laid;
    int r;

    memcpy(net->at, given->at, sizeof(net->at));
    site.net = given;
    r = plan_weigh(s->job, &o->shape, &site, &in_order, err);
    if (r != 0)
        return r;
    if (plan_messages(s->job, &o->shape, given, &before) < 0 ||
        plan_dedicate(s->job, &o->shape, PLAN_DEDICATE, net, &after) < 0)
        return merr_set(err, -ENOMEM, "no memory to lay ranks on %d nodes", given->n);
    site.net = net;
    r = plan_weigh(s->job, &o->shape, &site, &laid, err);
    if (r != 0)
        return r;
    if (after.mixed >= before.mixed && laid.cost.step_s >= in_order.cost.step_s) {
        memcpy(net->at, given->at, sizeof(net->at));
        laid = in_order;
    }
    *o = laid;
    *ret_in_order_s = in_order.cost.step_s;
    return 0;
}

static int note_order(const struct search *s, const struct plan_net *given, const struct plan_net *net,
                      double in_order_s, struct plan_result *p)
{
    struct plan_messages before, after;

    if (plan_messages(s->job, &p->best.shape, given, &before) < 0 ||
        plan_messages(s->job, &p->best.shape, net, &after) < 0)
        return -ENOMEM;
    p->parts = net->n;
    memcpy(p->at, net->at, sizeof(p->at));
    p->in_order_s = in_order_s;
    p->mixed = after.mixed;
    p->mixed_in_order = before.mixed;
    return 0;
}

/* The best few, each with its ranks where its messages take least; then the best of these. */
static int lay_all(const struct search *s, const struct plan_net *given, struct plan_net *net, struct plan_result *p,
                   struct merr *err)
{
    double in_order_s;

    TRY(lay(s, given, &p->best, net, &in_order_s, err));
    TRY(note_order(s, given, net, in_order_s, p));
    for (int i = 0; i < p->n_beaten && i < DEDICATED_MAX - 1; i++) {
        struct plan_option was = p->best;

        if (!p->beaten[i].fits)
            continue;
        TRY(lay(s, given, &p->beaten[i], net, &in_order_s, err));
        if (!better(&p->beaten[i], &p->best))
            continue;
        p->best = p->beaten[i];
        p->beaten[i] = was;
        TRY(note_order(s, given, net, in_order_s, p));
    }
    return 0;
}

static int nothing_fits(const struct search *s, struct merr *err)
{
    const struct plan_option *o = &s->least;
    char text[PLAN_SHAPE_TEXT_MAX];
    const double gib = 1u << 30;

    plan_shape_text(&o->shape, text);
    return merr_set(err, -E2BIG,
                    "no layout fits: the least that a rank needs is %.2f GiB (%s; weights %.2f, gradients "
                    "%.2f, optimizer %.2f, activations %.2f, rest %.2f) and a device has %.2f GiB; more devices, fewer "
                    "virtual_workers or a shorter batch.length would help",
                    (double)plan_memory_all(&o->memory) / gib, text, (double)o->memory.weights / gib,
                    (double)o->memory.gradients / gib, (double)o->memory.optimizer / gib,
                    (double)o->memory.activations / gib, (double)o->memory.rest / gib, (double)o->room_bytes / gib);
}

static int search(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                  const struct plan_net *given, struct plan_net *net, struct plan_result *ret, struct merr *err)
{
    struct search s = {.job = job, .wish = wish, .site = site, .devices = plan_site_devices(site)};
    struct plan_result p = {.devices = s.devices};
    int r;

    s.v = calloc(CANDIDATES_MAX, sizeof(*s.v));
    if (!s.v)
        return merr_set(err, -ENOMEM, "no memory to weigh layouts");
    enumerate(&s);
    qsort(s.v, (size_t)s.n, sizeof(*s.v), by_bound);
    p.considered = s.n;
    if (s.n == 0)
        r = s.too_few ? merr_set(err, -ENOSPC, "one replica takes more than the %d device%s there %s", s.devices,
                                 s.devices == 1 ? "" : "s", s.devices == 1 ? "is" : "are")
                      : merr_set(err, -EINVAL, "no tp, pp and micro-batch go with this model, batch and what is given");
    else
        r = weigh_all(&s, &p, err);
    free(s.v);
    if (s.n == 0 || r < 0)
        return r;
    if (r == 0)
        return s.any_unfit ? nothing_fits(&s, err)
                           : merr_set(err, -EINVAL, "the layers that are given go with no layout of these devices");
    if (net) {
        r = lay_all(&s, given, net, &p, err);
        if (r != 0)
            return r;
    }
    *ret = p;
    return 0;
}

int plan_layouts(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                 struct plan_result *ret, struct merr *err)
{
    struct plan_site laid = *site;
    struct plan_net *net = NULL;
    int r;

    if (job->virtual_workers < 1 || job->sequences < 1 || job->sequences % job->virtual_workers != 0)
        return merr_set(err, -EINVAL, "a batch of %d sequences cannot be split over %d virtual workers", job->sequences,
                        job->virtual_workers);
    if (site->groups < 1 || site->groups > PLAN_GROUPS_MAX || site->node_devices < 1 || plan_site_devices(site) < 1)
        return merr_set(err, -ENOSPC, "there are no devices to plan for");
    if (site->net && !plan_net_even(site->net)) {
        net = plan_net_copy(site->net);
        if (!net)
            return merr_set(err, -ENOMEM, "no memory to lay ranks on %d nodes", site->net->n);
        plan_net_chain(net); /* what layouts are weighed with, before the best are laid each in its own way */
        laid.net = net;
    }
    r = search(job, wish, &laid, site->net, net, ret, err);
    plan_net_free(net);
    if (r == 0) {
        ret->job = *job;
        ret->measured = true;
        for (int i = 0; i < ret->best.shape.pp && i < PLAN_STAGES_MAX; i++)
            ret->room_bytes[i] = plan_stage_device(site, &ret->best.shape, i).memory_bytes;
        for (int i = 0; i < site->groups; i++)
            ret->measured &= site->group[i].device.measured != NULL;
    }
    return r;
}
