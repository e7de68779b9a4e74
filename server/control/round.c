#include "server/control/round.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/job_time.h"
#include "server/cluster/slots.h"
#include "server/cluster/topology.h"
#include "server/control/booking.h"
#include "server/control/ceilings.h"
#include "server/control/kinds.h"
#include "server/control/state.h"
#include "server/control/usage.h"

#define WINDOW 512 /* waiting jobs that are looked at of one project with the same choice of classes */
#define GROUPS_MAX 64
#define SHY_MAX 64          /* any more of them are taken as if they were well */
#define RESCALE_US 60000000 /* between two changes of an elastic command that its owner has not asked for */

struct profile { /* of jobs that are alike */
    uint64_t key;
    bool rated; /* in steps a second */
    struct rates_profile rates;
};

struct group { /* of waiting jobs */
    uint64_t classes;
    size_t tenant, n;
};

struct count { /* of the slots of one row */
    int32_t total, free, spare, held, claimed;
};

struct round_own {
    struct round_row *rows;
    struct entry **entries;
    struct sched_node *nodes;
    struct sched_tenant *tenants;
    struct sched_job *jobs;
    struct sched_place *places;
    size_t n_places;
    struct count *counts;
    int32_t *types;            /* of each project: quotas and limits by type */
    uint32_t **avoid;          /* by job: nodes that it is not given */
    struct profile **profiles; /* by key, or the next free place */
    size_t profiles_cap;
    struct view_work *works; /* by job */
    struct ceilings *ceilings;
    size_t n_shy;              /* nodes that are given work only where there is no other way */
    bool far;                  /* some nodes' links are slower than others' */
    bool cpu[RATES_TYPES_MAX]; /* every device of the type is a processor's */
};

int round_type(const struct round *r, uint8_t class_)
{
    for (size_t t = 0; t < r->n_types; t++)
        if (r->classes[t] == class_)
            return (int)t;
    return -1;
}

void round_type_names(const struct core *c, const struct round *r, const char *ret[RATES_TYPES_MAX])
{
    for (size_t t = 0; t < r->n_types; t++)
        ret[t] = c->cluster.classes.name[r->classes[t]];
}

void round_clear(struct round *r)
{
    struct round_own *o = r->own;

    if (!o)
        return;
    for (size_t i = 0; o->profiles && i < o->profiles_cap; i++)
        free(o->profiles[i]);
    free(o->rows);
    free(o->entries);
    free(o->nodes);
    free(o->tenants);
    free(o->jobs);
    free(o->places);
    free(o->counts);
    free(o->types);
    free(o->profiles);
    free(o->works);
    for (size_t i = 0; o->avoid && i < r->in.n_jobs; i++)
        free(o->avoid[i]);
    free(o->avoid);
    ceilings_free(o->ceilings);
    free(o);
    *r = (struct round){.n_types = 0};
}

/* --- nodes --------------------------------------------------------------------------------------------- */

/* The classes that nodes have, the first RATES_TYPES_MAX of them by number. */
static void number_types(const struct core *c, struct round *r)
{
    uint64_t there = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t k = 0; c->cluster.nodes[i]->contact != NODE_LOST && k < c->cluster.nodes[i]->n_slots; k++)
            there |= UINT64_C(1) << c->cluster.nodes[i]->slots[k].class_;
    for (uint8_t class_ = 0; class_ < CLASSES_MAX && r->n_types < RATES_TYPES_MAX; class_++)
        if (there >> class_ & 1)
            r->classes[r->n_types++] = class_;
}

static bool same_calendar(const struct calendar_state *a, const struct calendar_state *b)
{
    return a->holder == b->holder && a->closes_us == b->closes_us && a->shut == b->shut && a->opens_us == b->opens_us;
}

static bool has_slot(const struct round_row *row, const struct slot *s)
{
    return row->class_ == s->class_ && row->slow == s->slow.slow && same_calendar(&row->calendar, &s->calendar);
}

/* Whether the round may give it away. */
static bool is_shown(const struct round *r, const struct calendar_state *s)
{
    return !s->shut && s->holder == r->holder;
}

static void count_slots(struct round *r, const struct node *n, size_t row)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        const struct slot *s = &n->slots[k];

        for (size_t i = row; i < row + n->n_rows; i++)
            if (has_slot(&r->own->rows[i], s)) {
                r->own->counts[i].total++;
                r->own->counts[i].free += s->job == 0 && slots_usable(s) && !s->spare;
                r->own->counts[i].spare += s->spare;
                if (strcmp(s->kind, "cpu") != 0)
                    r->own->cpu[round_type(r, s->class_)] = false;
            }
    }
}

/* Rows for the slots of one class of a node, slow ones or the others: one for each calendar that they have. */
static size_t add_rows_of(struct round *r, struct node *node, uint8_t class_, bool slow, size_t n)
{
    for (size_t k = 0; k < node->n_slots; k++) {
        const struct slot *s = &node->slots[k];
        size_t i = node->row;

        if (s->class_ != class_ || s->slow.slow != slow)
            continue;
        while (i < n && !has_slot(&r->own->rows[i], s))
            i++;
        if (i < n)
            continue;
        r->own->rows[n++] = (struct round_row){.node = node, .class_ = class_, .slow = slow, .calendar = s->calendar};
        node->n_rows++;
    }
    return n;
}

/* A row for each class of each node, and one for its slow slots. */
static void number_rows(struct core *c, struct round *r)
{
    size_t n = 0;

    (void)topology_number(&c->cluster);
    r->own->far = topology_mark(&c->cluster);
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        struct node *node = c->cluster.nodes[i];

        node->row = n;
        node->n_rows = 0;
        for (size_t t = 0; t < 2 * r->n_types && node->contact != NODE_LOST; t++)
            n = add_rows_of(r, node, r->classes[t / 2], t % 2, n);
        count_slots(r, node, node->row);
        node->shy = (health_is_shy(&node->health) || c->now.mono_us - node->seen_us >= NODE_SILENT_US) &&
                    r->own->n_shy < SHY_MAX;
        r->own->n_shy += node->shy;
    }
    r->in.n_nodes = n;
}

/* The slowest of a row's slots stands for all, the newest finding for when that was known. */
static void fill_slow(const struct round_row *row, struct sched_node *s)
{
    for (size_t k = 0; row->slow && k < row->node->n_slots; k++) {
        const struct slow_device *d = &row->node->slots[k].slow;
        double milli = d->ratio * 1000;

        if (!has_slot(row, &row->node->slots[k]))
            continue;
        milli = milli > 1001 ? milli : 1001;
        milli = milli < SCHED_SLOW_MAX ? milli : SCHED_SLOW_MAX;
        s->slow_milli = (int32_t)milli > s->slow_milli ? (int32_t)milli : s->slow_milli;
        s->slow_us = d->found_us > s->slow_us ? d->found_us : s->slow_us;
    }
}

static void fill_nodes(struct round *r)
{
    for (size_t i = 0; i < r->in.n_nodes; i++) {
        const struct node *n = r->own->rows[i].node;
        const struct count *k = &r->own->counts[i];
        int32_t to_come = k->claimed > k->free ? k->claimed : k->free;
        struct sched_node *s = &r->own->nodes[i];

        *s = (struct sched_node){.type = (uint8_t)round_type(r, r->own->rows[i].class_), .leaf = n->leaf};
        bool shown = is_shown(r, &r->own->rows[i].calendar);

        if (!n->drain && shown)
            s->devices = k->held + (node_gives(n) ? to_come : 0);
        s->spare = k->spare < k->total - s->devices ? k->spare : k->total - s->devices;
        if (n->drain || n->health.check != HEALTH_CHECK_WELL || r->own->rows[i].calendar.shut)
            s->drained = k->total - s->devices - s->spare;
        s->silent = k->total - s->devices - s->spare - s->drained;
        s->closes_us = r->own->rows[i].calendar.closes_us;
        s->opens_us = shown ? 0 : r->own->rows[i].calendar.opens_us;
        fill_slow(&r->own->rows[i], s);
    }
}

/* --- what runs ----------------------------------------------------------------------------------------- */

/* The row of a target, -1: there is none that may be given away. */
static int64_t row_of(const struct round *r, const struct target *t)
{
    for (size_t i = t->node->row; i < t->node->row + t->node->n_rows; i++) {
        const struct round_row *row = &r->own->rows[i];

        if (row->class_ == t->class_ && row->slow == t->slow && is_shown(r, &row->calendar) &&
            (t->closes_us < 0 || t->closes_us == row->calendar.closes_us))
            return (int64_t)i;
    }
    return -1;
}

static int64_t row_of_slot(const struct round *r, const struct node *n, const struct slot *s)
{
    for (size_t i = n->row; i < n->row + n->n_rows; i++)
        if (has_slot(&r->own->rows[i], s) && (is_shown(r, &s->calendar) || (s->calendar.shut && r->holder == 0)))
            return (int64_t)i;
    return -1;
}

static int by_node(const void *a, const void *b)
{
    const struct sched_place *x = a, *y = b;

    return (x->node > y->node) - (x->node < y->node);
}

/* Add n devices of a row to the places from first on. */
static void add_place(struct round *r, size_t first, uint32_t row, int32_t n)
{
    struct round_own *o = r->own;

    for (size_t i = first; i < o->n_places; i++)
        if (o->places[i].node == row) {
            o->places[i].devices += n;
            return;
        }
    o->places[o->n_places++] = (struct sched_place){.node = row, .devices = n};
}

/* Where a live job runs, as places from *ret_first on. False: not all of its slots are known. */
static bool find_places(struct core *c, struct round *r, const struct entry *e, size_t *ret_first)
{
    size_t first = r->own->n_places;
    const struct node *n = NULL;

    for (size_t i = 0; i < e->job.n_places; i++) {
        const struct job_place *p = &e->job.places[i];
        int64_t row = -1;

        if (!n || strcmp(n->name, p->node) != 0)
            n = cluster_node(&c->cluster, p->node);
        for (size_t k = 0; n && k < n->n_slots; k++)
            if (n->slots[k].slot == p->slot && n->slots[k].job == e->job.id)
                row = row_of_slot(r, n, &n->slots[k]);
        if (row < 0) {
            r->own->n_places = first;
            return false;
        }
        add_place(r, first, (uint32_t)row, 1);
    }
    qsort(r->own->places + first, r->own->n_places - first, sizeof(*r->own->places), by_node);
    for (size_t i = first; i < r->own->n_places; i++)
        r->own->counts[r->own->places[i].node].held += r->own->places[i].devices;
    *ret_first = first;
    return true;
}

/* The devices that a job is to get, as places. False: they cannot be had any more, and the target is dropped. */
static bool claim_target(struct round *r, struct entry *e, size_t *ret_first)
{
    size_t first = r->own->n_places;
    bool good = true;

    for (size_t i = 0; good && i < e->n_target; i++) {
        const struct target *t = &e->target[i];
        int64_t row = node_gives(t->node) ? row_of(r, t) : -1;
        const struct count *k = row < 0 ? NULL : &r->own->counts[row];

        good = k && k->held + k->claimed + t->n <= k->total;
        if (good)
            add_place(r, first, (uint32_t)row, t->n);
    }
    if (!good) {
        r->own->n_places = first;
        entry_target_clear(e);
        return false;
    }
    qsort(r->own->places + first, r->own->n_places - first, sizeof(*r->own->places), by_node);
    for (size_t i = first; i < r->own->n_places; i++)
        r->own->counts[r->own->places[i].node].claimed += r->own->places[i].devices;
    *ret_first = first;
    return true;
}

/* --- jobs ---------------------------------------------------------------------------------------------- */

static struct profile *profile_of(struct core *c, struct round *r, const struct entry *e)
{
    struct round_own *o = r->own;
    uint64_t key = kinds_rates_key(c, e);
    struct profile **at = &o->profiles[key % o->profiles_cap];

    while (*at && (*at)->key != key)
        at = at + 1 < o->profiles + o->profiles_cap ? at + 1 : o->profiles;
    if (!*at && (*at = calloc(1, sizeof(**at)))) {
        (*at)->key = key;
        (*at)->rated = kinds_rates(c, e, r->classes, r->n_types, &(*at)->rates);
    }
    return *at;
}

/* The types it may run on, whether it may mix and change them, and if not, on which it stays. */
static void set_types(struct core *c, const struct round *r, const struct entry *e, struct sched_job *s)
{
    uint64_t classes = entry_classes(e, &c->cluster.classes);

    s->hetero_ok = e->hetero_ok;
    for (size_t t = 0; t < r->n_types; t++)
        if (classes >> r->classes[t] & 1) {
            s->types |= UINT32_C(1) << t;
            s->hetero_ok = s->hetero_ok && (e->job.kind == JOB_COMMAND || r->own->cpu[t]);
        }
    if (!s->hetero_ok && e->job.home[0]) {
        uint8_t class_ = classes_find(&c->cluster.classes, e->job.home);

        s->home = class_ < CLASSES_MAX ? (int8_t)round_type(r, class_) : -1;
        if (e->moves) { /* to devices of the same kind: from a GPU to none but GPUs */
            for (size_t t = 0; s->home >= 0 && t < r->n_types; t++)
                if (r->own->cpu[t] != r->own->cpu[s->home])
                    s->types &= ~(UINT32_C(1) << t);
            s->home = -1;
        } else {
            s->types = s->home < 0 ? 0 : s->types; /* no node has that class */
        }
    }
}

static int64_t at_most(int64_t x, int64_t most)
{
    return x < most ? x : most;
}

struct sched_job round_wish(const struct entry *e)
{
    const struct plan_facts *f = &e->plan.facts;
    bool pipeline = e->job.kind == JOB_TRAIN && f->pp > 1 && kinds_replica(e) > 1;

    return (struct sched_job){.id = e->job.id,
                              .min = e->job.min,
                              .max = e->job.max,
                              .replica = kinds_replica(e),
                              .stage = pipeline ? kinds_replica(e) / f->pp : 0,
                              .workers = kinds_workers(e),
                              .home = -1};
}

static uint32_t tenant_of(const struct core *c, const struct job *j)
{
    const struct project *project = project_find(&c->cluster.projects, j->project);

    return project ? (uint32_t)(project - c->cluster.projects.v) + 1 : 0;
}

/* Devices that are a job's until its run on them is over. */
static int32_t held_by(const struct core *c, const struct job *j)
{
    int32_t n = 0;

    for (size_t i = 0; j->live && i < j->n_places; i++) {
        const struct slot *s = cluster_slot(&c->cluster, &j->places[i]);

        n += s && s->job == j->id;
    }
    return n;
}

/* A live job has so many devices in what the scheduler is shown: those that it has beside them count for its project,
 * which gets no others for them before they are free. */
static void count_leaving(const struct core *c, struct round *r, const struct job *j, int32_t shown)
{
    int32_t held = held_by(c, j);

    if (held > shown)
        r->own->tenants[tenant_of(c, j)].leaving += held - shown;
}

static size_t add_rows(const struct node *node, uint32_t *rows, size_t n)
{
    for (size_t i = 0; i < node->n_rows; i++)
        rows[n++] = (uint32_t)(node->row + i);
    return n;
}

/* Where its last run failed first, if it shall go on elsewhere. */
static const char *left_node(const struct job *j)
{
    const char *action = json_string_value(json_object_get(j->outcome, "action"));

    return j->state == JOB_RECOVERING && action &&
                   (strcmp(action, act_verb_name(ACT_ELSEWHERE)) == 0 ||
                    strcmp(action, act_verb_name(ACT_ROLL_BACK)) == 0)
               ? json_string_value(json_object_get(j->outcome, "node"))
               : NULL;
}

/* Whether its spec excludes the node, or the node is on probation and the job is of several. */
static bool is_barred(const struct entry *e, const struct sched_job *s, const struct node *n)
{
    bool shy = n->health.state == HEALTH_PROBATION && job_waits(&e->job) && s->min > (int32_t)n->n_slots;

    return shy || entry_excludes(e, n->name);
}

static bool is_preferred(const struct entry *e, const struct node *n)
{
    return entry_prefers(e, n->name) || entry_prefers(e, n->rack);
}

/* The types that it would rather have: by their names, and by the nodes that it names and nodes of the racks. */
static void set_preferred(const struct core *c, const struct round *r, const struct entry *e, struct sched_job *s)
{
    for (size_t t = 0; e->prefer && t < r->n_types; t++)
        s->prefer |= entry_prefers(e, c->cluster.classes.name[r->classes[t]]) ? UINT32_C(1) << t : 0;
    for (size_t i = 0; e->prefer && i < r->in.n_nodes; i++)
        if (is_preferred(e, r->own->rows[i].node))
            s->prefer |= UINT32_C(1) << round_type(r, r->own->rows[i].class_);
}

/* Whether the job takes the node only where there is no other way: it has failed there, the node is suspect, its links
 * are slow and the job is of several nodes, or the job would rather have others. */
static bool is_unloved(const struct entry *e, const struct sched_job *s, const struct node *n, const char *failed,
                       bool picky)
{
    return (n->shy && job_waits(&e->job)) || (failed && strcmp(failed, n->name) == 0) ||
           (n->far && s->min > (int32_t)n->n_slots) || (picky && !is_preferred(e, n));
}

/* Nodes that the job is not given, and those that it is given only where others do not fit. */
static int set_avoided(const struct core *c, struct round *r, const struct entry *e, struct sched_job *s)
{
    const char *failed = left_node(&e->job);
    bool picky = false;
    uint32_t *rows;
    size_t n = 0;

    for (size_t i = 0; e->prefer && i < e->prefer->n && !picky; i++)
        picky = topology_has(&c->cluster, e->prefer->v[i]);
    if (!e->exclude && !failed && !picky && !r->own->far && (r->own->n_shy == 0 || !job_waits(&e->job)))
        return 0;
    rows = calloc(r->in.n_nodes + 1, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < c->cluster.n_nodes; i++) /* what needs several nodes needs them all to be well */
        if (is_barred(e, s, c->cluster.nodes[i]))
            n = add_rows(c->cluster.nodes[i], rows, n);
    s->n_barred = n;
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        if (!is_barred(e, s, c->cluster.nodes[i]) && is_unloved(e, s, c->cluster.nodes[i], failed, picky))
            n = add_rows(c->cluster.nodes[i], rows, n);
    s->n_avoid = n;
    s->avoid = r->own->avoid[r->in.n_jobs] = rows;
    return 0;
}

/* A command loses its work when it is stopped; an elastic one does not, and is left alone for a minute unless its owner
 * wants another number of devices. */
static bool stays(const struct entry *e, const struct sched_job *s, int64_t now_us)
{
    const struct job *j = &e->job;
    bool as_wanted = j->n_places >= (size_t)j->min && j->n_places <= (size_t)j->max;

    return j->kind == JOB_COMMAND && s->class_ != SCHED_OPPORTUNISTIC &&
           (!e->elastic || (as_wanted && now_us - s->changed_us < RESCALE_US));
}

/* How long it runs yet at most; 0: it has no limit. */
static int64_t time_limit_us(const struct job *j, int64_t now)
{
    int64_t left = job_time_left_us(j, now);

    return left == INT64_MAX ? 0 : left > 1 ? left : 1;
}

/* places: from first on; none when it waits. */
static int show_job(struct core *c, struct round *r, struct entry *e, size_t first)
{
    const struct job *j = &e->job;
    const struct project *project = project_find(&c->cluster.projects, j->project);
    const struct profile *profile = profile_of(c, r, e);
    int64_t now = r->in.config.now_us;
    size_t n = r->own->n_places - first;
    struct sched_job *s = &r->own->jobs[r->in.n_jobs];
    bool runs = j->live && j->intent == JOB_GO_ON;

    *s = round_wish(e);
    s->tenant = tenant_of(c, j);
    s->class_ = project ? project->class_ : SCHED_ELASTIC;
    s->submit_us = at_most(j->submitted_us, now);
    s->weight_milli = sched_weight_milli(j->priority);
    s->restarts = j->rescales;
    s->changed_us = at_most(j->changed_us, now);
    s->waiting_us = at_most(j->waiting_us, now);
    s->attained_us = j->device_us;
    s->limit_us = time_limit_us(j, now);
    s->finish_us = j->finish_by_us;
    s->within = e->within;
    set_preferred(c, r, e, s);
    s->profile = profile ? &profile->rates : NULL;
    r->own->works[r->in.n_jobs] = kinds_work(c, e, profile && profile->rated);
    s->places = n > 0 ? r->own->places + first : NULL;
    s->n_places = n;
    if (!s->profile || set_avoided(c, r, e, s) < 0) {
        free(r->own->avoid[r->in.n_jobs]);
        r->own->avoid[r->in.n_jobs] = NULL;
        return -ENOMEM;
    }
    set_types(c, r, e, s);
    if (runs)
        s->attained_us += (now - s->changed_us) * (int64_t)j->n_places;
    s->hasty = act_slow(ACT_SLOW, &j->past, now, NULL) == ACT_MOVE;
    /* who starts or is on its way shall arrive */
    s->fixed = n > 0 && (!runs || j->state == JOB_STARTING || j->state == JOB_RECOVERING || stays(e, s, now));
    r->own->entries[r->in.n_jobs++] = e;
    return 0;
}

static int by_turn(const void *a, const void *b)
{
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

    if (x->job.priority != y->job.priority)
        return x->job.priority < y->job.priority ? 1 : -1;
    return (x->job.id > y->job.id) - (x->job.id < y->job.id);
}

/* They come by number, so where all have the same priority nothing is to be done. */
static bool is_sorted(struct entry *const *waiting, size_t n)
{
    size_t i = 1;

    while (i < n && waiting[i - 1]->job.priority >= waiting[i]->job.priority)
        i++;
    return i >= n;
}

/* Whether a waiting job is among the first of its kind; the others cannot be served before those. */
static bool in_window(const struct core *c, const struct entry *e, struct group *groups, size_t *n)
{
    const struct project *project = project_find(&c->cluster.projects, e->job.project);
    size_t tenant = project ? (size_t)(project - c->cluster.projects.v) + 1 : 0, i = 0;

    while (i < *n && (groups[i].classes != e->classes || groups[i].tenant != tenant))
        i++;
    if (i == GROUPS_MAX)
        i = GROUPS_MAX - 1;
    else if (i == *n)
        groups[(*n)++] = (struct group){.classes = e->classes, .tenant = tenant};
    return groups[i].n++ < WINDOW;
}

/* Whether the array of a waiting task may have one more running; else e->wait says so. */
static bool array_allows(struct entry *e)
{
    struct array *a = e->job.array ? e->array : NULL;

    if (a && a->shown >= a->max_running) {
        e->wait = (struct explain_wait){.code = EXPLAIN_ARRAY, .need = e->job.min, .total = (int)a->max_running};
        return false;
    }
    if (a)
        a->shown++;
    return true;
}

static int show_waiting(struct core *c, struct round *r, struct entry **waiting, size_t n)
{
    struct group groups[GROUPS_MAX];
    size_t n_groups = 0;
    int status = 0;

    if ((n > WINDOW || r->own->ceilings) && !is_sorted(waiting, n))
        qsort(waiting, n, sizeof(struct entry *), by_turn);
    for (size_t i = 0; i < n && status == 0; i++) {
        struct entry *e = waiting[i];

        if (!ceilings_allow(r->own->ceilings, e) || !array_allows(e))
            continue;
        if (in_window(c, e, groups, &n_groups)) {
            status = show_job(c, r, e, r->own->n_places);
            if (status == 0)
                r->own->jobs[r->in.n_jobs - 1].max = ceilings_take(r->own->ceilings, &e->job, e->job.max);
        } else {
            e->wait =
                (struct explain_wait){.code = EXPLAIN_BEHIND, .need = e->job.min, .behind = waiting[i - 1]->job.id};
            e->forecast = (struct forecast){.start_us = -1, .ahead = (int32_t)i};
            r->cut = true;
        }
    }
    return status;
}

/* Those that have devices grow into what their projects' ceilings leave. */
static void limit_growth(struct round *r)
{
    for (size_t i = 0; r->own->ceilings && i < r->in.n_jobs; i++) {
        struct sched_job *s = &r->own->jobs[i];
        int32_t held = 0;

        for (size_t k = 0; k < s->n_places; k++)
            held += s->places[k].devices;
        if (held > 0)
            s->max = ceilings_grow(r->own->ceilings, &r->own->entries[i]->job, held, s->max);
    }
}

static int32_t places_from(const struct round *r, size_t first)
{
    int32_t n = 0;

    for (size_t i = first; i < r->own->n_places; i++)
        n += r->own->places[i].devices;
    return n;
}

static int32_t most_of(int32_t a, size_t b)
{
    return (size_t)a > b ? a : (int32_t)b;
}

/* Whether a live run is over in all but name, and what comes after it is known. */
static bool is_leaving(const struct entry *e)
{
    return e->job.intent == JOB_RESCALE || (e->job.state == JOB_RECOVERING && e->n_target > 0);
}

/* Another job of the same name and user for which one that is to be the only one waits; 0: there is none. */
static uint64_t other_of_name(const struct core *c, const struct job *j)
{
    const struct catalog_name *user = catalog_user(&c->jobs.catalog, j->user);

    for (size_t i = 0; user && i < user->active.n; i++) {
        uint64_t id = user->active.v[user->active.first + i]->id;
        const struct entry *e = id != j->id ? table_find(&c->jobs, id) : NULL;

        if (e && strcmp(e->job.name, j->name) == 0 &&
            (e->job.live || (id < j->id && !job_ended(e->job.state) && e->job.state != JOB_SUSPENDED)))
            return id;
    }
    return 0;
}

uint64_t round_of(const struct core *c, const struct entry *e)
{
    const struct booking *b;
    const struct slot *s;

    if (c->bookings.n == 0)
        return 0;
    if (e->n_target > 0)
        return e->target[0].holder;
    s = e->job.live && e->job.n_places > 0 ? cluster_slot(&c->cluster, &e->job.places[0]) : NULL;
    if (s)
        return s->calendar.holder;
    b = booking_of(c, &e->job);
    return b && b->span.from_us <= c->now.wall_us ? b->id : 0;
}

static void await_reservation(struct entry *e, const struct booking *b)
{
    e->wait = (struct explain_wait){
        .code = EXPLAIN_RESERVATION, .need = e->job.min, .behind = b->id, .until_us = b->span.from_us};
    e->forecast = (struct forecast){.start_us = b->span.from_us, .basis = FORECAST_BY_CALENDAR};
}

static int show_jobs(struct core *c, struct round *r, struct entry **scratch)
{
    int64_t now = r->in.config.now_us;
    size_t first, waiting = 0;
    const struct booking *booking;
    uint64_t other;
    int status = 0;

    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && e->job.tasks > 0 && e->array)
            e->array->shown = e->array->live;
    }
    for (size_t i = 0; i < c->jobs.n_order && status == 0; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (!e || !e->job.live || e->job.intent == JOB_RESCALE)
            continue;
        if (round_of(c, e) != r->holder) {
            ceilings_hold(r->own->ceilings, &e->job, (int32_t)e->job.n_places);
            count_leaving(c, r, &e->job, 0);
            continue;
        }
        ceilings_hold(r->own->ceilings, &e->job, (int32_t)e->job.n_places);
        if (e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING && find_places(c, r, e, &first))
            status = show_job(c, r, e, first);
        else
            count_leaving(c, r, &e->job, 0);
    }
    for (size_t i = 0; i < c->jobs.n_order && status == 0; i++) {
        struct entry *e = table_at(&c->jobs, i);
        bool waits = e && job_waits(&e->job), leaves = e && e->job.live && is_leaving(e);

        if (!waits && !leaves)
            continue;
        if (round_of(c, e) != r->holder) {
            ceilings_hold(r->own->ceilings, &e->job, leaves ? (int32_t)e->job.n_places : 0);
            count_leaving(c, r, &e->job, 0);
            continue;
        }
        if (e->n_target > 0 && claim_target(r, e, &first)) {
            count_leaving(c, r, &e->job, places_from(r, first));
            if (waits && e->job.array && e->array)
                e->array->shown++;
            ceilings_hold(r->own->ceilings, &e->job, most_of(places_from(r, first), leaves ? e->job.n_places : 0));
            status = show_job(c, r, e, first);
            continue;
        }
        if (leaves)
            ceilings_hold(r->own->ceilings, &e->job, (int32_t)e->job.n_places);
        count_leaving(c, r, &e->job, 0);
        if (waits && job_is_held_back(&e->job))
            e->wait = (struct explain_wait){.code = EXPLAIN_DEPENDENCY, .need = e->job.min};
        else if (waits && e->job.singleton && (other = other_of_name(c, &e->job)) != 0)
            e->wait = (struct explain_wait){.code = EXPLAIN_SINGLETON, .need = e->job.min, .behind = other};
        else if (waits && r->holder == 0 && (booking = booking_of(c, &e->job)) != NULL)
            await_reservation(e, booking);
        else if (waits && job_time_backs_off(&e->job, now))
            e->wait = (struct explain_wait){.code = EXPLAIN_BACK_OFF, .need = e->job.min, .until_us = e->job.retry_us};
        else if (waits)
            scratch[waiting++] = e;
    }
    status = status == 0 ? show_waiting(c, r, scratch, waiting) : status;
    limit_growth(r);
    return status;
}

/* --- all of it ----------------------------------------------------------------------------------------- */

static void fill_types(const struct core *c, const struct round *r, const struct project *p, int32_t *quota,
                       int32_t *most)
{
    for (int t = 0; t < RATES_TYPES_MAX; t++) {
        const char *name = (size_t)t < r->n_types ? c->cluster.classes.name[r->classes[t]] : NULL;
        const struct project_class *k = name ? project_class(p, name) : NULL;
        int64_t limit = name ? project_most(p, name) : INT64_MAX;

        quota[t] = k ? k->quota : -1;
        most[t] = limit > INT32_MAX ? -1 : (int32_t)limit;
    }
}

static void fill_tenants(const struct core *c, struct round *r)
{
    const struct projects *all = &c->cluster.projects;

    r->own->tenants[0] = (struct sched_tenant){.borrow = -1, .weight_milli = 1000};
    for (size_t i = 0; i < all->n; i++) {
        const struct project *p = &all->v[i], *up = project_parent(all, p);
        int32_t *types = r->own->types + i * RATES_TYPES_MAX * 2;
        struct sched_tenant *t = &r->own->tenants[i + 1];

        *t = (struct sched_tenant){.quota = p->quota < 0 ? 0 : p->quota,
                                   .borrow = p->borrow,
                                   .weight_milli = p->weight_milli,
                                   .within = up && project_ends(all, p) ? (uint32_t)(up - all->v) + 2 : 0};
        if (p->n_classes == 0)
            continue;
        fill_types(c, r, p, types, types + RATES_TYPES_MAX);
        t->type_quota = types;
        t->type_most = types + RATES_TYPES_MAX;
    }
    r->in.n_tenants = all->n + 1;
}

static struct round_own *own_new(const struct core *c)
{
    size_t slots = 0, places = 0;
    struct round_own *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        slots += c->cluster.nodes[i]->n_slots;
    places = 2 * slots + 1; /* each slot is held once at most, and claimed once */
    o->rows = calloc(slots + 1, sizeof(*o->rows));
    o->counts = calloc(slots + 1, sizeof(*o->counts));
    o->nodes = calloc(slots + 1, sizeof(*o->nodes));
    o->tenants = calloc(c->cluster.projects.n + 1, sizeof(*o->tenants));
    o->types = calloc(c->cluster.projects.n + 1, 2 * RATES_TYPES_MAX * sizeof(*o->types));
    o->entries = calloc(c->jobs.n + 1, sizeof(struct entry *));
    o->jobs = calloc(c->jobs.n + 1, sizeof(*o->jobs));
    o->places = calloc(places, sizeof(*o->places));
    o->profiles_cap = 2 * (c->jobs.n + 1); /* one a job at most */
    o->profiles = calloc(o->profiles_cap, sizeof(struct profile *));
    o->works = calloc(c->jobs.n + 1, sizeof(*o->works));
    o->avoid = calloc(c->jobs.n + 1, sizeof(uint32_t *));
    for (int t = 0; t < RATES_TYPES_MAX; t++)
        o->cpu[t] = true;
    return o;
}

/* What follows from how the cluster is shared. */
static void fill_work(struct round *r)
{
    struct view_cluster cluster = view_cluster_of(r->own->nodes, r->in.n_nodes, r->in.n_jobs);

    for (size_t i = 0; i < r->in.n_jobs; i++)
        view_fill(&r->own->jobs[i], &r->own->works[i], &cluster, r->in.config.now_us);
}

int round_init(struct core *c, enum sched_mode mode, uint64_t holder, struct round *r)
{
    struct entry **scratch = calloc(c->jobs.n + 1, sizeof(struct entry *));
    struct round_own *o = own_new(c);
    int status = -ENOMEM;

    *r = (struct round){.own = o};
    r->in.config = c->cfg.sched;
    r->in.config.mode = mode;
    r->in.config.now_us = c->now.wall_us;
    r->in.config.spread = true;
    memcpy(r->in.prices, c->dispatch.prices, sizeof(r->in.prices));
    if (scratch && o && o->rows && o->counts && o->nodes && o->tenants && o->entries && o->jobs && o->places &&
        o->types && o->profiles && o->works && o->avoid) {
        r->holder = holder;
        number_types(c, r);
        kinds_expect(c, r->classes, r->n_types);
        for (size_t t = 0; t < r->n_types; t++)
            r->in.power_w[t] = powers_of(&c->cfg.powers, c->cluster.classes.name[r->classes[t]]);
        number_rows(c, r);
        fill_tenants(c, r);
        status = ceilings_new(c, &o->ceilings);
        if (status == 0)
            status = show_jobs(c, r, scratch);
        if (status == 0)
            status = usage_share(c, o->entries, o->jobs, r->in.n_jobs);
        fill_nodes(r);
        fill_work(r);
        r->in.nodes = o->nodes;
        r->in.tenants = o->tenants;
        r->in.jobs = o->jobs;
        r->rows = o->rows;
        r->entries = o->entries;
    }
    free(scratch);
    return status;
}
