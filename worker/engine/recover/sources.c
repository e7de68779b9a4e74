#include "worker/engine/recover/sources.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/try.h"

#define MEET_US (INT64_C(10) * 1000000)   /* ranks wait so long for source nodes to come, */
#define CALL_US (INT64_C(30) * 1000000)   /* for each step of recovering, */
#define FLUSH_US (INT64_C(300) * 1000000) /* and for a disk */
#define SOURCE_MEET_US                                                                                                 \
    (INT64_C(120) * 1000000) /* ranks have to make their arenas first, and may have to wait for one */
#define SOURCE_WAIT_US (INT64_C(600) * 1000000) /* while they load */

enum what { SOURCES_GATHER, SOURCES_FLUSH, SOURCES_END };

struct order {
    int64_t what;   /* enum what */
    uint64_t limit; /* of the step; at SOURCES_END: whether it was loaded */
};

struct sources {
    struct sources_cfg cfg;
    struct comm_world *world;
    struct comm_group *all;
    struct recover *recover;
    int *node_of; /* [size + source_nodes] */
    bool loaded;
};

/* --- both sides -------------------------------------------------------------------------------------------- */

void sources_free(struct sources *s)
{
    if (!s)
        return;
    recover_free(s->recover);
    comm_world_close(s->world);
    free(s->node_of);
    free(s);
}

static int meet(struct sources *s, const char *rendezvous, int64_t timeout_us, struct merr *err)
{
    int n = s->cfg.size + s->cfg.source_nodes, *ranks = calloc((size_t)n, sizeof(*ranks)), r;
    struct comm_cfg cfg = {.rank = s->cfg.rank,
                           .size = n,
                           .generation = s->cfg.generation,
                           .node_of = s->node_of,
                           .rendezvous = rendezvous,
                           .name = "give.",
                           .flight = s->cfg.flight,
                           .timeout_us = timeout_us};

    if (!ranks)
        return merr_set(err, -ENOMEM, "no memory for %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    r = comm_world_open(&cfg, &s->world, err);
    if (r == 0)
        r = comm_group_new(s->world, "give", ranks, n, &s->all, err);
    free(ranks);
    return r;
}

static int look(struct sources *s, struct merr *err)
{
    struct recover_cfg cfg = {.dir = s->cfg.dir,
                              .world = s->world,
                              .all = s->all,
                              .node_of = s->node_of,
                              .rank = s->cfg.rank,
                              .size = s->cfg.size + s->cfg.source_nodes,
                              .source_nodes = s->cfg.source_nodes};

    return recover_open(&cfg, &s->recover, err);
}

static int open_all(const struct sources_cfg *cfg, int64_t meet_us, int64_t then_us, struct sources **ret,
                    struct merr *err)
{
    struct sources *s = calloc(1, sizeof(*s));
    int n = cfg->size + cfg->source_nodes, r;

    if (s)
        s->node_of = calloc((size_t)n, sizeof(*s->node_of));
    if (!s || !s->node_of) {
        free(s);
        return merr_set(err, -ENOMEM, "no memory for %d ranks", n);
    }
    s->cfg = *cfg;
    for (int i = 0; i < n; i++)
        s->node_of[i] = i < cfg->size ? cfg->node_of[i] : i;
    r = meet(s, cfg->rendezvous, meet_us, err);
    if (r == 0) {
        comm_world_timeout(s->world, then_us);
        r = look(s, err);
    }
    if (r != 0)
        sources_free(s);
    else
        *ret = s;
    return r;
}

/* No rank has what it is to have unless all have. */
static int agree(struct sources *s, int *own, struct merr *why, struct merr *err)
{
    double failed = *own != 0;

    TRY(comm_all_reduce(s->all, &failed, 1, COMM_F64, COMM_SUM, err));
    if (failed > 0 && *own == 0)
        *own = merr_set(why, -ECOMM, "another rank, or a node that the job has left, failed");
    return 0;
}

static int gather(struct sources *s, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path, int *own,
                  struct merr *why, struct merr *err)
{
    TRY(recover_gather(s->recover, limit, needed, arg, ret_path, own, why, err));
    return agree(s, own, why, err);
}

static int flush(struct sources *s, uint64_t limit, int *own, struct merr *why, struct merr *err)
{
    comm_world_timeout(s->world, FLUSH_US);
    return recover_flush(s->recover, limit, s->cfg.disk, s->cfg.generation, own, why, err);
}

/* --- ranks that train -------------------------------------------------------------------------------------- */

int sources_open(const struct sources_cfg *cfg, struct sources **ret, struct merr *err)
{
    return open_all(cfg, MEET_US, CALL_US, ret, err);
}

struct recover *sources_recover(struct sources *s)
{
    return s->recover;
}

static int tell(struct sources *s, enum what what, uint64_t limit, struct merr *err)
{
    struct order o = {.what = what, .limit = limit};

    return comm_broadcast(s->all, &o, sizeof(o), 0, err);
}

int sources_gather(struct sources *s, uint64_t limit, recover_needed *needed, void *arg, const char **ret_path,
                   int *ret_own, struct merr *why, struct merr *err)
{
    TRY(tell(s, SOURCES_GATHER, limit, err));
    return gather(s, limit, needed, arg, ret_path, ret_own, why, err);
}

int sources_flush(struct sources *s, uint64_t limit, int *ret_own, struct merr *why, struct merr *err)
{
    TRY(tell(s, SOURCES_FLUSH, limit, err));
    return flush(s, limit, ret_own, why, err);
}

void sources_end(struct sources *s, bool loaded)
{
    struct merr why;

    if (tell(s, SOURCES_END, loaded, &why) != 0)
        log_info("nodes that the job has left may not know that it has done with them: %s", why.text);
}

/* --- source nodes ------------------------------------------------------------------------------------------ */

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
static int obey(struct sources *s, struct merr *err)
{
    struct merr why = {""};
    struct order o;
    const char *path;
    int own = 0;

    comm_world_timeout(s->world, SOURCE_WAIT_US);
    TRY(comm_broadcast(s->all, &o, sizeof(o), 0, err));
    switch (o.what) {
    case SOURCES_GATHER:
        TRY(gather(s, o.limit, needs_nothing, NULL, &path, &own, &why, err));
        break;
    case SOURCES_FLUSH:
        TRY(flush(s, o.limit, &own, &why, err));
        break;
    case SOURCES_END:
        s->loaded = o.limit != 0;
        return 1;
    default:
        return merr_set(err, -EPROTO, "told to do %lld, which is nothing", (long long)o.what);
    }
    if (own != 0 && own != -ECOMM)
        log_warn("%s", why.text);
    return 0;
}

int sources_serve(const struct sources_cfg *cfg, bool *ret_loaded, struct merr *err)
{
    struct sources *s;
    int r;

    TRY(open_all(cfg, SOURCE_MEET_US, SOURCE_WAIT_US, &s, err));
    do
        r = obey(s, err);
    while (r == 0);
    *ret_loaded = s->loaded;
    sources_free(s);
    return r < 0 ? r : 0;
}
