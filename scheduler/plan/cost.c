#include "scheduler/plan/cost.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "scheduler/plan/work.h"

#define OVERLAP 0.5    /* share of a backward that hides gradients on their way */
#define WHOLE_GROUPS 5 /* groups of pp micro-batches that are simulated; the others take as long as the last */

int plan_site_devices(const struct plan_site *site)
{
    int n = 0;

    for (int i = 0; i < site->groups; i++)
        n += site->group[i].n;
    return n;
}

struct plan_device plan_stage_device(const struct plan_site *site, const struct plan_shape *shape, int r)
{
    int each = plan_stage_ranks(shape), begin = r * each, end = begin + each, at = 0;
    struct plan_device d = {.flops = 0};

    if (site->groups == 1)
        return site->group[0].device;
    for (int i = 0; i < site->groups; at += site->group[i++].n) {
        const struct plan_device *g = &site->group[i].device;

        if (at >= end || at + site->group[i].n <= begin)
            continue;
        if (d.flops == 0) {
            d = *g;
            continue;
        }
        d.flops = g->flops < d.flops ? g->flops : d.flops;
        d.bytes_per_s = g->bytes_per_s < d.bytes_per_s ? g->bytes_per_s : d.bytes_per_s;
        d.call_s = g->call_s > d.call_s ? g->call_s : d.call_s;
        if (g->flops == d.flops) { /* the slowest one's */
            d.measured = g->measured;
            d.times = g->times;
        }
        if (d.memory_bytes == 0 || (g->memory_bytes > 0 && g->memory_bytes < d.memory_bytes))
            d.memory_bytes = g->memory_bytes;
    }
    return d.flops > 0 ? d : site->group[0].device;
}

struct plan_device plan_device_times(struct plan_device d, double k)
{
    d.flops *= k;
    d.bytes_per_s *= k;
    d.call_s /= k;
    d.times = (d.times > 0 ? d.times : 1) * k;
    return d;
}

double plan_ring_s(const struct plan_link *l, double n, int g)
{
    double seconds;

    if (g > 1 && l->measured && profile_all_reduce_s(l->measured, g, n, &seconds))
        return seconds;
    return g < 2 ? 0 : 2 * (g - 1) * (n / g / l->bytes_per_s + l->latency_s);
}

/* --- one micro-batch ----------------------------------------------------------------------------------------- */

/* The link between nodes at a rate (0: they are one node). What leaves a node is shared by its ranks. */
static struct plan_link shared_link(const struct plan_site *site, const struct plan_shape *s, double bytes_per_s)
{
    int here = plan_stage_ranks(s) * s->pp;

    if (bytes_per_s <= 0)
        return site->inside;
    return (struct plan_link){.latency_s = site->between.latency_s,
                              .bytes_per_s = bytes_per_s / (here < site->node_devices ? here : site->node_devices)};
}

/* The link that ranks of the run [begin, end) cross. */
static struct plan_link link_of(const struct plan_site *site, const struct plan_shape *s, int begin, int end)
{
    if (site->net)
        return shared_link(
            site, s,
            plan_net_ring(site->net, plan_net_place(site->net, begin), plan_net_place(site->net, end - 1) + 1));
    if (begin / site->node_devices == (end - 1) / site->node_devices)
        return site->inside;
    return shared_link(site, s, site->between.bytes_per_s);
}

static int places_left(const struct plan_net *net, int rank)
{
    return net->first[plan_net_place(net, rank) + 1] - rank;
}

/* The slowest link from a rank of one stage to that of the same place in another. */
static struct plan_link link_of_stages(const struct plan_site *site, const struct plan_shape *s, int from, int to)
{
    int each = plan_stage_ranks(s), low = from < to ? from : to, high = from < to ? to : from;
    double least = 0;

    if (!site->net)
        return link_of(site, s, low * each, (high + 1) * each);
    for (int k = 0; k < each;) { /* as long as both stay on their nodes it is the same link */
        int a = low * each + k, b = high * each + k;
        double rate = plan_net_pair(site->net, plan_net_place(site->net, a), plan_net_place(site->net, b));
        int same = places_left(site->net, a) < places_left(site->net, b) ? places_left(site->net, a)
                                                                         : places_left(site->net, b);

        least = rate > 0 && (least <= 0 || rate < least) ? rate : least;
        k += same;
    }
    return shared_link(site, s, least);
}

struct pass {                /* of a block and micro-batch */
    double f_s, i_s, w_s;    /* forward, the gradients of its input and of its weights */
    double again_s, cheap_s; /* what full and selective recomputation make again */
    double sum_s;            /* one sum over tp */
    double cp_s; /* keys and values to all of cp, or their gradients back; or a third of all heads' journeys */
};

/* Values of a row that go round cp. */
static double travels_of(const struct plan_job *job, const struct plan_shape *s)
{
    const struct plan_model *m = &job->model;
    double kv = 2.0 * m->kv_heads * plan_dim(m) / s->tp;

    return job->cp_heads ? kv + 2.0 * m->heads * plan_dim(m) / s->tp : plan_cp(s) * kv;
}

static struct pass pass_of(const struct plan_job *job, const struct plan_shape *s, const struct plan_site *site,
                           const struct plan_device *d)
{
    const struct plan_model *m = &job->model;
    double rows = (double)plan_rows(job, s);
    struct plan_link l = link_of(site, s, 0, s->tp), c = link_of(site, s, 0, s->tp * plan_cp(s));
    struct work_block w = work_block(job, s, d);

    return (struct pass){.f_s = w.f_s,
                         .i_s = w.i_s,
                         .w_s = w.w_s,
                         .again_s = w.again_s,
                         .cheap_s = w.cheap_s,
                         .sum_s = plan_ring_s(&l, rows * m->hidden * sizeof(float), s->tp),
                         .cp_s = plan_ring_s(&c, rows * travels_of(job, s) * sizeof(float), plan_cp(s)) / 2};
}

static double remade_s(const struct plan_shape *s, const struct pass *p)
{
    return s->recompute == PLAN_RECOMPUTE_FULL        ? p->again_s + 2 * p->sum_s + p->cp_s
           : s->recompute == PLAN_RECOMPUTE_SELECTIVE ? p->cheap_s
                                                      : 0;
}

double plan_hop_bytes(const struct plan_job *job, const struct plan_shape *shape)
{
    double bytes = (double)plan_rows(job, shape) * job->model.hidden * sizeof(float);

    return job->sequence_parallel ? bytes / shape->tp : bytes;
}

/* A message from stage i to the next, or back. */
static double hop_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_site *site, int i)
{
    struct plan_link l = link_of_stages(site, s, i % s->pp, (i + 1) % s->pp);

    double seconds;

    if (l.measured && profile_message_s(l.measured, plan_hop_bytes(job, s), &seconds))
        return seconds;
    return plan_hop_bytes(job, s) / l.bytes_per_s + l.latency_s;
}

/* Times of each stage without its messages. */
static void stage_works(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
                        struct schedule_times *ret)
{
    struct plan_split split = plan_split_of(&job->model, shape);
    struct plan_device last = {.flops = 0};
    struct pass p = {.f_s = 0};

    for (int i = 0; i < split.stages; i++) {
        struct plan_device d = plan_stage_device(site, shape, i % shape->pp);
        int begin, end;

        if (i == 0 || memcmp(&d, &last, sizeof(d)) != 0)
            p = pass_of(job, shape, site, &d);
        last = d;
        plan_split_layers(&split, i, &begin, &end);
        ret[i] = (struct schedule_times){.f = (end - begin) * (p.f_s + 2 * p.sum_s + p.cp_s),
                                         .i = (end - begin) * (p.i_s + 2 * (p.sum_s + p.cp_s)) +
                                              plan_remade(shape, i, end - begin) * remade_s(shape, &p),
                                         .w = (end - begin) * p.w_s};
        if (i == 0)
            ret[i].f += p.sum_s + work_embed_s(job, shape, &d);
        if (i == split.stages - 1)
            ret[i].f += p.sum_s + work_head_s(job, shape, &d);
    }
}

void plan_stage_times(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
                      struct schedule_times *ret)
{
    stage_works(job, shape, site, ret);
    for (int i = 0; i < shape->pp * shape->chunks; i++)
        ret[i].hop = hop_s(job, shape, site, i);
}

/* --- a step -------------------------------------------------------------------------------------------------- */

static double work_of(const struct schedule_times *t)
{
    return t->f + t->i + t->w;
}

static double dp_bytes(const struct plan_job *job, size_t elements)
{
    return (double)elements * sizeof(float) * (job->dp_coded ? 0.25 : 1);
}

/* Of weights on their way back to all. */
static double weight_bytes(const struct plan_job *job, size_t elements)
{
    return plan_narrow(job) ? (double)elements * 2 : dp_bytes(job, elements);
}

static double ring_share(int n)
{
    return (n - 1) / (double)n;
}

double plan_exchange_bytes(const struct plan_job *job, const struct plan_shape *shape, int r)
{
    size_t weights, gradients;
    struct plan_cut cut;

    if (!plan_cut(&job->model, shape->tp, &cut))
        return 0;
    plan_elements(job, shape, &cut, r, &weights, &gradients);
    return ring_share(shape->dp) * (weight_bytes(job, weights) + dp_bytes(job, gradients));
}

/* The share of all blocks whose sums are taken again, too. */
static double remade_share(const struct plan_job *job, const struct plan_shape *shape)
{
    struct plan_split split = plan_split_of(&job->model, shape);
    int n = 0;

    for (int i = 0; shape->recompute == PLAN_RECOMPUTE_FULL && i < split.stages; i++) {
        int begin, end;

        plan_split_layers(&split, i, &begin, &end);
        n += plan_remade(shape, i, end - begin);
    }
    return (double)n / job->model.layers;
}

double plan_sums_bytes(const struct plan_job *job, const struct plan_shape *shape)
{
    const struct plan_model *m = &job->model;
    double rows = (double)plan_rows(job, shape), remade = remade_share(job, shape);
    int cp = plan_cp(shape);
    double block = (4 + 2 * remade) * 2 * ring_share(shape->tp) * rows * m->hidden +
                   (3 + remade) * ring_share(cp) * rows * travels_of(job, shape);

    return block * sizeof(float) * m->layers / shape->pp * plan_micros(job, shape, -1);
}

static double exchange_s(const struct plan_job *job, const struct plan_shape *s, const struct plan_cut *cut,
                         const struct plan_site *site, int r, double backward_s)
{
    struct plan_link l = link_of(site, s, r * plan_stage_ranks(s), (r + 1) * plan_stage_ranks(s));
    size_t weights, gradients;
    double half, hidden, overlap;

    if (s->dp == 1)
        return 0;
    plan_elements(job, s, cut, r, &weights, &gradients);
    half = plan_ring_s(&l, dp_bytes(job, gradients), s->dp) / 2;
    overlap = l.measured && l.measured->context_bytes == 0 ? 0 : OVERLAP; /* processors copy instead of computing */
    hidden = half < overlap * backward_s ? half : overlap * backward_s;
    return half - hidden + plan_ring_s(&l, weight_bytes(job, weights), s->dp) / 2;
}

/* The rank of a pipeline with most to do for a micro-batch, and what it does. */
static int busiest(const struct plan_shape *s, const struct schedule_times *t, double *ret_work_s)
{
    int rank = 0;

    *ret_work_s = 0;
    for (int r = 0; r < s->pp; r++) {
        double work = 0;

        for (int i = r; i < s->pp * s->chunks; i += s->pp)
            work += work_of(&t[i]);
        if (work <= *ret_work_s)
            continue;
        *ret_work_s = work;
        rank = r;
    }
    return rank;
}

/* What of a rank's work for a micro-batch are sums over tp, and keys and values that go round cp. */
static double sums_of(const struct plan_job *job, const struct plan_shape *s, const struct plan_site *site, int r)
{
    struct plan_device d = plan_stage_device(site, s, r);
    struct pass p = pass_of(job, s, site, &d);
    struct plan_split split = plan_split_of(&job->model, s);
    double sums = 0;

    for (int i = r; i < split.stages; i += s->pp) {
        int begin, end;

        plan_split_layers(&split, i, &begin, &end);
        sums += (end - begin) * (4 * p.sum_s + 3 * p.cp_s);
        if (s->recompute == PLAN_RECOMPUTE_FULL)
            sums += plan_remade(s, i, end - begin) * (2 * p.sum_s + p.cp_s);
    }
    return sums;
}

/* The work for a micro-batch of each of a pipeline's ranks if layers could be cut and shared out by the speed of their
 * devices: stages of unlike devices get unlike numbers of layers, which even stages say nothing of. */
static double shared_work(const struct plan_job *job, const struct plan_shape *s, const struct schedule_times *t)
{
    struct plan_split split = plan_split_of(&job->model, s);
    double blocks_per_s = 0;

    for (int r = 0; r < s->pp; r++) {
        int begin, end;

        plan_split_layers(&split, r, &begin, &end); /* the head adds to the forward alone, which is half of the rest */
        blocks_per_s += (end - begin) / ((t[r].i + t[r].w) * (s->recompute == PLAN_RECOMPUTE_FULL ? 4.0 / 3 : 1.5));
    }
    return job->model.layers / blocks_per_s;
}

double plan_cost_bound(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site)
{
    struct schedule_times t[PLAN_STAGES_MAX];
    struct plan_cut cut;
    double work, shared;

    if (shape->pp * shape->chunks > PLAN_STAGES_MAX || !plan_cut(&job->model, shape->tp, &cut))
        return 0;
    stage_works(job, shape, site, t);
    (void)busiest(shape, t, &work);
    if (site->groups > 1 && shape->pp > 1 && shape->n_layers == 0) {
        shared = shared_work(job, shape, t);
        work = shared < work ? shared : work;
    }
    return plan_micros(job, shape, -1) * work;
}

/* --- weighing ------------------------------------------------------------------------------------------------ */

struct weighing {
    const struct plan_job *job;
    const struct plan_shape *shape;
    struct plan_cut cut;
    int micros;
    struct schedule *run, *less, *forward; /* less: a group of micro-batches fewer, NULL: run is all of them */
    struct kept *kept;                     /* of which they are */
};

static int most_evaluated(const struct plan_job *job, const struct plan_shape *s)
{
    int micros = (job->eval_sequences + s->micro - 1) / s->micro;

    return (micros + s->dp - 1) / s->dp;
}

static void weighing_clear(struct weighing *w)
{
    kept_give(w->kept, w->run);
    kept_give(w->kept, w->less);
    kept_give(w->kept, w->forward);
}

static int check_shape(const struct plan_job *job, const struct plan_shape *s, struct merr *err)
{
    struct plan_cut cut;

    if (s->tp < 1 || s->cp < 0 || s->pp < 1 || s->dp < 1 || s->chunks < 1 || s->micro < 1 ||
        s->dp > job->virtual_workers)
        return merr_set(err, -EINVAL, "tp %d, pp %d, dp %d, chunks %d and micro %d make no layout", s->tp, s->pp, s->dp,
                        s->chunks, s->micro);
    if (!plan_cut(&job->model, s->tp, &cut))
        return merr_set(err, -EINVAL, "tp %d does not divide the heads, kv_heads and ffn of the model", s->tp);
    if (s->pp * s->chunks > PLAN_STAGES_MAX || job->model.layers < s->pp * s->chunks)
        return merr_set(err, -EINVAL, "%d layers cannot be split over pp %d with chunks %d", job->model.layers, s->pp,
                        s->chunks);
    if (job->sequences % job->virtual_workers != 0 || job->sequences / job->virtual_workers % s->micro != 0)
        return merr_set(err, -EINVAL, "micro-batches of %d cannot make up a virtual worker's %d sequences", s->micro,
                        job->sequences / job->virtual_workers);
    if (s->schedule == SCHEDULE_ZB_H1 && s->recompute != PLAN_RECOMPUTE_NONE)
        return merr_set(err, -EINVAL, "zb-h1 does not go with recomputation");
    return 0;
}

static int weighing_init(struct weighing *w, const struct plan_job *job, const struct plan_shape *s, struct kept *kept,
                         struct merr *err)
{
    int r = check_shape(job, s, err), eval, run;

    *w = (struct weighing){.job = job, .shape = s, .kept = kept};
    if (r != 0)
        return r;
    (void)plan_cut(&job->model, s->tp, &w->cut);
    w->micros = run = plan_micros(job, s, -1);
    if (run > (WHOLE_GROUPS + 1) * s->pp)
        run = WHOLE_GROUPS * s->pp + run % s->pp;
    r = kept_take(kept, s->schedule, s->pp, s->chunks, run, &w->run, err);
    if (r < 0)
        goto fail;
    if (run < w->micros) {
        r = kept_take(kept, s->schedule, s->pp, s->chunks, run - s->pp, &w->less, err);
        if (r < 0)
            goto fail;
    }
    eval = most_evaluated(job, s);
    if (eval > 2 * s->pp)
        eval = 2 * s->pp;
    if (eval > 0) {
        r = kept_take(kept, SCHEDULE_FORWARD, s->pp, s->chunks, eval, &w->forward, err);
        if (r < 0)
            goto fail;
    }
    return 0;
fail:
    weighing_clear(w);
    return r;
}

/* The time of all micro-batches. In the steady state every group of pp takes as long as the one before. */
static int span_of(const struct weighing *w, const struct schedule_times *t, double *ret, struct merr *err)
{
    int n = w->shape->pp * w->shape->chunks;
    double span, less;

    TRY(schedule_simulate(w->run, t, n, &span, err));
    if (w->less) {
        TRY(schedule_simulate(w->less, t, n, &less, err));
        span += (span - less) * (w->micros - w->run->micros) / w->shape->pp;
    }
    *ret = span;
    return 0;
}

static void memory_of(const struct weighing *w, int r, struct plan_memory *ret)
{
    int slots[SCHEDULE_CHUNKS_MAX];

    for (int i = 0; i < w->shape->chunks; i++)
        slots[i] = plan_slots(w->run, w->forward, r, i);
    plan_memory_of(w->job, w->shape, &w->cut, r, -1, slots, ret);
}

static void note_memory(const struct plan_memory *m, int r, const struct plan_device *d, struct plan_option *o)
{
    double used = (double)plan_memory_all(m) / (d->memory_bytes > 0 ? (double)d->memory_bytes : 0x1p60);
    double most = (double)plan_memory_all(&o->memory) / (o->room_bytes > 0 ? (double)o->room_bytes : 0x1p60);

    o->fits = o->fits && used <= PLAN_ROOM;
    if (used <= most)
        return;
    o->memory = *m;
    o->tightest = r;
    o->room_bytes = d->memory_bytes;
}

/* No schedule has fewer: with one chunk 1F1B runs so far ahead, ZB-H1 as far on every rank. */
static int least_slots(const struct plan_shape *s, int r, int micros)
{
    int ahead = s->chunks > 1 ? 1 : s->schedule == SCHEDULE_ZB_H1 ? s->pp : s->pp - r;

    return ahead < micros ? ahead : micros;
}

bool plan_may_fit(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
                  struct plan_option *ret)
{
    struct plan_option o = {.shape = *shape,
                            .virtual_workers = job->virtual_workers,
                            .sequence_parallel = job->sequence_parallel && shape->tp > 1,
                            .fits = true};
    int micros = plan_micros(job, shape, -1), slots[SCHEDULE_CHUNKS_MAX];
    struct plan_cut cut;

    if (!plan_cut(&job->model, shape->tp, &cut))
        return false;
    for (int r = 0; r<shape->pp; r += shape->pp> 1 ? shape->pp - 1 : 1) { /* the ends have most */
        struct plan_device d = plan_stage_device(site, shape, r);
        struct plan_memory m;

        for (int i = 0; i < shape->chunks; i++)
            slots[i] = least_slots(shape, r, micros);
        plan_memory_of(job, shape, &cut, r, -1, slots, &m);
        note_memory(&m, r, &d, &o);
    }
    if (!o.fits)
        *ret = o;
    return o.fits;
}

static void weigh_memory(const struct weighing *w, const struct plan_site *site, struct plan_option *o)
{
    o->fits = true;
    for (int r = 0; r < w->shape->pp; r++) {
        struct plan_device d = plan_stage_device(site, w->shape, r);
        struct plan_memory m;

        memory_of(w, r, &m);
        note_memory(&m, r, &d, o);
    }
}

/* Whether rank r has the memory when at most k blocks of each of its stages are made again. */
static bool fits_remade(const struct weighing *w, const struct plan_site *site, int r, int k, struct plan_shape *shape)
{
    struct plan_device d = plan_stage_device(site, shape, r);
    struct plan_memory m;

    for (int i = r; i < shape->n_remade; i += shape->pp)
        shape->remade[i] = (uint16_t)k;
    memory_of(w, r, &m);
    return d.memory_bytes == 0 || (double)plan_memory_all(&m) <= PLAN_ROOM * (double)d.memory_bytes;
}

int plan_remake_least(const struct plan_job *job, const struct plan_site *site, struct plan_shape *shape,
                      struct merr *err)
{
    struct plan_split split;
    struct weighing w;
    int r = weighing_init(&w, job, shape, site->kept, err), fits = 1;

    if (r != 0)
        return r;
    split = plan_split_of(&job->model, shape);
    shape->n_remade = split.stages;
    for (r = 0; r < shape->pp && fits; r++) {
        int low = 0, most = job->model.layers;

        fits = fits_remade(&w, site, r, most, shape);
        while (fits && low < most) { /* fewer than low are too few, most are enough */
            int mid = (low + most) / 2;

            if (fits_remade(&w, site, r, mid, shape))
                most = mid;
            else
                low = mid + 1;
        }
        (void)fits_remade(&w, site, r, most, shape);
    }
    for (int i = 0; i < split.stages; i++) {
        int begin, end;

        plan_split_layers(&split, i, &begin, &end);
        shape->remade[i] = (uint16_t)plan_remade(shape, i, end - begin);
    }
    weighing_clear(&w);
    return fits;
}

static int weigh_time(const struct weighing *w, const struct plan_site *site, struct plan_option *o, struct merr *err)
{
    struct schedule_times t[PLAN_STAGES_MAX];
    const struct plan_shape *s = w->shape;
    struct plan_cost *c = &o->cost;
    double span, work, last = 0;
    int r, most;

    plan_stage_times(w->job, s, site, t);
    r = span_of(w, t, &span, err);
    if (r != 0)
        return r;
    most = busiest(s, t, &work);
    work *= w->micros;
    *c = (struct plan_cost){.tp_s = w->micros * sums_of(w->job, s, site, most)};
    c->compute_s = work - c->tp_s;
    c->idle_s = span > work ? span - work : 0;
    for (int p = 0; p < s->pp; p++) {
        struct plan_device d = plan_stage_device(site, s, p);
        double e = exchange_s(w->job, s, &w->cut, site, p, t[p].i + t[p].w), u = work_update_s(w->job, s, p, &d);

        if (e + u <= last)
            continue;
        last = e + u;
        c->exchange_s = e;
        c->update_s = u;
    }
    c->step_s = c->compute_s + c->tp_s + c->idle_s + c->exchange_s + c->update_s;
    return 0;
}

int plan_weigh(const struct plan_job *job, const struct plan_shape *shape, const struct plan_site *site,
               struct plan_option *ret, struct merr *err)
{
    struct plan_option o = {.shape = *shape,
                            .virtual_workers = job->virtual_workers,
                            .sequence_parallel = job->sequence_parallel && shape->tp > 1};
    struct weighing w;
    int r = weighing_init(&w, job, shape, site->kept, err);

    if (r != 0)
        return r;
    weigh_memory(&w, site, &o);
    r = weigh_time(&w, site, &o, err);
    weighing_clear(&w);
    if (r == 0)
        *ret = o;
    return r;
}

int plan_stage_memory(const struct plan_job *job, const struct plan_shape *shape, struct plan_memory *ret,
                      struct merr *err)
{
    struct weighing w;
    int r = weighing_init(&w, job, shape, NULL, err);

    if (r != 0)
        return r;
    for (int i = 0; i < shape->pp; i++)
        memory_of(&w, i, &ret[i]);
    weighing_clear(&w);
    return 0;
}
