#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/try.h"
#include "worker/engine/comm/device.h"
#include "worker/engine/comm/direct.h"
#include "worker/engine/comm/world.h"

#define TIMEOUT_US 120000000
#define SPINS 64         /* empty looks before sleeping: some microseconds */
#define WATCH_SPINS 2000 /* looks at a GPU before sleeping: about as long as it takes to move a mebibyte */
#define WATCH_NAP_US 100 /* short: GPUs tell nobody when they are done */
#define LINGER_US 5000   /* a finished sender helps its last bytes out this long, without progress */
#define CLOSE_US 1000000 /* of waiting for sends and goodbyes when leaving in good order */
#define SHARED_MAX (1ull << 44)

int world_fail(struct comm_world *w, int code, const char *fmt, ...)
{
    va_list ap;

    assert(code < 0);
    if (w->failed)
        return w->failed;
    va_start(ap, fmt);
    (void)vsnprintf(w->why.text, sizeof(w->why.text), fmt, ap);
    va_end(ap);
    w->failed = code;
    return code;
}

int world_error(const struct comm_world *w, struct merr *err)
{
    assert(w->failed);
    return merr_set(err, w->failed, "%s", w->why.text);
}

bool world_progress(struct comm_world *w)
{
    bool moved = false;

    if (w->shm)
        moved |= comm_shm.progress(w);
    if (w->ucx)
        moved |= comm_ucx.progress(w);
    return w->gpu.messages ? direct_progress(w) || moved : moved;
}

void world_abandon(struct comm_world *w)
{
    if (w->ucx)
        ucx_abandon(w);
    direct_abandon(w);
}

void comm_poll(struct comm_world *w)
{
    (void)world_progress(w);
}

/* Sleep until something may have come, us microseconds at most. */
static void nap(struct comm_world *w, int64_t us)
{
    struct pollfd p[2] = {{.fd = -1, .events = POLLIN}, {.fd = shm_pipe_fd(w), .events = POLLIN}};

    if (w->shm && shm_doze(w, w->ucx != NULL) < 0)
        return;
    if (!w->ucx) {
        shm_futex(w, us);
    } else if ((p[0].fd = ucx_arm(w)) >= 0) {
        (void)poll(p, 2, (int)((us + 999) / 1000));
    }
    if (w->shm)
        shm_awake(w);
}

static struct comm_peer *lost_peer(struct comm_world *w)
{
    if (w->shm)
        shm_look(w);
    for (int i = 0; i < w->size; i++) {
        if (w->peers[i].lost)
            return &w->peers[i];
    }
    return NULL;
}

/* What ends a wait besides its own success. Frames that came before the peer went are in already. */
static int look_around(struct comm_world *w, const struct comm_request *req, int64_t deadline_us)
{
    struct comm_peer *gone;

    if (flight_aborted(w->flight))
        return world_fail(w, -ECANCELED, "told to give up while waiting for rank %d", req->peer->rank);
    gone = lost_peer(w);
    if (req->done || w->failed)
        return w->failed;
    if (gone)
        return world_fail(w, -ECONNRESET, "rank %d is gone", gone->rank);
    if (req->peer->bye && !direct_runs(w)) /* a GPU may be about to be done */
        return world_fail(w, -ECONNRESET, "rank %d left while rank %d waits for it in '%s'", req->peer->rank, w->rank,
                          req->group->name);
    if (clock_mono_us() >= deadline_us)
        return world_fail(w, -ETIMEDOUT, "rank %d did not answer rank %d in '%s' for %lld ms: is it stopped?",
                          req->peer->rank, w->rank, req->group->name, (long long)(w->timeout_us / 1000));
    return 0;
}

int world_wait(struct comm_world *w, struct comm_request *req)
{
    int64_t deadline = 0, looked = 0, now;
    unsigned idle = 0;

    while (!w->failed && !req->done) {
        if (world_progress(w)) {
            idle = 0;
            if (flight_aborted(w->flight))
                (void)world_fail(w, -ECANCELED, "told to give up while waiting for rank %d", req->peer->rank);
            continue;
        }
        if (req->done || w->failed || ++idle < SPINS)
            continue;
        now = clock_mono_us();
        if (!deadline)
            deadline = now + w->timeout_us;
        if (now - looked >= COMM_SLICE_US / 2 || req->peer->lost || req->peer->bye) {
            looked = now;
            if (look_around(w, req, deadline) < 0)
                break;
        }
        if (!req->done)
            nap(w, direct_runs(w)                   ? WATCH_NAP_US
                   : deadline - now < COMM_SLICE_US ? (deadline > now ? deadline - now : 1)
                                                    : COMM_SLICE_US);
    }
    if (w->failed)
        world_abandon(w);
    return req->done && !w->failed ? 0 : w->failed;
}

/* Fails when a member of g left in good order long ago: what it sent before may still be on its way to this GPU. */
static int look_for_leavers(struct comm_group *g, struct world_vigil *v, int64_t now, const char *what)
{
    int i = 0;

    while (i < g->n && !g->world->peers[g->rank[i]].bye)
        i++;
    if (i == g->n)
        return 0;
    if (!v->left_us)
        v->left_us = now;
    return now - v->left_us < CLOSE_US
               ? 0
               : world_fail(g->world, -ECONNRESET, "rank %d left while the GPUs of '%s' %s", g->rank[i], g->name, what);
}

int world_watch(struct comm_group *g, struct world_vigil *v, const char *what)
{
    struct comm_world *w = g->world;
    int64_t now = clock_mono_us();

    (void)world_progress(w);
    if (!v->deadline_us)
        v->deadline_us = now + w->timeout_us;
    if (flight_aborted(w->flight))
        return world_fail(w, -ECANCELED, "told to give up while the GPUs of '%s' %s", g->name, what);
    if (now - v->looked_us >= COMM_SLICE_US / 2) {
        struct comm_peer *gone = lost_peer(w);

        v->looked_us = now;
        if (gone)
            return world_fail(w, -ECONNRESET, "rank %d is gone", gone->rank);
        TRY(look_for_leavers(g, v, now, what));
    }
    if (now >= v->deadline_us)
        return world_fail(w, -ETIMEDOUT, "the GPUs of '%s' did not %s for %lld ms: is a rank stopped?", g->name, what,
                          (long long)(w->timeout_us / 1000));
    if (++v->looks > WATCH_SPINS)
        nap(w, WATCH_NAP_US);
    return w->failed;
}

void *world_scratch(struct comm_world *w, size_t bytes)
{
    char *p;

    if (bytes <= w->scratch_bytes)
        return w->scratch;
    p = malloc(bytes);
    if (!p) {
        (void)world_fail(w, -ENOMEM, "no memory for %zu bytes of scratch", bytes);
        return NULL;
    }
    free(w->scratch);
    w->scratch = p;
    w->scratch_bytes = bytes;
    return p;
}

static int check_cfg(const struct comm_cfg *cfg, struct merr *err)
{
    if (cfg->size < 1 || cfg->size > COMM_RANKS_MAX || cfg->rank < 0 || cfg->rank >= cfg->size)
        return merr_set(err, -EINVAL, "rank %d of a world of %d: want 0 to size - 1, at most %d ranks", cfg->rank,
                        cfg->size, COMM_RANKS_MAX);
    if (!cfg->flight || (cfg->size > 1 && (!cfg->rendezvous || !cfg->node_of)) || cfg->timeout_us < 0)
        return merr_set(err, -EINVAL, "a world needs a flight page, a rendezvous folder and the nodes of its ranks");
    if (cfg->transport && strcmp(cfg->transport, "ucx") != 0)
        return merr_set(err, -EINVAL, "unknown transport '%s': want ucx, or none named", cfg->transport);
    if (cfg->shared_bytes > SHARED_MAX)
        return merr_set(err, -EINVAL, "%zu bytes of shared memory are more than %llu", cfg->shared_bytes, SHARED_MAX);
    return 0;
}

/* All tell all what they have for a GPU: whoever leaves it knows that all ways work. */
static int greet(struct comm_world *w, const struct device_card *mine, struct merr *err)
{
    struct comm_group *all;
    int *ranks = calloc((size_t)w->size, sizeof(*ranks));
    struct device_card *card = calloc((size_t)w->size, sizeof(*card));
    int r = ranks && card ? 0 : merr_set(err, -ENOMEM, "no memory for %d ranks", w->size);

    for (int i = 0; r == 0 && i < w->size; i++)
        ranks[i] = i;
    if (r == 0)
        r = comm_group_new(w, "rendezvous", ranks, w->size, &all, err);
    if (r == 0)
        r = comm_all_gather(all, mine, sizeof(*mine), card, err);
    if (r == 0)
        r = device_agree(w, card, err);
    free(ranks);
    free(card);
    return r;
}

static int meet(struct comm_world *w, const struct comm_cfg *cfg, struct merr *err)
{
    struct shm_cfg shm = {.rendezvous = cfg->rendezvous ? cfg->rendezvous : "",
                          .node_of = cfg->node_of,
                          .shared_bytes = cfg->shared_bytes,
                          .shared_fd = cfg->shared_fd};
    int64_t deadline = clock_mono_us() + w->timeout_us;
    bool far = false;
    int r = 0;

    for (int i = 0; i < w->size; i++) {
        bool near = !cfg->transport && cfg->size > 1 && cfg->node_of[i] == cfg->node_of[w->rank];

        if (i != w->rank && near)
            shm.mates = true;
        else if (i != w->rank)
            far = true;
    }
    shm.pipe = shm.mates && far;
    if (shm.mates || cfg->shared_bytes)
        r = shm_publish(w, &shm, err);
    if (r == 0 && far)
        r = ucx_publish(w, cfg->rendezvous, err);
    if (r == 0 && shm.mates)
        r = shm_meet(w, &shm, deadline, err);
    if (r == 0 && far)
        r = ucx_meet(w, cfg->rendezvous, deadline, err);
    return r;
}

int comm_world_open(const struct comm_cfg *cfg, struct comm_world **ret, struct merr *err)
{
    struct comm_world *w;
    struct device_card card;
    int r = check_cfg(cfg, err);

    if (r < 0)
        return r;
    w = calloc(1, sizeof(*w));
    if (w) {
        w->peers = calloc((size_t)cfg->size, sizeof(*w->peers));
        w->node_of = calloc((size_t)cfg->size, sizeof(*w->node_of));
    }
    if (!w || !w->peers || !w->node_of) {
        if (w) {
            free(w->peers);
            free(w->node_of);
        }
        free(w);
        return merr_set(err, -ENOMEM, "no memory for a world of %d ranks", cfg->size);
    }
    w->rank = cfg->rank;
    w->size = cfg->size;
    w->generation = cfg->generation;
    (void)snprintf(w->name, sizeof(w->name), "%s", cfg->name ? cfg->name : "");
    w->timeout_us = cfg->timeout_us ? cfg->timeout_us : TIMEOUT_US;
    w->flight = cfg->flight;
    for (int i = 0; i < w->size; i++) {
        message_peer_init(&w->peers[i], i);
        w->node_of[i] = cfg->node_of ? cfg->node_of[i] : 0;
    }
    r = device_open(w, cfg, &card, err);
    if (r == 0)
        r = meet(w, cfg, err);
    if (r == 0 && w->size > 1)
        r = greet(w, &card, err);
    if (r < 0) {
        (void)world_fail(w, r, "the world did not open");
        comm_world_close(w);
        return r;
    }
    *ret = w;
    return 0;
}

/* Everything sent, a goodbye to all far peers and from them, or time is up. */
static bool all_left(struct comm_world *w, bool *told)
{
    bool all = true;

    for (int i = 0; i < w->size; i++) {
        struct comm_peer *p = &w->peers[i];

        if (!p->via || p->lost || (p->via != &comm_ucx && p->bye))
            continue;
        if (p->via == &comm_ucx && !told[i] && !p->sending.first)
            told[i] = message_bye(w, p) > 0;
        if (p->sending.first || (p->via == &comm_ucx && (!told[i] || !p->bye)))
            all = false;
    }
    return all;
}

static void leave(struct comm_world *w)
{
    int64_t deadline = clock_mono_us() + CLOSE_US;
    bool *told = calloc((size_t)w->size, sizeof(*told));

    while (told && !w->failed && !all_left(w, told) && !flight_aborted(w->flight)) {
        int64_t now = clock_mono_us();

        if (world_progress(w))
            continue;
        if (now >= deadline || lost_peer(w))
            break;
        nap(w, deadline - now < COMM_SLICE_US ? deadline - now : COMM_SLICE_US);
    }
    free(told);
}

void comm_world_close(struct comm_world *w)
{
    int saved = errno;

    if (!w)
        return;
    for (struct comm_group *g = w->groups; g; g = g->next)
        device_group_free(g);
    direct_close(w);
    if (!w->failed && w->size > 1)
        leave(w);
    device_close(w);
    ucx_close(w);
    shm_close(w);
    for (int i = 0; i < w->size; i++)
        message_peer_clear(&w->peers[i]);
    for (struct comm_request *r = w->grave, *next; r; r = next) {
        next = r->next;
        message_free(r);
    }
    for (struct comm_group *g = w->groups, *next; g; g = next) {
        next = g->next;
        group_free(g);
    }
    free(w->scratch);
    free(w->peers);
    free(w->node_of);
    free(w);
    errno = saved;
}

void comm_world_timeout(struct comm_world *w, int64_t timeout_us)
{
    assert(timeout_us > 0);
    w->timeout_us = timeout_us;
}

int comm_rank(const struct comm_world *w)
{
    return w->rank;
}

int comm_size(const struct comm_world *w)
{
    return w->size;
}

void *comm_shared_alloc(struct comm_world *w, size_t bytes)
{
    return shm_alloc(w, bytes);
}

/* --- messages ---------------------------------------------------------------------------------- */

static int message_check(struct comm_group *g, int peer, struct merr *err)
{
    if (g->world->failed)
        return world_error(g->world, err);
    if (peer < 0 || peer >= g->n || peer == g->index)
        return merr_set(err, -EINVAL, "member %d of '%s' cannot speak with member %d of %d", g->index, g->name, peer,
                        g->n);
    return 0;
}

int comm_isend(struct comm_group *g, int peer, uint32_t tag, const void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err)
{
    struct frame head = {.generation = g->world->generation,
                         .group = g->id,
                         .length = bytes,
                         .source = (uint32_t)g->world->rank,
                         .step = tag,
                         .kind = FRAME_MESSAGE};
    struct comm_request *req;
    int r = message_check(g, peer, err);

    if (r < 0)
        return r;
    req = (direct_worth(g, buf, bytes) ? direct_send : message_send)(g, peer, &head, buf);
    if (!req)
        return world_error(g->world, err);
    *ret = req;
    return 0;
}

int comm_irecv(struct comm_group *g, int peer, uint32_t tag, void *buf, size_t bytes, struct comm_request **ret,
               struct merr *err)
{
    struct frame head = {.group = g->id, .length = bytes, .step = tag, .kind = FRAME_MESSAGE};
    struct comm_request *req;
    int r = message_check(g, peer, err);

    if (r < 0)
        return r;
    req = (direct_worth(g, buf, bytes) ? direct_recv : message_recv)(g, peer, &head, buf);
    if (!req)
        return world_error(g->world, err);
    *ret = req;
    return 0;
}

/* A send that lies in our own memory goes on by itself; help it out while it moves. */
static void linger(struct comm_world *w, struct comm_request *req)
{
    int64_t until = clock_mono_us() + LINGER_US;

    while (!req->done && !w->failed && !flight_aborted(w->flight)) {
        if (world_progress(w))
            until = clock_mono_us() + LINGER_US;
        else if (clock_mono_us() >= until)
            return;
        else
            nap(w, LINGER_US / 5);
    }
}

static int wait_one(struct comm_request *req, struct merr *err)
{
    struct comm_world *w = req->group->world;
    int r;

    flight_enter(w->flight, req->send ? COMM_CALL_SEND : COMM_CALL_RECV, req->group->name, ++req->group->messages,
                 req->bytes);
    if (req->send && req->staged && !req->done && !w->failed)
        linger(w, req);
    r = req->send && req->staged && !w->failed ? 0 : world_wait(w, req);
    if (r == 0 && req->part)
        r = coded_land(req);
    if (r < 0) {
        message_drop(w, req);
        r = world_error(w, err); /* no leave: the ring shows where it ended */
    } else {
        message_detach(w, req);
        flight_leave(w->flight);
    }
    return r;
}

int comm_wait(struct comm_request *req, struct merr *err)
{
    int r = 0;

    for (struct comm_request *next; req; req = next) {
        int also;

        next = req->more;
        also = wait_one(req, r < 0 ? NULL : err);
        r = r < 0 ? r : also;
    }
    return r;
}

uint64_t comm_bytes_sent(const struct comm_group *g)
{
    return g->bytes_sent;
}
