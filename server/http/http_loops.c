#include "server/http/http_loops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/io.h"

struct http_loops {
    struct MHD_Daemon *v[HTTP_LOOPS];
    int timer_fd;
};

/* Edge-triggered, so that a timer that nobody reads tells each of its expirations once; its pointer of NULL is how
 * libmicrohttpd knows an event that says nothing but that the loop shall go on. */
static int add_timer(const struct http_loops *l, struct MHD_Daemon *d)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};

    if (!info || info->epoll_fd < 0)
        return -ENOTSUP;
    return epoll_ctl(info->epoll_fd, EPOLL_CTL_ADD, l->timer_fd, &event) < 0 ? -errno : 0;
}

static int start_one(struct http_loops *l, size_t i, int listener, http_loop_fn *start, void *arg)
{
    int fd = fcntl(listener, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    l->v[i] = start(arg, fd);
    if (l->v[i])
        return add_timer(l, l->v[i]);
    io_close(&fd);
    return -EIO;
}

int http_loops_start(int listener, http_loop_fn *start, void *arg, struct http_loops **ret, struct merr *err)
{
    static const struct itimerspec every = {.it_interval.tv_nsec = HTTP_LOOPS_WAKE_MS * 1000000L,
                                            .it_value.tv_nsec = HTTP_LOOPS_WAKE_MS * 1000000L};
    struct http_loops *l = calloc(1, sizeof(*l));
    int r = 0;

    if (!l)
        return merr_set(err, -ENOMEM, "no memory for the HTTP side");
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (l->timer_fd < 0 || timerfd_settime(l->timer_fd, 0, &every, NULL) < 0)
        r = -errno;
    for (size_t i = 0; r == 0 && i < HTTP_LOOPS; i++)
        r = start_one(l, i, listener, start, arg);
    if (r == 0) {
        *ret = l;
        return 0;
    }
    http_loops_stop(l);
    return merr_errno(err, r, "cannot start the HTTP side: too few file descriptors or threads?");
}

void http_loops_quiesce(struct http_loops *l)
{
    for (size_t i = 0; i < HTTP_LOOPS; i++) {
        int fd = MHD_quiesce_daemon(l->v[i]);

        io_close(&fd);
    }
}

void http_loops_stop(struct http_loops *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < HTTP_LOOPS; i++)
        if (l->v[i])
            MHD_stop_daemon(l->v[i]);
    io_close(&l->timer_fd);
    free(l);
}
