#include "server/cluster/pace.h"

#include <string.h>

#define LEARN 0.3 /* share of the newest measurement */

static void blend(double *at, double value)
{
    *at = *at > 0 ? (1 - LEARN) * *at + LEARN * value : value;
}

static struct pace_news first_step(struct pace *p, uint32_t generation, int64_t mono_us)
{
    double cost = (double)p->restart_us, took = (double)(mono_us - p->rescale_began_us);

    p->learned_generation = generation;
    if (p->rescale_began_us <= 0)
        return (struct pace_news){.restart_s = 0};
    blend(&cost, took);
    p->restart_us = (int64_t)cost;
    p->rescale_began_us = 0;
    return (struct pace_news){.restart_s = took / 1e6};
}

struct pace_news pace_learn(struct pace *p, const struct job *j, uint32_t generation, double step_ms, int64_t mono_us)
{
    struct pace_news nothing = {.restart_s = 0};

    if (!j->live || j->generation != generation || step_ms <= 0)
        return nothing;
    if (p->learned_generation != generation)
        return first_step(p, generation, mono_us);
    for (size_t i = 1; i < j->n_places; i++)
        if (strcmp(j->places[i].class_, j->places[0].class_) != 0)
            return nothing; /* of a mix nobody can say whose speed it is */
    if (p->on_slow)
        return nothing; /* nor of devices that are slower than their class */
    return (struct pace_news){.steps_per_s = 1000 / step_ms};
}

struct leaf_time *pace_leaf_time(struct pace *p, const char *class_)
{
    for (size_t i = 0; i < p->n_leaf_times; i++)
        if (strcmp(p->leaf_times[i].class_, class_) == 0)
            return &p->leaf_times[i];
    return NULL;
}

double pace_worker_ms(const struct pace *p, const char *class_)
{
    const struct leaf_time *t = pace_leaf_time((struct pace *)p, class_);

    return t ? t->ms : 0;
}
