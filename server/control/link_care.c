#include "server/control/link_care.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/cluster/links.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/state.h"

#define RESTART_US INT64_C(30000000) /* where nobody knows better */
#define TOGETHER_US INT64_C(120000000)

void link_care_found(struct core *c, struct entry *e, const struct lag_finding *f)
{
    e->run.link_since_us = f->over ? 0 : c->now.mono_us;
    e->run.link_share = f->share;
}

static bool is_spread(const struct job *j)
{
    for (size_t i = 1; i < j->n_places; i++)
        if (strcmp(j->places[i].node, j->places[0].node) != 0)
            return true;
    return false;
}

void link_care_look(struct core *c, struct entry *e)
{
    const struct job *j = &e->job;
    struct job_cause cause = {.kind = CAUSE_REQUEUE,
                              .actor = "scheduler",
                              .off_links = true,
                              .text = "its links have cost it what a restart takes: saves its state, and goes on where "
                                      "nodes reach each other faster; they measure it first"};
    int64_t restart_us = e->pace.restart_us > 0 ? (int64_t)e->pace.restart_us : RESTART_US;
    double lost = (double)(c->now.mono_us - e->run.link_since_us) * e->run.link_share;
    struct merr err;

    if (e->run.link_since_us == 0 || lost < (double)restart_us || !is_spread(j) || !j->live ||
        j->state != JOB_RUNNING || j->intent != JOB_GO_ON ||
        act_slow(ACT_SLOW_LINK, &j->past, c->now.wall_us, NULL) != ACT_MOVE)
        return;
    if (change_job(c, e, &cause, &err) < 0) {
        log_warn("job j%llu: %s", (unsigned long long)j->id, err.text);
        return;
    }
    change_drain_by(c, e, c->now.mono_us + entry_leave_us(e, c->cfg.sched.grace_us));
    e->run.link_since_us = 0;
    e->job.link_suspect = true; /* goes into the store with that change */
    c->schedule_wanted = true;
}

static void clear_suspicion(struct core *c, struct entry *e)
{
    if (e->job.link_suspect)
        table_dirty(&c->jobs, e);
    e->job.link_suspect = false;
}

static void describe(const struct cells_finding *f, const struct node *n, const struct node *other, char *ret,
                     size_t size)
{
    static const char *const what[CELLS_CLASSES] = {
        [CELLS_ROW] = "sends", [CELLS_COLUMN] = "receives", [CELLS_NODE] = "sends and receives"};

    if (other)
        (void)snprintf(ret, size, "the link between %s and %s takes %.2f times as long for each byte as it did",
                       n->name, other->name, f->factor);
    else if (n)
        (void)snprintf(ret, size, "what %s %s takes %.2f times as long for each byte as it did: its NIC, cable or port",
                       n->name, what[f->class_], f->factor);
    else
        (void)snprintf(ret, size,
                       "%zu of %zu connections between nodes take %.2f times as long for each byte as they did, of no "
                       "node in particular: what they share",
                       f->hot, f->known, f->factor);
}

void link_care_measured(struct core *c, struct entry *e)
{
    struct cells_finding f = {.class_ = CELLS_WELL};
    struct node *other, *n;
    char text[512];

    if (!e->run.links_judged)
        n = links_judge(&c->cluster, &e->job, c->now.wall_us - TOGETHER_US, &f, &other);
    if (f.known == 0)
        return;
    e->run.links_judged = true;
    if (f.class_ == CELLS_WELL) { /* what was long in calls was no link */
        clear_suspicion(c, e);
        return;
    }
    describe(&f, n, other, text, sizeof(text));
    log_info("job j%llu: %s", (unsigned long long)e->job.id, text);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", "slow-link", text,
                json_pack("{s:s, s:s, s:s?, s:s?, s:f, s:i, s:i, s:b}", "type", "slow-link", "class",
                          cells_class_name(f.class_), "node", n ? n->name : NULL, "other", other ? other->name : NULL,
                          "factor", f.factor, "hot", (int)f.hot, "known", (int)f.known, "suspected",
                          e->job.link_suspect));
    if (n && e->job.link_suspect) {
        care_blame(c, e, n->name, ACT_SLOW_LINK, other ? 2 : 1, text);
        if (other)
            care_blame(c, e, other->name, ACT_SLOW_LINK, 2, text);
    }
    clear_suspicion(c, e);
}
