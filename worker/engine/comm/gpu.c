#include "worker/engine/comm/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"

#define WORTH_BYTES (64u << 10) /* below, starting the GPU costs more than it saves */
#define PIECE_ALIGN 256u

/* --- the world ---------------------------------------------------------------------------------- */

int gpu_open(struct gpu *gpu, struct wait *wait, const struct comm_cfg *cfg, struct gpu_card *ret, struct merr *err)
{
    struct merr why = {""};
    int version = 0, r;

    *ret = (struct gpu_card){.version = 0};
    *gpu = (struct gpu){.wait = wait, .ops = cfg->device, .ordinal = cfg->device_ordinal, .needed = cfg->device_needed};
    if (!cfg->device) {
        if (cfg->device_needed)
            (void)snprintf(gpu->said, sizeof(gpu->said), "rank %d does not compute on a GPU", wait->rank);
        return 0;
    }
    TRY(cfg->device->open(cfg->device_ordinal, &gpu->queue, err));
    cfg->device->id(gpu->queue, &ret->id);
    if (cfg->device_apart)
        return 0;
    r = fabric_load(&version, &why);
    ret->version = version;
    if (r < 0)
        (void)snprintf(gpu->said, sizeof(gpu->said), "%.255s", why.text);
    return r < 0 && cfg->device_needed ? merr_set(err, r, "%s", why.text) : 0;
}

/* Words for why the ranks cannot use a fabric together, or none. */
static void reason(const struct gpu *gpu, const struct gpu_card *card, char *ret, size_t room)
{
    for (int i = 0; i < gpu->wait->size && !*ret; i++) {
        if (!card[i].version)
            (void)snprintf(ret, room, "rank %d has no GPU with %s", i, fabric_name());
        else if (card[i].version != card[0].version)
            (void)snprintf(ret, room, "rank 0 has %s %d, rank %d has %d; install the same on all nodes", fabric_name(),
                           (int)card[0].version, i, (int)card[i].version);
        for (int k = 0; k < i && !*ret; k++) {
            if (memcmp(card[i].id.gpu, card[k].id.gpu, DEVICE_ID_BYTES) == 0)
                (void)snprintf(ret, room, "ranks %d and %d share a GPU", k, i);
            else if (card[i].id.card == card[k].id.card)
                (void)snprintf(ret, room, "ranks %d and %d have slices of one GPU, which %s takes for the same", k, i,
                               fabric_name());
        }
    }
}

int gpu_agree(struct gpu *gpu, const struct gpu_card *card, struct merr *err)
{
    const struct gpu_card *mine = &card[gpu->wait->rank];
    int version = (int)mine->version;

    if (mine->version) {
        reason(gpu, card, gpu->said, sizeof(gpu->said));
        gpu->usable = !*gpu->said;
    }
    if (gpu->usable)
        (void)snprintf(gpu->said, sizeof(gpu->said), "%s %d.%d.%d", fabric_name(), version / 10000, version / 100 % 100,
                       version % 100);
    else if (gpu->needed)
        return merr_set(err, -ENODEV, "calls cannot go by %s: %s", fabric_name(), gpu->said);
    return 0;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu->queue)
        return;
    gpu->ops->free(gpu->queue, DEVICE_LOCAL, gpu->stage);
    gpu->ops->close(gpu->queue);
    gpu->queue = NULL;
}

void gpu_group_free(struct comm_group *g)
{
    fabric_free(g->fabric);
    g->fabric = NULL;
}

/* --- entering a call ---------------------------------------------------------------------------- */

/* The first call of a group that goes by the fabric connects its GPUs: the first member says where. */
static int connect_group(struct comm_group *g, uint32_t step)
{
    struct group_wave v = {.req = g->req};
    struct gpu *gpu = g->set->gpu;
    struct fabric_cfg at = {
        .wait = g->wait, .device = gpu->ops, .queue = gpu->queue, .of = group_members(g), .n = g->n, .index = g->index};
    int r = 0, also;

    if (g->index == 0) {
        TRY(fabric_id(&g->wait->failure, at.id));
        for (int i = 1; i < g->n && r == 0; i++)
            r = group_send(g, &v, i, step, at.id, sizeof(at.id));
    } else {
        r = group_recv(g, &v, 0, step, at.id, sizeof(at.id));
    }
    also = group_wait(g, &v);
    r = r < 0 ? r : also;
    TRY(r < 0 ? r : fabric_open(&at, &g->fabric));
    return fabric_settle(g->fabric, "connect GPUs");
}

bool gpu_worth(const struct comm_group *g, size_t bytes)
{
    return g->set->gpu->usable && g->n > 1 && bytes >= WORTH_BYTES;
}

bool gpu_holds(const struct comm_group *g, const void *p)
{
    return g->set->gpu->ops->holds(p);
}

int gpu_enter(struct comm_group *g, uint32_t step, bool held, bool worth)
{
    uint64_t counted = g->channel.bytes_sent;
    bool all = true, any = false;
    char *vote = group_scratch(g, (size_t)g->n);
    int r = 0;

    if (!vote)
        return g->wait->failure.code;
    vote[g->index] = (char)(held ? 1 + worth : 0);
    TRY(group_exchange(g, step, vote, 1));
    for (int i = 0; i < g->n; i++) {
        all &= vote[i] > 0;
        any |= vote[i] > 1;
    }
    if (all && any && !g->fabric)
        r = connect_group(g, step);
    g->channel.bytes_sent = counted;
    return r < 0 ? r : all && any;
}

/* --- calls -------------------------------------------------------------------------------------- */

/* What the communicator has started is ended, too: no buffer is read or written after. */
static int failed(struct comm_group *g, int r, const struct merr *why)
{
    if (r == 0)
        return 0;
    r = failure_keep(&g->wait->failure, r, "'%s': %.900s", g->channel.name, why->text);
    gpu_group_free(g);
    return r;
}

int gpu_stage(struct comm_group *g, char **ret)
{
    struct gpu *gpu = g->set->gpu;
    struct merr why = {""};
    void *p;

    if (!gpu->stage) {
        TRY(failed(g, gpu->ops->alloc(gpu->queue, DEVICE_LOCAL, GPU_STAGE_BYTES, &p, &why), &why));
        gpu->stage = p;
    }
    *ret = gpu->stage;
    return 0;
}

static int put(struct comm_group *g, int member, const void *buf, size_t bytes)
{
    if (bytes == 0)
        return 0;
    g->channel.bytes_sent += bytes;
    return fabric_send(g->fabric, member, buf, bytes);
}

static int get(struct comm_group *g, int member, void *buf, size_t bytes)
{
    return bytes == 0 ? 0 : fabric_recv(g->fabric, member, buf, bytes);
}

/* Everyone's part of the own share comes here, and the others' go to them. */
static int collect(const struct sum *s, size_t k, char *early, size_t stride)
{
    struct comm_group *g = s->g;

    TRY(fabric_begin(g->fabric));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = sum_piece(s, g->index, k, &at);

        TRY(get(g, from, early + (size_t)from * stride, n * s->size));
        n = sum_piece(s, to, k, &at);
        TRY(put(g, to, s->in + at * s->size, n * s->size));
    }
    return fabric_end(g->fabric);
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

    return n ? failed(g, g->set->gpu->ops->fold(g->set->gpu->queue, &f, &why), &why) : 0;
}

/* The own piece of the sum goes to all, and theirs come here. */
static int spread(const struct sum *s, size_t k)
{
    struct comm_group *g = s->g;

    TRY(fabric_begin(g->fabric));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;
        size_t at, n = sum_piece(s, from, k, &at);

        TRY(get(g, from, s->out + at * s->size, n * s->size));
        n = sum_piece(s, g->index, k, &at);
        TRY(put(g, to, s->out + at * s->size, n * s->size));
    }
    return fabric_end(g->fabric);
}

int gpu_sum(struct sum *s)
{
    struct comm_group *g = s->g;
    size_t stride = (GPU_STAGE_BYTES / (size_t)g->n) & ~(size_t)(PIECE_ALIGN - 1), rounds;
    char *early;

    TRY(gpu_stage(g, &early));
    s->per = stride / s->size;
    rounds = (s->share + s->per - 1) / s->per;
    for (size_t k = 0; k < rounds; k++) {
        TRY(collect(s, k, early, stride));
        TRY(fold(s, k, early, stride));
        if (!s->scatter)
            TRY(spread(s, k));
    }
    return fabric_finish(g->fabric);
}

int gpu_gather(struct comm_group *g, const void *in, size_t bytes, void *out)
{
    TRY(fabric_begin(g->fabric));
    TRY(fabric_all_gather(g->fabric, in, bytes, out));
    TRY(fabric_end(g->fabric));
    g->channel.bytes_sent += bytes * (size_t)(g->n - 1);
    return fabric_finish(g->fabric);
}

static int keep(struct comm_group *g, void *to, const void *from, size_t bytes)
{
    struct merr why = {""};

    if (to == from || bytes == 0)
        return 0;
    return failed(g, g->set->gpu->ops->copy(g->set->gpu->queue, to, from, bytes, &why), &why);
}

int gpu_gather_v(struct comm_group *g, const void *in, const size_t *bytes, const size_t *at, void *out)
{
    TRY(keep(g, (char *)out + at[g->index], in, bytes[g->index]));
    TRY(fabric_begin(g->fabric));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;

        TRY(get(g, from, (char *)out + at[from], bytes[from]));
        TRY(put(g, to, in, bytes[g->index]));
    }
    TRY(fabric_end(g->fabric));
    return fabric_finish(g->fabric);
}

int gpu_trade(struct comm_group *g, const void *const *send, const size_t *send_bytes, void *const *recv,
              const size_t *recv_bytes)
{
    TRY(keep(g, recv[g->index], send[g->index], send_bytes[g->index]));
    TRY(fabric_begin(g->fabric));
    for (int i = 1; i < g->n; i++) {
        int from = (g->index + g->n - i) % g->n, to = (g->index + i) % g->n;

        TRY(get(g, from, recv[from], recv_bytes[from]));
        TRY(put(g, to, send[to], send_bytes[to]));
    }
    TRY(fabric_end(g->fabric));
    return fabric_finish(g->fabric);
}

int gpu_broadcast(struct comm_group *g, void *buf, size_t bytes, int root)
{
    TRY(fabric_begin(g->fabric));
    TRY(fabric_broadcast(g->fabric, buf, bytes, root));
    TRY(fabric_end(g->fabric));
    if (g->index == root)
        g->channel.bytes_sent += bytes;
    return fabric_finish(g->fabric);
}
