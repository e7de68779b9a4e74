/* Once a full round has placed all: who stays where it was and has slow devices there gets free ones that are well, of
 * the same types, and keeps the rest.
 *
 * Time is counted in what a job's slowest replica takes for its virtual workers. Devices that were found slow after the
 * job was laid have as much work as the others; of those that were known then each has what it can do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/cluster/sched_priv.h"

#define HORIZON_US INT64_C(1800000000) /* what is saved in that time, or in the job's own, must be worth a restart */
#define WELL 1000

struct relief {
    size_t job; /* of the round */
    double gain;
};

struct load { /* replicas of a job that are equally fast */
    struct rates_est parts[RATES_TYPES_MAX];
    int32_t milli[RATES_TYPES_MAX];
    size_t n;
    int32_t slowest; /* thousandths */
    bool known;      /* all slow ones were known to be so when the job was laid */
};

static int32_t milli_of(const struct sched_node *node)
{
    return node->slow_milli > WELL ? node->slow_milli : WELL;
}

static int32_t replica_of(const struct sched_job *job)
{
    return job->replica > 1 ? job->replica : 1;
}

/* One worker's time on a device of the type that is well, on a scale of the job's own. */
static int64_t worker_ns(const struct sched_job *job, int type)
{
    double rate = (double)rates_at(job->profile, type, 1, NULL), ns = rate > 0 ? 1e12 / rate : 1;

    return ns < 1000 ? 1000 : ns > 1e12 ? (int64_t)1e12 : (int64_t)ns;
}

/* Count devices of a row as whole replicas. Beyond the last part they count as the slowest of it. */
static void load_add(struct load *l, const struct sched_job *job, const struct sched_node *node, int32_t devices)
{
    int32_t milli = milli_of(node), replicas = (devices + replica_of(job) - 1) / replica_of(job);
    int64_t ns = worker_ns(job, node->type) * milli / WELL;
    size_t i = 0;

    while (i < l->n && (l->milli[i] != milli || l->parts[i].worker_ns != ns))
        i++;
    if (i == RATES_TYPES_MAX) {
        i--;
        l->parts[i].worker_ns = ns > l->parts[i].worker_ns ? ns : l->parts[i].worker_ns;
    } else if (i == l->n) {
        l->parts[l->n] = (struct rates_est){.worker_ns = ns};
        l->milli[l->n++] = milli;
    }
    l->parts[i].devices += replicas;
    l->slowest = milli > l->slowest ? milli : l->slowest;
    l->known = l->known && (milli == WELL || node->slow_us <= job->changed_us);
}

/* The time of the slowest replica; 0: the workers cannot be laid so. */
static double time_of(const struct load *l, int32_t workers)
{
    struct rates_est parts[RATES_TYPES_MAX];
    int64_t ns;

    memcpy(parts, l->parts, sizeof(parts));
    ns = rates_map_workers(parts, l->n, workers);
    for (size_t i = 0; i < l->n; i++)
        if (parts[i].devices > 0 && parts[i].each - (parts[i].fewer > 0) < 1)
            return 0;
    return (double)ns;
}

static struct load load_of(const struct round *r, const struct sched_job *job, const struct sched_place *v, size_t n)
{
    struct load l = {.n = 0, .slowest = WELL, .known = true};

    for (size_t i = 0; i < n; i++)
        load_add(&l, job, &r->in->nodes[v[i].node], v[i].devices);
    return l;
}

/* The same devices, all of them well. */
static double time_when_well(const struct load *l, int32_t workers)
{
    struct load well = *l;

    for (size_t i = 0; i < well.n; i++)
        well.parts[i].worker_ns = well.parts[i].worker_ns * WELL / well.milli[i];
    return time_of(&well, workers);
}

/* How long a job on these devices takes for its workers once it has been laid on them. */
static double time_laid(const struct load *l, int32_t workers)
{
    double by_speed = time_of(l, workers), evenly = time_when_well(l, workers) * l->slowest / WELL;

    return by_speed > 0 ? by_speed : evenly;
}

/* What the job gains, by the measure of rounds, from being on these devices instead; 0: it is not worth a restart. */
static double gain_of(const struct round *r, const struct rjob *j, const struct sched_place *v, size_t n)
{
    const struct sched_job *job = j->job;
    const struct load now = load_of(r, job, job->places, job->n_places), then = load_of(r, job, v, n);
    double well = time_when_well(&now, job->workers), after = time_laid(&then, job->workers);
    double before = now.known ? time_laid(&now, job->workers) : well * now.slowest / WELL, left_us, gain;
    double rate = (double)cand_of(r, j, j->chosen)->shape.rate_ups;

    if (!(well > 0) || !(after > 0) || !(before > after) || !(rate > 0))
        return 0;
    left_us = (double)job->remaining_us / rate * 1e6 * before / well;
    left_us = left_us < (double)HORIZON_US ? left_us : (double)HORIZON_US;
    if (left_us * (1 - after / before) <= (double)job->restart_us)
        return 0;
    gain = candidates_gain(r, job, before / after);
    return gain > 0 ? gain : 0;
}

/* Whether the job may be moved now, and is on a device that is known to be slow. */
static bool may_gain(const struct round *r, const struct rjob *j)
{
    const struct sched_job *job = j->job;
    bool slow = false;

    if (j->chosen == NONE || j->chosen != j->current || !j->kept || job->fixed || job->workers < 1 ||
        job->remaining_us < 0 || job->n_avoid > 0 || j->reach > 0 ||
        (!job->hasty && r->in->config.now_us - job->changed_us < r->in->config.hold_us))
        return false;
    for (size_t i = 0; i < job->n_places; i++)
        slow = slow || r->in->nodes[job->places[i].node].slow_milli > 0;
    return slow;
}

static bool holds(const struct sched_job *job, size_t node)
{
    for (size_t i = 0; i < job->n_places; i++)
        if (job->places[i].node == node)
            return true;
    return false;
}

/* The node for n devices in place of those of a row: one the job is on, then the tightest gap that is wide enough, then
 * the one nearest in the order of nodes, where the rest of the same machine is. Where none is wide enough and parts of
 * several are taken, the widest. -1: none. */
static int64_t find_well(const struct round *r, const struct sched_job *job, uint32_t row, int32_t n)
{
    int64_t best = -1;
    int64_t best_key = 0;

    for (size_t i = 0; i < r->in->n_nodes; i++) {
        int32_t gap = r->node_free[i];
        int64_t near = SCHED_NODES_MAX - llabs((int64_t)i - row), key;

        if (r->in->nodes[i].type != r->in->nodes[row].type || r->in->nodes[i].slow_milli > 0 || gap < 1 ||
            (gap < n && !r->in->config.spread))
            continue;
        key = gap < n ? gap : 2 * SCHED_NODE_DEVICES_MAX - (holds(job, i) ? 0 : gap);
        key = key * 2 * SCHED_NODES_MAX + near;
        if (best < 0 || key > best_key) {
            best = (int64_t)i;
            best_key = key;
        }
    }
    return best;
}

struct swap { /* a job's places while they are changed: room for all nodes */
    struct sched_place *v;
    size_t n;
    struct slow_place *slow; /* scratch: those that shall change, the slowest first */
};

struct slow_place {
    int32_t milli;
    struct sched_place at;
};

static void swap_add(struct swap *s, uint32_t node, int32_t n)
{
    size_t i = 0;

    while (i < s->n && s->v[i].node != node)
        i++;
    if (i == s->n)
        s->v[s->n++] = (struct sched_place){.node = node};
    s->v[i].devices += n;
}

/* Free devices that are well, of the row's type. */
static int32_t count_well(const struct round *r, uint32_t row)
{
    int64_t n = 0;

    for (size_t i = 0; i < r->in->n_nodes; i++)
        if (r->in->nodes[i].type == r->in->nodes[row].type && r->in->nodes[i].slow_milli == 0)
            n += r->node_free[i];
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

/* Move what a job has on a slow row, whole replicas of it, to free devices that are well. Returns how many. */
static int32_t move_row(struct round *r, const struct sched_job *job, const struct sched_place *from, struct swap *s)
{
    int32_t n = count_well(r, from->node), left;

    n = n < from->devices ? n - n % replica_of(job) : from->devices;
    left = from->devices - n;
    while (n > 0) {
        int64_t at = find_well(r, job, from->node, n);
        int32_t some = at < 0 ? 0 : r->node_free[at] < n ? r->node_free[at] : n;

        if (some == 0)
            break;
        r->node_free[at] -= some;
        swap_add(s, (uint32_t)at, some);
        n -= some;
    }
    if (left + n > 0)
        swap_add(s, from->node, left + n);
    r->node_free[from->node] += from->devices - left - n;
    return from->devices - left - n;
}

static int slowest_first(const void *a, const void *b)
{
    const struct slow_place *x = a, *y = b;

    if (x->milli != y->milli)
        return x->milli > y->milli ? -1 : 1;
    return (x->at.node > y->at.node) - (x->at.node < y->at.node);
}

static int by_node(const void *a, const void *b)
{
    const struct sched_place *x = a, *y = b;

    return (x->node > y->node) - (x->node < y->node);
}

/* Write a job's new places where its old ones are: those after them move up. */
static int commit(struct round *r, struct rjob *j, struct swap *s)
{
    size_t first = j->place_first, after = first + j->place_n;

    if (r->n_places + s->n > r->places_cap) {
        struct sched_place *v = realloc(r->places, (r->n_places + s->n) * sizeof(*v));

        if (!v)
            return -ENOMEM;
        r->places = v;
        r->places_cap = r->n_places + s->n;
    }
    qsort(s->v, s->n, sizeof(*s->v), by_node);
    memmove(r->places + first + s->n, r->places + after, (r->n_places - after) * sizeof(*r->places));
    memcpy(r->places + first, s->v, s->n * sizeof(*s->v));
    for (size_t i = 0; i < r->n_jobs; i++)
        if (r->jobs[i].place_n > 0 && r->jobs[i].place_first >= after)
            r->jobs[i].place_first = (uint32_t)(r->jobs[i].place_first - j->place_n + s->n);
    r->n_places = r->n_places - j->place_n + s->n;
    j->place_n = (uint32_t)s->n;
    j->kept = false;
    j->relieved = true;
    return 0;
}

/* Undo what was taken from the nodes. */
static void give_back(struct round *r, const struct sched_job *job, const struct swap *s)
{
    for (size_t i = 0; i < s->n; i++)
        r->node_free[s->v[i].node] += s->v[i].devices;
    for (size_t i = 0; i < job->n_places; i++)
        r->node_free[job->places[i].node] -= job->places[i].devices;
}

static int relieve(struct round *r, struct rjob *j, struct swap *s)
{
    const struct sched_job *job = j->job;
    int32_t moved = 0;
    size_t slow = 0;

    s->n = 0;
    for (size_t i = 0; i < job->n_places; i++) {
        int32_t milli = r->in->nodes[job->places[i].node].slow_milli;

        if (milli > 0)
            s->slow[slow++] = (struct slow_place){.milli = milli, .at = job->places[i]};
        else
            swap_add(s, job->places[i].node, job->places[i].devices);
    }
    qsort(s->slow, slow, sizeof(*s->slow), slowest_first);
    for (size_t i = 0; i < slow; i++)
        moved += move_row(r, job, &s->slow[i].at, s);
    if (moved > 0 && gain_of(r, j, s->v, s->n) > 0)
        return commit(r, j, s);
    give_back(r, job, s);
    return 0;
}

/* What nobody has, by the places of the plan. */
static void count_free(struct round *r)
{
    for (size_t i = 0; i < r->in->n_nodes; i++)
        r->node_free[i] = r->in->nodes[i].devices;
    for (size_t i = 0; i < r->n_jobs; i++)
        for (uint32_t p = 0; r->jobs[i].chosen != NONE && p < r->jobs[i].place_n; p++)
            r->node_free[r->places[r->jobs[i].place_first + p].node] -= r->places[r->jobs[i].place_first + p].devices;
}

static int most_first(const void *a, const void *b)
{
    const struct relief *x = a, *y = b;

    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

/* How a job would fare if every device of it were well, for the order in which they are looked at. */
static double hope_of(const struct round *r, const struct rjob *j)
{
    const struct load now = load_of(r, j->job, j->job->places, j->job->n_places);

    return j->weight * candidates_gain(r, j->job, (double)now.slowest / WELL);
}

int relieve_all(struct round *r)
{
    struct relief *all = NULL;
    struct swap s = {.n = 0};
    bool slow = false;
    size_t n = 0;
    int status = 0;

    for (size_t i = 0; i < r->in->n_nodes; i++)
        slow = slow || r->in->nodes[i].slow_milli > 0;
    if (!slow)
        return 0;
    all = calloc(r->n_jobs + 1, sizeof(*all));
    s.v = calloc(r->in->n_nodes + 1, sizeof(*s.v));
    s.slow = calloc(r->in->n_nodes + 1, sizeof(*s.slow));
    if (!all || !s.v || !s.slow)
        status = -ENOMEM;
    for (size_t i = 0; status == 0 && i < r->n_jobs; i++)
        if (may_gain(r, &r->jobs[i])) {
            all[n] = (struct relief){.job = i, .gain = hope_of(r, &r->jobs[i])};
            n++;
        }
    if (n > 0) {
        count_free(r);
        qsort(all, n, sizeof(*all), most_first);
    }
    for (size_t i = 0; status == 0 && i < n; i++)
        status = relieve(r, &r->jobs[all[i].job], &s);
    free(all);
    free(s.v);
    free(s.slow);
    return status;
}
