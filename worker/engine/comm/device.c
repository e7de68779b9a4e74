#include "worker/engine/comm/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "worker/engine/comm/nccl.h"

#define WORTH_BYTES (64u << 10) /* below, starting the GPU costs more than it saves */
#define PIECE_ALIGN 256u

/* --- the world ---------------------------------------------------------------------------------- */

int device_open(struct comm_world *w, const struct comm_cfg *cfg, struct device_card *ret, struct merr *err)
{
    struct merr why = {""};
    int version = 0, r;

    *ret = (struct device_card){.version = 0};
    w->gpu.ops = cfg->device;
    w->gpu.ordinal = cfg->device_ordinal;
    w->gpu.needed = cfg->device_needed;
    if (!cfg->device) {
        if (cfg->device_needed)
            (void)snprintf(w->gpu.said, sizeof(w->gpu.said), "rank %d does not compute on a GPU", w->rank);
        return 0;
    }
    TRY(cfg->device->open(cfg->device_ordinal, &w->gpu.queue, err));
    cfg->device->id(w->gpu.queue, ret->id);
    if (cfg->device_apart)
        return 0;
    r = nccl_load(&version, &why);
    ret->version = version;
    if (r < 0)
        (void)snprintf(w->gpu.said, sizeof(w->gpu.said), "%.255s", why.text);
    return r < 0 && cfg->device_needed ? merr_set(err, r, "%s", why.text) : 0;
}

/* Words for why the ranks cannot use NCCL together, or none. */
static void reason(const struct comm_world *w, const struct device_card *card, char *ret, size_t room)
{
    for (int i = 0; i < w->size && !*ret; i++) {
        if (!card[i].version)
            (void)snprintf(ret, room, "rank %d has no GPU with NCCL", i);
        else if (card[i].version != card[0].version)
            (void)snprintf(ret, room, "rank 0 has NCCL %d, rank %d has %d; install the same on all nodes",
                           card[0].version, i, card[i].version);
        for (int k = 0; k < i && !*ret; k++) {
            if (memcmp(card[i].id, card[k].id, DEVICE_ID_BYTES) == 0)
                (void)snprintf(ret, room, "ranks %d and %d share a GPU", k, i);
        }
    }
}

int device_agree(struct comm_world *w, const struct device_card *card, struct merr *err)
{
    const struct device_card *mine = &card[w->rank];

    if (mine->version) {
        reason(w, card, w->gpu.said, sizeof(w->gpu.said));
        w->gpu.usable = !*w->gpu.said;
    }
    if (w->gpu.usable)
        (void)snprintf(w->gpu.said, sizeof(w->gpu.said), "NCCL %d.%d.%d", mine->version / 10000,
                       mine->version / 100 % 100, mine->version % 100);
    else if (w->gpu.needed)
        return merr_set(err, -ENODEV, "calls cannot go by NCCL: %s", w->gpu.said);
    return 0;
}

const char *comm_device_said(const struct comm_world *w)
{
    return w->gpu.said;
}

bool comm_device_used(const struct comm_world *w)
{
    return w->gpu.usable;
}

void device_close(struct comm_world *w)
{
    if (!w->gpu.queue)
        return;
    coded_gpu_close(w);
    w->gpu.ops->free(w->gpu.queue, DEVICE_LOCAL, w->gpu.stage);
    w->gpu.ops->close(w->gpu.queue);
    w->gpu.queue = NULL;
}

void device_group_free(struct comm_group *g)
{
    nccl_free(g->nccl);
    g->nccl = NULL;
}

/* --- entering a call ---------------------------------------------------------------------------- */

/* The first call of a group that goes by NCCL connects its GPUs: the first member says where. */
static int connect_group(struct comm_group *g, uint32_t step)
{
    struct wave v = {.req = g->req};
    struct nccl_place at = {.n = g->n, .index = g->index};
    int r = 0, also;

    if (g->index == 0) {
        TRY(nccl_id(g->world, at.id));
        for (int i = 1; i < g->n && r == 0; i++)
            r = group_send(g, &v, i, step, at.id, sizeof(at.id));
    } else {
        r = group_recv(g, &v, 0, step, at.id, sizeof(at.id));
    }
    also = group_wait(g, &v);
    r = r < 0 ? r : also;
    TRY(r < 0 ? r : nccl_new(g, &at, g->world->gpu.queue, &g->nccl));
    return nccl_settle(g->nccl, "connect GPUs");
}

bool device_worth(const struct comm_group *g, size_t bytes)
{
    return g->world->gpu.usable && g->n > 1 && bytes >= WORTH_BYTES;
}

bool device_holds(const struct comm_group *g, const void *p)
{
    return g->world->gpu.ops->holds(p);
}

int device_enter(struct comm_group *g, uint32_t step, bool held, bool worth)
{
    uint64_t counted = g->bytes_sent;
    bool all = true, any = false;
    char *vote = world_scratch(g->world, (size_t)g->n);
    int r = 0;

    if (!vote)
        return g->world->failed;
    vote[g->index] = (char)(held ? 1 + worth : 0);
    TRY(group_exchange(g, step, vote, 1));
    for (int i = 0; i < g->n; i++) {
        all &= vote[i] > 0;
        any |= vote[i] > 1;
    }
    if (all && any && !g->nccl)
        r = connect_group(g, step);
    g->bytes_sent = counted;
    return r < 0 ? r : all && any;
}

/* --- calls -------------------------------------------------------------------------------------- */

/* What the communicator has started is ended, too: no buffer is read or written after. */
static int failed(struct comm_group *g, int r, const struct merr *why)
{
    if (r == 0)
        return 0;
    r = world_fail(g->world, r, "'%s': %.900s", g->name, why->text);
    device_group_free(g);
    return r;
}

int device_stage(struct comm_group *g, char **ret)
{
    struct comm_world *w = g->world;
    struct merr why = {""};
    void *p;

    if (!w->gpu.stage) {
        TRY(failed(g, w->gpu.ops->alloc(w->gpu.queue, DEVICE_LOCAL, DEVICE_STAGE_BYTES, &p, &why), &why));
        w->gpu.stage = p;
    }
    *ret = w->gpu.stage;
    return 0;
}

static int put(struct comm_group *g, int member, const void *buf, size_t bytes)
{
    if (bytes == 0)
        return 0;
    g->bytes_sent += bytes;
    return nccl_send(g->nccl, member, buf, bytes);
}

static int get(struct comm_group *g, int member, void *buf, size_t bytes)
{
    return bytes == 0 ? 0 : nccl_recv(g->nccl, member, buf, bytes);
}

/* Everyone's part of the own share comes here, and the others' go to them. */
static int collect(const struct sum *s, size_t k, char *early, size_t stride)
{
    struct comm_group *g = s->g;

    TRY(nccl_begin(g->nccl));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = sum_piece(s, g->index, k, &at);

        TRY(get(g, from, early + (size_t)from * stride, n * s->size));
        n = sum_piece(s, to, k, &at);
        TRY(put(g, to, s->in + at * s->size, n * s->size));
    }
    return nccl_end(g->nccl);
}

static int fold(const struct sum *s, size_t k, const char *early, size_t stride)
{
    static const enum device_type type[] = {
        [COMM_U8] = DEVICE_U8, [COMM_I64] = DEVICE_I64, [COMM_F32] = DEVICE_F32, [COMM_F64] = DEVICE_F64};
    struct comm_group *g = s->g;
    struct merr why = {""};
    size_t at, n = sum_piece(s, g->index, k, &at);
    struct device_fold f = {.type = type[s->type],
                            .max = s->op == COMM_MAX,
                            .n = g->n,
                            .index = g->index,
                            .own = s->in + at * s->size,
                            .rest = early,
                            .stride = stride,
                            .count = n,
                            .out = n ? sum_own(s, at) : NULL};

    return n ? failed(g, g->world->gpu.ops->fold(g->world->gpu.queue, &f, &why), &why) : 0;
}

/* The own piece of the sum goes to all, and theirs come here. */
static int spread(const struct sum *s, size_t k)
{
    struct comm_group *g = s->g;

    TRY(nccl_begin(g->nccl));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = sum_piece(s, from, k, &at);

        TRY(get(g, from, s->out + at * s->size, n * s->size));
        n = sum_piece(s, g->index, k, &at);
        TRY(put(g, to, s->out + at * s->size, n * s->size));
    }
    return nccl_end(g->nccl);
}

int device_sum(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t stride = (DEVICE_STAGE_BYTES / (size_t)g->n) & ~(size_t)(PIECE_ALIGN - 1), rounds;
    char *early;

    TRY(device_stage(g, &early));
    s->per = stride / s->size;
    rounds = (s->share + s->per - 1) / s->per;
    for (size_t k = 0; k < rounds; k++) {
        TRY(collect(s, k, early, stride));
        TRY(fold(s, k, early, stride));
        if (!s->scatter)
            TRY(spread(s, k));
    }
    return nccl_finish(g->nccl);
}

int device_gather(struct comm_group *g, const void *in, size_t bytes, void *out)
{
    TRY(nccl_begin(g->nccl));
    TRY(nccl_all_gather(g->nccl, in, bytes, out));
    TRY(nccl_end(g->nccl));
    g->bytes_sent += bytes * (size_t)(g->n - 1);
    return nccl_finish(g->nccl);
}

static int keep(struct comm_group *g, void *to, const void *from, size_t bytes)
{
    struct merr why = {""};

    if (to == from || bytes == 0)
        return 0;
    return failed(g, g->world->gpu.ops->copy(g->world->gpu.queue, to, from, bytes, &why), &why);
}

int device_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out)
{
    TRY(keep(g, (char *)out + at[g->index], in, bytes[g->index]));
    TRY(nccl_begin(g->nccl));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;

        TRY(get(g, from, (char *)out + at[from], bytes[from]));
        TRY(put(g, to, in, bytes[g->index]));
    }
    TRY(nccl_end(g->nccl));
    return nccl_finish(g->nccl);
}

int device_trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
                 const size_t *recv_bytes)
{
    TRY(keep(g, recv[g->index], send[g->index], send_bytes[g->index]));
    TRY(nccl_begin(g->nccl));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;

        TRY(get(g, from, recv[from], recv_bytes[from]));
        TRY(put(g, to, send[to], send_bytes[to]));
    }
    TRY(nccl_end(g->nccl));
    return nccl_finish(g->nccl);
}

int device_broadcast(struct comm_group *g, void *buf, size_t bytes, int root)
{
    TRY(nccl_begin(g->nccl));
    TRY(nccl_broadcast(g->nccl, buf, bytes, root));
    TRY(nccl_end(g->nccl));
    if (g->index == root)
        g->bytes_sent += bytes;
    return nccl_finish(g->nccl);
}
