#include "server/control/wall.h"

#include "base/log.h"
#include "server/cluster/job_time.h"
#include "server/cluster/gpus.h"
#include "server/cluster/stragglers.h"
#include "server/control/change.h"
#include "server/control/state.h"

#define STEP_US 1000000 /* less is noise, or does not matter */

void wall_follow(struct core *c)
{
    int64_t ahead_us = c->now.wall_us - c->now.mono_us, by_us = ahead_us - c->turn.wall_ahead_us;

    if (by_us > -STEP_US && by_us < STEP_US)
        return;
    c->turn.wall_ahead_us = ahead_us;
    log_warn("the clock of this machine was set by %+.1f s; waits and device time go on as if it had not been",
             (double)by_us / 1e6);
    for (size_t i = 0; i < c->jobs.n_order; i++) {
        struct entry *e = table_at(&c->jobs, i);

        if (!e)
            continue;
        job_time_shift(&e->job, by_us);
        change_drain_by(c, e, e->run.drain_deadline_us);
    }
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        struct node *n = c->cluster.nodes[i];

        n->seen_wall_us += n->seen_wall_us > 0 ? by_us : 0;
        n->lost_wall_us += n->lost_wall_us > 0 ? by_us : 0;
        stragglers_shift(n, by_us);
        health_shift(&n->health, by_us);
        gpus_shift(n, by_us);
        change_node(c, n);
    }
}
