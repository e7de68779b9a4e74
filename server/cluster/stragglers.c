/* Devices that are slower than others of their class: found by what runs on them, told, kept, and tried again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/core.h"
#include "server/control/round.h"
#include "server/cluster/shares.h"

#define REPLICAS_MAX 64 /* whose times ranks tell one by one */

static struct slot *find_slot(struct node *n, int slot)
{
    for (size_t i = 0; n && i < n->n_slots; i++)
        if (n->slots[i].slot == slot)
            return &n->slots[i];
    return NULL;
}

struct slot *stragglers_slot(struct core *c, const struct job_place *p)
{
    return find_slot(agents_find(c, p->node), p->slot);
}

double stragglers_factor(struct core *c, const struct job_place *p)
{
    const struct slot *s = stragglers_slot(c, p);

    return s && s->slow.slow && s->slow.ratio > 1 ? s->slow.ratio : 1;
}

/* --- telling ------------------------------------------------------------------------------------------- */

void stragglers_name(struct core *c, const struct job *j, char *ret, size_t size)
{
    size_t n = 0;

    (void)snprintf(ret, size, "slow devices");
    for (size_t i = 0; i < j->n_places; i++) {
        double factor = stragglers_factor(c, &j->places[i]);

        if (factor > 1 && n++ == 0)
            (void)snprintf(ret, size, "slot %d of %s, which takes %.1f times as long as others of class %s",
                           j->places[i].slot, j->places[i].node, factor, j->places[i].class_);
    }
    if (n > 1)
        (void)snprintf(ret + strlen(ret), size - strlen(ret), ", and %zu more", n - 1);
}

/* What was found of devices of a replica, the first of which is at p. alone: with no other of its class beside it. */
static void tell(struct core *c, const struct entry *e, const char *code, const struct job_place *p, int devices,
                 double ratio, bool alone)
{
    const char *with = alone ? "is usual in class" : "others of class";
    bool slow = strcmp(code, "device_slow") == 0;
    char text[240], more[48] = "";

    if (devices > 1)
        (void)snprintf(more, sizeof(more), " and %d more device%s of its replica", devices - 1,
                       devices == 2 ? "" : "s");
    if (slow)
        (void)snprintf(text, sizeof(text), "slot %d of %s%s: %.1f times as long as %s %s", p->slot, p->node, more,
                       ratio, with, p->class_);
    else
        (void)snprintf(text, sizeof(text), "slot %d of %s%s: as fast as %s %s again", p->slot, p->node, more, with,
                       p->class_);
    log_info("job j%llu: %s", (unsigned long long)e->job.id, text);
    events_note(c, e->job.id, e->job.user, "note", e->job.generation, "scheduler", code, text,
                json_pack("{s:s, s:i, s:s, s:i, s:f}", "node", p->node, "slot", p->slot, "class", p->class_, "devices",
                          devices, "ratio", ratio));
}

/* What a slow device is again, and by whose word. */
static void tell_node(struct core *c, struct node *n, const struct slot *s, const char *actor)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "slot %d of %s was slow and is tried again", s->slot, n->name);
    events_note(c, 0, "", "node", 0, actor, "device_retry", text,
                json_pack("{s:s, s:i}", "node", n->name, "slot", s->slot));
    agents_store(c, n);
    c->schedule_wanted = true;
}

/* --- learning ------------------------------------------------------------------------------------------ */

struct watch {           /* of a run's replicas, while a line is taken in */
    struct slot **slots; /* of its places; NULL: not there any more */
    struct slow_replica v[REPLICAS_MAX];
    struct slow_ratio ratio[REPLICAS_MAX];
    bool suspect[REPLICAS_MAX];
    struct {
        enum slow_news what;
        size_t first; /* place */
        int devices;
        double ratio;
        bool wrong; /* it was not the device that changed */
    } news[REPLICAS_MAX];
};

/* The slots of a run's places, new; NULL: no memory. */
static struct slot **slots_of(struct core *c, const struct job *j)
{
    struct slot **v = calloc(j->n_places, sizeof(struct slot *));
    struct node *n = NULL;

    for (size_t i = 0; v && i < j->n_places; i++) {
        if (i == 0 || strcmp(j->places[i].node, j->places[i - 1].node) != 0)
            n = agents_find(c, j->places[i].node);
        v[i] = find_slot(n, j->places[i].slot);
    }
    return v;
}

static void watch_fill(struct core *c, struct entry *e, const json_t *leaf_ms, struct watch *w)
{
    const struct job *j = &e->job;

    for (size_t i = 0; i < (size_t)j->layout.dp; i++) {
        const struct slot *s = w->slots[shares_first(&j->layout, i)];

        w->v[i] = (struct slow_replica){.ms = json_number_value(json_array_get(leaf_ms, i)),
                                        .class_ = s ? s->class_ : SLOW_NO_CLASS,
                                        .workers = shares_workers(e, shares_first(&j->layout, i))};
    }
    for (size_t i = 0; i < j->n_places; i++) {
        size_t at = shares_replica(&j->layout, i);
        const struct slot *s = w->slots[i];
        const struct leaf_time *t = shares_time(e, j->places[i].class_);

        if (!s || s->class_ != w->v[at].class_)
            w->v[at].class_ = SLOW_NO_CLASS;
        w->v[at].usual_ms = t && t->workers == shares_workers(e, i) ? t->usual.ms : 0;
        w->v[at].slow = w->v[at].slow || (s && s->slow.slow);
        w->suspect[at] = w->suspect[at] || (s && slow_suspect(&s->slow, &c->cfg.slow));
    }
    slow_compare(w->v, (size_t)j->layout.dp, w->ratio);
}

/* Take in what its class usually takes for the job, for when a replica has none beside it. How many workers a replica
 * has is part of that: what a step takes besides is shared out over them. */
static void learn_usual(struct entry *e, const struct watch *w)
{
    const struct job *j = &e->job;

    for (size_t i = 0; i < (size_t)j->layout.dp; i++) {
        size_t first = shares_first(&j->layout, i);
        struct leaf_time *t = shares_time(e, j->places[first].class_);
        int workers = shares_workers(e, first);

        if (!t || w->v[i].class_ == SLOW_NO_CLASS || (t->workers != workers && !w->ratio[i].alone && t->usual.n > 0))
            continue;
        if (t->workers != workers)
            t->usual = (struct slow_usual){.n = 0};
        t->workers = workers;
        slow_usual(&t->usual, w->v[i].ms, w->suspect[i]);
    }
}

/* Whether another device was found slow by this job's own past already: then it is the past that is wrong. */
static bool misjudged(struct core *c, const struct entry *e)
{
    bool found = false;

    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots; k++) {
            struct slot *s = &c->nodes[i]->slots[k];

            if (!s->slow.slow || s->slow_alone != e->job.id || s->job == e->job.id)
                continue;
            found = true;
            (void)slow_pardon(&s->slow);
            tell_node(c, c->nodes[i], s, "scheduler");
        }
    return found;
}

static void found_slow(struct core *c, struct entry *e, const struct job_place *p, bool alone)
{
    struct leaf_time *t = shares_time(e, p->class_);
    struct slot *s = stragglers_slot(c, p);
    struct node *n = agents_find(c, p->node);

    s->slow_alone = alone ? e->job.id : 0;
    c->slow_found++;
    agents_store(c, n);
    if (t && t->usual.ms > 0)
        t->ms = t->usual.ms; /* what it took lately was the slow device's */
    round_forget(e);
    c->schedule_wanted = true;
    c->next_full_us = clock_mono_us(); /* only a full round moves what runs */
}

/* Give a device its replica's ratio. */
static void take(struct core *c, struct entry *e, struct watch *w, size_t place, int64_t now_us)
{
    const struct job_place *p = &e->job.places[place];
    size_t at = shares_replica(&e->job.layout, place);
    struct slot *s = w->slots[place];
    double was = s->slow.ratio;
    enum slow_news what = slow_take(&s->slow, &c->cfg.slow, &w->ratio[at], now_us);

    if (what == SLOW_NO_NEWS)
        return;
    if (what == SLOW_FOUND && w->ratio[at].alone && w->news[at].devices == 0 && misjudged(c, e))
        w->news[at].wrong = true;
    if (w->news[at].wrong) {
        struct leaf_time *t = shares_time(e, p->class_);

        (void)slow_pardon(&s->slow);
        if (t)
            t->usual = (struct slow_usual){.n = 0};
        return;
    }
    if (w->news[at].devices++ == 0) {
        w->news[at].what = what;
        w->news[at].first = place;
        w->news[at].ratio = what == SLOW_FOUND ? s->slow.ratio : was;
    }
    if (what == SLOW_FOUND)
        found_slow(c, e, p, w->ratio[at].alone);
    else
        agents_store(c, agents_find(c, p->node));
}

/* A line of a run that is well under way. */
static void learn(struct core *c, struct entry *e, const json_t *leaf_ms, struct watch *w)
{
    const struct job *j = &e->job;
    int64_t now_us = clock_wall_us();

    watch_fill(c, e, leaf_ms, w);
    learn_usual(e, w);
    for (size_t i = 0; i < j->n_places; i++)
        if (w->slots[i] && w->ratio[shares_replica(&j->layout, i)].ratio > 0)
            take(c, e, w, i, now_us);
    for (size_t i = 0; i < (size_t)j->layout.dp; i++)
        if (w->news[i].devices > 0) {
            tell(c, e, w->news[i].what == SLOW_FOUND ? "device_slow" : "device_well", &j->places[w->news[i].first],
                 w->news[i].devices, w->news[i].ratio, w->ratio[i].alone);
            c->schedule_wanted = true;
        }
}

void stragglers_learn(struct core *c, struct entry *e, uint32_t generation, const json_t *line)
{
    const json_t *leaf_ms = json_object_get(line, "leaf_ms");
    const struct job *j = &e->job;
    struct watch w = {.slots = NULL};
    bool first = e->learned_generation != generation; /* a run's first step is slow for other reasons */

    if (!j->live || j->generation != generation)
        return;
    w.slots = slots_of(c, j);
    if (!w.slots)
        return;
    e->on_slow = false;
    for (size_t i = 0; i < j->n_places; i++) {
        e->on_slow = e->on_slow || (w.slots[i] && w.slots[i]->slow.slow);
        if (first && w.slots[i])
            slow_begin(&w.slots[i]->slow);
    }
    /* who has longer documents is no slower */
    if (!first && c->cfg.slow.ratio > 1 && j->layout.dp <= REPLICAS_MAX &&
        json_array_size(leaf_ms) == (size_t)j->layout.dp && !json_object_get(line, "documents") &&
        shares_first(&j->layout, (size_t)j->layout.dp) <= j->n_places)
        learn(c, e, leaf_ms, &w);
    free(w.slots);
}

/* --- time and people ----------------------------------------------------------------------------------- */

void stragglers_tick(struct core *c)
{
    int64_t now = clock_wall_us();

    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots; k++) {
            struct slot *s = &c->nodes[i]->slots[k];

            if (s->slow.slow && s->job == 0 && slow_expire(&s->slow, now))
                tell_node(c, c->nodes[i], s, "scheduler");
        }
}

void stragglers_shift(struct node *n, int64_t by_us)
{
    for (size_t k = 0; k < n->n_slots; k++) {
        struct slow_device *d = &n->slots[k].slow;

        d->since_us += by_us;
        d->found_us += by_us;
        d->retry_at_us += by_us;
    }
}

void stragglers_pardon(struct core *c, struct node *n, const char *actor)
{
    for (size_t k = 0; k < n->n_slots; k++)
        if (slow_pardon(&n->slots[k].slow))
            tell_node(c, n, &n->slots[k], actor);
}

/* --- keeping and showing ------------------------------------------------------------------------------- */

json_t *stragglers_record(const struct slot *s)
{
    const struct slow_device *d = &s->slow;

    return !d->slow ? NULL
                    : json_pack("{s:f, s:i, s:I, s:I, s:I}", "ratio", d->ratio, "times", d->times, "found_us",
                                (json_int_t)d->found_us, "retry_at_us", (json_int_t)d->retry_at_us, "alone",
                                (json_int_t)s->slow_alone);
}

void stragglers_load(struct core *c, struct node *n, const json_t *slots)
{
    json_t *o;
    size_t i;

    json_array_foreach (slots, i, o) {
        const json_t *d = json_object_get(o, "slow");

        if (!json_is_object(d) || i >= n->n_slots || !(c->cfg.slow.ratio > 1))
            continue;
        n->slots[i].slow_alone = (uint64_t)json_integer_value(json_object_get(d, "alone"));
        n->slots[i].slow = (struct slow_device){.slow = true,
                                                .ratio = json_number_value(json_object_get(d, "ratio")),
                                                .times = (int32_t)json_integer_value(json_object_get(d, "times"))};
        n->slots[i].slow.found_us = json_integer_value(json_object_get(d, "found_us"));
        n->slots[i].slow.retry_at_us = json_integer_value(json_object_get(d, "retry_at_us"));
    }
}

json_t *stragglers_view(const struct slot *s)
{
    return !s->slow.slow ? NULL
                         : json_pack("{s:f, s:o, s:o}", "ratio", s->slow.ratio, "since", view_time(s->slow.found_us),
                                     "retry_at", view_time(s->slow.retry_at_us));
}

void stragglers_metrics(const struct core *c, struct buf *b)
{
    size_t slow = 0;

    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t k = 0; k < c->nodes[i]->n_slots; k++)
            slow += c->nodes[i]->slots[k].slow.slow;
    (void)buf_printf(b,
                     "# HELP muster_slow_devices Devices known to be slower than others of their class\n"
                     "# TYPE muster_slow_devices gauge\nmuster_slow_devices %zu\n"
                     "# HELP muster_devices_found_slow_total Devices found slow since the server started\n"
                     "# TYPE muster_devices_found_slow_total counter\nmuster_devices_found_slow_total %llu\n"
                     "# HELP muster_slow_replaced_total Times that a job was moved off slow devices\n"
                     "# TYPE muster_slow_replaced_total counter\nmuster_slow_replaced_total %llu\n",
                     slow, (unsigned long long)c->slow_found, (unsigned long long)c->slow_replaced);
}
