#include "server/control/learn.h"

#include <string.h>

#include "server/cluster/gpus.h"
#include "server/cluster/links.h"
#include "server/cluster/shares.h"
#include "server/cluster/stragglers.h"
#include "server/control/care.h"
#include "server/control/energy.h"
#include "server/control/events.h"
#include "server/control/kinds.h"
#include "server/control/link_care.h"
#include "server/control/plans.h"
#include "server/control/records.h"
#include "server/control/slow_care.h"
#include "server/control/state.h"

/* Tell what was found of devices; where anything was, their nodes have changed and there may be other work for them. */
static void take_notes(struct core *c, const struct job *j, const char *actor, struct notes *found)
{
    events_tell(c, j, actor, found);
    if (found->n > 0)
        c->schedule_wanted = c->nodes_changed = true;
    notes_clear(found);
}

/* So many devices were found slow. */
static void heed_slow(struct core *c, struct entry *e, int slow)
{
    kinds_forget(c, e); /* how fast it was on as many says nothing any more */
    c->dispatch.slow_found += (uint64_t)slow;
    c->dispatch.next_full_us = c->now.mono_us; /* only a full round moves what runs */
}

static void learn_stragglers(struct core *c, struct entry *e, uint32_t generation, const json_t *line)
{
    struct straggler_run run = {.job = &e->job, .pace = &e->pace, .generation = generation};
    struct notes found = {.n = 0};
    int slow = stragglers_learn(&c->cluster, &c->cfg.slow, &run, line, c->now.wall_us, &found);

    if (slow > 0)
        heed_slow(c, e, slow);
    for (size_t i = 0; i < found.n; i++)
        if (strcmp(found.v[i].code, "device_slow") == 0)
            care_blame(c, e, json_string_value(json_object_get(found.v[i].data, "node")), ACT_SLOW, 1, found.v[i].text);
    take_notes(c, &e->job, "scheduler", &found);
}

void learn_device_test(struct core *c, struct entry *e, const json_t *event)
{
    struct notes found = {.n = 0};
    struct slow_care_verdict v;

    if (!slow_care_tested(c, e, event, &v) || !v.confirmed)
        return;
    if (stragglers_confirm(&c->cluster, &c->cfg.slow, &e->job, (size_t)v.rank, v.ratio, c->now.wall_us, &found))
        heed_slow(c, e, 1);
    care_blame(c, e, e->job.places[v.rank].node, ACT_SLOW_TESTED, 1, v.text);
    take_notes(c, &e->job, "scheduler", &found);
}

void learn_metrics(struct core *c, struct entry *e, uint32_t generation, const json_t *line)
{
    double step_ms = json_number_value(json_object_get(line, "step_ms"));
    struct pace_news news;

    plans_learn(c, e, generation, step_ms);
    learn_stragglers(c, e, generation, line);
    shares_learn(&c->cluster, &e->job, &e->pace, generation, json_object_get(line, "leaf_ms"));
    news = pace_learn(&e->pace, &e->job, generation, step_ms, c->now.mono_us);
    if (news.steps_per_s > 0)
        kinds_take_speed(c, e, news.steps_per_s);
    if (news.restart_s > 0)
        kinds_take_restart(c, e, news.restart_s);
}

void learn_links(struct core *c, struct entry *e, const json_t *event)
{
    size_t n = json_array_size(json_object_get(event, "to"));

    for (size_t i = 0; i < n; i++) {
        struct links_measured m;
        struct links_news news;

        if (!links_read_measured(&c->cluster, &e->job, event, i, &m))
            continue;
        links_keep(m.a, m.b, m.bytes_per_s, c->now.wall_us, &news);
        c->cluster.sites += news.other;
        records_put_link(c, &news, m.bytes_per_s, c->now.wall_us);
    }
    link_care_measured(c, e);
}

void learn_gpus(struct core *c, struct node *n, const json_t *body, struct gpus_errors *ret)
{
    struct notes found = {.n = 0};

    if (gpus_take(n, body, c->now.wall_us, &found, ret))
        c->schedule_wanted = true;
    energy_take(c, n);
    events_tell(c, NULL, "scheduler", &found);
    notes_clear(&found);
}

void learn_forgive(struct core *c, struct node *n, const char *actor)
{
    struct notes found = {.n = 0};

    stragglers_forgive(n, &found);
    take_notes(c, NULL, actor, &found);
}

void learn_tick(struct core *c)
{
    struct notes found = {.n = 0};

    stragglers_expire(&c->cluster, c->now.wall_us, &found);
    take_notes(c, NULL, "scheduler", &found);
}
