#include "scheduler/cluster/cluster.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct free_node { /* a node's free devices that a job may use */
    uint32_t node;
    int free;
};

struct round {
    const struct cluster_snapshot *snap;
    bool **taken;                    /* by node and slot: given in this round */
    struct free_node *scratch;       /* n_nodes of them */
    int free[CLUSTER_CLASSES_MAX];   /* ready and free, by class */
    int usable[CLUSTER_CLASSES_MAX]; /* on nodes that are ready or out of contact */
    int known[CLUSTER_CLASSES_MAX];  /* with those on drained nodes */
    struct cluster_plan plan;
    size_t places_cap;
};

struct reservation { /* classes that a blocked job keeps for itself */
    uint64_t classes;
    uint64_t job;
};

void cluster_job_range(const struct cluster_job *job, int *ret_least, int *ret_most)
{
    int64_t least = ((int64_t)job->min + job->replica - 1) / job->replica * job->replica;
    int64_t most = job->max / job->replica;

    assert(job->replica >= 1);
    assert(job->replicas_max >= 1);
    if (most > job->replicas_max)
        most = job->replicas_max;
    if (least < job->replica)
        least = job->replica;
    most *= job->replica;
    *ret_least = least > INT32_MAX ? INT32_MAX : (int)least;
    *ret_most = (int)most;
}

const char *cluster_reason_name(enum cluster_reason_code code)
{
    static const char *const name[] = {
        [CLUSTER_ASSIGNED] = "assigned",
        [CLUSTER_INSUFFICIENT] = "insufficient-devices",
        [CLUSTER_BEHIND] = "behind",
        [CLUSTER_NODES_DRAINED] = "nodes-drained",
        [CLUSTER_TOO_SMALL] = "cluster-too-small",
        [CLUSTER_NO_CLASS] = "no-such-class",
        [CLUSTER_NO_NODES] = "no-nodes",
        [CLUSTER_HELD] = "back-off",
        [CLUSTER_NO_LAYOUT] = "no-layout",
    };

    assert((size_t)code < sizeof(name) / sizeof(name[0]));
    return name[code];
}

static int sum(const int count[CLUSTER_CLASSES_MAX], uint64_t classes)
{
    int n = 0;

    for (int c = 0; c < CLUSTER_CLASSES_MAX; c++)
        if (classes >> c & 1)
            n += count[c];
    return n;
}

static int round_init(struct round *r, const struct cluster_snapshot *snap)
{
    *r = (struct round){ .snap = snap };
    r->taken = calloc(snap->n_nodes + 1, sizeof(*r->taken));
    r->scratch = calloc(snap->n_nodes + 1, sizeof(*r->scratch));
    r->plan.reasons = calloc(snap->n_jobs + 1, sizeof(*r->plan.reasons));
    if (!r->taken || !r->scratch || !r->plan.reasons)
        return -ENOMEM;
    for (size_t i = 0; i < snap->n_nodes; i++) {
        const struct cluster_node *node = &snap->nodes[i];

        r->taken[i] = calloc(node->n_slots + 1, sizeof(bool));
        if (!r->taken[i])
            return -ENOMEM;
        for (size_t s = 0; s < node->n_slots && node->state != CLUSTER_NODE_LOST; s++) {
            const struct cluster_slot *slot = &node->slots[s];

            assert(slot->class_ < CLUSTER_CLASSES_MAX);
            r->known[slot->class_]++;
            r->usable[slot->class_] += node->state != CLUSTER_NODE_DRAINED;
            r->free[slot->class_] += node->state == CLUSTER_NODE_READY && slot->free;
        }
    }
    return 0;
}

static void round_clear(struct round *r)
{
    for (size_t i = 0; r->taken && i < r->snap->n_nodes; i++)
        free(r->taken[i]);
    free(r->taken);
    free(r->scratch);
    cluster_plan_clear(&r->plan);
}

/* More free devices first, then the node's place in the list. */
static int by_free(const void *a, const void *b)
{
    const struct free_node *x = a, *y = b;

    if (x->free != y->free)
        return x->free < y->free ? 1 : -1;
    return (x->node > y->node) - (x->node < y->node);
}

static int by_node(const void *a, const void *b)
{
    const struct free_node *x = a, *y = b;

    return (x->node > y->node) - (x->node < y->node);
}

/* Choose nodes for n devices of the classes: as few as possible, and for the last part the node that it fills
 * best. scratch[0..return) are then the nodes, each with how many to take. */
static size_t choose_nodes(struct round *r, uint64_t classes, int n)
{
    size_t count = 0, used = 0;

    for (size_t i = 0; i < r->snap->n_nodes; i++) {
        const struct cluster_node *node = &r->snap->nodes[i];
        int free_here = 0;

        for (size_t s = 0; node->state == CLUSTER_NODE_READY && s < node->n_slots; s++)
            free_here += node->slots[s].free && !r->taken[i][s] && (classes >> node->slots[s].class_ & 1);
        if (free_here > 0)
            r->scratch[count++] = (struct free_node){ .node = (uint32_t)i, .free = free_here };
    }
    qsort(r->scratch, count, sizeof(*r->scratch), by_free);
    for (int left = n; left > 0;) {
        size_t best = used;

        assert(used < count);
        while (best + 1 < count && r->scratch[best + 1].free >= left)
            best++;
        if (r->scratch[best].free >= left) { /* the tightest that holds the rest; of equals the first */
            while (best > used && r->scratch[best - 1].free == r->scratch[best].free)
                best--;
        } else {
            best = used;
        }
        struct free_node chosen = r->scratch[best];

        memmove(&r->scratch[used + 1], &r->scratch[used], (best - used) * sizeof(*r->scratch));
        chosen.free = chosen.free < left ? chosen.free : left;
        left -= chosen.free;
        r->scratch[used++] = chosen;
    }
    qsort(r->scratch, used, sizeof(*r->scratch), by_node);
    return used;
}

static int reserve_places(struct round *r, size_t n)
{
    size_t cap = r->places_cap ? r->places_cap : 64;
    struct cluster_place *places;

    if (r->plan.n_places + n <= r->places_cap)
        return 0;
    while (cap < r->plan.n_places + n)
        cap *= 2;
    places = realloc(r->plan.places, cap * sizeof(*places));
    if (!places)
        return -ENOMEM;
    r->plan.places = places;
    r->places_cap = cap;
    return 0;
}

static int assign(struct round *r, size_t job, uint64_t classes, int n)
{
    struct cluster_assignment *a;
    size_t nodes, first = r->plan.n_places;

    if (reserve_places(r, (size_t)n) < 0)
        return -ENOMEM;
    a = realloc(r->plan.assignments, (r->plan.n_assignments + 1) * sizeof(*a));
    if (!a)
        return -ENOMEM;
    r->plan.assignments = a;
    nodes = choose_nodes(r, classes, n);
    for (size_t i = 0; i < nodes; i++) {
        uint32_t at = r->scratch[i].node;
        const struct cluster_node *node = &r->snap->nodes[at];

        for (size_t s = 0; s < node->n_slots && r->scratch[i].free > 0; s++) {
            const struct cluster_slot *slot = &node->slots[s];

            if (!slot->free || r->taken[at][s] || !(classes >> slot->class_ & 1))
                continue;
            r->taken[at][s] = true;
            r->free[slot->class_]--;
            r->scratch[i].free--;
            r->plan.places[r->plan.n_places++] =
                (struct cluster_place){ .node = at, .slot = slot->slot, .class_ = slot->class_ };
        }
    }
    assert(r->plan.n_places - first == (size_t)n);
    a[r->plan.n_assignments++] = (struct cluster_assignment){ .job = job, .first = first, .n = (size_t)n };
    return 0;
}

/* The devices a job would get now and the classes they come from: the one class that gives most (the first of
 * equals), else a mix. 0: not enough. */
static int offer(const struct round *r, const struct cluster_job *job, int least, int most, uint64_t *ret_classes)
{
    int best = 0, mixed = sum(r->free, job->classes);

    for (int c = 0; c < CLUSTER_CLASSES_MAX; c++) {
        int n = r->free[c] < most ? r->free[c] : most;

        if (!(job->classes >> c & 1))
            continue;
        n -= n % job->replica;
        if (n >= least && n > best) {
            best = n;
            *ret_classes = UINT64_C(1) << c;
        }
    }
    if (best > 0)
        return best;
    if (mixed > most)
        mixed = most;
    mixed -= mixed % job->replica;
    if (mixed < least)
        return 0;
    *ret_classes = job->classes;
    return mixed;
}

/* Serve one job or say why not. Returns 1 when it blocks those after it, 0, or -ENOMEM. */
static int serve(struct round *r, size_t index, const struct reservation *held, size_t n_held)
{
    const struct cluster_job *job = &r->snap->jobs[index];
    struct cluster_reason *why = &r->plan.reasons[index];
    int least, most, n;
    uint64_t classes = 0;

    cluster_job_range(job, &least, &most);
    *why = (struct cluster_reason){
        .need = least,
        .free = sum(r->free, job->classes),
        .total = sum(r->known, job->classes),
    };
    why->code = r->snap->n_nodes == 0                  ? CLUSTER_NO_NODES
                : most < least                         ? CLUSTER_NO_LAYOUT
                : why->total == 0                      ? CLUSTER_NO_CLASS
                : why->total < least                   ? CLUSTER_TOO_SMALL
                : sum(r->usable, job->classes) < least ? CLUSTER_NODES_DRAINED
                : job->held                            ? CLUSTER_HELD
                                                       : CLUSTER_ASSIGNED;
    if (why->code != CLUSTER_ASSIGNED)
        return 0;
    for (size_t i = 0; i < n_held; i++)
        if (held[i].classes & job->classes) {
            why->code = CLUSTER_BEHIND;
            why->behind = held[i].job;
            return 1;
        }
    n = offer(r, job, least, most, &classes);
    if (n == 0) {
        why->code = CLUSTER_INSUFFICIENT;
        return 1;
    }
    return assign(r, index, classes, n);
}

struct order {
    int priority;
    uint64_t id;
    size_t index;
};

static int by_turn(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority < y->priority ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Note that the job reserves its classes, unless all of them are reserved already. Each entry adds a class, so
 * there are at most CLUSTER_CLASSES_MAX. */
static void reserve(struct reservation *held, size_t *n_held, const struct cluster_job *job)
{
    uint64_t all = 0;

    for (size_t i = 0; i < *n_held; i++)
        all |= held[i].classes;
    if (!(job->classes & ~all))
        return;
    assert(*n_held < CLUSTER_CLASSES_MAX);
    held[(*n_held)++] = (struct reservation){ .classes = job->classes, .job = job->id };
}

int cluster_schedule(const struct cluster_snapshot *snap, struct cluster_plan *ret)
{
    struct reservation held[CLUSTER_CLASSES_MAX];
    struct order *order = calloc(snap->n_jobs + 1, sizeof(*order));
    struct round r;
    size_t n_held = 0;
    int status = round_init(&r, snap);

    if (!order || status < 0)
        goto fail;
    for (size_t i = 0; i < snap->n_jobs; i++)
        order[i] = (struct order){ .priority = snap->jobs[i].priority, .id = snap->jobs[i].id, .index = i };
    qsort(order, snap->n_jobs, sizeof(*order), by_turn);
    for (size_t i = 0; i < snap->n_jobs; i++) {
        status = serve(&r, order[i].index, held, n_held);
        if (status < 0)
            goto fail;
        if (status > 0)
            reserve(held, &n_held, &snap->jobs[order[i].index]);
    }
    *ret = r.plan;
    r.plan = (struct cluster_plan){ 0 };
    round_clear(&r);
    free(order);
    return 0;

fail:
    round_clear(&r);
    free(order);
    return -ENOMEM;
}

void cluster_plan_clear(struct cluster_plan *plan)
{
    free(plan->assignments);
    free(plan->places);
    free(plan->reasons);
    *plan = (struct cluster_plan){ 0 };
}
