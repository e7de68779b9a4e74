#include "worker/agent/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/order.h"
#include "worker/helper/helper.h"

#define ANSWER_US 10000000

int guard_helper(void)
{
    const char *text = getenv(HELPER_ENV);
    int fd = text ? (int)strtol(text, NULL, 10) : -1;

    (void)unsetenv(HELPER_ENV);
    return fd < 3 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? 0 : fd;
}

bool guard_lost(int helper)
{
    struct helper_told told;

    return recv(helper, &told, sizeof(told), MSG_DONTWAIT) == 0; /* an answer that nobody waited for is dropped */
}

static int tell(int wire, const struct helper_call *c, const int *fds, int n, struct merr *err)
{
    char control[CMSG_SPACE(sizeof(int) * HELPER_FDS)] __attribute__((aligned(8))) = {0};
    struct iovec io = {.iov_base = (void *)c, .iov_len = sizeof(*c)};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

    if (n > 0) {
        struct cmsghdr *h = (struct cmsghdr *)control;

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)n);
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
    }
    if (sendmsg(wire, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(*c))
        return merr_errno(err, -errno, "cannot reach the helper");
    return 0;
}

/* What is told within a while. */
static int listen_to(int wire, struct helper_told *ret, struct merr *err)
{
    int64_t deadline_us = clock_mono_us() + ANSWER_US;
    struct pollfd p = {.fd = wire, .events = POLLIN};

    while (poll(&p, 1, clock_poll_ms(deadline_us)) < 0 && errno == EINTR)
        ;
    if (!p.revents || recv(wire, ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
        return merr_set(err, -EIO, "the helper does not answer");
    ret->text[sizeof(ret->text) - 1] = '\0';
    return 0;
}

int guard_open(int helper, int *ret_fd, struct merr *err)
{
    struct helper_call c = {.kind = HELPER_GUARD};
    int wires[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wires) < 0)
        return merr_errno(err, -errno, "cannot make a socket");
    r = tell(helper, &c, &wires[1], 1, err);
    (void)close(wires[1]);
    if (r < 0)
        (void)close(wires[0]);
    else
        *ret_fd = wires[0];
    return r;
}

int guard_give(int helper, const char *path, const char *user, bool group, unsigned mode, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct helper_call c = {.kind = group ? HELPER_GIVE_GROUP : HELPER_GIVE};
    struct helper_told told;
    int r;

    /* While it is ours: who gives a group away may not set its bit any more. A folder of the server's is not. */
    if (fd < 0 || (fchmod(fd, mode) < 0 && errno != EPERM))
        return merr_errno(err, -errno, "cannot give '%s' away", path);
    (void)snprintf(c.user, sizeof(c.user), "%s", user);
    r = tell(helper, &c, &fd, 1, err);
    if (r == 0)
        r = listen_to(helper, &told, err);
    if (r == 0 && told.kind != HELPER_DONE)
        r = merr_set(err, -EACCES, "%s", told.text);
    return r;
}

/* Until the rank has ended. Returns its wait status, or -1. */
static int stand_for(int wire, int signal_fd, struct merr *err)
{
    struct signalfd_siginfo info;
    struct helper_told told;
    bool failed = false;

    for (;;) {
        struct pollfd p[2] = {{.fd = wire, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};

        (void)poll(p, 2, -1);
        if (p[1].revents && read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            struct helper_call c = {.kind = HELPER_SIGNAL, .number = (int32_t)info.ssi_signo};

            (void)tell(wire, &c, NULL, 0, NULL);
        }
        if (!p[0].revents)
            continue;
        if (recv(wire, &told, sizeof(told), 0) != (ssize_t)sizeof(told))
            return merr_set(err, -1, "the guard of the rank was lost");
        told.text[sizeof(told.text) - 1] = '\0';
        if (told.kind == HELPER_ENDED)
            return failed ? -1 : told.number;
        (void)merr_set(err, -1, "%s", told.text); /* of a rank that could not be prepared: its end follows */
        failed = true;
    }
}

static int open_folder(const char *path)
{
    return path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
}

int guard_run(int wire, const struct guard_rank *rank, int output_fd, const int *signals, int n_signals, bool *ret_user,
              struct merr *err)
{
    struct helper_call c = {.kind = HELPER_START, .alone = rank->alone};
    int fds[HELPER_FDS], n = HELPER_TMP, signal_fd;
    struct helper_told told;
    sigset_t set;

    *ret_user = false;
    (void)snprintf(c.user, sizeof(c.user), "%s", rank->user);
    if (order_write(rank->folder, rank->argv, environ, &fds[HELPER_FILE], err) < 0)
        return -1;
    fds[HELPER_OUTPUT] = output_fd;
    if (rank->tmp && rank->shm) {
        fds[HELPER_TMP] = open_folder(rank->tmp);
        fds[HELPER_SHM] = open_folder(rank->shm);
        fds[HELPER_KEEP] = rank->keep ? open_folder(rank->keep) : fcntl(fds[HELPER_SHM], F_DUPFD_CLOEXEC, 0);
        if (rank->keep)
            (void)snprintf(c.keep, sizeof(c.keep), "%s", rank->keep);
        cgroup_open(rank->groups, fds + HELPER_CGROUP, HELPER_FDS - HELPER_CGROUP);
        for (n = HELPER_CGROUP; n < HELPER_FDS && fds[n] >= 0; n++)
            ;
        if (fds[HELPER_TMP] < 0 || fds[HELPER_SHM] < 0 || fds[HELPER_KEEP] < 0)
            return merr_errno(err, -1, "cannot open the folders of the rank");
    }
    if (tell(wire, &c, fds, n, err) < 0 || listen_to(wire, &told, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (fds[i] != output_fd)
            (void)close(fds[i]);
    if (told.kind != HELPER_DONE) {
        *ret_user = told.number == EPERM;
        return merr_set(err, -1, "%s", told.text);
    }
    (void)close(output_fd); /* held by the guard: its end says that all of the rank is gone */
    (void)sigemptyset(&set);
    for (int i = 0; i < n_signals; i++)
        (void)sigaddset(&set, signals[i]);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    return stand_for(wire, signal_fd, err);
}
