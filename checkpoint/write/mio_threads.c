/* mio_threads - requests by pread and pwrite on a few threads, for kernels and containers without io_uring */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/write/mio_priv.h"

#define THREADS 4

struct threads {
    pthread_mutex_t lock; /* guards head, tail, done and stop */
    pthread_cond_t work;
    pthread_t id[THREADS];
    int started;
    struct mio_req *head, *tail, *done;
    bool stop, buffered;
    int event; /* counts finished requests */
};

static int do_once(const struct threads *t, struct mio_req *r)
{
    ssize_t n;

    if (r->op == MIO_SYNC) {
        n = fdatasync(r->fd);
        if (n == 0 && t->buffered)
            (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
    } else if (r->op == MIO_READ) {
        n = pread(r->fd, (char *)r->into + r->done, r->len - r->done, (off_t)(r->off + r->done));
    } else {
        n = pwrite(r->fd, (const char *)r->data + r->done, r->len - r->done, (off_t)(r->off + r->done));
        if (n > 0 && t->buffered) /* start the disk now, so that the sync at the end is short */
            (void)sync_file_range(r->fd, (off_t)(r->off + r->done), n, SYNC_FILE_RANGE_WRITE);
    }
    return n < 0 ? -errno : (int)n;
}

static void finish(struct threads *t, struct mio_req *r)
{
    uint64_t one = 1;

    (void)pthread_mutex_lock(&t->lock);
    r->next = t->done;
    t->done = r;
    (void)pthread_mutex_unlock(&t->lock);
    (void)!write(t->event, &one, sizeof(one));
}

static void *run(void *arg)
{
    struct threads *t = arg;

    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        struct mio_req *r = t->head;

        if (!r) {
            if (t->stop)
                break;
            (void)pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        t->head = r->next;
        if (!t->head)
            t->tail = NULL;
        (void)pthread_mutex_unlock(&t->lock);
        while (!mio_progress(r, do_once(t, r)))
            ;
        finish(t, r);
        (void)pthread_mutex_lock(&t->lock);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_close(void *impl)
{
    struct threads *t = impl;

    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->started; i++)
        (void)pthread_join(t->id[i], NULL);
    io_close(&t->event);
    (void)pthread_cond_destroy(&t->work);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

int mio_threads_open(bool buffered, void **ret_impl, struct merr *err)
{
    struct threads *t = calloc(1, sizeof(*t));

    if (!t)
        return merr_set(err, -ENOMEM, "no memory");
    t->buffered = buffered;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->work, NULL);
    t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (; t->event >= 0 && t->started < THREADS; t->started++)
        if (pthread_create(&t->id[t->started], NULL, run, t))
            break;
    if (!t->started) {
        threads_close(t);
        return merr_set(err, -EAGAIN, "cannot start the checkpoint writer's threads: too many threads or files?");
    }
    *ret_impl = t;
    return 0;
}

static void threads_start(void *impl, struct mio_req *r)
{
    struct threads *t = impl;

    (void)pthread_mutex_lock(&t->lock);
    r->next = NULL;
    if (t->tail)
        t->tail->next = r;
    else
        t->head = r;
    t->tail = r;
    (void)pthread_cond_signal(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
}

static struct mio_req *threads_take(void *impl)
{
    struct threads *t = impl;
    struct mio_req *r;
    uint64_t count;

    (void)pthread_mutex_lock(&t->lock);
    r = t->done;
    if (r)
        t->done = r->next;
    else
        (void)!read(t->event, &count, sizeof(count)); /* under the lock: none may finish between */
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

static int threads_fd(void *impl)
{
    return ((struct threads *)impl)->event;
}

const struct mio_ops mio_threads_ops = {
    .start = threads_start, .take = threads_take, .fd = threads_fd, .close = threads_close};
