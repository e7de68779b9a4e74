#include "server/control/polls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "api/protocol/rendezvous.h"
#include "api/spec_plan.h"
#include "base/buf.h"
#include "server/cluster/job_time.h"
#include "server/cluster/slots.h"
#include "server/control/agent_rights.h"
#include "server/control/contact.h"
#include "server/control/source_nodes.h"
#include "server/control/rendezvous.h"
#include "server/control/secrets.h"
#include "server/control/sessions.h"
#include "server/control/state.h"
#include "server/control/span.h"
#include "server/control/waiters.h"
#include "server/http/call.h"

#define WAITERS_MAX (3 * CLUSTER_NODES_MAX) /* of each node its orders, and keys of two runs */
#define WRITTEN 16                          /* runs whose assignments are kept for the next node of a pass */
#define HUNG_GRACE_S 1
#define SET_BYTES ((size_t)256 << 20) /* of all assignments of a node: much more than its devices need */

/* --- long-polls -------------------------------------------------------------------------------------- */

/* Where the ranks are, and the virtual workers of each replica unless they are shared out evenly. */
static int assign_ranks(const struct job *j, struct assignment *a)
{
    bool uneven = j->n_places > 0 && j->places[0].leaves > 0;

    a->ranks = calloc(j->n_places + 1, sizeof(*a->ranks));
    a->leaves = uneven ? calloc((size_t)j->layout.dp, sizeof(*a->leaves)) : NULL;
    if (!a->ranks || (uneven && !a->leaves))
        return -ENOMEM;
    for (; a->n_ranks < j->n_places; a->n_ranks++) {
        const struct job_place *p = &j->places[a->n_ranks];
        struct assignment_rank *r = &a->ranks[a->n_ranks];

        r->rank = (int)a->n_ranks;
        r->slot = p->slot;
        (void)snprintf(r->node, sizeof(r->node), "%s", p->node);
        (void)snprintf(r->class_, sizeof(r->class_), "%s", p->class_);
        (void)snprintf(r->address, sizeof(r->address), "%s", p->address);
    }
    for (; uneven && a->n_leaves < (size_t)j->layout.dp; a->n_leaves++)
        a->leaves[a->n_leaves] = j->places[a->n_leaves * (size_t)j->layout.tp].leaves;
    return 0;
}

static enum assignment_order order_of(const struct entry *e)
{
    const char *name = e->run.force_stop ? "stop" : job_order(&e->job);
    enum assignment_order order =
        (enum assignment_order)wire_value(assignment_order_names, ASSIGNMENT_ORDERS, name, ASSIGNMENT_RUN);

    if (order == ASSIGNMENT_RUN && e->run.save)
        return ASSIGNMENT_SAVE;
    if (order == ASSIGNMENT_DRAIN && e->job.moves && e->n_target > 0)
        return e->run.hand_over ? ASSIGNMENT_HAND_OVER : ASSIGNMENT_MOVE;
    return order;
}

/* The run after one whose numbers went bad goes on from further back. */
static int pass_over(const struct job *j)
{
    const json_t *back = json_object_get(j->outcome, "back");

    return job_incident(j, j->generation - 1) == j->past.incident ? (int)json_integer_value(back) : 0;
}

/* How many devices an elastic command goes on with that is ordered to end for that; 0: it is not. */
static int devices_next(const struct entry *e)
{
    int n = 0;

    for (size_t i = 0; e->elastic && e->job.intent == JOB_RESCALE && i < e->n_target; i++)
        n += e->target[i].n;
    return n;
}

/* All but the proof, which is each node's own. */
static json_t *make_assignment(const struct core *c, const struct entry *e)
{
    const struct job *j = &e->job;
    struct assignment a = {.generation = j->generation,
                           .order = order_of(e),
                           .grace_s = e->run.hung ? HUNG_GRACE_S : e->grace_s,
                           .layout = j->layout,
                           .world = (int)j->n_places,
                           .master_port = j->master_port,
                           .spec = json_loads(e->spec_text, 0, NULL),
                           .measure_links = e->run.measure_links,
                           .trial = e->run.test.number,
                           .trial_rank = e->run.test.rank[0],
                           .trial_peer = e->run.test.rank[1],
                           .pass_over = pass_over(j),
                           .resumes = j->checkpoint != NULL,
                           .devices_next = devices_next(e),
                           .ends_at_us = job_time_ends_us(j),
                           .warned_s = j->warned_in == j->generation ? j->warned_s : 0,
                           .evidence = (int64_t)(e->run.evidence & INT64_MAX)};
    json_t *doc = NULL;

    (void)snprintf(a.job, sizeof(a.job), "j%llu", (unsigned long long)j->id);
    (void)snprintf(a.user, sizeof(a.user), "%s", j->user);
    (void)snprintf(a.unix_user, sizeof(a.unix_user), "%s", j->unix_user);
    (void)snprintf(a.dir, sizeof(a.dir), "%s/%s", c->cfg.jobs_dir, a.job);
    span_context_of(j, j->generation, a.trace);
    a.secrets = secrets_of(c, j->user, a.spec);
    if (e->plan.open && j->plan)
        (void)spec_settle(a.spec, j->plan);
    if (e->elastic) /* as its owner wants it now */
        (void)json_object_update_new(json_object_get(a.spec, "devices"),
                                     json_pack("{s:i, s:i}", "min", j->min, "max", j->max));
    if (assign_ranks(j, &a) == 0 && source_nodes_assign(j, &a) == 0)
        doc = assignment_write(&a);
    assignment_clear(&a);
    return doc;
}

/* The assignments of a pass over the polls, in which no job changes, as text: all nodes of a run are sent the same one
 * but for the proof at its end, and the ranks of a large one are not written for each. */
struct written {
    const struct core *core;
    struct {
        uint64_t job;
        char *text; /* up to the last brace; NULL: none, or no memory */
        size_t len;
    } v[WRITTEN];
    size_t next;
};

static void written_clear(struct written *w)
{
    for (size_t i = 0; i < WRITTEN; i++)
        free(w->v[i].text);
}

struct addition { /* to the set of one node */
    struct written *written;
    struct buf *set;
};

static char *assignment_text(const struct core *c, const struct entry *e)
{
    json_t *doc = make_assignment(c, e);
    char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17)) : NULL;

    json_decref(doc);
    return text;
}

/* Append the job's assignment to the node's set. */
static void add_assignment(void *arg, const struct entry *e, const char *node)
{
    const struct addition *add = arg;
    struct written *w = add->written;
    struct buf *set = add->set;
    struct assignment a = {.world = 0};
    size_t at = 0;

    while (at < WRITTEN && (!w->v[at].text || w->v[at].job != e->job.id))
        at++;
    if (at == WRITTEN) {
        at = w->next++ % WRITTEN;
        free(w->v[at].text);
        w->v[at].job = e->job.id;
        w->v[at].text = assignment_text(w->core, e);
        w->v[at].len = w->v[at].text ? strlen(w->v[at].text) - 1 : 0;
    }
    set->failed = set->failed || !w->v[at].text;
    if (buf_failed(set))
        return;
    agent_prove(w->core->cfg.run_key, e->job.id, e->job.generation, node, a.proof);
    if (set->data[set->len - 1] != '[')
        (void)buf_addstr(set, ",");
    (void)buf_add(set, w->v[at].text, w->v[at].len);
    (void)buf_printf(set, ",\"proof\":\"%s\"}", a.proof);
}

/* All that the node is to have, as an assignment_set. */
static void answer_assignments(struct core *c, struct call *call, const struct node *n, struct written *w)
{
    BUF_CLEAR_AUTO struct buf set;
    struct addition add = {.written = w, .set = &set};
    json_t *sessions;
    char *text;
    uint64_t seen[SLOTS_MAX];
    size_t n_seen = 0;

    buf_init(&set, SET_BYTES);
    (void)buf_printf(&set, "{\"version\":%llu,\"assignments\":[", (unsigned long long)n->version);
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? table_find(&c->jobs, n->slots[k].job) : NULL;
        bool known = false;

        for (size_t i = 0; i < n_seen; i++)
            known = known || seen[i] == n->slots[k].job;
        if (known || !e || !e->job.live || e->run.folders != ENTRY_FOLDERS_MADE)
            continue;
        seen[n_seen++] = n->slots[k].job;
        add_assignment(&add, e, n->name);
    }
    source_nodes_each(c, n, add_assignment, &add);
    (void)buf_addstr(&set, "]");
    sessions = sessions_waiting(c, n);
    text = json_array_size(sessions) > 0 ? json_dumps(sessions, JSON_COMPACT) : NULL;
    if (text)
        (void)buf_printf(&set, ",\"sessions\":%s", text);
    free(text);
    json_decref(sessions);
    (void)buf_addstr(&set, "}");
    call->page = buf_detach(&set);
    call->page_is_json = true;
    if (call->page)
        call_answer_new(call, 200, NULL);
    else
        call_problem(call, 503, "no-memory", "no memory for what the node is to have; ask again");
}

enum poll_kind { POLL_ASSIGNMENTS, POLL_RENDEZVOUS };

struct poll {
    struct call *call;
    enum poll_kind kind;
    char node[JOB_NODE_MAX];
    char incarnation[64]; /* of the agent that asks */
    uint64_t version, job, since;
    uint32_t generation;
};

struct waiters *polls_new(void)
{
    return waiters_new(WAITERS_MAX, sizeof(struct poll));
}

/* Whether a call is of the agent that is this node, by the incarnation that it names. Else it is answered. */
static bool is_agent(struct call *call, const struct node *n, const char *name, const char *incarnation)
{
    if (!incarnation || !*incarnation)
        call_problem(call, 422, "no-incarnation", "'incarnation' is wanted: the one that the agent registered with");
    else if (!n || !n->registered || !agent_is_registered(incarnation, n->incarnation))
        call_problem(call, 404, "unknown-node",
                     "node '%s' is not registered with this server, or another agent took its name: register", name);
    else
        return true;
    return false;
}

/* Answer a poll that need not wait. False: it goes on waiting. */
static bool answer(struct core *c, struct poll *p, bool now, struct written *w)
{
    struct node *n = cluster_node(&c->cluster, p->node);
    struct entry *e;

    if (!is_agent(p->call, n, p->node, p->incarnation))
        return true;
    if (p->kind == POLL_ASSIGNMENTS) {
        if (n->version == p->version && !now)
            return false;
        answer_assignments(c, p->call, n, w);
        return true;
    }
    e = table_find(&c->jobs, p->job);
    if (!e || !e->job.live || e->job.generation != p->generation) {
        call_problem(p->call, 409, "stale-generation", "generation %u of job 'j%llu' is over", p->generation,
                     (unsigned long long)p->job);
        return true;
    }
    if (!agent_has_part(&e->job, p->node)) {
        call_problem(p->call, 403, "not-assigned", "node '%s' has no part in this run", p->node);
        return true;
    }
    if (!now && p->since == rendezvous_next(c, e))
        return false;
    call_answer_new(p->call, 200, rendezvous_view(c, e, p->since));
    return true;
}

struct answering {
    struct core *core;
    bool stopping;
    struct written written;
};

static bool look(void *arg, void *own, bool due)
{
    struct answering *a = arg;
    struct poll *p = own;

    if (a->stopping)
        call_problem(p->call, 503, "stopping", "the server is stopping; ask again");
    else if (!answer(a->core, p, due, &a->written))
        return false;
    stats_answer(a->core->stats, p->call->status);
    call_deliver(p->call);
    return true;
}

void polls_answer(struct core *c, bool stopping)
{
    struct answering a = {.core = c, .stopping = stopping, .written = {.core = c}};

    if (stopping)
        waiters_wake_all(c->waiters);
    waiters_take(c->waiters, c->now.mono_us, look, &a);
    written_clear(&a.written);
}

static void wait_for(struct core *c, struct call *call, struct poll p)
{
    const char *node = http_param(call->req, 0), *incarnation = http_query(call->req, "incarnation");
    int64_t deadline_us = c->now.mono_us + call_number(call, "wait", 0) * 1000000;
    int r;

    p.call = call;
    (void)snprintf(p.node, sizeof(p.node), "%s", node);
    (void)snprintf(p.incarnation, sizeof(p.incarnation), "%s", incarnation ? incarnation : "");
    r = waiters_add(c->waiters, p.kind == POLL_ASSIGNMENTS ? waiters_node(p.node) : p.job, deadline_us, &p);
    if (r == -ENOSPC)
        call_problem(call, 503, "busy", "%d long-polls are the most this server holds", WAITERS_MAX);
    else if (r < 0)
        call_problem(call, 503, "no-memory", "out of memory");
    else
        c->handed = true; /* looked at once this turn is durable */
}

void polls_assignments(struct core *c, struct call *call)
{
    struct node *n = cluster_node(&c->cluster, http_param(call->req, 0));
    const char *incarnation = http_query(call->req, "incarnation");

    if (n && n->registered && agent_is_registered(incarnation, n->incarnation))
        contact_see(c, n);
    wait_for(c, call, (struct poll){.kind = POLL_ASSIGNMENTS, .version = (uint64_t)call_number(call, "version", 0)});
}

void polls_keys(struct core *c, struct call *call)
{
    const char *generation = http_param(call->req, 2);

    wait_for(c, call,
             (struct poll){.kind = POLL_RENDEZVOUS,
                           .job = job_id_parse(http_param(call->req, 1)),
                           .generation = (uint32_t)strtoul(generation ? generation : "", NULL, 10),
                           .since = (uint64_t)call_number(call, "since", 0)});
}

/* --- rendezvous -------------------------------------------------------------------------------------- */

void polls_put_key(struct core *c, struct call *call)
{
    const char *node = http_param(call->req, 0), *generation = http_param(call->req, 2);
    const char *key = http_param(call->req, 3);
    struct entry *e = table_find(&c->jobs, job_id_parse(http_param(call->req, 1)));
    int r;

    if (!is_agent(call, cluster_node(&c->cluster, node), node, http_query(call->req, "incarnation")))
        return;
    if (!e || !e->job.live || e->job.generation != strtoul(generation, NULL, 10)) {
        call_problem(call, 409, "stale-generation", "generation %s of job '%s' is over", generation,
                     http_param(call->req, 1));
        return;
    }
    if (!call->text || strlen(call->text) > RENDEZVOUS_VALUE_MAX || !rendezvous_key_ok(key)) {
        call_problem(
            call, 422, "key-invalid",
            "a key has a name of 1 to %d letters, digits, '.', '_', '-', which begins with no '.', and a value "
            "of at most 64 KiB as base64",
            RENDEZVOUS_NAME_MAX);
        return;
    }
    if (!agent_may_put_key(&e->job, node, key)) {
        call_problem(
            call, 403, "not-assigned",
            "key '%s' is of no rank of node '%s' in this run; keys end with the number of their rank, as ucx-3", key,
            node);
        return;
    }
    r = rendezvous_put(c, e, key, call->text);
    if (r < 0)
        call_problem(call, 507, "too-many-keys", "the run has too many rendezvous keys: %s", strerror(-r));
    else
        call_answer_new(call, 200, rendezvous_write(&(struct rendezvous){.next = (int64_t)rendezvous_next(c, e)}));
}
