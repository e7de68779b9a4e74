#include "server/store/watermark.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"

#define LINE 112     /* bytes of the file: less than a sector, which a disk writes whole */
#define PAUSE_MS 200 /* between two syncs: each holds up those of the store, if that is on the same disk */
#define FORMAT "muster-watermark 1 %020llu %020llu %020llu %020llu\n"

struct watermark {
    char path[4200];
    int fd;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t news;
    bool wanted, failed, closing;
};

static int read_mark(struct watermark *w, struct store_mark *ret, struct merr *err)
{
    unsigned long long v[4];
    char line[LINE + 1];
    struct stat st;
    ssize_t n;
    int end = 0;

    if (fstat(w->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return merr_set(err, -EINVAL, "'%s' is no regular file; remove it", w->path);
    n = pread(w->fd, line, LINE, 0);
    if (n < 0)
        return merr_errno(err, -errno, "cannot read '%s'", w->path);
    line[n] = '\0';
    *ret = (struct store_mark){0};
    if (n == 0) /* new, or its machine went down before its first line was durable */
        return 0;
    if (sscanf(line, "muster-watermark 1 %llu %llu %llu %llu%n", &v[0], &v[1], &v[2], &v[3], &end) != 4 ||
        line[end] != '\n')
        return merr_set(err, -EINVAL,
                        "'%s' cannot be read, so nobody knows whether the store has all that was acknowledged; look at "
                        "the jobs that the store has (`muster list`), then remove the file",
                        w->path);
    *ret = (struct store_mark){.epoch = v[0], .batch = v[1], .next_job = v[2], .next_event = v[3]};
    return 0;
}

int watermark_open(const char *path, struct watermark **ret, struct store_mark *ret_mark, struct merr *err)
{
    struct watermark *w = calloc(1, sizeof(*w));
    pthread_condattr_t monotonic;
    int r = 0;

    if (!w)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)snprintf(w->path, sizeof(w->path), "%s", path);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->news, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    w->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (w->fd < 0)
        r = merr_errno(err, -errno, "cannot open '%s'", path);
    if (r == 0)
        r = read_mark(w, ret_mark, err);
    if (r < 0)
        watermark_close(w);
    else
        *ret = w;
    return r;
}

static bool write_mark(struct watermark *w, const struct store_mark *m)
{
    char line[LINE];
    int n = snprintf(line, sizeof(line), FORMAT, (unsigned long long)m->epoch, (unsigned long long)m->batch,
                     (unsigned long long)m->next_job, (unsigned long long)m->next_event);

    return pwrite(w->fd, line, (size_t)n, 0) == n;
}

static void *keep(void *arg)
{
    struct watermark *w = arg;
    struct timespec until;
    bool told = false;

    (void)pthread_mutex_lock(&w->lock);
    for (;;) {
        bool good;

        while (!w->wanted && !w->closing)
            (void)pthread_cond_wait(&w->news, &w->lock);
        if (!w->wanted)
            break;
        w->wanted = false;
        good = !w->failed;
        (void)pthread_mutex_unlock(&w->lock);
        good = fdatasync(w->fd) == 0 && good;
        if (!good && !told)
            log_warn("cannot write '%s'; until it can be written, a loss of the store might go unnoticed", w->path);
        told = !good;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PAUSE_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_mutex_lock(&w->lock);
        while (!w->closing && pthread_cond_timedwait(&w->news, &w->lock, &until) != ETIMEDOUT)
            ;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

int watermark_start(struct watermark *w, struct merr *err)
{
    int r = -pthread_create(&w->thread, NULL, keep, w);

    if (r < 0)
        return merr_errno(err, r, "cannot start the thread of '%s'", w->path);
    w->started = true;
    return 0;
}

void watermark_note(struct watermark *w, const struct store_mark *mark)
{
    bool failed;

    if (!w || !w->started)
        return;
    failed = !write_mark(w, mark); /* into the system's memory: at once, and safe from the end of this process */
    (void)pthread_mutex_lock(&w->lock);
    w->failed = failed;
    if (!w->wanted)
        (void)pthread_cond_signal(&w->news);
    w->wanted = true;
    (void)pthread_mutex_unlock(&w->lock);
}

void watermark_close(struct watermark *w)
{
    if (!w)
        return;
    if (w->started) {
        (void)pthread_mutex_lock(&w->lock);
        w->closing = true;
        (void)pthread_cond_signal(&w->news);
        (void)pthread_mutex_unlock(&w->lock);
        (void)pthread_join(w->thread, NULL);
    }
    io_close(&w->fd);
    (void)pthread_cond_destroy(&w->news);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}
