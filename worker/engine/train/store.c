#include "worker/engine/train/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/try.h"
#include "scheduler/plan/memory.h"
#include "worker/engine/train/state.h"

struct store {
    const struct rank *rank;
    struct optim_store calls;
    struct tiles *tiles;
    void *place; /* addresses that stand for the files' bytes; nothing is there */
    size_t place_bytes;
};

bool store_wanted(const struct rank *rank)
{
    return strcmp(rank->spec->memory.optimizer, "files") == 0;
}

uint64_t store_bytes(uint64_t n)
{
    return plan_store_bytes(n);
}

static int dir_of(const struct rank *rank, char out[MCK_PATH_MAX], struct merr *err)
{
    char name[sizeof(rank->run.job) + 16];

    (void)snprintf(name, sizeof(name), ".optimizer-%s", rank->run.job); /* other jobs may save in the same folder */
    return folder_join(rank->run.checkpoints, name, out, err);
}

/* --- the optimizer's calls --------------------------------------------------------------------------------- */

static int begin(void *arg, bool blank, struct merr *err)
{
    const struct store *s = arg;

    return tiles_begin(s->tiles, blank, err);
}

static int take(void *arg, size_t tile, void *ret[3], struct merr *err)
{
    const struct store *s = arg;

    return tiles_take(s->tiles, tile, ret, err);
}

static int give(void *arg, size_t tile, struct merr *err)
{
    const struct store *s = arg;

    return tiles_give(s->tiles, tile, err);
}

static int settle(void *arg, struct merr *err)
{
    const struct store *s = arg;

    return tiles_wait(s->tiles, err);
}

/* --- from start to end ------------------------------------------------------------------------------------- */

int store_new(const struct rank *rank, bool masters, struct store **ret, struct merr *err)
{
    struct store *s;

    if (rank->k->device)
        return merr_set(err, -ENOTSUP,
                        "memory.optimizer 'files' is not built yet for GPUs in this version; use 'device'");
    if (rank->mesh->cp > 1) /* chosen by a plan: the spec may not ask for it */
        return merr_set(err, -EINVAL,
                        "memory.optimizer 'files' with cp %d is not built yet in this version; use 'device', or give "
                        "parallel.cp 1",
                        rank->mesh->cp);
    s = calloc(1, sizeof(*s));
    if (!s)
        return merr_set(err, -ENOMEM, "no memory for the optimizer's store");
    s->rank = rank;
    s->calls = (struct optim_store){.arg = s,
                                    .tile_n = PLAN_TILE_BYTES / sizeof(float),
                                    .begin = begin,
                                    .take = take,
                                    .give = give,
                                    .settle = settle,
                                    .masters = masters};
    *ret = s;
    return 0;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    tiles_close(s->tiles);
    if (s->place)
        (void)munmap(s->place, s->place_bytes);
    free(s);
}

const struct optim_store *store_calls(const struct store *s)
{
    return s ? &s->calls : NULL;
}

int store_open(struct store *s, struct optim *o, struct merr *err)
{
    const struct rank *rank = s->rank;
    char dir[MCK_PATH_MAX];
    uint64_t plane = plan_store_plane(optim_state_n(o));
    struct state_view v = {
        .params = &rank->params, .mesh = rank->mesh, .zero = rank->spec->parallel.zero, .range = optim_ranges(o)};
    struct tiles_cfg cfg = {.dir = dir,
                            .rank = rank->mesh->rank,
                            .size = rank->run.world,
                            .generation = rank->run.generation,
                            .plane_bytes = plane,
                            .tile_bytes = plane < PLAN_TILE_BYTES ? plane : PLAN_TILE_BYTES,
                            .unread = s->calls.masters ? 0 : 1};
    struct mck_buffer *list;
    int r;

    TRY(dir_of(rank, dir, err));
    s->place_bytes = TILES_PLANES * plane;
    s->place = mmap(NULL, s->place_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->place == MAP_FAILED) {
        s->place = NULL;
        return merr_set(err, -ENOMEM, "no addresses for %llu MiB of the optimizer's state",
                        (unsigned long long)s->place_bytes >> 20);
    }
    v.master = s->place;
    v.m = v.master + plane / sizeof(float);
    v.v = v.m + plane / sizeof(float);
    TRY(state_save_list(&v, &list, &cfg.n, err));
    cfg.buf = list;
    cfg.base = s->place;
    r = tiles_open(&cfg, &s->tiles, err);
    free(list);
    return r;
}

int store_commit(const struct rank *rank, struct merr *err)
{
    char dir[MCK_PATH_MAX];
    struct merr why = {""};
    uint64_t step = 0;

    TRY(dir_of(rank, dir, err));
    if (rank->run.pass_over > 0) /* it may be what is to be passed over */
        return 0;
    if (tiles_commit(dir, rank->run.checkpoints, rank->run.generation, &step, &why) < 0)
        log_warn("what the optimizer's files hold is no checkpoint: %s", why.text);
    if (step > 0)
        log_info("step %llu is whole in the optimizer's files: it is a checkpoint", (unsigned long long)step);
    return 0;
}

void store_forget(const struct rank *rank)
{
    char dir[MCK_PATH_MAX];

    if (dir_of(rank, dir, NULL) != 0)
        return;
    tiles_clear(dir);
    (void)rmdir(dir);
}

int store_seal(struct store *s, uint64_t step, const json_t *kv, struct merr *err)
{
    return tiles_seal(s->tiles, step, kv, err);
}

int store_save(struct store *s, struct mck_file_of *ret, struct merr *err)
{
    return tiles_save(s->tiles, ret, err);
}
