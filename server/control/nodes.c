#include "server/control/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "scheduler/cluster/snapshot.h"
#include "server/cluster/slots.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/deltas.h"
#include "server/control/events.h"
#include "server/control/source_nodes.h"
#include "server/control/learn.h"
#include "server/control/round.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"

#define LIST_DEFAULT 500
#define SNAPSHOT_BYTES_MAX (64 << 20)

void nodes_list(struct core *c, struct call *call)
{
    const char *after = http_query(call->req, "cursor"); /* they are in order of their names */
    size_t i = 0;

    while (i < c->cluster.n_nodes && after && strcmp(c->cluster.nodes[i]->name, after) <= 0)
        i++;
    deltas_answer_nodes(c, call, i, (size_t)call_number(call, "limit", LIST_DEFAULT));
}

static struct node *find(struct core *c, struct call *call)
{
    struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));

    if (!n)
        call_problem(call, 404, "unknown-node", "no node '%s'; `muster nodes` shows those there are",
                     http_param(call->req, 0));
    return n;
}

static void actor_of(const struct call *call, char *ret, size_t size)
{
    (void)snprintf(ret, size, "user:%s", http_identity(call->req)->user);
}

void nodes_hurry(struct core *c, struct node *n, int64_t by_us)
{
    n->drain_by_us = by_us;
    change_node(c, n);
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? table_find(&c->jobs, n->slots[k].job) : NULL;

        if (e && e->run.drain_deadline_us > n->drain_by_us)
            change_drain_by(c, e, n->drain_by_us);
    }
}

void nodes_drain(struct core *c, struct call *call)
{
    struct node *n = find(c, call);
    const char *reason = http_query(call->req, "reason");
    char actor[80];
    int64_t us = call_number(call, "deadline_s", 0) * 1000000;

    if (!n)
        return;
    if (us > 0)
        nodes_hurry(c, n, c->now.mono_us + us);
    actor_of(call, actor, sizeof(actor));
    if (n->health.state != HEALTH_HELD || reason) /* the next round moves its jobs */
        care_hold(c, n, actor, reason ? reason : "");
    call_answer_new(call, 202, view_node(c, n));
}

void nodes_undrain(struct core *c, struct call *call)
{
    struct node *n = find(c, call);
    char actor[80];

    if (!n)
        return;
    actor_of(call, actor, sizeof(actor));
    learn_forgive(c, n, actor);
    care_forgive(c, n, actor);
    call_answer_new(call, 202, view_node(c, n));
}

void nodes_get(struct core *c, struct call *call)
{
    const struct node *n = find(c, call);

    if (n)
        call_answer_new(call, 200, view_node(c, n));
}

void nodes_test(struct core *c, struct call *call)
{
    struct node *n = find(c, call);
    struct merr err;
    char actor[80];

    if (!n)
        return;
    actor_of(call, actor, sizeof(actor));
    if (care_test(c, n, actor, &err) < 0)
        call_problem(call, 409, "not-tested", "%s", err.text);
    else
        call_answer_new(call, 202, view_node(c, n));
}

bool nodes_needs(const struct core *c, const struct node *n, char *ret_why, size_t size)
{
    uint64_t held = n->contact == NODE_LOST ? 0 : source_nodes_job_on(c, n);
    bool silent = n->contact == NODE_UNKNOWN || !n->registered;

    if (n->contact != NODE_LOST && !n->drain) {
        (void)snprintf(ret_why, size, "node '%s' %s; drain it first, with `muster drain %s`", n->name,
                       silent ? "is silent, but not lost: its jobs may run on" : "takes work", n->name);
        return true;
    }
    for (size_t k = 0; n->contact != NODE_LOST && k < n->n_slots; k++) {
        const struct slot *s = &n->slots[k];

        if (s->job == 0 && !s->stale)
            continue;
        if (s->job)
            (void)snprintf(ret_why, size,
                           "job 'j%llu' is still on node '%s'; remove it once `muster nodes` says that "
                           "it is drained",
                           (unsigned long long)s->job, n->name);
        else
            (void)snprintf(ret_why, size,
                           "a process of an earlier run is still on device %d of node '%s'; remove it "
                           "once that has ended",
                           s->slot, n->name);
        return true;
    }
    if (held)
        (void)snprintf(ret_why, size,
                       "job 'j%llu' has left node '%s', but not yet got its state from there; remove it "
                       "once `muster nodes` says that it is drained",
                       (unsigned long long)held, n->name);
    return held != 0;
}

void nodes_remove(struct core *c, struct call *call)
{
    struct node *n = find(c, call);
    char actor[80], why[256];
    json_t *was;

    if (!n)
        return;
    if (nodes_needs(c, n, why, sizeof(why))) {
        call_problem(call, 409, "node-in-use", "%s", why);
        return;
    }
    actor_of(call, actor, sizeof(actor));
    was = view_node(c, n);
    contact_remove(c, n, actor);
    call_answer_new(call, 200, was);
}

void nodes_cluster(struct core *c, struct call *call)
{
    deltas_answer_cluster(c, call);
}

/* What a round would see now, as text: muster simulate --snapshot reads it. */
void nodes_snapshot(struct core *c, struct call *call)
{
    const char *types[RATES_TYPES_MAX];
    struct round r;
    struct buf b;

    buf_init(&b, SNAPSHOT_BYTES_MAX);
    if (round_init(c, SCHED_FAST, 0, &r) == 0) {
        round_type_names(c, &r, types);
        (void)snapshot_print(&r.in, types, r.n_types, &b);
    }
    round_clear(&r);
    if (b.len > 0 && !buf_failed(&b)) {
        call_answer_new(call, 200, NULL);
        call->page = buf_detach(&b);
    }
    buf_clear(&b);
    if (!call->page) {
        call->status = 0;
        call_problem(call, 503, "no-memory", "no memory for a snapshot, or it is larger than %d bytes",
                     SNAPSHOT_BYTES_MAX);
    }
}
