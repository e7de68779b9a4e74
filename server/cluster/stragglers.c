#include "server/cluster/stragglers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/shares.h"

#define REPLICAS_MAX 64 /* whose times ranks tell one by one */

/* --- telling ------------------------------------------------------------------------------------------- */

void stragglers_name(const struct cluster *cl, const struct job *j, char *ret, size_t size)
{
    size_t n = 0;

    (void)snprintf(ret, size, "slow devices");
    for (size_t i = 0; i < j->n_places; i++) {
        double factor = cluster_slowness(cl, &j->places[i]);

        if (factor > 1 && n++ == 0)
            (void)snprintf(ret, size, "device %d of %s, which takes %.1f times as long as others of class %s",
                           j->places[i].slot, j->places[i].node, factor, j->places[i].class_);
    }
    if (n > 1)
        (void)snprintf(ret + strlen(ret), size - strlen(ret), ", and %zu more", n - 1);
}

/* What was found of devices of a replica, the first of which is at p. alone: with no other of its class beside it. */
static void tell(const struct job *j, const char *code, const struct job_place *p, int devices, double ratio,
                 bool alone, struct notes *notes)
{
    const char *with = alone ? "is usual in class" : "others of class";
    char more[48] = "";
    json_t *data = json_pack("{s:s, s:i, s:s, s:i, s:f}", "node", p->node, "slot", p->slot, "class", p->class_,
                             "devices", devices, "ratio", ratio);

    if (devices > 1)
        (void)snprintf(more, sizeof(more), " and %d more device%s of its replica", devices - 1,
                       devices == 2 ? "" : "s");
    if (strcmp(code, "device_slow") == 0)
        notes_add_new(notes, j->id, code, data, "device %d of %s%s: %.1f times as long as %s %s", p->slot, p->node,
                      more, ratio, with, p->class_);
    else
        notes_add_new(notes, j->id, code, data, "device %d of %s%s: as fast as %s %s again", p->slot, p->node, more,
                      with, p->class_);
}

static void tell_retry(struct node *n, const struct slot *s, struct notes *notes)
{
    n->changed = true;
    notes_add_new(notes, 0, "device_retry", json_pack("{s:s, s:i}", "node", n->name, "slot", s->slot),
                  "device %d of %s was slow and is tried again", s->slot, n->name);
}

/* --- learning ------------------------------------------------------------------------------------------ */

struct watch { /* of a run's replicas, while a line is taken in */
    struct cluster *cluster;
    const struct slow_rules *rules;
    const struct job *job;
    struct pace *pace;
    struct notes *notes;
    int64_t wall_us;
    int found;           /* devices that are slow now and were not before */
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
static struct slot **slots_of(const struct cluster *cl, const struct job *j)
{
    struct slot **v = calloc(j->n_places, sizeof(struct slot *));
    struct node *n = NULL;

    for (size_t i = 0; v && i < j->n_places; i++) {
        if (i == 0 || strcmp(j->places[i].node, j->places[i - 1].node) != 0)
            n = cluster_node(cl, j->places[i].node);
        v[i] = node_slot(n, j->places[i].slot);
    }
    return v;
}

static void watch_fill(struct watch *w, const json_t *leaf_ms)
{
    const struct job *j = w->job;

    for (size_t i = 0; i < (size_t)j->layout.dp; i++) {
        const struct slot *s = w->slots[shares_first(&j->layout, i)];

        w->v[i] = (struct slow_replica){.ms = json_number_value(json_array_get(leaf_ms, i)),
                                        .class_ = s ? s->class_ : SLOW_NO_CLASS,
                                        .workers = shares_workers(j, w->pace, shares_first(&j->layout, i))};
    }
    for (size_t i = 0; i < j->n_places; i++) {
        size_t at = shares_replica(&j->layout, i);
        const struct slot *s = w->slots[i];
        const struct leaf_time *t = pace_leaf_time(w->pace, j->places[i].class_);

        if (!s || s->class_ != w->v[at].class_)
            w->v[at].class_ = SLOW_NO_CLASS;
        w->v[at].usual_ms = t && t->workers == shares_workers(j, w->pace, i) ? t->usual.ms : 0;
        w->v[at].slow = w->v[at].slow || (s && s->slow.slow);
        w->suspect[at] = w->suspect[at] || (s && slow_suspect(&s->slow, w->rules));
    }
    slow_compare(w->v, (size_t)j->layout.dp, w->ratio);
}

/* Take in what its class usually takes for the job, for when a replica has none beside it. How many workers a replica
 * has is part of that: what a step takes besides is shared out over them. */
static void learn_usual(const struct watch *w)
{
    const struct job *j = w->job;

    for (size_t i = 0; i < (size_t)j->layout.dp; i++) {
        size_t first = shares_first(&j->layout, i);
        struct leaf_time *t = pace_leaf_time(w->pace, j->places[first].class_);
        int workers = shares_workers(j, w->pace, first);

        if (!t || w->v[i].class_ == SLOW_NO_CLASS || (t->workers != workers && !w->ratio[i].alone && t->usual.n > 0))
            continue;
        if (t->workers != workers)
            t->usual = (struct slow_usual){.n = 0};
        t->workers = workers;
        slow_usual(&t->usual, w->v[i].ms, w->suspect[i]);
    }
}

/* Whether another device was found slow by this job's own past already: then it is the past that is wrong. */
static bool misjudged(const struct watch *w)
{
    bool found = false;

    for (size_t i = 0; i < w->cluster->n_nodes; i++)
        for (size_t k = 0; k < w->cluster->nodes[i]->n_slots; k++) {
            struct slot *s = &w->cluster->nodes[i]->slots[k];

            if (!s->slow.slow || s->slow_alone != w->job->id || s->job == w->job->id)
                continue;
            found = true;
            (void)slow_forgive(&s->slow);
            tell_retry(w->cluster->nodes[i], s, w->notes);
        }
    return found;
}

static void found_slow(struct watch *w, const struct job_place *p, bool alone)
{
    struct leaf_time *t = pace_leaf_time(w->pace, p->class_);
    struct slot *s = cluster_slot(w->cluster, p);

    s->slow_alone = alone ? w->job->id : 0;
    w->found++;
    if (t && t->usual.ms > 0)
        t->ms = t->usual.ms; /* what it took lately was the slow device's */
}

/* Give a device its replica's ratio. */
static void take(struct watch *w, size_t place)
{
    const struct job_place *p = &w->job->places[place];
    size_t at = shares_replica(&w->job->layout, place);
    struct slot *s = w->slots[place];
    double was = s->slow.ratio;
    enum slow_news what = slow_take(&s->slow, w->rules, &w->ratio[at], w->wall_us);

    if (what == SLOW_NO_NEWS)
        return;
    if (what == SLOW_FOUND && w->ratio[at].alone && w->news[at].devices == 0 && misjudged(w))
        w->news[at].wrong = true;
    if (w->news[at].wrong) {
        struct leaf_time *t = pace_leaf_time(w->pace, p->class_);

        (void)slow_forgive(&s->slow);
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
        found_slow(w, p, w->ratio[at].alone);
    cluster_node(w->cluster, p->node)->changed = true;
}

/* A line of a run that is well under way. */
static void learn(struct watch *w, const json_t *leaf_ms)
{
    const struct job *j = w->job;

    watch_fill(w, leaf_ms);
    learn_usual(w);
    for (size_t i = 0; i < j->n_places; i++)
        if (w->slots[i] && w->ratio[shares_replica(&j->layout, i)].ratio > 0)
            take(w, i);
    for (size_t i = 0; i < (size_t)j->layout.dp; i++)
        if (w->news[i].devices > 0)
            tell(j, w->news[i].what == SLOW_FOUND ? "device_slow" : "device_well", &j->places[w->news[i].first],
                 w->news[i].devices, w->news[i].ratio, w->ratio[i].alone, w->notes);
}

int stragglers_learn(struct cluster *cl, const struct slow_rules *rules, const struct straggler_run *run,
                     const json_t *line, int64_t wall_us, struct notes *notes)
{
    const json_t *leaf_ms = json_object_get(line, "leaf_ms");
    const struct job *j = run->job;
    struct pace *p = run->pace;
    struct watch w = {
        .cluster = cl, .rules = rules, .job = j, .pace = p, .notes = notes, .wall_us = wall_us, .slots = NULL};
    bool first = p->learned_generation != run->generation; /* a run's first step is slow for other reasons */

    if (!j->live || j->generation != run->generation)
        return 0;
    w.slots = slots_of(cl, j);
    if (!w.slots)
        return 0;
    p->on_slow = false;
    for (size_t i = 0; i < j->n_places; i++) {
        p->on_slow = p->on_slow || (w.slots[i] && w.slots[i]->slow.slow);
        if (first && w.slots[i])
            slow_begin(&w.slots[i]->slow);
    }
    /* who has longer documents is no slower */
    if (!first && rules->ratio > 1 && j->layout.dp <= REPLICAS_MAX &&
        json_array_size(leaf_ms) == (size_t)j->layout.dp && !json_object_get(line, "documents") &&
        shares_first(&j->layout, (size_t)j->layout.dp) <= j->n_places)
        learn(&w, leaf_ms);
    free(w.slots);
    return w.found;
}

bool stragglers_confirm(struct cluster *cl, const struct slow_rules *rules, const struct job *j, size_t place,
                        double ratio, int64_t wall_us, struct notes *notes)
{
    struct slot *s = cluster_slot(cl, &j->places[place]);

    if (!s || !slow_confirm(&s->slow, rules, ratio, wall_us))
        return false;
    s->slow_alone = 0;
    cluster_node(cl, j->places[place].node)->changed = true;
    tell(j, "device_slow", &j->places[place], 1, ratio, false, notes);
    return true;
}

/* --- time and people ----------------------------------------------------------------------------------- */

void stragglers_expire(struct cluster *cl, int64_t wall_us, struct notes *notes)
{
    for (size_t i = 0; i < cl->n_nodes; i++)
        for (size_t k = 0; k < cl->nodes[i]->n_slots; k++) {
            struct slot *s = &cl->nodes[i]->slots[k];

            if (s->slow.slow && s->job == 0 && slow_expire(&s->slow, wall_us))
                tell_retry(cl->nodes[i], s, notes);
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

void stragglers_forgive(struct node *n, struct notes *notes)
{
    for (size_t k = 0; k < n->n_slots; k++)
        if (slow_forgive(&n->slots[k].slow))
            tell_retry(n, &n->slots[k], notes);
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

void stragglers_load(struct node *n, const struct slow_rules *rules, const json_t *slots)
{
    json_t *o;
    size_t i;

    json_array_foreach (slots, i, o) {
        const json_t *d = json_object_get(o, "slow");

        if (!json_is_object(d) || i >= n->n_slots || !(rules->ratio > 1))
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
                         : json_pack("{s:f, s:o, s:o}", "ratio", s->slow.ratio, "since", cluster_time(s->slow.found_us),
                                     "retry_at", cluster_time(s->slow.retry_at_us));
}

size_t stragglers_count(const struct cluster *cl)
{
    size_t slow = 0;

    for (size_t i = 0; i < cl->n_nodes; i++)
        for (size_t k = 0; k < cl->nodes[i]->n_slots; k++)
            slow += cl->nodes[i]->slots[k].slow.slow;
    return slow;
}
