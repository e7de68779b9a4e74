#include "server/control/plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/profile.h"
#include "api/spec_plan.h"
#include "scheduler/plan/site.h"
#include "server/cluster/links.h"
#include "server/cluster/profiles.h"
#include "server/control/state.h"

#define REFRESH_MAX 16   /* waiting jobs planned anew before one round */
#define LEARN_STEP 0.2   /* share of the newest step in what a run's steps take */
#define LEARN_CLASS 0.05 /* and in what is thought of a class */

/* --- the devices --------------------------------------------------------------------------------------------- */

static struct plan_device device_of(const struct core *c, const struct slot *s, bool bf16)
{
    struct plan_device d = plan_device_assumed(s->kind, s->threads, bf16, (uint64_t)s->memory_mib << 20);
    const struct plan_profile *p = profiles_of(&c->cluster, s->class_, s->threads);

    if (p)
        return plan_device_measured(d, p, bf16);
    return plan_device_times(d, classes_speed(&c->cluster.classes, s->class_, bf16));
}

/* The links that such devices have to others of their node. */
static void links_of_class_here(const struct core *c, const struct slot *s, struct plan_site *site)
{
    const struct plan_profile *p = profiles_of(&c->cluster, s->class_, s->threads);

    plan_links_assumed(s->kind, site);
    if (p)
        plan_links_measured(site, p);
}

static void least_of(struct plan_device *d, const struct plan_device *o)
{
    if (o->flops < d->flops) {
        d->flops = o->flops;
        d->measured = o->measured;
    }
    if (d->memory_bytes == 0 || (o->memory_bytes > 0 && o->memory_bytes < d->memory_bytes))
        d->memory_bytes = o->memory_bytes;
}

/* Add a device in the order of ranks; a site of more groups than there is room for is as slow as its slowest. */
static void site_add(struct plan_site *site, const struct plan_device *d)
{
    struct plan_group *last = site->groups > 0 ? &site->group[site->groups - 1] : NULL;

    if (last && (site->groups == PLAN_GROUPS_MAX || memcmp(&last->device, d, sizeof(*d)) == 0)) {
        least_of(&last->device, d);
        last->n++;
        return;
    }
    site->group[site->groups++] = (struct plan_group){.device = *d, .n = 1};
}

/* The devices of these places. False: one is not known. */
static bool site_of_places(struct core *c, const struct job_place *p, size_t n, bool bf16, struct plan_site *ret)
{
    struct plan_site site = {.node_devices = (int)n};
    int here = 0;

    for (size_t i = 0; i < n; i++) {
        const struct slot *s = cluster_slot(&c->cluster, &p[i]);
        struct plan_device d;

        if (!s)
            return false;
        d = device_of(c, s, bf16);
        site_add(&site, &d);
        if (i == 0)
            links_of_class_here(c, s, &site);
        here++;
        if (i + 1 == n || strcmp(p[i].node, p[i + 1].node) != 0) { /* the smallest part in a node */
            site.node_devices = here < site.node_devices ? here : site.node_devices;
            here = 0;
        }
    }
    *ret = site;
    return n > 0;
}

/* The class of which the job can have most devices, at most so many as it takes; the net is new, NULL where links are
 * alike. False: there is no such node. */
static bool site_of_cluster(struct core *c, const struct entry *e, bool bf16, struct plan_site *ret,
                            struct plan_net **ret_net, int *ret_class)
{
    uint64_t classes = entry_classes(e, &c->cluster.classes);
    int count[CLASSES_MAX] = {0}, node_most = 1, best = -1;
    struct plan_site site = {.groups = 1};

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; c->cluster.nodes[i]->contact != NODE_LOST && k < c->cluster.nodes[i]->n_slots; k++)
            count[c->cluster.nodes[i]->slots[k].class_]++;
    for (int k = 0; k < CLASSES_MAX; k++)
        if ((classes >> k & 1) && count[k] > (best < 0 ? 0 : count[best]))
            best = k;
    if (best < 0)
        return false;
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        int here = 0;

        for (size_t k = 0; c->cluster.nodes[i]->contact != NODE_LOST && k < c->cluster.nodes[i]->n_slots; k++) {
            const struct slot *s = &c->cluster.nodes[i]->slots[k];
            struct plan_device d;

            if (s->class_ != best)
                continue;
            d = device_of(c, s, bf16);
            if (site.group[0].n++ == 0) {
                site.group[0].device = d;
                links_of_class_here(c, s, &site);
            }
            least_of(&site.group[0].device, &d);
            here++;
        }
        node_most = here > node_most ? here : node_most;
    }
    site.node_devices = node_most;
    if (site.group[0].n > e->job.max)
        site.group[0].n = e->job.max;
    site.net = *ret_net = links_of_class(&c->cluster, best, site.group[0].n, &site);
    *ret = site;
    *ret_class = best;
    return true;
}

/* --- waiting jobs -------------------------------------------------------------------------------------------- */

static struct plan_wish wish_of(const struct entry *e, const struct job_spec *spec, struct plan_job *job)
{
    struct plan_wish wish = spec_plan_wish(spec);
    struct plan_shape shape;
    bool any_recompute = wish.any_recompute;

    if (e->plan.open && e->job.plan && spec_plan_shape(e->job.plan, &shape) == 0) { /* settled when it first started */
        wish = spec_plan_kept(&shape);
        wish.least_recompute &= any_recompute;
        spec_plan_keep(e->job.plan, job);
    }
    return wish;
}

static void keep_shape(struct entry *e, const struct plan_job *job, const struct plan_shape *s)
{
    e->plan.facts.cp = s->cp;
    e->plan.facts.virtual_workers = e->pace.workers = job->virtual_workers;
    e->plan.facts.tp = s->tp;
    e->plan.facts.pp = s->pp;
    e->plan.facts.micro = s->micro;
}

int plans_prepare(struct core *c, struct entry *e, const struct job_spec *spec, struct merr *err)
{
    struct plan_job job = spec_plan_job(spec);
    struct plan_wish wish = wish_of(e, spec, &job);
    struct plan_net *net = NULL;
    struct plan_result plan;
    struct plan_site site;
    int class_, r;

    if (!site_of_cluster(c, e, job.bf16, &site, &net, &class_))
        return merr_set(err, -EAGAIN, "there is no node yet to plan for");
    e->plan.planned_for = c->cluster.sites;
    job.program_bytes = plan_site_program(&site);
    r = plan_search(&job, &wish, &site, &plan, err);
    plan_net_free(net);
    if (r == 0) {
        keep_shape(e, &plan.job, &plan.best.shape);
        e->plan.prior =
            (struct profile_speed){.class_ = (uint8_t)class_,
                                   .devices = plan_shape_layout(&plan.best.shape).world,
                                   .steps_per_s = plan.best.cost.step_s > 0 ? 1 / plan.best.cost.step_s : 0};
    }
    return r;
}

void plans_refresh(struct core *c)
{
    int done = 0;

    if (c->dispatch.planned_sites == c->cluster.sites)
        return;
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);
        struct job_spec *spec;

        if (!e || !e->plan.open || e->job.plan || !job_waits(&e->job) || e->plan.planned_for == c->cluster.sites)
            continue;
        if (done++ == REFRESH_MAX) { /* the others before the next round */
            c->schedule_wanted = true;
            return;
        }
        spec = entry_spec(e);
        if (spec)
            (void)plans_prepare(c, e, spec, NULL);
        e->plan.planned_for = c->cluster.sites;
        spec_free(spec);
    }
    c->dispatch.planned_sites = c->cluster.sites;
}

/* --- a run's layout ------------------------------------------------------------------------------------------ */

void plans_adopt(struct entry *e)
{
    struct plan_job job = {.sequences = e->plan.facts.sequences, .virtual_workers = e->plan.facts.virtual_workers};
    struct plan_shape shape;

    if (!e->plan.open || !e->job.plan || spec_plan_shape(e->job.plan, &shape) < 0)
        return;
    spec_plan_keep(e->job.plan, &job);
    keep_shape(e, &job, &shape);
}

static int plain_layout(const struct entry *e, size_t n, struct layout *ret, struct merr *err)
{
    if (e->job.kind == JOB_TRAIN)
        return plan_layout(&e->plan.facts, (int)n, ret, NULL, err);
    *ret = (struct layout){.tp = 1, .pp = 1, .cp = 1, .dp = (int)n, .world = (int)n};
    return 0;
}

/* Plan for the places. Where nothing fits the ranks say what is lacking, so they are laid out as if it did. */
static int plan_for(struct core *c, const struct entry *e, const struct job_spec *spec, const struct job_place *p,
                    size_t n, struct plan_result *ret, struct merr *err)
{
    struct plan_job job = spec_plan_job(spec);
    struct plan_wish wish = wish_of(e, spec, &job), same;
    struct plan_net *net;
    struct plan_site site;
    int r;

    if (!site_of_places(c, p, n, job.bf16, &site))
        return merr_set(err, -ENOENT, "its devices are not known any more");
    site.net = net = links_of_places(&c->cluster, p, n, &site);
    if (e->plan.planned_for > 0) { /* the replica that the round counted with: the job may grow by such */
        wish.any_workers = false;
        job.virtual_workers = e->plan.facts.virtual_workers;
    }
    same = wish;
    if (e->plan.planned_for > 0) {
        same.tp = e->plan.facts.tp;
        same.pp = e->plan.facts.pp;
        same.cp = e->plan.facts.cp;
        same.any_cp = false;
    }
    job.program_bytes = plan_site_program(&site);
    r = plan_search(&job, &same, &site, ret, err);
    if (r == -E2BIG)
        r = plan_search(&job, &wish, &site, ret, err);
    if (r == -E2BIG) {
        for (int i = 0; i < site.groups; i++)
            site.group[i].device.memory_bytes = 0;
        r = plan_search(&job, &wish, &site, ret, err);
    }
    plan_net_free(net);
    return r;
}

int plans_choose(struct core *c, struct entry *e, struct job_place *p, size_t n, struct layout *ret, json_t **ret_plan,
                 struct merr *err)
{
    struct job_spec *spec = e->job.kind == JOB_TRAIN ? entry_spec(e) : NULL;
    struct plan_result plan;
    const struct slot *first;
    int r;

    e->plan.predicted.step_s = 0;
    if (!spec)
        return plain_layout(e, n, ret, err);
    r = plan_for(c, e, spec, p, n, &plan, err);
    spec_free(spec);
    if (r != 0)
        return e->plan.open ? r : plain_layout(e, n, ret, err);
    if (!links_put_in_order(&plan, p, n))
        return merr_set(err, -ENOMEM, "no memory to lay %zu ranks on nodes", n);
    first = cluster_slot(&c->cluster, &p[0]);
    *ret = plan_shape_layout(&plan.best.shape);
    *ret_plan = spec_plan_json(&plan);
    if (!*ret_plan && e->plan.open)
        return merr_set(err, -ENOMEM, "no memory for a plan");
    e->plan.predicted = plan.best.cost;
    e->plan.predicted_speed = first ? classes_speed(&c->cluster.classes, first->class_, plan.job.bf16) : 1;
    e->plan.measured = plan.measured;
    e->plan.bf16 = plan.job.bf16;
    return 0;
}

/* --- what runs teach ----------------------------------------------------------------------------------------- */

static void blend(double *at, double value, double share)
{
    *at = *at > 0 ? (1 - share) * *at + share * value : value;
}

void plans_learn(struct core *c, struct entry *e, uint32_t generation, double step_ms)
{
    struct job *j = &e->job;
    double times;

    if (!j->live || j->generation != generation || e->pace.learned_generation != generation || !(step_ms > 0))
        return; /* a run's first step is slow for other reasons */
    blend(&j->step_ms, step_ms, LEARN_STEP);
    for (size_t i = 1; i < j->n_places; i++)
        if (strcmp(j->places[i].class_, j->places[0].class_) != 0)
            return; /* of a mix nobody can say whose speed it is */
    if (!(e->plan.predicted.step_s > 0) || e->pace.on_slow || e->plan.measured) /* which goes before what runs teach */
        return;
    times = e->plan.predicted_speed * plan_site_speed(&e->plan.predicted, step_ms / 1e3);
    classes_learn_speed(&c->cluster.classes, e->pace.home_class, e->plan.bf16, times, LEARN_CLASS);
}

/* --- showing ------------------------------------------------------------------------------------------------- */

json_t *plans_view(const struct job *j)
{
    double predicted = json_number_value(json_object_get(j->plan, "step_ms"));
    json_t *o = j->plan ? json_copy(j->plan) : NULL;

    if (!o)
        return json_null();
    (void)json_object_set_new(o, "predicted_step_ms", json_real(predicted));
    (void)json_object_set_new(o, "measured_step_ms", j->step_ms > 0 ? json_real(j->step_ms) : json_null());
    (void)json_object_set_new(o, "error_percent",
                              j->step_ms > 0 && predicted > 0 ? json_real((predicted / j->step_ms - 1) * 100)
                                                              : json_null());
    return o;
}

static json_t *layout_json(const struct layout *l)
{
    return json_pack("{s:{s:i, s:i, s:i, s:i}, s:i}", "layout", "tp", l->tp, "pp", l->pp, "dp", l->dp, "cp", l->cp,
                     "devices", l->world);
}

json_t *plans_dry(struct core *c, const struct entry *e, const struct job_spec *spec)
{
    struct layout plain = {.tp = 1, .pp = 1, .cp = 1, .dp = e->job.max, .world = e->job.max};
    struct plan_result plan;
    struct plan_site site;
    int class_;
    struct plan_job job;
    struct plan_wish wish;
    struct plan_net *net = NULL;
    struct merr err = {""};
    json_t *o;
    int r = -EAGAIN;

    if (e->job.kind == JOB_COMMAND)
        return layout_json(&plain);
    job = spec_plan_job(spec);
    wish = spec_plan_wish(spec);
    if (site_of_cluster(c, e, job.bf16, &site, &net, &class_)) {
        job.program_bytes = plan_site_program(&site);
        r = plan_search(&job, &wish, &site, &plan, &err);
    } else {
        (void)merr_set(&err, r, "there is no node yet to plan for");
    }
    plan_net_free(net);
    if (r == 0) {
        o = spec_plan_json(&plan);
        (void)json_object_set_new(o, "fits", site.group[0].device.memory_bytes > 0 ? json_true() : json_null());
        return o;
    }
    (void)plan_layout(&e->plan.facts, e->job.max, &plain, NULL, NULL);
    o = layout_json(&plain);
    (void)json_object_set_new(o, "fits", r == -E2BIG ? json_false() : json_null());
    (void)json_object_set_new(o, "why", json_string(err.text));
    return o;
}

void plans_profiles(struct core *c, struct call *call)
{
    json_t *all = json_array();

    for (uint8_t i = 0; i < c->cluster.classes.n; i++) {
        const struct plan_profile *p = profiles_of(&c->cluster, i, 0);

        if (p)
            (void)json_array_append_new(all, json_pack("{s:s, s:I, s:o}", "class", c->cluster.classes.name[i], "nodes",
                                                       (json_int_t)profiles_nodes(&c->cluster, i), "profile",
                                                       profile_write(p, false, 0, 0)));
    }
    call_answer_new(call, 200, json_pack("{s:o}", "profiles", all));
}
