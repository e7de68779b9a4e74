#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/control/core.h"

#define HEARTBEAT_S 1
#define HELD_US (3 * HEARTBEAT_S * INT64_C(1000000)) /* so long after its last word an agent keeps its node's name */

static size_t node_at(const struct core *c, const char *name, bool *ret_there)
{
    size_t lo = 0, hi = c->n_nodes;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (strcmp(c->nodes[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_there = lo < c->n_nodes && strcmp(c->nodes[lo]->name, name) == 0;
    return lo;
}

struct node *agents_find(struct core *c, const char *name)
{
    bool there;
    size_t at = node_at(c, name, &there);

    return there ? c->nodes[at] : NULL;
}

static struct node *node_add(struct core *c, const char *name)
{
    bool there;
    size_t at = node_at(c, name, &there);
    struct node *n;

    if (there)
        return c->nodes[at];
    n = c->n_nodes < CORE_NODES_MAX ? calloc(1, sizeof(*n)) : NULL;
    if (!n)
        return NULL;
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    n->version = store_epoch(c->store) << 20;
    memmove(&c->nodes[at + 1], &c->nodes[at], (c->n_nodes - at) * sizeof(struct node *));
    c->nodes[at] = n;
    c->n_nodes++;
    return n;
}

void agents_touch(struct core *c, const char *node)
{
    struct node *n = agents_find(c, node);

    if (n)
        n->version++;
    agents_wake_node(c, node);
}

/* --- what is known of a node ------------------------------------------------------------------------- */

static void copy_text(char *to, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    utf8_copy(to, size, text ? text : "");
}

void agents_store(struct core *c, const struct node *n)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:o}", "address", n->address, "version", n->release,
                          "boot_id", n->boot_id, "incarnation", n->incarnation, "drain", n->drain, "drain_by_us",
                          (json_int_t)core_wall_of(n->drain_by_us), "lost_us", (json_int_t)n->lost_wall_us, "seen_us",
                          (json_int_t)n->seen_wall_us, "slots", slots_record(c, n));
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (text)
        store_put(c->store, STORE_NODES, n->name, text);
    else
        c->cfg.fatal(c->cfg.arg, "out of memory for a node");
    free(text);
}

int agents_load(struct core *c, struct merr *err)
{
    struct store_rows all = {0};
    int r = store_read_rows(c->store, STORE_NODES, &all, err);

    for (size_t i = 0; r == 0 && i < all.n; i++) {
        json_t *o = json_loads(all.v[i].text, 0, NULL);
        struct node *n = o ? node_add(c, all.v[i].name) : NULL;
        struct slots slots;

        if (!n || slots_read(c, json_object_get(o, "slots"), &slots) < 0) {
            r = merr_set(err, -EINVAL, "the store's record of node '%s' cannot be read", all.v[i].name);
        } else {
            slots_take(c, n, &slots);
            stragglers_load(c, n, json_object_get(o, "slots"));
            copy_text(n->address, sizeof(n->address), o, "address");
            copy_text(n->release, sizeof(n->release), o, "version");
            copy_text(n->boot_id, sizeof(n->boot_id), o, "boot_id");
            copy_text(n->incarnation, sizeof(n->incarnation), o, "incarnation");
            n->drain = json_is_true(json_object_get(o, "drain"));
            n->drain_by_us = core_mono_of(json_integer_value(json_object_get(o, "drain_by_us")));
            n->lost_wall_us = json_integer_value(json_object_get(o, "lost_us"));
            n->seen_wall_us = json_integer_value(json_object_get(o, "seen_us"));
            n->contact = NODE_UNKNOWN;
            n->seen_us = clock_mono_us();
        }
        json_decref(o);
    }
    store_rows_clear(&all);
    return r;
}

void agents_see(struct core *c, struct node *n, int64_t now)
{
    n->seen_us = now;
    n->seen_wall_us = clock_wall_us();
    if (n->contact == NODE_READY)
        return;
    if (n->contact == NODE_LOST)
        log_info("node %s is back", n->name);
    n->contact = NODE_READY;
    n->lost_wall_us = 0;
    agents_store(c, n);
    c->schedule_wanted = true;
    events_note(c, 0, "", "node", 0, "scheduler", "ready", n->name,
                json_pack("{s:s, s:s}", "node", n->name, "state", "ready"));
}

/* --- registering ------------------------------------------------------------------------------------- */

static bool run_listed(const json_t *body, const struct job *j)
{
    json_t *run;
    size_t i;

    json_array_foreach (json_object_get(body, "runs"), i, run) {
        if (job_id_parse(json_string_value(json_object_get(run, "job"))) == j->id &&
            json_integer_value(json_object_get(run, "generation")) == j->generation)
            return true;
    }
    return false;
}

/* Ranks of this node that ran and that its agent does not know any more are gone with the node's last life. */
static void lose_ranks(struct core *c, struct entry *e, const char *node, const char *why)
{
    int first = -1;

    for (size_t i = 0; i < e->job.n_places; i++) {
        if (strcmp(e->job.places[i].node, node) != 0 || e->ranks[i].phase == RANK_EXITED)
            continue;
        e->ranks[i] = (struct rank){.phase = RANK_EXITED, .exit_code = -1, .lost = true};
        first = first < 0 ? (int)i : first;
    }
    dispatch_release_node(c, e, node);
    if (first >= 0 && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING)
        dispatch_fault(c, e, first, JOB_CLASS_NODE, why, NULL, "scheduler");
    dispatch_ranks(c, e, "scheduler");
}

static void lose_unlisted(struct core *c, struct node *n, const json_t *body, bool rebooted)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? core_find(c, n->slots[k].job) : NULL;
        bool ran = e && e->job.live && (e->job.state != JOB_STARTING || e->ranks[n->slots[k].rank].phase != RANK_NONE);

        if (ran && !run_listed(body, &e->job))
            lose_ranks(c, e, n->name,
                       rebooted ? "its node was started again" : "its node's agent does not know it any more");
    }
}

void agents_end_unstarted(struct core *c, struct node *n, const json_t *body)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? core_find(c, n->slots[k].job) : NULL;

        if (e && e->job.live && (e->force_stop || strcmp(job_order(&e->job), "stop") == 0) &&
            e->ranks[n->slots[k].rank].phase == RANK_NONE && !run_listed(body, &e->job))
            lose_ranks(c, e, n->name, "it was to stop before it was started");
    }
}

/* Jobs on slots that the node is about to lose. Returns how many there are in jobs. */
static size_t find_vanishing(const struct node *n, const json_t *list, uint64_t jobs[CORE_SLOTS_MAX])
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
        struct entry *e = core_find(c, jobs[i]);

        if (e && e->job.live)
            lose_ranks(c, e, n->name, "its node does not offer its slot any more");
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
    uint64_t vanishing[CORE_SLOTS_MAX];
    json_t *stale, *forget;
    struct link_nic nic;
    struct slots slots;
    struct merr err;
    struct node *n;
    size_t n_vanishing;
    bool rebooted;

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
    if (roster_removed(c, name, incarnation)) {
        call_problem(call, 410, "node-removed",
                     "node '%s' was removed from this cluster, or is another agent's now; "
                     "start its agent again to bring it back",
                     name);
        return;
    }
    n = agents_find(c, name);
    if (n && is_others(n, incarnation, succeeds) && clock_mono_us() - n->seen_us < HELD_US) {
        call_problem(call, 409, "node-name-taken",
                     "another agent, at %s, is node '%s'; give this one a name of its "
                     "own with --node, or end the other",
                     n->address, name);
        return;
    }
    if (slots_read(c, json_object_get(b, "slots"), &slots) < 0) {
        call_problem(call, 422, "register-invalid",
                     "'slots' wants at most %d of {slot, kind, class, threads, memory_mib}, each with a number of its "
                     "own and the class's name of at most %d bytes, and a cluster has at most %d classes",
                     CORE_SLOTS_MAX, SPEC_NAME_MAX - 1, CORE_CLASSES_MAX);
        return;
    }
    n = node_add(c, name);
    if (!n) {
        free(slots.v);
        call_problem(call, 503, "too-many-nodes",
                     "this server takes at most %d nodes; `muster node remove` takes "
                     "those off that are lost",
                     CORE_NODES_MAX);
        return;
    }
    if (is_others(n, incarnation, succeeds))
        roster_oust(c, n);
    n_vanishing = find_vanishing(n, json_object_get(b, "slots"), vanishing);
    slots_take(c, n, &slots);
    rebooted = boot && n->boot_id[0] && strcmp(boot, n->boot_id) != 0;
    copy_text(n->address, sizeof(n->address), b, "address");
    copy_text(n->release, sizeof(n->release), b, "version");
    copy_text(n->boot_id, sizeof(n->boot_id), b, "boot_id");
    copy_text(n->incarnation, sizeof(n->incarnation), b, "incarnation");
    n->registered = true;
    if (rebooted)
        stragglers_pardon(c, n, "scheduler");
    agents_see(c, n, clock_mono_us());
    gpus_take(c, n, b);
    links_take_nic(c, n, &nic);
    agents_store(c, n);
    stale = json_array();
    forget = json_array();
    reports_take_runs(c, n, b, stale, forget);
    lose_unlisted(c, n, b, rebooted);
    lose_vanished(c, n, vanishing, n_vanishing);
    json_decref(stale);
    json_decref(forget);
    agents_touch(c, name);
    c->schedule_wanted = true;
    call_answer_new(call, 200,
                    json_pack("{s:i, s:i, s:I}", "heartbeat_s", HEARTBEAT_S, "lost_after_s", c->cfg.lost_after_s,
                              "version", (json_int_t)n->version));
}

/* --- time -------------------------------------------------------------------------------------------- */

static void lose_node(struct core *c, struct node *n)
{
    log_warn("node %s is lost: no word from it for %d s", n->name, c->cfg.lost_after_s);
    n->contact = NODE_LOST;
    if (n->lost_wall_us == 0)
        n->lost_wall_us = clock_wall_us();
    agents_store(c, n);
    c->schedule_wanted = true;
    events_note(c, 0, "", "node", 0, "scheduler", "lost", n->name,
                json_pack("{s:s, s:s}", "node", n->name, "state", "lost"));
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? core_find(c, n->slots[k].job) : NULL;

        if (e && e->job.live)
            lose_ranks(c, e, n->name, "contact with its node is lost");
    }
}

void agents_tick(struct core *c, int64_t now_us)
{
    for (size_t i = 0; i < c->n_nodes; i++) {
        struct node *n = c->nodes[i];
        int64_t silent_s = (now_us - n->seen_us) / 1000000;

        if (n->contact == NODE_READY && silent_s >= c->cfg.unknown_after_s) {
            log_warn("node %s is unknown: no word from it for %lld s; its runs go on", n->name, (long long)silent_s);
            n->contact = NODE_UNKNOWN;
            c->schedule_wanted = true;
            events_note(c, 0, "", "node", 0, "scheduler", "unknown", n->name,
                        json_pack("{s:s, s:s}", "node", n->name, "state", "unknown"));
        }
        if (n->contact == NODE_UNKNOWN && silent_s >= c->cfg.lost_after_s)
            lose_node(c, n);
    }
    roster_tick(c);
}
