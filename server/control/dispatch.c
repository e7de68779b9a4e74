#include "server/control/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/cluster/job_time.h"
#include "server/cluster/links.h"
#include "server/cluster/shares.h"
#include "server/cluster/slots.h"
#include "server/cluster/stragglers.h"
#include "server/cluster/topology.h"
#include "server/control/booking.h"
#include "server/control/change.h"
#include "server/control/estimates.h"
#include "server/control/finishes.h"
#include "server/control/source_nodes.h"
#include "server/control/learn.h"
#include "server/control/plans.h"
#include "server/control/ports.h"
#include "server/control/retire.h"
#include "server/control/round.h"
#include "server/control/runs.h"
#include "server/control/state.h"
#include "server/control/swaps.h"

#define EARLIER 12 /* a full round comes so many times sooner when something that runs could grow */

/* --- starting ---------------------------------------------------------------------------------------- */

/* A launcher numbers the ranks of its node one after the other. */
static void group_by_node(struct job_place *p, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k < n; k++)
            if (strcmp(p[k].node, p[i - 1].node) == 0) {
                struct job_place next = p[k];

                memmove(p + i + 1, p + i, (k - i) * sizeof(*p));
                p[i] = next;
                break;
            }
}

/* Whether training goes on on another class than before, and not by its virtual workers, which give the same bits on
 * processors of any class. */
static bool changes_class(const struct core *c, const struct entry *e, const struct job_place *p)
{
    const struct slot *s = cluster_slot(&c->cluster, p);

    return e->job.kind == JOB_TRAIN && e->job.home[0] && s && strcmp(s->kind, "cpu") != 0 &&
           strcmp(e->job.home, p[0].class_) != 0;
}

/* Start the job on p, which are n free slots. */
static void assign(struct core *c, struct entry *e, struct job_place *p, size_t n)
{
    char text[160 + 2 * SPEC_NAME_MAX];
    struct merr err = {""};
    struct job_cause cause = {.kind = CAUSE_ASSIGNED, .actor = "scheduler", .text = text, .places = p};
    int64_t since = e->job.waiting_us;

    if (e->one_a_node)
        group_by_node(p, n);
    if (plans_choose(c, e, p, n, &cause.layout, &cause.plan, &err) == 0 && cause.layout.world > 0) {
        cause.n_places = (size_t)cause.layout.world < n ? (size_t)cause.layout.world : n;
        cause.master_port = ports_choose(c, &e->job);
        if (e->job.kind == JOB_TRAIN)
            shares_set(&c->cluster, &e->pace, &cause.layout, p, cause.n_places);
        runs_describe(p, cause.n_places, text, sizeof(text));
        if (changes_class(c, e, p)) {
            size_t at = strlen(text);

            (void)snprintf(text + at, sizeof(text) - at,
                           "; class %s after %s: the same bits are promised within a class only", p[0].class_,
                           e->job.home);
        }
        if (change_job(c, e, &cause, &err) == 0) {
            e->run.folders = ENTRY_FOLDERS_WANTED;
            runs_adopt(c, e);
            estimates_started(c, e);
            source_nodes_start(c, e);
            retire_generation(c, e);
            plans_adopt(e);
            e->run.measure_links = e->job.link_suspect || links_due(&c->cluster, &e->job, c->now.wall_us);
            stats_observe(c->stats, STATS_QUEUE_WAIT, c->now.wall_us - since);
        }
    }
    json_decref(cause.plan);
    if (err.text[0])
        log_warn("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

static bool is_picked(const struct job_place *p, size_t n, const char *node, int slot)
{
    for (size_t i = 0; i < n; i++)
        if (p[i].slot == slot && strcmp(p[i].node, node) == 0)
            return true;
    return false;
}

/* Add to the n devices at p up to most free slots of the target, those set aside or the others. Returns how many there
 * are then. */
static size_t pick_of(const struct core *c, const struct target *t, bool spare, struct job_place *p, size_t n,
                      size_t most)
{
    for (size_t k = 0; k < t->node->n_slots && n < most; k++) {
        const struct slot *s = &t->node->slots[k];

        if (s->class_ != t->class_ || s->slow.slow != t->slow || s->spare != spare || s->job != 0 || !slots_usable(s) ||
            s->calendar.shut || s->calendar.holder != t->holder ||
            (t->closes_us >= 0 && s->calendar.closes_us != t->closes_us) || is_picked(p, n, t->node->name, s->slot))
            continue;
        memcpy(p[n].node, t->node->name, sizeof(p[n].node));
        memcpy(p[n].address, t->node->address, sizeof(p[n].address));
        memcpy(p[n].class_, c->cluster.classes.name[t->class_], sizeof(p[n].class_));
        p[n++].slot = s->slot;
    }
    return n;
}

/* Add to the n devices at p the free slots of the target, of which another target may have some already. Returns how
 * many there are then. */
static size_t pick(const struct core *c, const struct target *t, struct job_place *p, size_t n)
{
    size_t most = n + (size_t)t->n;

    if (t->spare)
        n = pick_of(c, t, true, p, n, most);
    return pick_of(c, t, false, p, n, most); /* one that was set aside may have become an ordinary one meanwhile */
}

/* Devices that jobs of a project, and of those within it, hold: of a class, or all (NULL). */
static int64_t held_within(const struct core *c, const struct project *p, const char *class_)
{
    const struct projects *all = &c->cluster.projects;
    int64_t held = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; k < c->cluster.nodes[i]->n_slots; k++) {
            const struct slot *s = &c->cluster.nodes[i]->slots[k];
            const struct entry *e = s->job ? table_find(&c->jobs, s->job) : NULL;

            held += e && (!class_ || strcmp(c->cluster.classes.name[s->class_], class_) == 0) &&
                    project_is_within(all, project_find(all, e->job.project), p);
        }
    return held;
}

static int64_t of_class(const struct job_place *p, size_t n, const char *class_)
{
    int64_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += strcmp(p[i].class_, class_) == 0;
    return count;
}

/* Whether the job's project, and those that it is within, may have these n devices now. The plan counts on those that
 * it takes from other jobs of the project at once; until they are free they are the project's. */
static bool project_may_have(const struct core *c, const struct job *j, const struct job_place *places, size_t n)
{
    const struct projects *all = &c->cluster.projects;
    const struct project *p = project_find(all, j->project);

    for (int d = 0; p && d <= PROJECT_DEEP; d++, p = project_parent(all, p)) {
        if (project_most(p, NULL) < INT64_MAX && held_within(c, p, NULL) + (int64_t)n > project_most(p, NULL))
            return false;
        for (size_t i = 0; i < p->n_classes; i++) {
            const char *class_ = p->classes[i].name;
            int64_t more = of_class(places, n, class_);

            if (more > 0 && project_most(p, class_) < INT64_MAX &&
                held_within(c, p, class_) + more > project_most(p, class_))
                return false;
        }
    }
    return true;
}

/* Start a job that waits on its target, unless others still sit there. */
static void try_start(struct core *c, struct entry *e)
{
    struct job_place *p;
    size_t want = 0, n = 0;

    for (size_t i = 0; i < e->n_target; i++)
        want += (size_t)e->target[i].n;
    p = calloc(want, sizeof(*p));
    if (!p)
        return;                             /* the next round tries again */
    for (int other = 0; other < 2; other++) /* classes side by side: each pipeline stage is of one */
        for (size_t i = 0; i < e->n_target; i++)
            if ((e->target[i].class_ != e->target[0].class_) == other)
                n = pick(c, &e->target[i], p, n);
    if (e->job.array && e->array && e->array->live >= e->array->max_running)
        e->wait.code = EXPLAIN_ARRAY;
    else if (n == want && project_may_have(c, &e->job, p, n))
        assign(c, e, p, n);
    else
        e->wait.code = EXPLAIN_FREEING;
    free(p);
}

/* --- the round --------------------------------------------------------------------------------------- */

static const struct node *drained_node(struct core *c, const struct job *j)
{
    for (size_t i = 0; i < j->n_places; i++) {
        const struct node *n = cluster_node(&c->cluster, j->places[i].node);

        if (n && n->drain)
            return n;
    }
    return NULL;
}

/* Whether the job goes on on the one node that it is on: its state may stay in the node's memory. All of a layout but
 * the number of replicas is settled when a job first starts. */
static bool stays(const struct entry *e)
{
    if (e->job.kind != JOB_TRAIN || e->n_target == 0)
        return false;
    for (size_t i = 0; i < e->n_target; i++)
        if (e->target[i].node != e->target[0].node || e->target[i].node->drain)
            return false;
    for (size_t i = 0; i < e->job.n_places; i++)
        if (strcmp(e->job.places[i].node, e->target[0].node->name) != 0)
            return false;
    return true;
}

/* Let the run of a job end for other devices, or for none. */
static void leave(struct core *c, struct entry *e, enum sched_action action, enum sched_reason reason, int32_t devices)
{
    const struct node *drained = drained_node(c, &e->job);
    struct job_cause cause = {.kind = action == SCHED_STOP ? CAUSE_REQUEUE : CAUSE_RESCALE, .actor = "scheduler"};
    char why[96] = "", slow[160], text[280];
    struct merr err;

    if (drained)
        (void)snprintf(why, sizeof(why), "node %.63s is drained; ", drained->name);
    if (action == SCHED_STOP)
        (void)snprintf(text, sizeof(text), "%ssaves its state and waits%s", why,
                       drained                   ? ""
                       : reason == SCHED_TOO_BIG ? ": the cluster does not hold its fewest devices now"
                                                 : ": others go first");
    else if (reason == SCHED_SLOW) {
        stragglers_name(&c->cluster, &e->job, slow, sizeof(slow));
        (void)snprintf(text, sizeof(text), "%ssaves its state and goes on without %s", why, slow);
        c->dispatch.slow_replaced++;
        cause.hastens = c->now.wall_us - e->job.changed_us < c->cfg.sched.hold_us;
    } else if ((size_t)devices == e->job.n_places && shares_are_off(&e->pace.shares, e->job.generation))
        (void)snprintf(text, sizeof(text), "%ssaves its state and shares its work out by the devices' speed", why);
    else
        (void)snprintf(text, sizeof(text), "%ssaves its state and goes on with %d device%s instead of %zu", why,
                       devices, devices == 1 ? "" : "s", e->job.n_places);
    cause.text = text;
    e->run.hand_over = action != SCHED_STOP && stays(e);
    if (change_job(c, e, &cause, &err) < 0) { /* it is on its way out already */
        entry_target_clear(e);
        return;
    }
    /* What goes with a node by a deadline must not be the only state there is. */
    e->job.moves =
        action != SCHED_STOP && e->job.kind == JOB_TRAIN && e->n_target > 0 && !(drained && drained->drain_by_us > 0);
    e->pace.rescale_began_us = action == SCHED_STOP ? 0 : c->now.mono_us;
    if (action != SCHED_GROW)
        change_drain_by(c, e, c->now.mono_us + entry_leave_us(e, c->cfg.sched.grace_us));
    if (drained && drained->drain_by_us > 0 && drained->drain_by_us < e->run.drain_deadline_us)
        change_drain_by(c, e, drained->drain_by_us);
}

static void follow_verdict(struct core *c, const struct round *r, const struct sched_plan *plan, size_t i)
{
    const struct sched_verdict *v = &plan->verdicts[i];
    struct entry *e = r->entries[i];
    int32_t devices = 0;

    entry_target_clear(e);
    e->target = v->n > 0 ? calloc(v->n, sizeof(*e->target)) : NULL;
    for (size_t p = 0; e->target && p < v->n; p++) {
        const struct sched_place *at = &plan->places[v->first + p];

        e->target[e->n_target++] = (struct target){.node = r->rows[at->node].node,
                                                   .class_ = r->rows[at->node].class_,
                                                   .slow = r->rows[at->node].slow,
                                                   .holder = r->rows[at->node].calendar.holder,
                                                   .closes_us = r->rows[at->node].calendar.closes_us,
                                                   .n = at->devices};
        devices += at->devices;
    }
    if (e->job.live)
        leave(c, e, e->n_target > 0 ? v->action : SCHED_STOP, v->reason, devices);
}

/* Whether something runs that could use what the plan leaves free: then the next full round comes sooner. */
static bool could_grow(const struct round *r, const struct explain_tally *tally)
{
    for (size_t i = 0; i < r->in.n_jobs; i++) {
        const struct sched_job *j = &r->in.jobs[i];
        int32_t least, most, has = 0;

        sched_job_range(j, &least, &most);
        most += r->entries[i]->pace.on_slow && most < INT32_MAX; /* others in place of the slow ones */
        for (size_t p = 0; p < j->n_places; p++)
            has += j->places[p].devices;
        for (size_t t = 0; !j->fixed && has > 0 && has < most && t < r->n_types; t++)
            if ((j->types >> t & 1) && tally->free[t] > 0)
                return true;
    }
    return false;
}

/* The devices that the job has, as those it is to get. False: no memory. */
static bool target_own(struct core *c, struct entry *e)
{
    e->target = calloc(e->job.n_places, sizeof(*e->target));
    for (size_t i = 0; e->target && i < e->job.n_places; i++) {
        const struct job_place *p = &e->job.places[i];
        uint8_t class_ = classes_find(&c->cluster.classes, p->class_);
        struct node *node = cluster_node(&c->cluster, p->node);
        bool slow = cluster_slowness(&c->cluster, p) > 1;
        size_t k = 0;

        while (k < e->n_target &&
               (e->target[k].node != node || e->target[k].class_ != class_ || e->target[k].slow != slow))
            k++;
        if (!node || class_ == CLASSES_MAX) {
            entry_target_clear(e);
            return false;
        }
        if (k == e->n_target)
            e->target[e->n_target++] = (struct target){
                .node = node, .class_ = class_, .slow = slow, .holder = round_of(c, e), .closes_us = -1};
        e->target[k].n++;
    }
    return e->n_target > 0;
}

/* Jobs on devices that turned out to be of other speeds than their work was shared out for. */
static void share_anew(struct core *c, const struct round *r)
{
    for (size_t i = 0; i < r->in.n_jobs; i++) {
        struct entry *e = r->entries[i];

        if (e->job.state == JOB_RUNNING && e->job.live && e->job.intent == JOB_GO_ON && e->n_target == 0 &&
            r->in.config.now_us - e->job.changed_us >= r->in.config.hold_us &&
            shares_are_off(&e->pace.shares, e->job.generation) && target_own(c, e))
            leave(c, e, SCHED_MOVE, SCHED_RUNS, (int32_t)e->job.n_places);
    }
}

static void follow_plan(struct core *c, const struct round *r, const struct sched_plan *plan)
{
    struct explain_tally tally;

    explain_count(&r->in, plan, &tally);
    for (size_t i = 0; i < r->in.n_jobs; i++)
        if (job_waits(&r->entries[i]->job))
            r->entries[i]->wait = explain_wait(&tally, &r->in, plan, i);
    estimates_note(c, r, plan);
    finishes_note(c, r, plan);
    for (size_t i = 0; i < plan->n_order; i++)
        follow_verdict(c, r, plan, plan->order[i]);
    share_anew(c, r);
    for (size_t i = 0; i < r->in.n_jobs; i++)
        if (r->entries[i]->n_target > 0 && job_waits(&r->entries[i]->job))
            try_start(c, r->entries[i]);
    if (r->holder == 0)
        memcpy(c->dispatch.prices, plan->prices, sizeof(c->dispatch.prices));
    if (r->in.config.mode == SCHED_FULL)
        c->dispatch.next_full_us = c->now.mono_us + c->cfg.sched.round_us;
    if (could_grow(r, &tally) && c->dispatch.next_full_us > c->now.mono_us + c->cfg.sched.round_us / EARLIER)
        c->dispatch.next_full_us = c->now.mono_us + c->cfg.sched.round_us / EARLIER;
}

/* Whether a server that has just started waits for a node's first word. Until then the node's free devices are as good
 * as gone, and a full round would take those of others instead. */
static bool hears_first_words(const struct core *c)
{
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];

        if (n->contact == NODE_UNKNOWN && n->lost_wall_us == 0 &&
            c->now.mono_us - n->seen_us < c->cfg.unknown_after_s * INT64_C(1000000))
            return true;
    }
    return false;
}

/* Whoever is on a node that seems to fail goes on on spares. */
static void leave_failing(struct core *c)
{
    for (size_t i = 0; c->cfg.spares.n > 0 && i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && swaps_leave(c, e))
            leave(c, e, SCHED_MOVE, SCHED_RUNS, (int32_t)e->job.n_places);
    }
}

/* Whether the device is not for this job now. */
static bool is_kept_from(const struct core *c, const struct job *j, const struct calendar_state *s)
{
    const struct booking *b = s->holder ? booking_of(c, j) : NULL;

    return s->shut || (s->holder && (!b || b->id != s->holder));
}

/* Whoever is on devices that close soon, and may run for longer than that, saves and leaves. */
static void leave_closing(struct core *c)
{
    char text[200], at[CLOCK_RFC3339_MAX];
    struct merr err;

    for (size_t i = 0; c->bookings.n > 0 && i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);
        int64_t closes_us = 0;

        if (!e || !e->job.live || e->job.intent != JOB_GO_ON)
            continue;
        for (size_t k = 0; k < e->job.n_places; k++) {
            const struct slot *s = cluster_slot(&c->cluster, &e->job.places[k]);
            int64_t then = !s ? 0 : is_kept_from(c, &e->job, &s->calendar) ? c->now.wall_us : s->calendar.closes_us;

            closes_us = then > 0 && (closes_us == 0 || then < closes_us) ? then : closes_us;
        }
        if (!calendar_clears(c->now.wall_us, job_time_left_us(&e->job, c->now.wall_us), closes_us))
            continue;
        clock_rfc3339(closes_us, at);
        (void)snprintf(text, sizeof(text),
                       "its devices are in maintenance, kept for others or gone from %s; it saves its state and waits",
                       at);
        if (change_job(c, e, &(struct job_cause){.kind = CAUSE_REQUEUE, .actor = "scheduler", .text = text}, &err) ==
                0 &&
            e->job.live)
            change_drain_by(c, e, moment_mono_of(&c->now, closes_us));
    }
}

bool dispatch_full_due(const struct core *c)
{
    return c->now.mono_us >= c->dispatch.next_full_us && !hears_first_words(c);
}

void dispatch_plan(struct core *c, bool full, uint64_t holder, struct dispatch_planned *ret)
{
    struct merr err = {""};

    *ret = (struct dispatch_planned){.good = false};
    if (holder == 0) {
        plans_refresh(c);
        swaps_settle(c);
        leave_failing(c);
        if (c->bookings.n > 0) /* slots may have come since the tick */
            (void)bookings_mark(&c->bookings, &c->cluster, c->now.wall_us);
        leave_closing(c);
    }
    if (round_init(c, full ? SCHED_FULL : SCHED_FAST, holder, &ret->round) < 0 || ret->round.in.n_jobs == 0)
        return;
    ret->good = sched_schedule(&ret->round.in, &ret->plan, &err) == 0;
    if (!ret->good)
        log_error("no scheduling round: %s", err.text);
}

bool dispatch_follow(struct core *c, struct dispatch_planned *p)
{
    size_t started = c->jobs.by_state[JOB_STARTING];
    bool more;

    c->schedule_wanted = false;
    if (p->good) {
        follow_plan(c, &p->round, &p->plan);
        sched_plan_clear(&p->plan);
    }
    more = p->good && p->round.cut && c->jobs.by_state[JOB_STARTING] > started;
    /* what the plan asked for is this very round; jobs that it did not look at, or that are still to be planned anew,
     * are not in it */
    c->schedule_wanted = more || c->dispatch.planned_sites != c->cluster.sites;
    round_clear(&p->round);
    return more;
}

/* How training gets at GPUs that it must not use: one slot that it must not keeps it from all of its class. */
static void say_how_to_train(const struct core *c, uint64_t classes, char *ret, size_t size)
{
    const struct node *holds = NULL;
    uint64_t lets = 0;
    int class_ = 0;

    (void)snprintf(ret, size, "muster-agent --train-on-gpus lets it use GPUs");
    for (int turn = 0; turn < 2 && !holds; turn++)
        for (size_t i = 0; i < c->cluster.n_nodes && !holds; i++)
            for (size_t k = 0; k < c->cluster.nodes[i]->n_slots && !holds; k++) {
                class_ = c->cluster.nodes[i]->slots[k].class_;
                if (c->cluster.nodes[i]->slots[k].trains)
                    lets |= classes & UINT64_C(1) << class_;
                else if (turn == 1 && lets >> class_ & 1)
                    holds = c->cluster.nodes[i];
            }
    if (holds)
        (void)snprintf(ret, size,
                       "of class '%s' it may use none while the agent of '%s' runs without --train-on-gpus: "
                       "start it with that, or give its GPUs a class of their own, --devices gpu=NAME",
                       c->cluster.classes.name[class_], holds->name);
}

/* Devices of these classes that are kept as spares. */
static int count_kept(const struct core *c, uint64_t classes)
{
    int kept = 0;

    for (size_t i = 0; i < c->cluster.classes.n; i++)
        kept += classes >> i & 1 ? spares_of(&c->cfg.spares, c->cluster.classes.name[i]) : 0;
    return kept;
}

/* Most devices of these classes together that the project may have. */
static int64_t most_of_classes(const struct core *c, const struct project *p, uint64_t classes)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->cluster.classes.n && n < INT64_MAX; i++)
        if (classes >> i & 1) {
            int64_t of_it = project_most(p, c->cluster.classes.name[i]);

            n = of_it == INT64_MAX ? INT64_MAX : n + of_it;
        }
    return c->cluster.classes.n > 0 && classes ? n : INT64_MAX;
}

/* Most devices of these classes that one rack has on nodes that the job does not exclude; no memory: as many as can be,
 * and rounds decide. */
static int most_in_rack(struct core *c, const struct entry *e, uint64_t classes)
{
    bool told = topology_number(&c->cluster) > 0;
    int *here = calloc(c->cluster.n_nodes + 1, sizeof(*here)), most = here ? 0 : INT32_MAX;

    for (size_t i = 0; here && i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];
        int *at = &here[told ? n->leaf : i];

        for (size_t k = 0; n->contact != NODE_LOST && !entry_excludes(e, n->name) && k < n->n_slots; k++)
            *at += (classes >> n->slots[k].class_ & 1);
        most = *at > most ? *at : most;
    }
    free(here);
    return most;
}

/* Devices of these classes that a provider may lend. */
static int count_lendable(const struct core *c, uint64_t classes)
{
    int n = 0;

    for (size_t i = 0; c->supply && i < CLASSES_MAX; i++)
        n += classes >> i & 1 ? c->lendable[i] : 0;
    return n;
}

bool dispatch_can_run(struct core *c, const struct entry *e, char *ret_why, size_t size)
{
    char how[320];
    struct sched_job wish = round_wish(e);
    uint64_t classes = entry_classes(e, &c->cluster.classes);
    const struct project *p = project_find(&c->cluster.projects, e->job.project);
    int total = 0, all = 0, in_rack, kept = count_kept(c, classes);
    int32_t least, most;

    if (!booking_allows(c, &e->job, ret_why, size))
        return false;
    sched_job_range(&wish, &least, &most);
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; c->cluster.nodes[i]->contact != NODE_LOST && k < c->cluster.nodes[i]->n_slots; k++) {
            all++;
            total +=
                (classes >> c->cluster.nodes[i]->slots[k].class_ & 1) && !entry_excludes(e, c->cluster.nodes[i]->name);
        }
    if (most < least) {
        (void)snprintf(ret_why, size,
                       "takes whole replicas of %d devices (tp x pp x cp), at most %d of them, and no such "
                       "number lies between %d and %d",
                       wish.replica, wish.workers, wish.min, wish.max);
        return false;
    }
    for (int d = 0; p && d <= PROJECT_DEEP; d++, p = project_parent(&c->cluster.projects, p)) {
        int64_t limit = most_of_classes(c, p, classes);

        if (project_most(p, NULL) < least) {
            (void)snprintf(ret_why, size,
                           "takes at least %d devices, and project '%s' may have %lld: a quota of %d, and %d borrowed",
                           least, p->name, (long long)project_most(p, NULL), p->quota < 0 ? 0 : p->quota, p->borrow);
            return false;
        }
        if (limit < least) {
            (void)snprintf(ret_why, size, "takes at least %d devices, and project '%s' may have %lld of its classes",
                           least, p->name, (long long)limit);
            return false;
        }
    }
    if (total < least && total + count_lendable(c, classes) >= least)
        return true;
    if (c->cluster.n_nodes > 0 && total < least &&
        classes != classes_usable(&c->cluster.classes, e->job.kind, e->classes)) {
        (void)snprintf(
            ret_why, size,
            "takes %d devices that each have %d MiB of memory and %g processors as their share of a node, and "
            "this cluster has %d; take less in resources, or have agents offer fewer devices",
            least, e->memory_mib, e->cpus, total);
        return false;
    }
    if (c->cluster.n_nodes > 0 && total >= least && total - kept < least) {
        (void)snprintf(ret_why, size,
                       "takes at least %d devices, and this cluster has %d of its classes, of which %d are kept as "
                       "spares (musterd --spare)",
                       least, total, kept);
        return false;
    }
    if (e->within && c->cluster.n_nodes > 0 && total >= least && (in_rack = most_in_rack(c, e, classes)) < least) {
        (void)snprintf(ret_why, size,
                       "takes at least %d devices within a rack, and no rack has more than %d of its classes (agents "
                       "tell theirs by --rack; a node that does not is a rack of its own)",
                       least, in_rack);
        return false;
    }
    if (c->cluster.n_nodes > 0 && total < least) {
        say_how_to_train(c, e->classes, how, sizeof(how));
        if (total < all && classes != e->classes)
            (void)snprintf(ret_why, size,
                           "takes at least %d devices that training may use, and this cluster has %d of "
                           "its classes (%s)",
                           least, total, how);
        else
            (void)snprintf(ret_why, size, "takes at least %d devices, and this cluster has %d%s", least, total,
                           total == all ? ""
                           : e->exclude ? " of its classes on the nodes that it does not exclude"
                                        : " of its classes");
        return false;
    }
    return true;
}

/* --- time -------------------------------------------------------------------------------------------- */

void dispatch_tick(struct core *c)
{
    if (c->jobs.n > 0 && dispatch_full_due(c))
        c->schedule_wanted = true;
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; k < c->cluster.nodes[i]->n_slots; k++) {
            uint64_t job = c->cluster.nodes[i]->slots[k].job;
            struct entry *e = job ? table_find(&c->jobs, job) : NULL;

            if (e && e->run.drain_deadline_us != 0 && c->now.mono_us > e->run.drain_deadline_us && !e->run.force_stop) {
                e->run.force_stop = true;
                log_warn("job j%llu did not drain in time and is stopped", (unsigned long long)job);
                change_orders(c, &e->job);
            }
        }
    learn_tick(c);
    if (c->jobs.by_state[JOB_RECOVERING] == 0)
        return;
    for (size_t i = 0; i < c->jobs.n_order; i++) { /* a back-off that has ended */
        struct entry *e = table_at(&c->jobs, i);

        if (e && job_waits(&e->job) && e->wait.code == EXPLAIN_BACK_OFF && !job_time_backs_off(&e->job, c->now.wall_us))
            c->schedule_wanted = true;
    }
}
