#include "worker/engine/comm/transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/comm/transport/shm.h"
#include "worker/engine/comm/transport/ucx.h"

/* In the order of preference. */
static const struct transport_ops *const known[TRANSPORTS_MAX] = {&shm_transport, &ucx_transport};

int transports_check(const char *only, struct merr *err)
{
    if (!only || strcmp(only, ucx_transport.name) == 0)
        return 0;
    return merr_set(err, -EINVAL, "unknown transport '%s': want %s, or none named", only, ucx_transport.name);
}

/* The first that reaches rank. */
static int find(const struct transport_cfg *cfg, int from, int to)
{
    for (int i = 0; i < TRANSPORTS_MAX; i++) {
        if ((!cfg->only || strcmp(cfg->only, known[i]->name) == 0) && known[i]->reaches(cfg, from, to))
            return i;
    }
    assert(!"some transport reaches each rank");
    return 0;
}

struct need { /* of each known transport */
    bool mates, open;
};

static int open_all(struct transports *v, const struct transport_host *host, const struct transport_cfg *cfg,
                    const struct need *need, struct transport *opened[TRANSPORTS_MAX], struct merr *err)
{
    int n = 0, r;

    for (int i = 0; i < TRANSPORTS_MAX; i++)
        n += need[i].open;
    for (int i = 0; i < TRANSPORTS_MAX; i++) {
        if (!need[i].open)
            continue;
        r = known[i]->open(host, cfg, need[i].mates, n == 1, &opened[i], err);
        if (r < 0)
            return r;
        v->open[v->n++] = opened[i];
        if (known[i]->alloc)
            v->memory = opened[i];
        wait_add(host->wait, known[i]->source, opened[i]);
    }
    return 0;
}

int transports_open(struct transports *v, const struct transport_host *host, const struct transport_cfg *cfg,
                    int64_t deadline_us, struct merr *err)
{
    struct transport *opened[TRANSPORTS_MAX] = {NULL};
    struct need need[TRANSPORTS_MAX] = {{false, false}};
    int rank = host->meet.rank, r;

    *v = (struct transports){.n = 0};
    v->via = calloc((size_t)host->meet.size, sizeof(*v->via));
    if (!v->via)
        return merr_set(err, -ENOMEM, "no memory for the ways to %d ranks", host->meet.size);
    for (int i = 0; i < TRANSPORTS_MAX; i++)
        need[i].open = known[i]->alloc && cfg->shared_bytes;
    for (int i = 0; i < host->meet.size; i++) {
        if (i != rank)
            need[find(cfg, rank, i)] = (struct need){true, true};
    }
    r = open_all(v, host, cfg, need, opened, err);
    for (int k = 0; k < TRANSPORTS_MAX && r == 0; k++) {
        for (int i = 0; i < host->meet.size && r == 0; i++) {
            if (i == rank || find(cfg, rank, i) != k)
                continue;
            r = known[k]->meet(opened[k], i, deadline_us, err);
            v->via[i] = opened[k];
        }
    }
    return r;
}

void transports_close(struct transports *v)
{
    while (v->n > 0) {
        struct transport *t = v->open[--v->n];

        wait_remove(t->host->wait, t);
        t->ops->close(t);
    }
    v->memory = NULL;
    free(v->via);
    v->via = NULL;
}

bool transports_share(const struct transports *v, int rank)
{
    return v->memory && v->via[rank] == v->memory;
}

void *transports_alloc(struct transports *v, size_t bytes)
{
    return v->memory ? v->memory->ops->alloc(v->memory, bytes) : NULL;
}

uint64_t transports_offset(const struct transports *v, const void *p, size_t bytes)
{
    return v->memory ? v->memory->ops->offset(v->memory, p, bytes) : UINT64_MAX;
}

void *transports_peer_at(const struct transports *v, int rank, uint64_t offset, size_t bytes)
{
    return v->memory->ops->peer_at(v->memory, rank, offset, bytes);
}
