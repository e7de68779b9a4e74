/* world - all that a world is made of, from the bottom up, and in which order it comes and goes
 *
 *   wait        how this rank waits, and the first failure
 *   ways        transports to the peers; messages over them
 *   groups      and their calls
 *   gpu         calls and messages between GPUs
 */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/try.h"
#include "worker/engine/comm/coded_priv.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/direct.h"
#include "worker/engine/comm/gpu.h"
#include "worker/engine/comm/group.h"
#include "worker/engine/comm/message.h"
#include "worker/engine/comm/transport/transport.h"

#define TIMEOUT_US 120000000
#define CLOSE_US 1000000 /* of waiting for sends and goodbyes when leaving in good order */
#define SHARED_MAX (1ull << 44)

struct comm_world {
    struct wait wait;
    char name[16];
    char *folder; /* of the rendezvous */
    int *node_of; /* of each rank */
    struct transport_host host;
    struct transports ways;
    struct messages messages;
    struct groups groups;
    struct gpu gpu;
};

void comm_poll(struct comm_world *w)
{
    (void)wait_progress(&w->wait);
}

static int check_cfg(const struct comm_cfg *cfg, struct merr *err)
{
    if (cfg->size < 1 || cfg->size > COMM_RANKS_MAX || cfg->rank < 0 || cfg->rank >= cfg->size)
        return merr_set(err, -EINVAL, "rank %d of a world of %d: want 0 to size - 1, at most %d ranks", cfg->rank,
                        cfg->size, COMM_RANKS_MAX);
    if (!cfg->flight || (cfg->size > 1 && (!cfg->rendezvous || !cfg->node_of)) || cfg->timeout_us < 0)
        return merr_set(err, -EINVAL, "a world needs a flight page, a rendezvous folder and the nodes of its ranks");
    if (cfg->shared_bytes > SHARED_MAX)
        return merr_set(err, -EINVAL, "%zu bytes of shared memory are more than %llu", cfg->shared_bytes, SHARED_MAX);
    return transports_check(cfg->transport, err);
}

/* Whether each thread of the node's ranks has a core to itself, as far as is known here. */
static bool have_cores(const struct comm_cfg *cfg)
{
    int ranks = 0;
    cpu_set_t set;

    for (int i = 0; i < cfg->size; i++)
        ranks += !cfg->node_of || cfg->node_of[i] == cfg->node_of[cfg->rank];
    return cfg->threads > 0 && sched_getaffinity(0, sizeof(set), &set) == 0 && ranks * cfg->threads <= CPU_COUNT(&set);
}

/* All tell all what they have for a GPU: whoever leaves it knows that all ways work. */
static int greet_by(struct comm_world *w, const struct gpu_card *mine, int *ranks, struct gpu_card *card,
                    struct merr *err)
{
    struct comm_group *all;

    for (int i = 0; i < w->wait.size; i++)
        ranks[i] = i;
    TRY(comm_group_new(w, "rendezvous", ranks, w->wait.size, &all, err));
    TRY(comm_all_gather(all, mine, sizeof(*mine), card, err));
    return gpu_agree(&w->gpu, card, err);
}

static int greet(struct comm_world *w, const struct gpu_card *mine, struct merr *err)
{
    int *ranks = calloc((size_t)w->wait.size, sizeof(*ranks));
    struct gpu_card *card = calloc((size_t)w->wait.size, sizeof(*card));
    int r = ranks && card ? greet_by(w, mine, ranks, card, err)
                          : merr_set(err, -ENOMEM, "no memory for %d ranks", w->wait.size);

    free(ranks);
    free(card);
    return r;
}

static int meet(struct comm_world *w, const struct comm_cfg *cfg, struct merr *err)
{
    struct transport_cfg ways = {
        .node_of = w->node_of, .shared_bytes = cfg->shared_bytes, .shared_fd = cfg->shared_fd, .only = cfg->transport};
    int r = transports_open(&w->ways, &w->host, &ways, clock_mono_us() + w->wait.timeout_us, err);

    if (r == 0)
        messages_start(&w->messages, &w->ways);
    return r;
}

/* What costs nobody else anything. */
static int make(struct comm_world *w, const struct comm_cfg *cfg, struct merr *err)
{
    int64_t timeout_us = cfg->timeout_us ? cfg->timeout_us : TIMEOUT_US;
    int r = wait_init(&w->wait, cfg->rank, cfg->size, cfg->flight, timeout_us, err);

    if (r == 0)
        r = messages_init(&w->messages, &w->wait, cfg->generation, &groups_above, &w->groups, err);
    w->node_of = calloc((size_t)cfg->size, sizeof(*w->node_of));
    w->folder = strdup(cfg->rendezvous ? cfg->rendezvous : "");
    if (r == 0 && (!w->node_of || !w->folder))
        r = merr_set(err, -ENOMEM, "no memory for a world of %d ranks", cfg->size);
    if (r < 0)
        return r;
    for (int i = 0; i < cfg->size; i++)
        w->node_of[i] = cfg->node_of ? cfg->node_of[i] : 0;
    (void)snprintf(w->name, sizeof(w->name), "%s", cfg->name ? cfg->name : "");
    w->host = (struct transport_host){.wait = &w->wait,
                                      .meet = {.folder = w->folder,
                                               .world = w->name,
                                               .rank = cfg->rank,
                                               .size = cfg->size,
                                               .generation = cfg->generation,
                                               .flight = cfg->flight}};
    if (have_cores(cfg))
        wait_spin(&w->wait);
    messages_host(&w->messages, &w->host);
    w->groups = (struct groups){
        .wait = &w->wait, .messages = &w->messages, .ways = &w->ways, .node_of = w->node_of, .gpu = &w->gpu};
    return 0;
}

static int open_world(struct comm_world *w, const struct comm_cfg *cfg, struct merr *err)
{
    struct gpu_card card;

    TRY(make(w, cfg, err));
    TRY(gpu_open(&w->gpu, &w->wait, cfg, &card, err));
    TRY(meet(w, cfg, err));
    if (w->wait.size > 1)
        TRY(greet(w, &card, err));
    return w->gpu.usable ? direct_open(&w->gpu, err) : 0;
}

int comm_world_open(const struct comm_cfg *cfg, struct comm_world **ret, struct merr *err)
{
    struct comm_world *w;
    int r = check_cfg(cfg, err);

    if (r < 0)
        return r;
    w = calloc(1, sizeof(*w));
    if (!w)
        return merr_set(err, -ENOMEM, "no memory for a world of %d ranks", cfg->size);
    r = open_world(w, cfg, err);
    if (r < 0) {
        (void)failure_keep(&w->wait.failure, r, "the world did not open");
        comm_world_close(w);
        return r;
    }
    *ret = w;
    return 0;
}

/* Until everything is sent and goodbyes are said and heard, or time is up. */
static void leave(struct comm_world *w)
{
    int64_t deadline = clock_mono_us() + CLOSE_US;
    bool *told = calloc((size_t)w->wait.size, sizeof(*told));

    while (told && !w->wait.failure.code && !messages_left(&w->messages, told) && !flight_aborted(w->wait.flight)) {
        int64_t now = clock_mono_us();

        if (wait_progress(&w->wait))
            continue;
        if (now >= deadline || wait_lost(&w->wait) >= 0)
            break;
        wait_nap(&w->wait, deadline - now < WAIT_SLICE_US ? deadline - now : WAIT_SLICE_US);
    }
    free(told);
}

void comm_world_close(struct comm_world *w)
{
    int saved = errno;

    if (!w)
        return;
    for (struct comm_group *g = w->groups.first; g; g = g->next)
        gpu_group_free(g);
    direct_close(&w->gpu);
    if (!w->wait.failure.code && w->wait.size > 1)
        leave(w);
    coded_gpu_close(&w->gpu);
    gpu_close(&w->gpu);
    transports_close(&w->ways);
    messages_clear(&w->messages);
    groups_clear(&w->groups);
    wait_clear(&w->wait);
    free(w->node_of);
    free(w->folder);
    free(w);
    errno = saved;
}

void comm_world_timeout(struct comm_world *w, int64_t timeout_us)
{
    assert(timeout_us > 0);
    w->wait.timeout_us = timeout_us;
}

int comm_rank(const struct comm_world *w)
{
    return w->wait.rank;
}

int comm_size(const struct comm_world *w)
{
    return w->wait.size;
}

const char *comm_device_said(const struct comm_world *w)
{
    return w->gpu.said;
}

bool comm_device_used(const struct comm_world *w)
{
    return w->gpu.usable;
}

void *comm_shared_alloc(struct comm_world *w, size_t bytes)
{
    return transports_alloc(&w->ways, bytes);
}

int comm_group_new(struct comm_world *w, const char *name, const int *ranks, int n, struct comm_group **ret,
                   struct merr *err)
{
    return group_new(&w->groups, name, ranks, n, ret, err);
}
