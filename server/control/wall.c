/* The wall clock, which people and the network may set: what is measured with it goes along when it is. */
#include "base/clock.h"
#include "base/log.h"
#include "server/control/core.h"

#define STEP_US 1000000 /* less is noise, or does not matter */

int64_t core_wall_of(int64_t mono_us)
{
    return mono_us == 0 ? 0 : clock_wall_us() + mono_us - clock_mono_us();
}

int64_t core_mono_of(int64_t wall_us)
{
    int64_t mono_us = wall_us == 0 ? 0 : clock_mono_us() + wall_us - clock_wall_us();

    return wall_us != 0 && mono_us < 1 ? 1 : mono_us; /* one that is past stays one */
}

void core_follow_wall(struct core *c)
{
    int64_t ahead_us = clock_wall_us() - clock_mono_us(), by_us = ahead_us - c->wall_ahead_us;

    if (by_us > -STEP_US && by_us < STEP_US)
        return;
    c->wall_ahead_us = ahead_us;
    log_warn("the clock of this machine was set by %+.1f s; waits and device time go on as if it had not been",
             (double)by_us / 1e6);
    for (size_t i = 0; i < c->n_order; i++) {
        struct entry *e = core_find(c, c->order[i]);

        if (!e)
            continue;
        job_shift(&e->job, by_us);
        core_drain_by(c, e, e->drain_deadline_us);
    }
    for (size_t i = 0; i < c->n_nodes; i++) {
        struct node *n = c->nodes[i];

        n->seen_wall_us += n->seen_wall_us > 0 ? by_us : 0;
        n->lost_wall_us += n->lost_wall_us > 0 ? by_us : 0;
        stragglers_shift(n, by_us);
        agents_store(c, n);
    }
}
