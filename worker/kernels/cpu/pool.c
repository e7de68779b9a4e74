#include "worker/kernels/cpu/pool.h"

#include <assert.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct helper {
    struct pool *pool;
    pthread_t thread;
    int worker;
};

struct pool {
    int threads;
    struct helper *helper; /* threads - 1 of them, of which `started` run */
    int started;

    pthread_mutex_t lock;  /* guards all below but next */
    pthread_cond_t begin, done;
    unsigned long round;   /* counts the calls that needed helpers */
    bool closing;
    int busy;              /* helpers that have not finished this round */
    int items;
    pool_fn fn;
    void *arg;
    atomic_int next;       /* first item nobody took */
};

static void take_items(struct pool *p, int items, pool_fn fn, void *arg, int worker)
{
    for (;;) {
        int item = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);

        if (item >= items)
            return;
        fn(arg, item, worker);
    }
}

static void *help(void *helper)
{
    struct helper *h = helper;
    struct pool *p = h->pool;
    unsigned long seen = 0;

    omp_set_num_threads(1); /* oneDNN must not start a team of its own for each of us */
    (void)pthread_mutex_lock(&p->lock);
    for (;;) {
        pool_fn fn;
        void *arg;
        int items;

        while (p->round == seen && !p->closing)
            (void)pthread_cond_wait(&p->begin, &p->lock);
        if (p->closing)
            break;
        seen = p->round;
        fn = p->fn;
        arg = p->arg;
        items = p->items;
        (void)pthread_mutex_unlock(&p->lock);
        take_items(p, items, fn, arg, h->worker);
        (void)pthread_mutex_lock(&p->lock);
        if (--p->busy == 0)
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

        *h = (struct helper){ .pool = p, .worker = p->started + 1 };
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
    assert(p->busy == 0);
    p->fn = fn;
    p->arg = arg;
    p->items = items;
    p->busy = p->started;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->round++;
    (void)pthread_cond_broadcast(&p->begin);
    (void)pthread_mutex_unlock(&p->lock);
    take_items(p, items, fn, arg, 0);
    (void)pthread_mutex_lock(&p->lock);
    while (p->busy > 0)
        (void)pthread_cond_wait(&p->done, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}
