#include "tests/sim/check.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/rendezvous.h"
#include "server/cluster/job_time.h"
#include "server/control/state.h"
#include "tests/sim/check_runs.h"
#include "tests/sim/hostile.h"

#define JOBS_AT_ONCE 256 /* are looked at after a turn; where there are not many more, all */
#define MEMORY_MAX ((size_t)256 << 20)
#define SMALL_CLUSTER 128 /* nodes of a cluster whose slots and runs are looked at after each turn */

struct seen { /* of a job, the last time */
    uint64_t version;
    uint32_t generation;
    bool there, gone; /* in the working set; it was, and has left it */
    uint32_t warned;  /* in which generation of its time limit, as check_time() has seen */
};

struct check {
    struct world *w;
    const struct users *users;
    struct seen *jobs; /* by number */
    size_t n;
    uint64_t turns;
    struct check_runs *runs;
    size_t next_job, next_id; /* that are looked at */
};

struct check *check_new(struct world *w, const struct users *u, const struct book *book)
{
    struct check *k = calloc(1, sizeof(*k));

    if (!k)
        abort();
    *k = (struct check){.w = w, .users = u, .runs = check_runs_new(w, book)};
    return k;
}

void check_free(struct check *k)
{
    if (!k)
        return;
    check_runs_free(k->runs);
    free(k->jobs);
    free(k);
}

static struct seen *seen_of(struct check *k, uint64_t job)
{
    if (job >= k->n) {
        size_t n = job + 1024;

        k->jobs = realloc(k->jobs, n * sizeof(*k->jobs));
        if (!k->jobs)
            abort();
        memset(k->jobs + k->n, 0, (n - k->n) * sizeof(*k->jobs));
        k->n = n;
    }
    return &k->jobs[job];
}

/* Which jobs of a project are live, for the trace. */
static void note_project(struct check *k, const struct core *c, const char *project)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        if (e && e->job.live && strcmp(e->job.project, project) == 0)
            world_note(k->w, "of %s: j%" PRIu64 "-g%u %s, %zu devices, order %s, %zu to come", project, e->job.id,
                       e->job.generation, job_state_name(e->job.state), e->job.n_places, job_order(&e->job),
                       e->n_target);
    }
}

/* Whoever has a slot has it by its run's places, and a project that may not borrow has no more than its quota: of nodes
 * that have registered, for a server that has just started knows of the others no rank that is over. */
static void check_slots(struct check *k, const struct core *c)
{
    int tight = 0;

    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        const struct node *n = c->cluster.nodes[i];

        for (size_t s = 0; s < n->n_slots; s++) {
            const struct slot *slot = &n->slots[s];
            const struct entry *e = slot->job ? table_find(&c->jobs, slot->job) : NULL;

            if (slot->job && (!e || !e->job.live))
                world_broken(k->w, "slot %d of %s is held for j%" PRIu64 ", which has no run", slot->slot, n->name,
                             slot->job);
            else if (e &&
                     ((size_t)slot->rank >= e->job.n_places || strcmp(e->job.places[slot->rank].node, n->name) != 0 ||
                      e->job.places[slot->rank].slot != slot->slot))
                world_broken(k->w, "slot %d of %s is held for rank %d of j%" PRIu64 ", which is elsewhere", slot->slot,
                             n->name, slot->rank, slot->job);
            tight += n->registered && e && strcmp(e->job.project, "tight") == 0;
        }
    }
    if (tight > users_quota(k->users))
        note_project(k, c, "tight");
    if (tight > users_quota(k->users))
        world_broken(k->w, "project 'tight' has %d devices, its quota is %d and it may not borrow", tight,
                     users_quota(k->users));
}

/* Spares are free, no more than there are to be, and claimed once. */
static void check_spares(struct check *k, const struct core *c)
{
    for (uint8_t class_ = 0; class_ < c->cluster.classes.n; class_++) {
        int there = 0, claimed = 0, wanted = spares_of(&c->cfg.spares, c->cluster.classes.name[class_]);

        for (size_t i = 0; i < c->jobs.n_order; i++) {
            const struct entry *e = table_at(&c->jobs, i);

            for (size_t t = 0; e && t < e->n_target; t++)
                claimed += e->target[t].spare && e->target[t].class_ == class_ ? e->target[t].n : 0;
        }
        for (size_t i = 0; i < c->cluster.n_nodes; i++) {
            const struct node *n = c->cluster.nodes[i];

            there += spares_on(n, class_);
            for (size_t s = 0; s < n->n_slots; s++)
                if (n->slots[s].spare && n->slots[s].job)
                    world_broken(k->w, "slot %d of %s is a spare, and j%" PRIu64 " has it", n->slots[s].slot, n->name,
                                 n->slots[s].job);
        }
        if (there > wanted + claimed)
            world_broken(k->w, "%d devices of class %s are kept as spares, and %d are wanted", there,
                         c->cluster.classes.name[class_], wanted);
        if (claimed > 0)
            world_note(k->w, "%d spares are claimed", claimed);
    }
}

/* A rank that is not over has its device. What is over was forgotten by a server that has just started, until the node
 * has registered. */
static void check_places(struct check *k, const struct core *c, const struct entry *e)
{
    for (size_t i = 0; e->job.live && i < e->job.n_places; i++) {
        const struct slot *slot = cluster_slot(&c->cluster, &e->job.places[i]);
        const struct node *n = cluster_node(&c->cluster, e->job.places[i].node);

        if (n && n->registered && e->run.ranks[i].phase != RANK_EXITED && slot && slot->job != e->job.id)
            world_broken(k->w, "rank %zu of j%" PRIu64 "-g%u is not over, and its slot %d of %s is held for j%" PRIu64,
                         i, e->job.id, e->job.generation, slot->slot, e->job.places[i].node, slot->job);
    }
}

/* A run that has just begun has no device on which its agent has said that a process of another run is alive. */
static void check_free_of_others(struct check *k, const struct core *c, const struct entry *e)
{
    for (size_t i = 0; e->job.live && i < e->job.n_places; i++) {
        const struct slot *slot = cluster_slot(&c->cluster, &e->job.places[i]);

        if (slot && slot->stale)
            world_broken(k->w, "j%" PRIu64 "-g%u is given slot %d of %s, on which a process of an earlier run is alive",
                         e->job.id, e->job.generation, slot->slot, e->job.places[i].node);
    }
}

/* No run goes on once its time is up: it is being ended, and by a deadline. */
static void check_time(struct check *k, const struct core *c, const struct job *j, const struct entry_run *run)
{
    int64_t left = job_time_left_us(j, c->now.wall_us);
    struct seen *seen = seen_of(k, j->id);
    bool goes = j->intent == JOB_GO_ON || j->intent == JOB_REQUEUE || j->intent == JOB_RESCALE;

    if (j->live && left < -2 * SECOND && goes)
        world_broken(k->w, "j%" PRIu64 " runs on %.1f s after its time was up", j->id, (double)-left / 1e6);
    if (j->live && j->intent == JOB_TIME_UP && run->drain_deadline_us == 0)
        world_broken(k->w, "j%" PRIu64 " is ended by its time limit, and may take as long as it likes", j->id);
    /* Later the time left may grow again: the clock may have been set back while no server ran. */
    if (j->live && j->warned_s > 0 && j->warned_in == j->generation && seen->warned != j->generation &&
        left > (j->warn_s + 2) * SECOND)
        world_broken(k->w, "j%" PRIu64 " was warned too soon", j->id);
    seen->warned = j->warned_s > 0 ? j->warned_in : 0;
}

/* No job has devices while one that it comes after is not as wanted; and what was settled of that stays. */
static void check_after(struct check *k, const struct core *c, const struct job *j)
{
    if (j->live && job_is_held_back(j))
        world_broken(k->w, "j%" PRIu64 " runs, and a job that it comes after is not as wanted", j->id);
    for (size_t i = 0; i < j->n_after; i++) {
        const struct entry *e = table_find(&c->jobs, j->after[i].job);

        if (e && j->after[i].is != JOB_IS_OPEN && j->after[i].when != JOB_AFTER_STARTED)
            world_broken(k->w, "j%" PRIu64 " takes j%" PRIu64 " for ended, which is not", j->id, e->job.id);
    }
}

static void check_job(struct check *k, const struct core *c, const struct entry *e, bool every_turn)
{
    struct seen *s = seen_of(k, e->job.id);

    check_places(k, c, e);
    check_time(k, c, &e->job, &e->run);
    check_after(k, c, &e->job);
    if (s->gone)
        world_broken(k->w, "j%" PRIu64 " had ended and is back", e->job.id);
    if (e->job.version < s->version)
        world_broken(k->w, "j%" PRIu64 " went back from version %" PRIu64 " to %" PRIu64, e->job.id, s->version,
                     e->job.version);
    if (e->job.generation < s->generation)
        world_broken(k->w, "j%" PRIu64 " went back from generation %u to %u", e->job.id, s->generation,
                     e->job.generation);
    if (every_turn && e->job.generation != s->generation)
        check_free_of_others(k, c, e);
    if (e->job.version != s->version)
        world_note(k->w, "server: j%" PRIu64 "-g%u is %s, %zu devices from %s slot %d on, order %s: %s", e->job.id,
                   e->job.generation, job_state_name(e->job.state), e->job.n_places,
                   e->job.n_places ? e->job.places[0].node : "-", e->job.n_places ? e->job.places[0].slot : 0,
                   e->job.live ? job_order(&e->job) : "-", e->job.reason_text ? e->job.reason_text : "");
    s->version = e->job.version;
    s->generation = e->job.generation;
}

/* So many jobs, nodes and numbers from where the last turn ended; in a small cluster all. */
static size_t portion(size_t n, size_t most)
{
    return n <= 4 * most ? n : most;
}

static void check_jobs(struct check *k, const struct core *c)
{
    size_t n = portion(c->jobs.n_order, JOBS_AT_ONCE);

    for (size_t i = 0; i < n; i++) {
        const struct entry *e = table_at(&c->jobs, k->next_job++ % c->jobs.n_order);

        if (e)
            check_job(k, c, e, n == c->jobs.n_order);
    }
    n = portion(k->n, JOBS_AT_ONCE);
    for (size_t i = 0; i < n; i++) {
        size_t id = k->next_id++ % k->n;
        bool there = table_find(&c->jobs, id) != NULL;

        k->jobs[id].gone = k->jobs[id].gone || (k->jobs[id].there && !there);
        k->jobs[id].there = there;
    }
}

/* Who storms has no more jobs than one user may have. */
static void check_users(struct check *k, const struct core *c)
{
    int live = 0, most = c->cfg.user.jobs;

    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        live += e && strcmp(e->job.user, HOSTILE_USER) == 0;
    }
    if (live > most)
        world_broken(k->w, "a user has %d jobs at once, and %d are the most", live, most);
}

/* All of this process's: whoever sends much, for long, makes it grow no further. */
static void check_memory(struct check *k)
{
    size_t used = mallinfo2().uordblks;

    if (used > MEMORY_MAX)
        world_broken(k->w, "servers, agents and all that is stored take %zu bytes", used);
}

static void check_array(struct check *k, const struct core *c, const struct array *a)
{
    const struct entry *e = table_find(&c->jobs, a->job);
    size_t n_of[ARRAY_STATES] = {0}, live = 0, open[JOB_STATES] = {0};

    for (size_t i = 0; i < array_size(a); i++) {
        const struct array_task *t = &a->tasks[i];
        const struct entry *task = t->job ? table_find(&c->jobs, t->job) : NULL;

        n_of[t->state]++;
        if ((t->state == ARRAY_OPEN) != (task != NULL))
            world_broken(k->w, "task %zu of j%" PRIu64 " and its job j%" PRIu64 " do not agree on whether it has ended",
                         i, a->job, (uint64_t)t->job);
        if (!task)
            continue;
        if (task->job.array != a->job || task->position != i || task->array != a)
            world_broken(k->w, "job j%" PRIu64 " is not task %zu of j%" PRIu64, task->job.id, i, a->job);
        live += task->job.live;
        open[task->job.state]++;
    }
    if (memcmp(n_of, a->n_of, sizeof(n_of)) != 0 || memcmp(open, a->open, sizeof(open)) != 0 || live != a->live)
        world_broken(k->w, "the counts of j%" PRIu64 " are not those of its tasks", a->job);
    if (live > a->max_running && e) /* those of one that has ended are on their way out */
        world_broken(k->w, "%zu tasks of j%" PRIu64 " have devices, and %zu may", live, a->job, a->max_running);
    if (e && n_of[ARRAY_WAITS] + n_of[ARRAY_OPEN] == 0)
        world_broken(k->w, "all tasks of j%" PRIu64 " have ended, and it has not", a->job);
}

/* Tasks and their arrays agree, and no more run than may. */
static void check_arrays(struct check *k, const struct core *c)
{
    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (const struct array *a = c->arrays.buckets[b]; a; a = a->next)
            if (!a->due)
                check_array(k, c, a);
}

static void check_limits(struct check *k, const struct core *c)
{
    if (c->rendezvous_bytes > (256 << 20))
        world_broken(k->w, "rendezvous keys take %zu bytes", c->rendezvous_bytes);
    if (c->jobs.n > TABLE_JOBS_MAX)
        world_broken(k->w, "the working set has %zu jobs", c->jobs.n);
    if (c->cluster.n_nodes > CLUSTER_NODES_MAX)
        world_broken(k->w, "there are %zu nodes", c->cluster.n_nodes);
}

void check_calm(struct check *k)
{
    check_runs_calm(k->runs);
}

void check_turn(struct check *k, struct core *c)
{
    k->turns++;
    check_jobs(k, c);
    check_arrays(k, c);
    check_limits(k, c);
    if (c->cluster.n_nodes <= SMALL_CLUSTER && k->turns % 256 == 0) {
        check_memory(k);
        check_users(k, c);
    }
    if (c->cluster.n_nodes <= SMALL_CLUSTER)
        check_runs_turn(k->runs, c);
    if (k->turns % (c->cluster.n_nodes / SMALL_CLUSTER + 1) == 0)
        check_slots(k, c);
    if (c->cfg.spares.n > 0)
        check_spares(k, c);
}

void check_end(struct check *k, struct core *c)
{
    if (!c) {
        world_broken(k->w, "all is over, and no server runs");
        return;
    }
    for (size_t b = 0; b < ARRAY_BUCKETS; b++)
        for (const struct array *a = c->arrays.buckets[b]; a; a = a->next)
            if (a->n_of[ARRAY_WAITS] + a->n_of[ARRAY_OPEN] > 0)
                world_broken(k->w, "all is over, and tasks of j%" PRIu64 " have not ended", a->job);
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        for (size_t s = 0; s < c->cluster.nodes[i]->n_slots; s++)
            if (c->cluster.nodes[i]->slots[s].job)
                world_broken(k->w, "all jobs have ended, and slot %zu of %s is still held for j%" PRIu64, s,
                             c->cluster.nodes[i]->name, c->cluster.nodes[i]->slots[s].job);
}
