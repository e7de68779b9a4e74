/* fake_gpu - a GPU for tests: its memory has addresses that the host cannot touch, and its queues run late
 *
 * Whoever touches a tensor, or changes it before its copy has run, or reads a copy too early, is found out.
 */
#ifndef MUSTER_TESTS_UNIT_CHECKPOINT_FAKE_GPU_H
#define MUSTER_TESTS_UNIT_CHECKPOINT_FAKE_GPU_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compress/device.h"

#define GPU_WORK 64 /* queued at once */

static struct {
    char *seen, *real; /* the same bytes: as the program knows them, and as the GPU does */
    size_t bytes;
    int late_ms;       /* each piece of work */
    atomic_int fail;   /* the n-th copy from now on fails; 0: none */
    atomic_bool hung;  /* nothing is done any more; deadlines pass at once */
    atomic_int copies; /* asked for so far */
    atomic_int pinned, marks, queues;
} gpu;

struct device_mark {
    atomic_bool reached;
    struct device_queue *queue;
};

struct work {
    void *dst;
    const void *src;
    size_t bytes;
    struct device_mark *mark;
};

struct device_queue {
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct work work[GPU_WORK];
    size_t first, n;
    bool stop;
};

static void *gpu_real(const void *p)
{
    const char *at = p;

    return gpu.seen && at >= gpu.seen && at < gpu.seen + gpu.bytes ? gpu.real + (at - gpu.seen) : (void *)(uintptr_t)at;
}

static void *gpu_run(void *arg)
{
    struct device_queue *q = arg;

    (void)pthread_mutex_lock(&q->lock);
    while (!q->stop || q->n) {
        struct work *w = &q->work[q->first];

        if (!q->n) {
            (void)pthread_cond_wait(&q->changed, &q->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&q->lock);
        if (gpu.late_ms)
            (void)poll(NULL, 0, gpu.late_ms);
        if (w->bytes && !atomic_load(&gpu.hung))
            memcpy(gpu_real(w->dst), gpu_real(w->src), w->bytes);
        (void)pthread_mutex_lock(&q->lock);
        if (w->mark && !atomic_load(&gpu.hung))
            atomic_store(&w->mark->reached, true);
        q->first = (q->first + 1) % GPU_WORK;
        q->n--;
        (void)pthread_cond_broadcast(&q->changed);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

static int gpu_open(int ordinal, struct device_queue **ret, struct merr *err)
{
    struct device_queue *q = calloc(1, sizeof(*q));

    (void)ordinal;
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->changed, NULL);
    if (pthread_create(&q->thread, NULL, gpu_run, q)) {
        free(q);
        return merr_set(err, -EIO, "no thread for a queue");
    }
    atomic_fetch_add(&gpu.queues, 1);
    *ret = q;
    return 0;
}

static void gpu_close(struct device_queue *q)
{
    if (!q)
        return;
    (void)pthread_mutex_lock(&q->lock);
    q->stop = true;
    (void)pthread_cond_broadcast(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
    (void)pthread_join(q->thread, NULL);
    (void)pthread_cond_destroy(&q->changed);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
    atomic_fetch_sub(&gpu.queues, 1);
}

static bool gpu_holds(const void *p)
{
    return gpu_real(p) != p;
}

static int gpu_pin(struct device_queue *q, void *p, size_t bytes, struct merr *err)
{
    (void)q;
    (void)err;
    atomic_fetch_add(&gpu.pinned, p && bytes);
    return 0;
}

static void gpu_unpin(struct device_queue *q, void *p)
{
    (void)p;
    (void)pthread_mutex_lock(&q->lock);
    while (q->n)
        (void)pthread_cond_wait(&q->changed, &q->lock);
    (void)pthread_mutex_unlock(&q->lock);
    atomic_fetch_sub(&gpu.pinned, 1);
}

static void gpu_queue(struct device_queue *q, struct work w)
{
    (void)pthread_mutex_lock(&q->lock);
    while (q->n == GPU_WORK)
        (void)pthread_cond_wait(&q->changed, &q->lock);
    q->work[(q->first + q->n++) % GPU_WORK] = w;
    (void)pthread_cond_broadcast(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
}

static int gpu_copy(struct device_queue *q, void *dst, const void *src, size_t bytes, struct merr *err)
{
    atomic_fetch_add(&gpu.copies, 1);
    if (atomic_load(&gpu.fail) && atomic_fetch_sub(&gpu.fail, 1) == 1)
        return merr_set(err, -EIO, "a copy failed on the GPU");
    gpu_queue(q, (struct work){.dst = dst, .src = src, .bytes = bytes});
    return 0;
}

static int gpu_mark_new(struct device_queue *q, struct device_mark **ret, struct merr *err)
{
    struct device_mark *m = calloc(1, sizeof(*m));

    (void)err;
    m->queue = q;
    *ret = m;
    atomic_fetch_add(&gpu.marks, 1);
    return 0;
}

static void gpu_mark_free(struct device_mark *m)
{
    atomic_fetch_sub(&gpu.marks, m != NULL);
    free(m);
}

static int gpu_mark(struct device_queue *q, struct device_mark *m, struct merr *err)
{
    (void)err;
    atomic_store(&m->reached, false);
    gpu_queue(q, (struct work){.mark = m});
    return 0;
}

static int gpu_reached(struct device_mark *m, struct merr *err)
{
    (void)err;
    return atomic_load(&m->reached);
}

static int gpu_await(struct device_mark *m, int64_t within_us, struct merr *err)
{
    (void)pthread_mutex_lock(&m->queue->lock);
    while (!atomic_load(&gpu.hung) && !atomic_load(&m->reached))
        (void)pthread_cond_wait(&m->queue->changed, &m->queue->lock);
    (void)pthread_mutex_unlock(&m->queue->lock);
    return atomic_load(&m->reached)
               ? 0
               : merr_set(err, -ETIMEDOUT, "the fake GPU did not end within %lld s", (long long)(within_us / 1000000));
}

static const struct device_ops fake_gpu = {.open = gpu_open,
                                           .close = gpu_close,
                                           .holds = gpu_holds,
                                           .pin = gpu_pin,
                                           .unpin = gpu_unpin,
                                           .copy = gpu_copy,
                                           .mark_new = gpu_mark_new,
                                           .mark_free = gpu_mark_free,
                                           .mark = gpu_mark,
                                           .reached = gpu_reached,
                                           .await = gpu_await};

static int gpu_memory_new(size_t bytes)
{
    int fd = memfd_create("muster-test-gpu", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return -1;
    gpu.bytes = bytes;
    gpu.real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    gpu.seen = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return gpu.real == MAP_FAILED || gpu.seen == MAP_FAILED ? -1 : 0;
}

static void gpu_memory_free(void)
{
    (void)munmap(gpu.real, gpu.bytes);
    (void)munmap(gpu.seen, gpu.bytes);
    gpu.seen = gpu.real = NULL;
    gpu.bytes = 0;
}

#endif
