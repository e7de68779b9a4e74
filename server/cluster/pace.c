#include "server/cluster/pace.h"

#include <string.h>

#define LEARN 0.3 /* share of the newest measurement */

static void blend(double *at, double value)
{
    *at = *at > 0 ? (1 - LEARN) * *at + LEARN * value : value;
}

static void first_step(struct pace *p, uint32_t generation, int64_t mono_us)
{
    double cost = (double)p->restart_us;

    p->learned_generation = generation;
    if (p->rescale_began_us <= 0)
        return;
    blend(&cost, (double)(mono_us - p->rescale_began_us));
    p->restart_us = (int64_t)cost;
    p->rescale_began_us = 0;
}

static struct profile_speed *speed_of(struct pace *p, int32_t devices, uint32_t generation)
{
    size_t at;

    for (size_t i = 0; i < p->n_speeds; i++)
        if (p->speeds[i].class_ == p->home_class && p->speeds[i].devices == devices)
            return &p->speeds[i];
    at = p->n_speeds < PACE_SPEEDS_MAX ? p->n_speeds++ : generation % PACE_SPEEDS_MAX;
    p->speeds[at] = (struct profile_speed){.class_ = p->home_class, .devices = devices};
    return &p->speeds[at];
}

void pace_learn(struct pace *p, const struct job *j, uint32_t generation, double step_ms, int64_t mono_us)
{
    if (!j->live || j->generation != generation || step_ms <= 0)
        return;
    if (p->learned_generation != generation) {
        first_step(p, generation, mono_us);
        return;
    }
    for (size_t i = 1; i < j->n_places; i++)
        if (strcmp(j->places[i].class_, j->places[0].class_) != 0)
            return; /* of a mix nobody can say whose speed it is */
    if (p->on_slow)
        return; /* nor of devices that are slower than their class */
    blend(&speed_of(p, (int32_t)j->n_places, generation)->steps_per_s, 1000 / step_ms);
}

void pace_forget(struct pace *p, const struct job *j)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_speeds; i++)
        if (p->speeds[i].class_ != p->home_class || p->speeds[i].devices != (int32_t)j->n_places)
            p->speeds[n++] = p->speeds[i];
    p->n_speeds = n;
}

bool pace_measured(const struct pace *p)
{
    return p->n_speeds > 0 || p->n_leaf_times > 0;
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
