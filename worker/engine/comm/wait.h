/* wait - how a rank waits for others: what is under way goes on meanwhile, and every wait ends
 *
 * A world has one. Whoever moves something (transports, messages, GPUs) is a source: a wait lets all sources go on,
 * and once none of them has had anything to do for a while it sleeps until one of them may have. The while is some
 * microseconds; where each thread of the node's ranks has a core, it is as long as falling asleep and being woken take,
 * unless the waits before were much longer, for which looking on longer was in vain. Besides its
 * own success a wait ends by the abort order of the flight page (-ECANCELED), a peer that is gone (-ECONNRESET), or its
 * deadline (-ETIMEDOUT); each is kept as the world's failure. Used by one thread at a time.
 */
#ifndef MUSTER_WORKER_COMM_WAIT_H
#define MUSTER_WORKER_COMM_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/engine/comm/failure.h"
#include "worker/flight/flight.h"

#define WAIT_SLICE_US 50000   /* longest sleep between looks at the abort order and at the peers' life */
#define WAIT_LEAVE_US 1000000 /* for what a peer that left in good order has sent to arrive */
#define WAIT_SOURCES_MAX 8

/* All but progress may be NULL. self is what wait_add was given. */
struct wait_source {
    bool (*progress)(void *self);      /* go on as far as can be without waiting; true: something moved */
    void (*look)(void *self);          /* for peers that are gone: see struct wait_peer */
    bool (*unheard)(const void *self); /* something is under way whose end wakes nobody: sleeps must be short */

    /* A sleep: announce it, then progress once more, then arm. alone: no other source announces sleeps or is armed. */
    void (*announce)(void *self, bool alone); /* what happens from now on ends the sleep */
    int (*arm)(void *self);                /* a descriptor to poll, or -1: none; -EAGAIN: something may have happened */
    void (*sleep)(void *self, int64_t us); /* instead of polling, if it is alone */
    void (*awake)(void *self);             /* the sleep is over, or came to nothing */

    void (*abandon)(void *self); /* the world has failed: no buffer of a caller is read or written after */
};

/* How a peer is; written by transports and by what arrives from it. */
struct wait_peer {
    bool left; /* in good order */
    bool lost; /* gone without a word */
};

struct wait {
    struct failure failure;
    struct flight *flight; /* borrowed */
    int64_t timeout_us;    /* of each wait */
    int64_t spin_us;       /* how long a wait looks on where nothing moves before it sleeps, */
    int64_t spin_most_us;  /* at most; 0: a few looks */
    int rank, size;
    struct wait_peer *peer; /* by rank */
    int sources, sleepers;  /* sleepers: sources that announce sleeps or are armed */
    struct {
        const struct wait_source *ops;
        bool (*progress)(void *self); /* of ops: asked for all the time */
        void *self;
    } source[WAIT_SOURCES_MAX];
};

/* Returns 0 or -ENOMEM. */
int wait_init(struct wait *w, int rank, int size, struct flight *flight, int64_t timeout_us, struct merr *err);
void wait_clear(struct wait *w);
/* Waits may keep a core busy while nothing moves, for a bounded time each. */
void wait_spin(struct wait *w);
/* The next wait's spin_us, of at most most_us, after one that slept and took so long in all. */
int64_t wait_spin_next(int64_t spin_us, int64_t most_us, int64_t waited_us);
void wait_add(struct wait *w, const struct wait_source *ops, void *self); /* both borrowed; WAIT_SOURCES_MAX at most */

void wait_remove(struct wait *w, const void *self); /* one that is going; one that is not there is fine */

/* Let all sources go on; true: something moved. */
bool wait_progress(struct wait *w);
/* Sleep until something may have happened, us microseconds at most. */
void wait_nap(struct wait *w, int64_t us);
/* A peer that is gone without a word, after a look at all of them; -1: none. */
int wait_lost(struct wait *w);
/* After a failure. */
void wait_abandon(struct wait *w);

/* Until over(of), which sources bring about; rank and the group's name say for the words who is waited for. 0 or the
 * failure. */
int wait_for(struct wait *w, bool (*over)(const void *of), const void *of, int rank, const char *group);
/* The same until *done. */
int wait_until(struct wait *w, const bool *done, int rank, const char *group);

/* A wait for what is no source's word: zero at first. */
struct wait_vigil {
    int64_t deadline_us, looked_us, left_us;
    unsigned looks;
};
struct wait_members { /* of the group that works meanwhile */
    const char *group;
    const int *rank;
    int n;
};
/* One more look around while the GPUs of the members do what; sleeps a little after some. 0, or the failure that ends
 * the wait. */
int wait_watch(struct wait *w, struct wait_vigil *v, const struct wait_members *of, const char *what);

#endif
