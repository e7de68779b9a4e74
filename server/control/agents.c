#include "server/control/agents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/protocol/registration.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/cluster/links.h"
#include "server/cluster/profiles.h"
#include "server/cluster/slots.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/load.h"
#include "server/control/learn.h"
#include "server/control/leaving.h"
#include "server/control/reports.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define HEARTBEAT_S 1
#define HELD_US (3 * HEARTBEAT_S * INT64_C(1000000)) /* so long after its last word an agent keeps its node's name */

/* A class is new: the jobs that named it before it was there may use it. */
static void classes_changed(struct core *c)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);
        struct job_spec *spec = e && e->classes_missing ? entry_spec(e) : NULL;

        if (spec)
            entry_set_classes(e, &c->cluster.classes, spec);
        spec_free(spec);
    }
}

/* Jobs on slots that the node is about to lose. Returns how many there are in jobs. */
static size_t find_vanishing(const struct node *n, const json_t *list, uint64_t jobs[SLOTS_MAX])
{
    size_t found = 0, i;
    json_t *o;

    for (size_t k = 0; k < n->n_slots; k++) {
        bool stays = n->slots[k].job == 0;

        json_array_foreach (list, i, o) {
            stays = stays || json_integer_value(json_object_get(o, "slot")) == n->slots[k].slot;
        }
        if (!stays)
            jobs[found++] = n->slots[k].job;
    }
    return found;
}

static void lose_vanished(struct core *c, const struct node *n, const uint64_t *jobs, size_t n_jobs)
{
    for (size_t i = 0; i < n_jobs; i++) {
        struct entry *e = table_find(&c->jobs, jobs[i]);

        if (e && e->job.live)
            contact_lose_run(c, e, n->name, "its node does not offer its device any more", false);
    }
}

/* Whether the node is another agent's than this one, or than the one before it in the same folder. */
static bool is_others(const struct node *n, const struct registration *r)
{
    return n->incarnation[0] && strcmp(n->incarnation, r->incarnation) != 0 && strcmp(n->incarnation, r->succeeds) != 0;
}

/* Whether the agent has a run of a job whose number this store has not given; *ret_newest: the newest. */
static bool knows_more(const struct core *c, const struct registration *r, uint64_t *ret_newest)
{
    *ret_newest = 0;
    for (size_t i = 0; i < r->n_runs; i++) {
        uint64_t job = job_id_parse(r->runs[i].job);

        *ret_newest = job > *ret_newest ? job : *ret_newest;
    }
    return *ret_newest >= c->jobs.next && *ret_newest < UINT64_MAX >> 2;
}

/* Whether a newer registration of the same agent was taken, or this very one: it does not know the runs begun since. */
static bool is_late(const struct node *n, const struct registration *r)
{
    return n && r->seq > 0 && r->seq <= n->seq && strcmp(n->incarnation, r->incarnation) == 0;
}

/* Whether this agent may have the node's name. Else the call is answered. */
static bool may_register(struct core *c, struct call *call, const struct registration *r)
{
    const struct node *n = cluster_node(&c->cluster, r->node);
    uint64_t newest;

    if (roster_has(&c->cluster.roster, r->node, r->incarnation, c->now.wall_us)) {
        call_problem(call, 410, "node-removed",
                     "node '%s' was removed from this cluster, or is another agent's now; "
                     "start its agent again to bring it back",
                     r->node);
        return false;
    }
    if (knows_more(c, r, &newest)) {
        if (!c->cfg.accept_loss) {
            log_error("node '%s' runs a job j%llu, and the store has given no number from j%llu on: what was "
                      "acknowledged is lost. Bring the store back as it was, or start once with --accept-loss",
                      r->node, (unsigned long long)newest, (unsigned long long)c->jobs.next);
            call_problem(call, 503, "store-behind",
                         "the server's store has lost what was acknowledged: it knows no job j%llu, which node '%s' "
                         "runs; the runs go on, until an admin has looked after the store",
                         (unsigned long long)newest, r->node);
            return false;
        }
        if (newest >= c->accept_below) {
            call_problem(
                call, 422, "job-number-invalid",
                "node '%s' names a job j%llu, and this store had given no number from j%llu on when it was "
                "started with --accept-loss: so many cannot be lost. Move that run's folder out of the agent's "
                "--state",
                r->node, (unsigned long long)newest, (unsigned long long)(c->accept_below - ACCEPT_JOBS));
            return false;
        }
        log_warn("node '%s' runs a job j%llu, which the store does not know: new jobs begin at j%llu", r->node,
                 (unsigned long long)newest, (unsigned long long)newest + 1);
        c->jobs.next = newest + 1;
        c->counters_changed = true;
    }
    if (is_late(n, r)) {
        call_problem(call, 409, "late-registration",
                     "a newer registration of this agent of node '%s' was taken before this one came", r->node);
        return false;
    }
    if (n && is_others(n, r) && c->now.mono_us - n->seen_us < HELD_US) {
        call_problem(call, 409, "node-name-taken",
                     "another agent, at %s, is node '%s'; give this one a name of its "
                     "own with --node, or end the other",
                     n->address, r->node);
        return false;
    }
    return true;
}

/* Take the runs that the agent has, and end those of the node that it does not know. */
static int take_runs(struct core *c, struct node *n, const struct registration *r, bool rebooted)
{
    struct report runs = {.runs = r->runs, .n_runs = r->n_runs};
    struct report_answer over = {.n_stale = 0}; /* the next report hears of those */
    int code = reports_take_runs(c, n, &runs, &over);

    report_answer_clear(&over);
    if (code == 0)
        contact_lose_unlisted(c, n, &runs, rebooted);
    return code;
}

static void take_profiles(struct core *c, const struct node *n, const json_t *doc)
{
    struct merr why = {""};

    c->cluster.sites += profiles_take(&c->cluster, n, doc, &why);
    if (why.text[0])
        log_warn("a profile of node '%s' is left out: %s", n->name, why.text);
}

static void take_registration(struct core *c, struct call *call, const struct registration *r, struct slots *slots,
                              const struct link_nic *nic)
{
    uint64_t vanishing[SLOTS_MAX];
    struct node *n = cluster_add(&c->cluster, r->node, c->first_version);
    size_t n_vanishing;
    bool rebooted;

    if (!n) {
        free(slots->v);
        call_problem(call, 503, "too-many-nodes",
                     "this server takes at most %d nodes; `muster node remove` takes "
                     "those off that are lost",
                     CLUSTER_NODES_MAX);
        return;
    }
    if (is_others(n, r))
        contact_replace(c, n);
    n_vanishing = find_vanishing(n, r->slots, vanishing);
    slots_take(&c->cluster, n, slots);
    rebooted = r->boot_id[0] && n->boot_id[0] && strcmp(r->boot_id, n->boot_id) != 0;
    utf8_copy(n->address, sizeof(n->address), r->address);
    utf8_copy(n->release, sizeof(n->release), r->version);
    n->shared_account = r->shared_account;
    utf8_copy(n->rack, sizeof(n->rack), r->rack);
    n->no_exec = r->no_exec;
    utf8_copy(n->boot_id, sizeof(n->boot_id), r->boot_id);
    utf8_copy(n->incarnation, sizeof(n->incarnation), r->incarnation);
    n->seq = r->seq;
    n->registered = true;
    if (rebooted)
        learn_forgive(c, n, "scheduler");
    contact_see(c, n);
    n->health.known_us = n->health.known_us > 0 ? n->health.known_us : c->now.wall_us;
    reports_take_node(c, n, call->body);
    c->cluster.sites += links_take_nic(n, nic);
    take_profiles(c, n, r->profiles);
    change_node(c, n);
    if (take_runs(c, n, r, rebooted) < 0) {
        n->registered = false; /* it comes again */
        call_problem(call, 503, "no-memory", "out of memory");
        return;
    }
    lose_vanished(c, n, vanishing, n_vanishing);
    leaving_take(c, n, r);
    change_assignments(c, r->node);
    c->schedule_wanted = true;
    call_answer_new(call, 200,
                    registration_answer_write(&(struct registration_answer){.heartbeat_s = HEARTBEAT_S,
                                                                            .lost_after_s = c->cfg.lost_after_s,
                                                                            .version = (int64_t)n->version}));
}

void agents_register(struct core *c, struct call *call)
{
    size_t n_classes = c->cluster.classes.n;
    struct registration r = {.protocol = 0};
    struct link_nic nic;
    struct slots slots;
    struct merr err, why;
    int code = registration_read(call->body, &r, &err);

    if (code != -EPROTO && links_read_nic(call->body, &nic, &why) < 0) { /* knows best what a NIC may be */
        code = -EINVAL;
        err = why;
    }
    if (code < 0) {
        call_problem(call, 422, code == -EPROTO ? "protocol-unknown" : "register-invalid", "%s", err.text);
    } else if (may_register(c, call, &r)) {
        code = slots_read(&c->cluster.classes, r.slots, &slots);
        if (c->cluster.classes.n > n_classes)
            classes_changed(c);
        if (code < 0)
            call_problem(call, 422, "register-invalid",
                         "'slots' wants at most %d of {slot, kind, class, threads, memory_mib}, each with a number of "
                         "its own and the class's name of at most %d bytes, and a cluster has at most %d classes",
                         SLOTS_MAX, SPEC_NAME_MAX - 1, CLASSES_MAX);
        else
            take_registration(c, call, &r, &slots, &nic);
    }
    registration_clear(&r);
}
