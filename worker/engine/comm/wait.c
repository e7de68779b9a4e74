#include "worker/engine/comm/wait.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/try.h"

#define SPINS 64         /* empty looks between two at the clock: some microseconds */
#define SPIN_US 100      /* about what sleeping and being woken cost */
#define MOVES_TOLD 1024  /* moves without a pause between two words to those who watch */
#define WATCH_SPINS 2000 /* looks at a GPU before sleeping: about as long as it takes to move a mebibyte */
#define WATCH_NAP_US 100 /* short: GPUs tell nobody when they are done */

int wait_init(struct wait *w, int rank, int size, struct flight *flight, int64_t timeout_us, struct merr *err)
{
    *w = (struct wait){.flight = flight, .timeout_us = timeout_us, .rank = rank, .size = size};
    w->peer = calloc((size_t)size, sizeof(*w->peer));
    return w->peer ? 0 : merr_set(err, -ENOMEM, "no memory for a world of %d ranks", size);
}

void wait_clear(struct wait *w)
{
    free(w->peer);
    w->peer = NULL;
}

void wait_spin(struct wait *w)
{
    w->spin_us = w->spin_most_us = SPIN_US;
}

int64_t wait_spin_next(int64_t spin_us, int64_t most_us, int64_t waited_us)
{
    return waited_us <= 2 * most_us ? most_us : spin_us / 2;
}

/* The core's other thread may go on meanwhile. */
static inline void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

void wait_add(struct wait *w, const struct wait_source *ops, void *self)
{
    assert(w->sources < WAIT_SOURCES_MAX && ops->progress);
    w->source[w->sources].ops = ops;
    w->source[w->sources].progress = ops->progress;
    w->source[w->sources++].self = self;
    w->sleepers += ops->announce || ops->arm;
}

void wait_remove(struct wait *w, const void *self)
{
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].self != self)
            continue;
        w->sleepers -= w->source[i].ops->announce || w->source[i].ops->arm;
        w->sources--;
        memmove(&w->source[i], &w->source[i + 1], (size_t)(w->sources - i) * sizeof(w->source[0]));
        return;
    }
}

bool wait_progress(struct wait *w)
{
    bool moved = false;

    for (int i = 0; i < w->sources; i++)
        moved |= w->source[i].progress(w->source[i].self);
    return moved;
}

void wait_abandon(struct wait *w)
{
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].ops->abandon)
            w->source[i].ops->abandon(w->source[i].self);
    }
}

/* Fill p for all sources. false: something may have happened. */
static bool arm(struct wait *w, struct pollfd p[WAIT_SOURCES_MAX])
{
    for (int i = 0; i < w->sources; i++) {
        int fd = w->source[i].ops->arm ? w->source[i].ops->arm(w->source[i].self) : -1;

        if (fd == -EAGAIN)
            return false;
        p[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return true;
}

static void sleep_on(struct wait *w, int64_t us)
{
    struct pollfd p[WAIT_SOURCES_MAX];

    for (int i = 0; i < w->sources && w->sleepers == 1; i++) {
        if (w->source[i].ops->sleep) {
            w->source[i].ops->sleep(w->source[i].self, us);
            return;
        }
    }
    if (arm(w, p))
        (void)poll(p, (nfds_t)w->sources, (int)((us + 999) / 1000));
}

void wait_nap(struct wait *w, int64_t us)
{
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].ops->announce)
            w->source[i].ops->announce(w->source[i].self, w->sleepers == 1);
    }
    if (!wait_progress(w) && !w->failure.code)
        sleep_on(w, us);
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].ops->awake)
            w->source[i].ops->awake(w->source[i].self);
    }
}

int wait_lost(struct wait *w)
{
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].ops->look)
            w->source[i].ops->look(w->source[i].self);
    }
    for (int i = 0; i < w->size; i++) {
        if (w->peer[i].lost)
            return i;
    }
    return -1;
}

static bool unheard(const struct wait *w)
{
    for (int i = 0; i < w->sources; i++) {
        if (w->source[i].ops->unheard && w->source[i].ops->unheard(w->source[i].self))
            return true;
    }
    return false;
}

static int told_to_give_up(struct wait *w, int rank)
{
    return failure_keep(&w->failure, -ECANCELED, "told to give up while waiting for rank %d", rank);
}

/* Without a word: of one that has left with one, the fault is elsewhere. */
static int peer_gone(struct wait *w, int rank)
{
    flight_lost_set(w->flight, rank);
    return failure_keep(&w->failure, -ECONNRESET, "rank %d is gone", rank);
}

struct goal { /* of a wait */
    bool (*over)(const void *of);
    const void *of;
};

/* What ends a wait besides its own success. Frames that came before the peer went are in already. */
static int look_around(struct wait *w, const struct goal *g, int rank, const char *group, int64_t deadline_us)
{
    int gone;

    if (flight_aborted(w->flight))
        return told_to_give_up(w, rank);
    gone = wait_lost(w);
    if (g->over(g->of) || w->failure.code)
        return w->failure.code;
    if (gone >= 0)
        return peer_gone(w, gone);
    if (w->peer[rank].left && !unheard(w)) /* a GPU may be about to be done */
        return failure_keep(&w->failure, -ECONNRESET, "rank %d left while rank %d waits for it in '%s'", rank, w->rank,
                            group);
    if (clock_mono_us() >= deadline_us)
        return failure_keep(&w->failure, -ETIMEDOUT,
                            "rank %d did not answer rank %d in '%s' for %lld ms: is it stopped?", rank, w->rank, group,
                            (long long)(w->timeout_us / 1000));
    return 0;
}

static int64_t nap_us(const struct wait *w, int64_t left_us)
{
    if (unheard(w))
        return WATCH_NAP_US;
    return left_us >= WAIT_SLICE_US ? WAIT_SLICE_US : left_us > 0 ? left_us : 1;
}

int wait_for(struct wait *w, bool (*over)(const void *of), const void *of, int rank, const char *group)
{
    const struct goal goal = {over, of};
    int64_t deadline = 0, looked = 0, still = 0, slept = 0, now;
    unsigned idle = 0, moves = 0, told = 0;

    while (!w->failure.code && !over(of)) {
        if (wait_progress(w)) {
            idle = 0;
            still = 0;
            if (++moves % MOVES_TOLD == 0)
                flight_moved(w->flight);
            if (flight_aborted(w->flight))
                (void)told_to_give_up(w, rank);
            continue;
        }
        if (over(of) || w->failure.code)
            continue;
        relax();
        if (++idle % SPINS != 0)
            continue;
        now = clock_mono_us();
        still = still ? still : now;
        if (now - still < w->spin_us)
            continue;
        slept = slept ? slept : still;
        if (!deadline)
            deadline = now + w->timeout_us;
        if (now - looked >= WAIT_SLICE_US / 2 || w->peer[rank].lost || w->peer[rank].left) {
            looked = now;
            if (moves != told)
                flight_moved(w->flight);
            told = moves;
            if (look_around(w, &goal, rank, group, deadline) < 0)
                break;
        }
        if (!over(of))
            wait_nap(w, nap_us(w, deadline - now));
    }
    if (slept)
        w->spin_us = wait_spin_next(w->spin_us, w->spin_most_us, clock_mono_us() - slept);
    if (w->failure.code)
        wait_abandon(w);
    return w->failure.code;
}

static bool is_set(const void *done)
{
    return *(const bool *)done;
}

int wait_until(struct wait *w, const bool *done, int rank, const char *group)
{
    return wait_for(w, is_set, done, rank, group);
}

/* Fails when a member left in good order long ago: what it sent before may still be on its way to this GPU. */
static int look_for_leavers(struct wait *w, struct wait_vigil *v, const struct wait_members *of, int64_t now,
                            const char *what)
{
    int i = 0;

    while (i < of->n && !w->peer[of->rank[i]].left)
        i++;
    if (i == of->n)
        return 0;
    if (!v->left_us)
        v->left_us = now;
    return now - v->left_us < WAIT_LEAVE_US
               ? 0
               : failure_keep(&w->failure, -ECONNRESET, "rank %d left while the GPUs of '%s' %s", of->rank[i],
                              of->group, what);
}

int wait_watch(struct wait *w, struct wait_vigil *v, const struct wait_members *of, const char *what)
{
    int64_t now = clock_mono_us();

    (void)wait_progress(w);
    if (!v->deadline_us)
        v->deadline_us = now + w->timeout_us;
    if (flight_aborted(w->flight))
        return failure_keep(&w->failure, -ECANCELED, "told to give up while the GPUs of '%s' %s", of->group, what);
    if (now - v->looked_us >= WAIT_SLICE_US / 2) {
        int gone = wait_lost(w);

        v->looked_us = now;
        if (gone >= 0)
            return peer_gone(w, gone);
        TRY(look_for_leavers(w, v, of, now, what));
    }
    if (now >= v->deadline_us)
        return failure_keep(&w->failure, -ETIMEDOUT, "the GPUs of '%s' did not %s for %lld ms: is a rank stopped?",
                            of->group, what, (long long)(w->timeout_us / 1000));
    if (++v->looks > WATCH_SPINS)
        wait_nap(w, WATCH_NAP_US);
    return w->failure.code;
}
