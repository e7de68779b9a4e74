#include "server/control/swaps.h"

#include <stdlib.h>
#include <string.h>

#include "server/cluster/job_time.h"
#include "server/cluster/slots.h"
#include "server/control/state.h"

void swaps_settle(struct core *c)
{
    struct spares_claims claims = {.n = 0};
    size_t n = 0;

    if (c->cfg.spares.n == 0)
        return;
    for (size_t i = 0; i < c->jobs.n_order; i++)
        n += table_at(&c->jobs, i) ? table_at(&c->jobs, i)->n_target : 0;
    claims.nodes = calloc(n + 1, sizeof(*claims.nodes));
    if (!claims.nodes)
        return; /* the next round does it */
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        for (size_t k = 0; e && k < e->n_target; k++) {
            claims.nodes[claims.n++] = e->target[k].node;
            claims.of_class[e->target[k].class_] += e->target[k].spare ? e->target[k].n : 0;
        }
    }
    spares_settle(&c->cluster, &c->cfg.spares, &claims, c->now.wall_us);
    free(claims.nodes);
}

size_t swaps_warm(const struct core *c, const struct node *n, int *ret)
{
    size_t found = 0;

    for (size_t k = 0; c->cfg.spares.n > 0 && k < n->n_slots; k++) {
        const struct slot *s = &n->slots[k];
        const struct entry *e = s->job ? table_find(&c->jobs, s->job) : NULL;

        if ((s->spare || (e && e->job.kind == JOB_TRAIN)) && slots_usable(s) &&
            spares_warm(&c->cfg.spares, c->cluster.classes.name[s->class_]))
            ret[found++] = s->slot;
    }
    return found;
}

bool swaps_keep(const struct core *c, const struct entry *e)
{
    return c->cfg.spares.n > 0 && e->run.gave_up && e->job.state == JOB_RUNNING && e->job.intent == JOB_GO_ON;
}

/* Spares of a class on a node that no job has claimed. */
static int unclaimed(const struct core *c, const struct node *n, uint8_t class_)
{
    int left = spares_on(n, class_);

    for (size_t i = 0; left > 0 && i < c->jobs.n_order; i++) {
        const struct entry *e = table_at(&c->jobs, i);

        for (size_t k = 0; e && k < e->n_target; k++)
            if (e->target[k].spare && e->target[k].node == n && e->target[k].class_ == class_)
                left -= e->target[k].n;
    }
    return left;
}

static void add(struct entry *e, struct node *n, uint8_t class_, bool spare)
{
    struct target *last = e->n_target > 0 ? &e->target[e->n_target - 1] : NULL;

    if (!last || last->node != n || last->class_ != class_ || last->spare != spare)
        e->target[e->n_target++] =
            (struct target){.node = n, .class_ = class_, .spare = spare, .closes_us = -1, .n = 1};
    else
        last->n++;
}

/* A spare of the class: of the node that gave the last one, as long as it has any. False: there is none. */
static bool add_spare(const struct core *c, struct entry *e, uint8_t class_)
{
    const struct target *last = e->n_target > 0 ? &e->target[e->n_target - 1] : NULL;
    struct node *best = last && last->spare && unclaimed(c, last->node, class_) > 0 ? last->node : NULL;
    int most = 0;

    for (size_t i = 0; !last || !best || !last->spare; i++) {
        struct node *n = i < c->cluster.n_nodes ? c->cluster.nodes[i] : NULL;
        int here = n && !entry_excludes(e, n->name) ? unclaimed(c, n, class_) : 0;

        if (!n)
            break;
        if (here > most) {
            most = here;
            best = n;
        }
    }
    if (best)
        add(e, best, class_, true);
    return best != NULL;
}

/* Whether the run can have the device again, which it holds or has just left. */
static bool is_left(const struct core *c, const struct job *j, const struct job_place *p, const char *lost)
{
    const struct node *n = cluster_node(&c->cluster, p->node);
    const struct slot *s = node_slot(n, p->slot);

    return s && strcmp(p->node, lost) != 0 && node_gives(n) && (s->job == j->id || (s->job == 0 && !s->spare)) &&
           slots_usable(s) && !s->slow.slow;
}

/* The devices that it has left, and spares for the others. False: there are too few, or none is lost. */
static bool claim(const struct core *c, struct entry *e, const char *lost)
{
    const struct job *j = &e->job;
    bool good = true, any = false;

    entry_target_clear(e);
    e->target = calloc(j->n_places + 1, sizeof(*e->target));
    for (size_t i = 0; e->target && good && i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        uint8_t of = classes_find(&c->cluster.classes, p->class_);

        if (is_left(c, j, p, lost)) {
            add(e, cluster_node(&c->cluster, p->node), of, false);
        } else {
            any = true;
            good = of < CLASSES_MAX && add_spare(c, e, of);
        }
    }
    good = good && any && e->n_target > 0;
    if (!good)
        entry_target_clear(e);
    return good;
}

void swaps_claim(struct core *c, struct entry *e, enum act_class class_)
{
    const struct job *j = &e->job;
    const char *lost = json_string_value(json_object_get(j->outcome, "node"));

    if (c->cfg.spares.n > 0 && act_takes_spare(class_) && lost && j->live && j->intent == JOB_GO_ON &&
        j->state == JOB_RECOVERING && !job_time_backs_off(j, c->now.wall_us))
        (void)claim(c, e, lost);
}

bool swaps_leave(struct core *c, struct entry *e)
{
    const struct job *j = &e->job;
    bool fails = false;

    if (c->cfg.spares.n == 0 || !j->live || j->intent != JOB_GO_ON || j->state != JOB_RUNNING)
        return false;
    for (size_t i = 0; i < j->n_places && !fails; i++) {
        const struct node *n = cluster_node(&c->cluster, j->places[i].node);

        fails = n && n->drain && n->health.state != HEALTH_HELD;
    }
    return fails && claim(c, e, "");
}
