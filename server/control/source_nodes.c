#include "server/control/source_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/control/change.h"
#include "server/control/state.h"

#define KEPT_US (INT64_C(300) * 1000000) /* agents keep what a job left in memory so long */

struct source_nodes { /* numbers of the jobs */
    uint64_t *v;      /* owned */
    size_t n, cap;
};

struct source_nodes *source_nodes_new(void)
{
    return calloc(1, sizeof(struct source_nodes));
}

void source_nodes_free(struct source_nodes *all)
{
    if (all)
        free(all->v);
    free(all);
}

/* --- which ------------------------------------------------------------------------------------------- */

struct job_holder *source_nodes_of_run(const struct job *j, bool drained, size_t *ret_n)
{
    struct job_holder *h = drained && j->moves ? calloc(j->n_places, sizeof(*h)) : NULL;
    size_t n = 0;

    for (size_t i = 0; h && i < j->n_places; i++) {
        size_t k = 0;

        while (k < n && strcmp(h[k].node, j->places[i].node) != 0)
            k++;
        if (k < n)
            continue;
        memcpy(h[n].node, j->places[i].node, sizeof(h[n].node));
        memcpy(h[n].address, j->places[i].address, sizeof(h[n].address));
        n++;
    }
    *ret_n = n;
    return h;
}

/* Forget jobs that hold nothing any more once the list is full. */
static void list_held(struct core *c, uint64_t id)
{
    size_t n = 0, cap = c->source_nodes->cap ? c->source_nodes->cap * 2 : 64;
    uint64_t *grown;

    for (size_t i = 0; i < c->source_nodes->n; i++) {
        const struct entry *e = table_find(&c->jobs, c->source_nodes->v[i]);

        if (c->source_nodes->v[i] != id && e && e->job.n_holders > 0)
            c->source_nodes->v[n++] = c->source_nodes->v[i];
    }
    c->source_nodes->n = n;
    if (n == c->source_nodes->cap) {
        grown = realloc(c->source_nodes->v, cap * sizeof(*grown));
        if (!grown) {
            log_warn("out of memory: job j%llu goes on from the disk", (unsigned long long)id);
            return;
        }
        c->source_nodes->v = grown;
        c->source_nodes->cap = cap;
    }
    c->source_nodes->v[c->source_nodes->n++] = id;
}

/* A run is over that may not have got as far as taking what others hold: that is still there for the next one. */
static void hold_on(struct job *j)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_holders; i++) {
        if (j->holders[i].taken)
            continue;
        j->holders[n] = j->holders[i];
        j->holders[n].done = j->holders[n].started = false;
        n++;
    }
    if (n == 0)
        job_hold(j, NULL, 0);
    j->n_holders = n;
}

void source_nodes_hold(struct core *c, struct entry *e, struct job_holder *holders, size_t n)
{
    if (n > 0)
        job_hold(&e->job, holders, n);
    else
        hold_on(&e->job);
    if (e->job.n_holders > 0)
        list_held(c, e->job.id);
    table_dirty(&c->jobs, e);
}

void source_nodes_load(struct core *c, struct entry *e)
{
    if (e->job.n_holders > 0)
        list_held(c, e->job.id);
}

static bool trains_on(const struct job *j, const char *node)
{
    for (size_t i = 0; i < j->n_places; i++)
        if (strcmp(j->places[i].node, node) == 0)
            return true;
    return false;
}

void source_nodes_start(struct core *c, struct entry *e)
{
    struct job *j = &e->job;
    bool fresh = c->now.wall_us - j->waiting_us < KEPT_US;
    size_t n = 0;

    for (size_t i = 0; i < j->n_holders; i++) {
        const struct node *node = cluster_node(&c->cluster, j->holders[i].node);

        if (fresh && node && node->registered && node->contact == NODE_READY && !trains_on(j, node->name))
            j->holders[n++] = j->holders[i];
    }
    if (n == 0)
        job_hold(j, NULL, 0);
    j->n_holders = n;
    table_dirty(&c->jobs, e);
    change_orders(c, j);
}

/* --- between server and agents ----------------------------------------------------------------------- */

int source_nodes_assign(const struct job *j, struct assignment *a)
{
    size_t n = j->live ? j->n_holders : 0;

    a->source_nodes = n > 0 ? calloc(n, sizeof(*a->source_nodes)) : NULL;
    if (n > 0 && !a->source_nodes)
        return -ENOMEM;
    for (; a->n_source_nodes < n; a->n_source_nodes++) {
        struct assignment_rank *r = &a->source_nodes[a->n_source_nodes];

        *r = (struct assignment_rank){.rank = (int)(j->n_places + a->n_source_nodes), .slot = -1};
        (void)snprintf(r->node, sizeof(r->node), "%s", j->holders[a->n_source_nodes].node);
        (void)snprintf(r->address, sizeof(r->address), "%s", j->holders[a->n_source_nodes].address);
    }
    return 0;
}

static struct job_holder *holder_on(const struct job *j, const char *node)
{
    for (size_t i = 0; i < j->n_holders; i++)
        if (strcmp(j->holders[i].node, node) == 0)
            return &j->holders[i];
    return NULL;
}

void source_nodes_each(struct core *c, const struct node *n, source_nodes_fn *fn, void *arg)
{
    for (size_t i = 0; i < c->source_nodes->n; i++) {
        const struct entry *e = table_find(&c->jobs, c->source_nodes->v[i]);
        const struct job_holder *h = e && e->job.live ? holder_on(&e->job, n->name) : NULL;

        if (h && !h->done)
            fn(arg, e, n->name);
    }
}

static void done_with(struct core *c, struct entry *e, struct job_holder *h)
{
    if (h->done)
        return;
    h->done = true;
    table_dirty(&c->jobs, e);
    change_assignments(c, h->node);
}

bool source_nodes_take(struct core *c, struct entry *e, const struct node *n, const struct report_run *run)
{
    struct job_holder *h = holder_on(&e->job, n->name);
    enum report_state state = run->n_ranks > 0 ? run->ranks[0].state : REPORT_NONE;
    bool was_done = h && h->done;

    if (!h || state == REPORT_NONE)
        return false;
    h->started = true;
    if (state == REPORT_EXITED)
        done_with(c, e, h);
    return was_done && state == REPORT_EXITED;
}

void source_nodes_resumed(struct core *c, struct entry *e)
{
    for (size_t i = 0; i < e->job.n_holders; i++) {
        e->job.holders[i].taken = true;
        table_dirty(&c->jobs, e);
        if (!e->job.holders[i].started)
            done_with(c, e, &e->job.holders[i]);
    }
}

uint64_t source_nodes_job_on(const struct core *c, const struct node *n)
{
    for (size_t i = 0; i < c->source_nodes->n; i++) {
        const struct entry *e = table_find(&c->jobs, c->source_nodes->v[i]);
        const struct job_holder *h = e && (e->job.live || job_waits(&e->job)) ? holder_on(&e->job, n->name) : NULL;

        if (h && !h->done && (e->job.live || c->now.wall_us - e->job.waiting_us < KEPT_US))
            return e->job.id;
    }
    return 0;
}
