#include "worker/snapshot/give.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/try.h"

#define MEET_US (INT64_C(10) * 1000000)        /* ranks wait so long for givers to come, */
#define CALL_US (INT64_C(30) * 1000000)        /* for each step of recovering, */
#define FLUSH_US (INT64_C(300) * 1000000)      /* and for a disk */
#define GIVER_MEET_US (INT64_C(120) * 1000000) /* ranks have to make their arenas first, and may have to wait for one */
#define GIVER_WAIT_US (INT64_C(600) * 1000000) /* while they load */

enum what { GIVE_GATHER, GIVE_FLUSH, GIVE_END };

struct order {
    int64_t what;   /* enum what */
    uint64_t limit; /* of the step; at GIVE_END: whether it was loaded */
};

struct give {
    struct give_cfg cfg;
    struct comm_world *world;
    struct comm_group *all;
    struct recover *recover;
    int *node_of; /* [size + givers] */
    bool loaded;
};

/* --- both sides -------------------------------------------------------------------------------------------- */

void give_free(struct give *g)
{
    if (!g)
        return;
    recover_free(g->recover);
    comm_world_close(g->world);
    free(g->node_of);
    free(g);
}

static int meet(struct give *g, const char *rendezvous, int64_t timeout_us, struct merr *err)
{
    int n = g->cfg.size + g->cfg.givers, *ranks = calloc((size_t)n, sizeof(*ranks)), r;
    struct comm_cfg cfg = {.rank = g->cfg.rank,
                           .size = n,
                           .generation = g->cfg.generation,
                           .node_of = g->node_of,
                           .rendezvous = rendezvous,
                           .name = "give.",
                           .flight = g->cfg.flight,
                           .timeout_us = timeout_us};

    if (!ranks)
        return merr_set(err, -ENOMEM, "no memory for %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    r = comm_world_open(&cfg, &g->world, err);
    if (r == 0)
        r = comm_group_new(g->world, "give", ranks, n, &g->all, err);
    free(ranks);
    return r;
}

static int look(struct give *g, struct merr *err)
{
    struct recover_cfg cfg = {.dir = g->cfg.dir,
                              .world = g->world,
                              .all = g->all,
                              .node_of = g->node_of,
                              .rank = g->cfg.rank,
                              .size = g->cfg.size + g->cfg.givers,
                              .givers = g->cfg.givers};

    return recover_open(&cfg, &g->recover, err);
}

static int open_all(const struct give_cfg *cfg, int64_t meet_us, int64_t then_us, struct give **ret, struct merr *err)
{
    struct give *g = calloc(1, sizeof(*g));
    int n = cfg->size + cfg->givers, r;

    if (g)
        g->node_of = calloc((size_t)n, sizeof(*g->node_of));
    if (!g || !g->node_of) {
        free(g);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", n);
    }
    g->cfg = *cfg;
    for (int i = 0; i < n; i++)
        g->node_of[i] = i < cfg->size ? cfg->node_of[i] : i;
    r = meet(g, cfg->rendezvous, meet_us, err);
    if (r == 0) {
        comm_world_timeout(g->world, then_us);
        r = look(g, err);
    }
    if (r != 0)
        give_free(g);
    else
        *ret = g;
    return r;
}

/* No rank has what it is to have unless all have. */
static int agree(struct give *g, int *own, struct merr *why, struct merr *err)
{
    double failed = *own != 0;

    TRY(comm_all_reduce(g->all, &failed, 1, COMM_F64, COMM_SUM, err));
    if (failed > 0 && *own == 0)
        *own = merr_set(why, -ECOMM, "another rank, or a node that the job has left, failed");
    return 0;
}

static int gather(struct give *g, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path, int *own,
                  struct merr *why, struct merr *err)
{
    TRY(recover_gather(g->recover, limit, needed, arg, ret_path, own, why, err));
    return agree(g, own, why, err);
}

static int flush(struct give *g, uint64_t limit, int *own, struct merr *why, struct merr *err)
{
    comm_world_timeout(g->world, FLUSH_US);
    return recover_flush(g->recover, limit, g->cfg.disk, g->cfg.generation, own, why, err);
}

/* --- ranks that train -------------------------------------------------------------------------------------- */

int give_open(const struct give_cfg *cfg, struct give **ret, struct merr *err)
{
    return open_all(cfg, MEET_US, CALL_US, ret, err);
}

struct recover *give_recover(struct give *g)
{
    return g->recover;
}

static int tell(struct give *g, enum what what, uint64_t limit, struct merr *err)
{
    struct order o = {.what = what, .limit = limit};

    return comm_broadcast(g->all, &o, sizeof(o), 0, err);
}

int give_gather(struct give *g, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path, int *ret_own,
                struct merr *why, struct merr *err)
{
    TRY(tell(g, GIVE_GATHER, limit, err));
    return gather(g, limit, needed, arg, ret_path, ret_own, why, err);
}

int give_flush(struct give *g, uint64_t limit, int *ret_own, struct merr *why, struct merr *err)
{
    TRY(tell(g, GIVE_FLUSH, limit, err));
    return flush(g, limit, ret_own, why, err);
}

void give_end(struct give *g, bool loaded)
{
    struct merr why;

    if (tell(g, GIVE_END, loaded, &why) != 0)
        log_info("nodes that the job has left may not know that it has done with them: %s", why.text);
}

/* --- givers ------------------------------------------------------------------------------------------------ */

static int needs_nothing(void *arg, struct mck *c, void (*take)(void *arg, uint32_t file, uint32_t chunk),
                         void *take_arg, struct merr *err)
{
    (void)arg;
    (void)c;
    (void)take;
    (void)take_arg;
    (void)err;
    return 0;
}

/* Do what rank 0 says. Returns 1 at the end. What fails on this node alone is the ranks' to judge. */
static int obey(struct give *g, struct merr *err)
{
    struct merr why = {""};
    struct order o;
    const char *path;
    int own = 0;

    comm_world_timeout(g->world, GIVER_WAIT_US);
    TRY(comm_broadcast(g->all, &o, sizeof(o), 0, err));
    switch (o.what) {
    case GIVE_GATHER:
        TRY(gather(g, o.limit, needs_nothing, NULL, &path, &own, &why, err));
        break;
    case GIVE_FLUSH:
        TRY(flush(g, o.limit, &own, &why, err));
        break;
    case GIVE_END:
        g->loaded = o.limit != 0;
        return 1;
    default:
        return merr_set(err, -EPROTO, "told to do %lld, which is nothing", (long long)o.what);
    }
    if (own != 0 && own != -ECOMM)
        log_warn("%s", why.text);
    return 0;
}

int give_serve(const struct give_cfg *cfg, bool *ret_loaded, struct merr *err)
{
    struct give *g;
    int r;

    TRY(open_all(cfg, GIVER_MEET_US, GIVER_WAIT_US, &g, err));
    do
        r = obey(g, err);
    while (r == 0);
    *ret_loaded = g->loaded;
    give_free(g);
    return r < 0 ? r : 0;
}
