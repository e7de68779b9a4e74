/* Passes over masters and moments that are not in memory: tile by tile, by the caller's store (optim.h). */
#include <errno.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/optim/optim_priv.h"

struct pass {
    struct optim *o;
    /* of a range of the arena, placed in the tile at hand, whose planes are masters, m, v */
    int (*visit)(const struct pass *p, const struct optim_range *r, const float *g, float *const plane[3],
                 struct merr *err);
    optim_fill fill;
    void *arg;
};

/* What of range i is in the tile from element `at` on. False: nothing. */
static bool in_tile(const struct optim *o, int i, size_t at, struct optim_range *ret)
{
    const struct optim_range *r = &o->range[i];
    size_t end = r->state + (r->end - r->begin), from = r->state > at ? r->state : at;
    size_t to = at + o->cfg.store->tile_n < end ? at + o->cfg.store->tile_n : end;

    if (from >= to)
        return false;
    *ret = (struct optim_range){r->begin + (from - r->state), r->begin + (to - r->state), from - at};
    return true;
}

static int visit_tile(const struct pass *p, size_t tile, float *const plane[3], struct merr *err)
{
    struct optim *o = p->o;
    struct optim_range r;

    o->master = o->cfg.narrow ? plane[0] : NULL; /* as update.c knows them */
    o->m = plane[1];
    o->v = plane[2];
    for (int i = 0; i < 2; i++) {
        const float *g = o->region[i].sum;

        if (!in_tile(o, i, tile * o->cfg.store->tile_n, &r))
            continue;
        TRY(p->visit(p, &r, g ? g + (r.begin - o->range[i].begin) : NULL, plane, err));
    }
    return o->cfg.k->stream_sync(o->cfg.stream, err);
}

static int all_tiles(const struct pass *p, struct merr *err)
{
    const struct optim_store *s = p->o->cfg.store;
    size_t tiles = (p->o->state_n + s->tile_n - 1) / s->tile_n;
    void *plane[3];

    for (size_t i = 0; i < tiles || i == 0; i++) { /* a rank with nothing of its own has a tile, too */
        float *at[3];
        int r;

        TRY(s->take(s->arg, i, plane, err));
        for (int k = 0; k < 3; k++)
            at[k] = plane[k];
        r = visit_tile(p, i, at, err);
        p->o->master = p->o->m = p->o->v = NULL;
        if (r < 0)
            return r;
        TRY(s->give(s->arg, i, err));
    }
    return 0;
}

/* Where masters are the weights, the store gets those. */
static int keep_master(const struct optim *o, const struct optim_range *r, float *const plane[3], struct merr *err)
{
    if (o->cfg.narrow)
        return 0;
    return o->cfg.k->copy(o->cfg.stream, plane[0] + r->state, o->cfg.weights + r->begin,
                          (r->end - r->begin) * sizeof(float), err);
}

static int visit_update(const struct pass *p, const struct optim_range *r, const float *g, float *const plane[3],
                        struct merr *err)
{
    TRY(optim_update_range(p->o, r, g, err));
    if (p->o->cfg.narrow)
        return optim_round_range(p->o, r, err);
    return keep_master(p->o, r, plane, err);
}

int optim_store_update(struct optim *o, struct merr *err)
{
    const struct pass p = {.o = o, .visit = visit_update};

    return all_tiles(&p, err);
}

static int visit_carry(const struct pass *p, const struct optim_range *r, const float *g, float *const plane[3],
                       struct merr *err)
{
    (void)g;
    return keep_master(p->o, r, plane, err);
}

int optim_carry(struct optim *o, struct merr *err)
{
    const struct pass p = {.o = o, .visit = visit_carry};

    return all_tiles(&p, err);
}

static int visit_fill(const struct pass *p, const struct optim_range *r, const float *g, float *const plane[3],
                      struct merr *err)
{
    (void)g;
    TRY(p->fill(p->arg, r, plane[0] + r->state, plane[1] + r->state, plane[2] + r->state, err));
    return p->o->cfg.narrow ? optim_round_range(p->o, r, err) : 0;
}

int optim_store_fill(struct optim *o, optim_fill fill, void *arg, struct merr *err)
{
    const struct pass p = {.o = o, .visit = visit_fill, .fill = fill, .arg = arg};
    const struct optim_store *s = o->cfg.store;

    TRY(s->begin(s->arg, true, err));
    TRY(all_tiles(&p, err));
    return 0;
}
