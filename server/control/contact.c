#include "server/control/contact.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "server/cluster/links.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/records.h"
#include "server/control/runs.h"
#include "server/control/state.h"
#include "server/control/waiters.h"

static void tell(struct core *c, const struct node *n, const char *actor, const char *state)
{
    events_note(c, 0, "", "node", 0, actor, state, n->name, json_pack("{s:s, s:s}", "node", n->name, "state", state));
}

void contact_see(struct core *c, struct node *n)
{
    n->seen_us = c->now.mono_us;
    n->seen_wall_us = c->now.wall_us;
    if (n->contact == NODE_READY)
        return;
    if (n->contact == NODE_LOST)
        log_info("node %s is back", n->name);
    n->contact = NODE_READY;
    n->lost_wall_us = 0;
    change_node(c, n);
    c->schedule_wanted = true;
    tell(c, n, "scheduler", "ready");
    care_back(c, n);
}

/* --- runs that a node does not have any more --------------------------------------------------------- */

static bool run_listed(const struct report *r, const struct job *j)
{
    for (size_t i = 0; i < r->n_runs; i++)
        if (r->runs[i].generation == j->generation && job_id_parse(r->runs[i].job) == j->id)
            return true;
    return false;
}

void contact_lose_run(struct core *c, struct entry *e, const char *node, const char *why, bool node_gone)
{
    int first = -1;

    for (size_t i = 0; i < e->job.n_places; i++) {
        if (strcmp(e->job.places[i].node, node) != 0 || e->run.ranks[i].phase == RANK_EXITED)
            continue;
        e->run.ranks[i] = (struct rank){.phase = RANK_EXITED,
                                        .exit = {.status = -1, .cause = EXIT_CAUSE_NODE}}; /* lost with its node */
        first = first < 0 ? (int)i : first;
    }
    runs_release(c, e, node);
    if (first >= 0 && e->job.intent == JOB_GO_ON && e->job.state != JOB_RECOVERING)
        runs_fault(c, e, first, node_gone ? ACT_LOST : ACT_DEVICE, why, NULL, "scheduler");
    runs_follow(c, e, "scheduler");
}

enum part { /* of a run on a node */
            PART_NONE,
            PART_UNHEARD, /* nothing was heard of its ranks there: they may not have been started yet */
            PART_THERE,   /* they run, or are over: a server that has just started knows no more */
};

/* A rank that is over may have left its slot to another job: the run's places say where it is, the slots do not. */
static enum part part_on(const struct core *c, const struct entry *e, const struct node *n)
{
    enum part part = PART_NONE;

    for (size_t i = 0; e->job.live && i < e->job.n_places; i++) {
        const struct job_place *p = &e->job.places[i];
        const struct slot *s;

        if (strcmp(p->node, n->name) != 0)
            continue;
        s = cluster_slot(&c->cluster, p);
        if (e->job.state != JOB_STARTING || e->run.ranks[i].phase != RANK_NONE || (s && s->job != e->job.id))
            return PART_THERE;
        part = PART_UNHEARD;
    }
    return part;
}

void contact_lose_unlisted(struct core *c, struct node *n, const struct report *r, bool rebooted)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && part_on(c, e, n) == PART_THERE && !run_listed(r, &e->job))
            contact_lose_run(c, e, n->name,
                             rebooted ? "its node was started again" : "its node's agent does not know it any more",
                             rebooted);
    }
}

void contact_end_unstarted(struct core *c, struct node *n, const struct report *r)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? table_find(&c->jobs, n->slots[k].job) : NULL;

        if (e && e->job.live && (e->run.force_stop || strcmp(job_order(&e->job), "stop") == 0) &&
            e->run.ranks[n->slots[k].rank].phase == RANK_NONE && !run_listed(r, &e->job))
            contact_lose_run(c, e, n->name, "it was to stop before it was started", false);
    }
}

/* --- nodes that leave the list ----------------------------------------------------------------------- */

/* No job may be meant to go there any more. */
static void drop_targets(struct core *c, const struct node *n)
{
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);
        bool meant = false;

        for (size_t k = 0; e && k < e->n_target; k++)
            meant = meant || e->target[k].node == n;
        if (meant)
            entry_target_clear(e);
    }
}

static void drop_links(struct core *c, struct node *n)
{
    char pair[LINKS_PAIR_MAX];

    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        if (links_forget(c->cluster.nodes[i], n, pair))
            records_drop_row(c, STORE_LINKS, pair);
}

/* n is freed. */
static void leave(struct core *c, struct node *n, const char *actor, const char *code)
{
    drop_targets(c, n);
    drop_links(c, n);
    log_info("node %s is %s", n->name, code);
    records_drop_row(c, STORE_NODES, n->name);
    tell(c, n, actor, code);
    cluster_drop(&c->cluster, n);
    c->schedule_wanted = true;
    waiters_wake_all(c->waiters); /* its agent's long-polls are answered */
}

static void remember(struct core *c, const struct node *n)
{
    records_put_removed(c, roster_add(&c->cluster.roster, n->name, n->incarnation, c->now.wall_us));
}

void contact_replace(struct core *c, const struct node *n)
{
    log_warn("node %s: another agent takes its name, and is to run nothing of the one before", n->name);
    remember(c, n);
}

void contact_remove(struct core *c, struct node *n, const char *actor)
{
    remember(c, n);
    leave(c, n, actor, "removed");
}

static void forget_lost(struct core *c)
{
    int64_t after_us = (int64_t)c->cfg.forget_after_s * 1000000;

    for (size_t i = c->cluster.n_nodes; after_us > 0 && i-- > 0;) {
        struct node *n = c->cluster.nodes[i];

        if (n->contact == NODE_LOST && !n->drain && c->now.wall_us - n->lost_wall_us > after_us)
            leave(c, n, "scheduler", "forgotten");
    }
}

/* --- time -------------------------------------------------------------------------------------------- */

static int64_t silence_us(const struct core *c, const struct node *n)
{
    return c->now.mono_us - n->seen_us;
}

static void become_unknown(struct core *c, struct node *n, const char *what)
{
    log_warn("node %s is unknown: no word from it for %.1f s; %s", n->name, (double)silence_us(c, n) / 1e6, what);
    n->contact = NODE_UNKNOWN;
    c->schedule_wanted = true;
    tell(c, n, "scheduler", "unknown");
}

/* Whether a run that is to start on the node was placed there before anybody knew that the node is gone: the run before
 * it failed there, and the node has been silent for longer than an agent that is started again. */
static bool was_placed_too_soon(const struct core *c, const struct entry *e, const struct node *n)
{
    return e->job.state == JOB_STARTING && e->job.past.in_a_row > 0 &&
           e->job.past.node == hash_xxh3(n->name, strlen(n->name)) && silence_us(c, n) >= 2 * NODE_SILENT_US &&
           part_on(c, e, n) == PART_UNHEARD;
}

/* The node is silent and others of the run, or the run before it, say that it is in trouble: what the run has there is
 * over. */
static void lose_suspects(struct core *c, struct node *n)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        struct entry *e = n->slots[k].job ? table_find(&c->jobs, n->slots[k].job) : NULL;
        char why[128];
        bool again = e && e->job.live && was_placed_too_soon(c, e, n);

        if (!e || !e->job.live || (!e->run.gave_up && e->job.state != JOB_RECOVERING && !again))
            continue;
        if (n->contact == NODE_READY)
            become_unknown(
                c, n, again ? "a run has failed there and does not start again" : "other ranks of a run have lost it");
        (void)snprintf(why, sizeof(why), "its node is lost: %s, and it has been silent for %.1f s",
                       again ? "the run before failed there" : "other ranks lost it", (double)silence_us(c, n) / 1e6);
        contact_lose_run(c, e, n->name, why, true);
    }
}

void contact_lose(struct core *c, struct node *n, const char *why)
{
    log_warn("node %s is lost: %s", n->name, why);
    n->contact = NODE_LOST;
    if (n->lost_wall_us == 0)
        n->lost_wall_us = c->now.wall_us;
    change_node(c, n);
    c->schedule_wanted = true;
    tell(c, n, "scheduler", "lost");
    care_lost(c, n);
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (e && part_on(c, e, n) != PART_NONE)
            contact_lose_run(c, e, n->name, "contact with its node is lost", true);
    }
}

static void lose_silent(struct core *c, struct node *n)
{
    char why[64];

    (void)snprintf(why, sizeof(why), "no word from it for %d s", c->cfg.lost_after_s);
    contact_lose(c, n, why);
}

/* Whoever does not listen hears nobody, which is not their silence. */
static void excuse(struct core *c, int64_t late_us)
{
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        struct node *n = c->cluster.nodes[i];

        n->seen_us += silence_us(c, n) < late_us ? silence_us(c, n) : late_us;
    }
}

void contact_tick(struct core *c, int64_t late_us)
{
    if (late_us > NODE_SILENT_US)
        excuse(c, late_us);
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        struct node *n = c->cluster.nodes[i];
        int64_t silent_s = silence_us(c, n) / 1000000;

        if (silence_us(c, n) >= NODE_SILENT_US)
            lose_suspects(c, n);
        if (n->contact == NODE_READY && silent_s >= c->cfg.unknown_after_s)
            become_unknown(c, n, "its runs go on");
        if (n->contact == NODE_UNKNOWN && silent_s >= c->cfg.lost_after_s)
            lose_silent(c, n);
    }
    forget_lost(c);
}
