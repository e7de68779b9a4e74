#include "server/control/ports.h"

#include "server/control/state.h"

#define PORT_FIRST 29500
#define LOOKS 64

int ports_choose(const struct core *c, const struct job *j)
{
    uint64_t from = c->cfg.ports_from + j->id * 31 + j->generation;
    size_t best = from % STATE_PORTS;

    for (size_t i = 0; i < LOOKS && c->dispatch.ports[best] > 0; i++) {
        size_t at = (from + i) % STATE_PORTS;

        best = c->dispatch.ports[at] < c->dispatch.ports[best] ? at : best;
    }
    return PORT_FIRST + (int)best;
}

static uint32_t *count_of(struct core *c, const struct job *j)
{
    int at = j->master_port - PORT_FIRST;

    return at >= 0 && at < STATE_PORTS ? &c->dispatch.ports[at] : NULL;
}

void ports_take(struct core *c, const struct job *j)
{
    uint32_t *n = count_of(c, j);

    if (n)
        ++*n;
}

void ports_leave(struct core *c, const struct job *j)
{
    uint32_t *n = count_of(c, j);

    if (n && *n > 0)
        --*n;
}
