#include "server/control/energy.h"

#include <stdio.h>
#include <string.h>

#include "server/cluster/powers.h"
#include "server/control/state.h"

void energy_look(const struct job *j, struct energy_run *ret)
{
    *ret = (struct energy_run){.live = j->live,
                               .waits = job_waits(j),
                               .generation = j->generation,
                               .from_us = j->changed_us,
                               .waiting_us = j->waiting_us,
                               .state = j->state};
    for (size_t p = 0; j->live && p < j->n_places; p++) {
        size_t k = 0;

        while (k < ret->n && strcmp(ret->of[k].class_, j->places[p].class_) != 0)
            k++;
        if (k == ENERGY_CLASSES_MAX)
            continue;
        if (k == ret->n)
            (void)snprintf(ret->of[ret->n++].class_, sizeof(ret->of[k].class_), "%s", j->places[p].class_);
        ret->of[k].n++;
    }
}

void energy_take(struct core *c, struct node *n)
{
    int64_t gap = c->now.mono_us - n->power_us;
    json_t *gpu;
    size_t i;

    n->power_us = c->now.mono_us;
    if (gap <= 0 || gap > ENERGY_GAP_US)
        return;
    json_array_foreach (n->gpus, i, gpu) {
        const json_t *number = json_object_get(gpu, "slot"), *watts = json_object_get(gpu, "power_w");
        const struct slot *s = json_is_integer(number) ? node_slot(n, (int)json_integer_value(number)) : NULL;
        struct entry *e = s && s->job ? table_find(&c->jobs, s->job) : NULL;
        json_int_t w = json_integer_value(watts);

        if (!e || !e->job.live || !json_is_integer(watts) || w < 0 || w > SCHED_DEVICE_POWER_MAX)
            continue;
        e->job.run_energy_j += (double)w * (double)gap / 1e6;
        e->job.run_energy_us += gap;
    }
}

/* Of a run up to now, by class of its devices. */
static struct energy_sum sum_of(const struct core *c, const struct job *j, const struct energy_run *run)
{
    struct energy_sum s = {.j = j->run_energy_j};
    double all_us = 0, device_us = 0, class_j = 0;

    for (size_t k = 0; k < run->n; k++) {
        double us = (double)run->of[k].n * (double)(c->now.wall_us - run->from_us);

        all_us += us > 0 ? us : 0;
        class_j += us > 0 ? us / 1e6 * powers_of(&c->cfg.powers, run->of[k].class_) : 0;
    }
    device_us = (double)j->run_energy_us < all_us ? (double)j->run_energy_us : all_us;
    s.measured_us = (int64_t)device_us;
    if (all_us > 0)
        s.j += class_j * (1 - device_us / all_us);
    return s;
}

struct energy_sum energy_end_run(struct core *c, struct entry *e, const struct energy_run *run)
{
    struct energy_sum s = sum_of(c, &e->job, run);

    e->job.energy_j += s.j;
    e->job.energy_us += s.measured_us;
    e->job.run_energy_j = 0;
    e->job.run_energy_us = 0;
    return s;
}

void energy_view(const struct core *c, const struct job *j, json_t *o)
{
    struct energy_sum s = {.j = j->energy_j, .measured_us = j->energy_us};
    double all_us = (double)j->device_us, share;

    if (j->live) {
        struct energy_run run;
        struct energy_sum now;

        energy_look(j, &run);
        now = sum_of(c, j, &run);
        s.j += now.j;
        s.measured_us += now.measured_us;
        for (size_t k = 0; k < run.n; k++)
            all_us += (double)run.of[k].n * (double)(c->now.wall_us - run.from_us);
    }
    if (s.j <= 0 || all_us <= 0)
        return;
    share = (double)s.measured_us / all_us;
    (void)json_object_set_new(o, "energy",
                              json_pack("{s:f, s:f, s:s}", "kwh", s.j / 3.6e6, "measured", share < 1 ? share : 1.0,
                                        "basis",
                                        share >= 0.99  ? "measured"
                                        : share > 0.01 ? "measured-and-class-power"
                                                       : "class-power"));
}
