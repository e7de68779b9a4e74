#include "worker/engine/kernels/cpu/pool.h"

#include <assert.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"

#define SPIN_US 50 /* about what it takes to wake a thread */
#define SPINS 8    /* pauses between two looks */

struct helper {
    struct pool *pool;
    pthread_t thread;
    int worker;
};

struct pool {
    int threads;
    struct helper *helper; /* threads - 1 of them, of which `started` run */
    int started;

    pthread_mutex_t lock; /* guards all below but next; who spins reads round and joined without it */
    pthread_cond_t begin, done;
    atomic_ulong round; /* counts the calls that wanted helpers */
    bool open;          /* helpers may still join this round */
    bool closing;
    int asleep;        /* helpers in a wait for begin */
    atomic_int joined; /* helpers that run this round's items */
    int items;
    pool_fn fn;
    void *arg;
    atomic_int next; /* first item nobody took */
};

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Calls follow each other closely: what is awaited is mostly there before a thread could have been woken. */
static void spin_while_round(struct pool *p, unsigned long seen)
{
    int64_t end = clock_mono_us() + SPIN_US;

    while (atomic_load_explicit(&p->round, memory_order_relaxed) == seen && clock_mono_us() < end)
        for (int i = 0; i < SPINS; i++)
            relax();
}

static void spin_while_joined(struct pool *p)
{
    int64_t end = clock_mono_us() + SPIN_US;

    while (atomic_load_explicit(&p->joined, memory_order_relaxed) > 0 && clock_mono_us() < end)
        for (int i = 0; i < SPINS; i++)
            relax();
}

static void take_items(struct pool *p, int items, pool_fn fn, void *arg, int worker)
{
    for (;;) {
        int item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);

        if (item >= items)
            return;
        fn(arg, item, worker);
    }
}

/* Joins a round that is open and not `seen`: false when the pool closes. Called and left with the lock held. */
static bool join_round(struct pool *p, unsigned long *seen)
{
    (void)pthread_mutex_unlock(&p->lock);
    spin_while_round(p, *seen);
    (void)pthread_mutex_lock(&p->lock);
    while (!p->closing && (!p->open || p->round == *seen)) {
        p->asleep++;
        (void)pthread_cond_wait(&p->begin, &p->lock);
        p->asleep--;
    }
    *seen = p->round;
    p->joined += !p->closing;
    return !p->closing;
}

static void *help(void *helper)
{
    struct helper *h = helper;
    struct pool *p = h->pool;
    unsigned long seen = 0;

    omp_set_num_threads(1); /* oneDNN must not start a team of its own for each of us */
    (void)pthread_mutex_lock(&p->lock);
    while (join_round(p, &seen)) {
        pool_fn fn = p->fn;
        void *arg = p->arg;
        int items = p->items;

        (void)pthread_mutex_unlock(&p->lock);
        take_items(p, items, fn, arg, h->worker);
        (void)pthread_mutex_lock(&p->lock);
        if (--p->joined == 0 && !p->open)
            (void)pthread_cond_signal(&p->done);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals go to the threads that know what to do about them. */
static int start_helper(struct helper *h)
{
    sigset_t all, before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&h->thread, NULL, help, h);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int pool_new(int threads, struct pool **ret, struct merr *err)
{
    struct pool *p = calloc(1, sizeof(*p));

    assert(threads >= 1);
    if (!p)
        return merr_set(err, -ENOMEM, "no memory for a pool of threads");
    p->threads = threads < POOL_THREADS_MAX ? threads : POOL_THREADS_MAX;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->begin, NULL);
    (void)pthread_cond_init(&p->done, NULL);
    p->helper = calloc((size_t)p->threads, sizeof(*p->helper));
    if (!p->helper) {
        pool_free(p);
        return merr_set(err, -ENOMEM, "no memory for a pool of threads");
    }
    while (p->started < p->threads - 1) {
        struct helper *h = &p->helper[p->started];

        *h = (struct helper){.pool = p, .worker = p->started + 1};
        if (start_helper(h) != 0) {
            int started = p->started;

            pool_free(p);
            return merr_set(err, -EAGAIN, "cannot start thread %d of %d; is the limit on processes too low?",
                            started + 2, threads);
        }
        p->started++;
    }
    *ret = p;
    return 0;
}

void pool_free(struct pool *p)
{
    int saved = errno;

    if (p) {
        (void)pthread_mutex_lock(&p->lock);
        p->closing = true;
        (void)pthread_cond_broadcast(&p->begin);
        (void)pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->started; i++)
            (void)pthread_join(p->helper[i].thread, NULL);
        (void)pthread_cond_destroy(&p->begin);
        (void)pthread_cond_destroy(&p->done);
        (void)pthread_mutex_destroy(&p->lock);
        free(p->helper);
        free(p);
    }
    errno = saved;
}

int pool_threads(const struct pool *p)
{
    return p->threads;
}

void pool_run(struct pool *p, int items, pool_fn fn, void *arg)
{
    omp_set_num_threads(1);
    if (p->threads == 1 || items <= 1) {
        for (int i = 0; i < items; i++)
            fn(arg, i, 0);
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    assert(p->joined == 0 && !p->open);
    p->fn = fn;
    p->arg = arg;
    p->items = items;
    p->open = true;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->round++;
    if (p->asleep > 0)
        (void)pthread_cond_broadcast(&p->begin);
    (void)pthread_mutex_unlock(&p->lock);
    take_items(p, items, fn, arg, 0);
    (void)pthread_mutex_lock(&p->lock);
    p->open = false; /* who has not come yet is not waited for */
    (void)pthread_mutex_unlock(&p->lock);
    spin_while_joined(p);
    (void)pthread_mutex_lock(&p->lock);
    while (p->joined > 0)
        (void)pthread_cond_wait(&p->done, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}
