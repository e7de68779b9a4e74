#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "server/core.h"

#define ROUND_LEAST_US 2000 /* between rounds; and ten times what the last one took */
#define PORT_FIRST 29500
#define PORTS 2000

static struct slot *find_slot(const struct node *n, int slot)
{
    for (size_t i = 0; n && i < n->n_slots; i++)
        if (n->slots[i].slot == slot)
            return &n->slots[i];
    return NULL;
}

int dispatch_adopt(struct core *c, struct entry *e)
{
    for (size_t i = 0; i < e->job.n_places; i++) {
        struct slot *s = find_slot(agents_find(c, e->job.places[i].node), e->job.places[i].slot);

        if (s) {
            s->job = e->job.id;
            s->rank = (int)i;
        }
    }
    return 0;
}

void dispatch_release_node(struct core *c, struct entry *e, const char *node)
{
    for (size_t i = 0; i < e->job.n_places; i++) {
        struct slot *s;

        if (node && strcmp(node, e->job.places[i].node) != 0)
            continue;
        s = find_slot(agents_find(c, e->job.places[i].node), e->job.places[i].slot);
        if (s && s->job == e->job.id)
            s->job = 0;
    }
    c->schedule_wanted = true;
}

/* --- the round --------------------------------------------------------------------------------------- */

struct round {
    struct cluster_node *nodes;
    struct cluster_slot *slots;
    struct cluster_job *jobs;
    struct entry **entries; /* of jobs, by index */
    size_t n_jobs;
};

static void snapshot_nodes(const struct core *c, struct round *r)
{
    struct cluster_slot *s = r->slots;

    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct node *n = c->nodes[i];

        r->nodes[i].slots = s;
        r->nodes[i].n_slots = n->n_slots;
        r->nodes[i].state = n->contact == NODE_LOST                        ? CLUSTER_NODE_LOST
                            : n->drain                                     ? CLUSTER_NODE_DRAINED
                            : n->contact == NODE_UNKNOWN || !n->registered ? CLUSTER_NODE_UNKNOWN
                                                                           : CLUSTER_NODE_READY;
        for (size_t k = 0; k < n->n_slots; k++)
            *s++ = (struct cluster_slot){ .slot = n->slots[k].slot,
                                          .class_ = n->slots[k].class_,
                                          .free = n->slots[k].job == 0 &&
                                                  core_slot_usable(&n->slots[k]) };
    }
}

static struct cluster_job wish_of(const struct core *c, const struct entry *e, int64_t wall_us)
{
    int replica = plan_replica_devices(&e->facts), most = e->facts.virtual_workers;

    return (struct cluster_job){
        .id = e->job.id,
        .priority = e->job.priority,
        .min = e->job.min,
        .max = e->job.max,
        .replica = replica < 1 ? 1 : replica,
        .replicas_max = e->job.kind == JOB_COMMAND ? (e->job.max > 0 ? e->job.max : 1)
                        : most < 1                 ? 1
                                                   : most,
        .classes = core_classes_of(c, e),
        .held = e->job.retry_us > wall_us,
    };
}

static void round_clear(struct round *r)
{
    free(r->nodes);
    free(r->slots);
    free(r->jobs);
    free(r->entries);
}

static int round_init(const struct core *c, struct round *r)
{
    int64_t wall = clock_wall_us();
    size_t slots = 0;

    for (size_t i = 0; i < c->n_nodes; i++)
        slots += c->nodes[i]->n_slots;
    *r = (struct round){
        .nodes = calloc(c->n_nodes + 1, sizeof(*r->nodes)),
        .slots = calloc(slots + 1, sizeof(*r->slots)),
        .jobs = calloc(c->n_jobs + 1, sizeof(*r->jobs)),
        .entries = calloc(c->n_jobs + 1, sizeof(struct entry *)),
    };
    if (!r->nodes || !r->slots || !r->jobs || !r->entries) {
        round_clear(r);
        return -ENOMEM;
    }
    snapshot_nodes(c, r);
    for (size_t i = 0; i < c->n_order; i++) {
        struct entry *e = core_find((struct core *)c, c->order[i]);

        if (!e || !job_waits(&e->job))
            continue;
        assert(r->n_jobs < c->n_jobs);
        r->entries[r->n_jobs] = e;
        r->jobs[r->n_jobs++] = wish_of(c, e, wall);
    }
    return 0;
}

static bool port_taken(const struct core *c, int port)
{
    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots; k++) {
            struct entry *e = core_find((struct core *)c, c->nodes[i]->slots[k].job);

            if (c->nodes[i]->slots[k].job != 0 && e && e->job.live && e->job.master_port == port)
                return true;
        }
    return false;
}

static int choose_port(const struct core *c, const struct job *j)
{
    uint64_t from = j->id * 31 + j->generation;

    for (int i = 0; i < 64; i++) {
        int port = PORT_FIRST + (int)((from + (uint64_t)i) % PORTS);

        if (!port_taken(c, port))
            return port;
    }
    return PORT_FIRST + (int)(from % PORTS);
}

static int layout_for(const struct entry *e, int devices, struct layout *ret, struct merr *err)
{
    if (e->job.kind == JOB_TRAIN)
        return plan_layout(&e->facts, devices, ret, NULL, err);
    *ret = (struct layout){ .tp = 1, .pp = 1, .cp = 1, .dp = devices, .world = devices };
    return 0;
}

static void describe(const struct job_place *p, size_t n, char *ret, size_t size)
{
    size_t nodes = 0;

    for (size_t i = 0; i < n; i++)
        nodes += i == 0 || strcmp(p[i].node, p[i - 1].node) != 0;
    if (nodes == 1)
        (void)snprintf(ret, size, "%zu device%s of %s", n, n == 1 ? "" : "s", p[0].node);
    else
        (void)snprintf(ret, size, "%zu devices of %zu nodes", n, nodes);
}

static void make_folders(struct core *c, const struct entry *e)
{
    char path[4096];
    struct merr err;

    (void)snprintf(path, sizeof(path), "%s/j%llu", c->cfg.jobs_dir, (unsigned long long)e->job.id);
    if (io_mkdirs(path, 0755, &err) < 0 || files_make_job(c->files, e->job.id, &err) < 0)
        log_warn("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

static void assign(struct core *c, struct entry *e, const struct cluster_place *at, size_t n)
{
    struct job_place *p = calloc(n, sizeof(*p));
    char text[160];
    struct merr err = { "" };
    struct job_cause cause = { .kind = CAUSE_ASSIGNED, .actor = "scheduler", .text = text, .places = p };
    int64_t since = e->job.submitted_us;

    if (!p)
        return; /* the next round tries again */
    for (size_t i = 0; i < n; i++) {
        const struct node *node = c->nodes[at[i].node];

        memcpy(p[i].node, node->name, sizeof(p[i].node));
        memcpy(p[i].address, node->address, sizeof(p[i].address));
        memcpy(p[i].class_, c->classes[at[i].class_], sizeof(p[i].class_));
        p[i].slot = at[i].slot;
    }
    if (layout_for(e, (int)n, &cause.layout, &err) == 0 && cause.layout.world > 0) {
        cause.n_places = (size_t)cause.layout.world < n ? (size_t)cause.layout.world : n;
        cause.master_port = choose_port(c, &e->job);
        describe(p, cause.n_places, text, sizeof(text));
        make_folders(c, e);
        if (core_change(c, e, &cause, &err) == 0) {
            (void)dispatch_adopt(c, e);
            stats_observe(c->stats, STATS_QUEUE_WAIT, clock_wall_us() - since);
        }
    }
    if (err.text[0])
        log_warn("job j%llu: %s", (unsigned long long)e->job.id, err.text);
    free(p);
}

void dispatch_round(struct core *c, int64_t now_us)
{
    struct cluster_plan plan = { 0 };
    struct round r;
    int64_t took;

    c->schedule_wanted = false;
    if (round_init(c, &r) < 0)
        return;
    if (r.n_jobs > 0 &&
        cluster_schedule(
            &(struct cluster_snapshot){ .nodes = r.nodes, .n_nodes = c->n_nodes, .jobs = r.jobs, .n_jobs = r.n_jobs },
            &plan) == 0) {
        for (size_t i = 0; i < r.n_jobs; i++)
            r.entries[i]->reason = plan.reasons[i];
        for (size_t i = 0; i < plan.n_assignments; i++)
            assign(c, r.entries[plan.assignments[i].job], plan.places + plan.assignments[i].first,
                   plan.assignments[i].n);
        c->schedule_wanted = false; /* what the assignments asked for is this very round */
        cluster_plan_clear(&plan);
    }
    round_clear(&r);
    took = clock_mono_us() - now_us;
    stats_observe(c->stats, STATS_ROUND, took);
    c->next_round_us = now_us + took + (took * 10 > ROUND_LEAST_US ? took * 10 : ROUND_LEAST_US);
}

bool dispatch_can_run(struct core *c, const struct entry *e, char *ret_why, size_t size)
{
    struct cluster_job wish = wish_of(c, e, INT64_MAX);
    uint64_t classes = core_classes_of(c, e);
    int least, most, total = 0, all = 0;

    cluster_job_range(&wish, &least, &most);
    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; c->nodes[i]->contact != NODE_LOST && k < c->nodes[i]->n_slots; k++) {
            all++;
            total += classes >> c->nodes[i]->slots[k].class_ & 1;
        }
    if (most < least) {
        (void)snprintf(ret_why, size,
                       "takes whole replicas of %d devices (tp x pp x cp), at most %d of them, and no such "
                       "number lies between %d and %d",
                       wish.replica, wish.replicas_max, wish.min, wish.max);
        return false;
    }
    if (c->n_nodes > 0 && total < least) {
        (void)snprintf(ret_why, size,
                       total == all               ? "takes at least %d devices, and this cluster has %d"
                       : classes != e->classes ? "takes at least %d cpu slots, and this cluster has %d of its "
                                                 "classes (training runs on cpu slots in this version)"
                                               : "takes at least %d devices, and this cluster has %d of its classes",
                       least, total);
        return false;
    }
    return true;
}

/* --- runs -------------------------------------------------------------------------------------------- */

void dispatch_fault(struct core *c, struct entry *e, int rank, enum job_class class_, const char *message,
                    json_t *log_tail, const char *actor)
{
    const struct rank *r = &e->ranks[rank];
    char text[700];
    json_t *outcome;
    struct merr err;

    assert((size_t)rank < e->job.n_places);
    if (e->fault_message[0])
        message = e->fault_message;
    (void)snprintf(text, sizeof(text), "rank %d on %s: %s", rank, e->job.places[rank].node, message);
    outcome = json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:O?}", "class", job_class_name(class_), "message", text,
                        "rank", rank, "node", e->job.places[rank].node, "exit_code", r->exit_code, "signal", r->signal,
                        "log_tail", log_tail);
    if (!outcome)
        outcome = json_pack("{s:s, s:s}", "class", job_class_name(class_), "message", "a rank failed");
    (void)core_change(
        c, e,
        &(struct job_cause){ .kind = CAUSE_FAULT, .actor = actor, .text = text, .class_ = class_, .outcome = outcome },
        &err);
    json_decref(outcome);
}

/* All ranks are over and nobody failed first: an end by orders, or a run whose first cause was never seen. */
static void run_over(struct core *c, struct entry *e, bool all_done, bool drained, const char *actor)
{
    struct merr err;
    char text[160];

    if (!all_done && !drained && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING)
        dispatch_fault(c, e, 0, JOB_CLASS_SYSTEM, "its ranks gave up and none told why", NULL, actor);
    if (all_done && e->job.state == JOB_STARTING)
        (void)core_change(c, e, &(struct job_cause){ .kind = CAUSE_STARTED, .actor = actor, .text = "all ranks ran" },
                          &err);
    (void)snprintf(text, sizeof(text), "%s",
                   all_done                         ? "every rank is done"
                   : e->job.intent == JOB_CANCEL    ? "cancelled; every rank has ended"
                   : e->job.intent == JOB_SUSPEND   ? "suspended; its devices are free"
                   : e->job.intent == JOB_FAIL      ? "no restart is left"
                   : e->job.state == JOB_RECOVERING ? "waits to start again"
                                                    : "saved and queued again");
    if (core_change(c, e, &(struct job_cause){ .kind = CAUSE_OVER, .actor = actor, .text = text, .all_done = all_done },
                    &err) < 0)
        log_error("job j%llu: %s", (unsigned long long)e->job.id, err.text);
}

void dispatch_ranks(struct core *c, struct entry *e, const char *actor)
{
    size_t running = 0, over = 0, done = 0, drained = 0, n = e->job.n_places;
    struct merr err;
    char text[160];

    if (!e->job.live)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct rank *r = &e->ranks[i];

        running += r->phase == RANK_RUNNING || r->phase == RANK_EXITED;
        over += r->phase == RANK_EXITED;
        done += r->phase == RANK_EXITED && r->exit_code == 0 && r->signal == 0 && !r->lost;
        drained += r->phase == RANK_EXITED && (r->exit_code == 76 || r->exit_code == 0) && r->signal == 0 && !r->lost;
    }
    if (e->job.state == JOB_STARTING && running == n && over < n) {
        char where[80];

        describe(e->job.places, n, where, sizeof(where));
        (void)snprintf(text, sizeof(text), "%s on %s", e->job.kind == JOB_TRAIN ? "training" : "running", where);
        (void)core_change(c, e, &(struct job_cause){ .kind = CAUSE_STARTED, .actor = actor, .text = text }, &err);
    }
    if (over == n)
        run_over(c, e, done == n, drained == n, actor);
}

/* --- time -------------------------------------------------------------------------------------------- */

void dispatch_tick(struct core *c, int64_t now_us)
{
    int64_t wall = clock_wall_us();

    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots; k++) {
            uint64_t job = c->nodes[i]->slots[k].job;
            struct entry *e = job ? core_find(c, job) : NULL;

            if (e && e->drain_deadline_us != 0 && now_us > e->drain_deadline_us && !e->force_stop) {
                e->force_stop = true;
                log_warn("job j%llu did not drain in %d s and is stopped", (unsigned long long)job, DRAIN_LIMIT_S);
                agents_touch(c, c->nodes[i]->name);
            }
        }
    if (c->by_state[JOB_RECOVERING] == 0)
        return;
    for (size_t i = 0; i < c->n_order; i++) { /* a back-off that has ended */
        struct entry *e = core_find(c, c->order[i]);

        if (e && job_waits(&e->job) && e->reason.code == CLUSTER_HELD && e->job.retry_us <= wall)
            c->schedule_wanted = true;
    }
}
