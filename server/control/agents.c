#include "server/control/agents.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/cluster/links.h"
#include "server/cluster/slots.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/learn.h"
#include "server/control/reports.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define HEARTBEAT_S 1
#define HELD_US (3 * HEARTBEAT_S * INT64_C(1000000)) /* so long after its last word an agent keeps its node's name */

static void copy_text(char *to, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    utf8_copy(to, size, text ? text : "");
}

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
            contact_lose_run(c, e, n->name, "its node does not offer its slot any more");
    }
}

/* Whether the node is another agent's than this one, or than the one before it in the same folder. */
static bool is_others(const struct node *n, const char *incarnation, const char *succeeds)
{
    return n->incarnation[0] && strcmp(n->incarnation, incarnation) != 0 &&
           (!succeeds || strcmp(n->incarnation, succeeds) != 0);
}

void agents_register(struct core *c, struct call *call)
{
    const json_t *b = call->body;
    const char *name = json_string_value(json_object_get(b, "node"));
    const char *boot = json_string_value(json_object_get(b, "boot_id"));
    const char *incarnation = json_string_value(json_object_get(b, "incarnation"));
    const char *succeeds = json_string_value(json_object_get(b, "succeeds"));
    uint64_t vanishing[SLOTS_MAX];
    json_t *stale, *forget;
    struct link_nic nic;
    struct slots slots;
    struct merr err;
    struct node *n;
    size_t n_vanishing, n_classes = c->cluster.classes.n;
    bool rebooted;
    int r;

    if (!slots_name_ok(name, JOB_NODE_MAX) || !slots_name_ok(incarnation, sizeof(n->incarnation))) {
        call_problem(call, 422, "register-invalid",
                     "a registration wants 'node' and 'incarnation', each of 1 to %d "
                     "letters, digits, '.', '_', '-'",
                     JOB_NODE_MAX - 1);
        return;
    }
    if (links_read_nic(b, &nic, &err) < 0) {
        call_problem(call, 422, "register-invalid", "%s", err.text);
        return;
    }
    if (roster_has(&c->cluster.roster, name, incarnation, c->now.wall_us)) {
        call_problem(call, 410, "node-removed",
                     "node '%s' was removed from this cluster, or is another agent's now; "
                     "start its agent again to bring it back",
                     name);
        return;
    }
    n = cluster_node(&c->cluster, name);
    if (n && is_others(n, incarnation, succeeds) && c->now.mono_us - n->seen_us < HELD_US) {
        call_problem(call, 409, "node-name-taken",
                     "another agent, at %s, is node '%s'; give this one a name of its "
                     "own with --node, or end the other",
                     n->address, name);
        return;
    }
    r = slots_read(&c->cluster.classes, json_object_get(b, "slots"), &slots);
    if (c->cluster.classes.n > n_classes)
        classes_changed(c);
    if (r < 0) {
        call_problem(call, 422, "register-invalid",
                     "'slots' wants at most %d of {slot, kind, class, threads, memory_mib}, each with a number of its "
                     "own and the class's name of at most %d bytes, and a cluster has at most %d classes",
                     SLOTS_MAX, SPEC_NAME_MAX - 1, CLASSES_MAX);
        return;
    }
    n = cluster_add(&c->cluster, name, c->first_version);
    if (!n) {
        free(slots.v);
        call_problem(call, 503, "too-many-nodes",
                     "this server takes at most %d nodes; `muster node remove` takes "
                     "those off that are lost",
                     CLUSTER_NODES_MAX);
        return;
    }
    if (is_others(n, incarnation, succeeds))
        contact_replace(c, n);
    n_vanishing = find_vanishing(n, json_object_get(b, "slots"), vanishing);
    slots_take(n, &slots);
    cluster_slots_changed(&c->cluster);
    rebooted = boot && n->boot_id[0] && strcmp(boot, n->boot_id) != 0;
    copy_text(n->address, sizeof(n->address), b, "address");
    copy_text(n->release, sizeof(n->release), b, "version");
    copy_text(n->boot_id, sizeof(n->boot_id), b, "boot_id");
    copy_text(n->incarnation, sizeof(n->incarnation), b, "incarnation");
    n->registered = true;
    if (rebooted)
        learn_pardon(c, n, "scheduler");
    contact_see(c, n);
    learn_gpus(c, n, b);
    c->cluster.sites += links_take_nic(n, &nic);
    change_node(c, n);
    stale = json_array();
    forget = json_array();
    reports_take_runs(c, n, b, stale, forget);
    contact_lose_unlisted(c, n, b, rebooted);
    lose_vanished(c, n, vanishing, n_vanishing);
    json_decref(stale);
    json_decref(forget);
    change_assignments(c, name);
    c->schedule_wanted = true;
    call_answer_new(call, 200,
                    json_pack("{s:i, s:i, s:I}", "heartbeat_s", HEARTBEAT_S, "lost_after_s", c->cfg.lost_after_s,
                              "version", (json_int_t)n->version));
}
