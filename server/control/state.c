#include "server/control/state.h"

#include <errno.h>
#include <stdlib.h>

#include "server/control/polls.h"

int state_init(struct core *c, const struct core_cfg *cfg, struct store *store, struct stats *stats)
{
    *c = (struct core){.cfg = *cfg, .store = store, .stats = stats, .waiters = polls_new()};
    c->first_version = store_epoch(store) << 20;
    c->turn.done_tail = &c->turn.done;
    queue_init(&c->turn.queue, STATE_QUEUE_MAX);
    return cluster_init(&c->cluster) == 0 && table_init(&c->jobs) == 0 && c->waiters ? 0 : -ENOMEM;
}

void state_clear(struct core *c)
{
    table_clear(&c->jobs);
    cluster_clear(&c->cluster);
    queue_destroy(&c->turn.queue);
    events_clear(&c->events);
    free(c->givers.v);
    waiters_free(c->waiters);
}
