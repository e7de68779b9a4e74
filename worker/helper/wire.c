/* Packets: all that comes from outside. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/helper/helper.h"

bool helper_check(const struct helper_call *c, size_t bytes, int n_fds)
{
    static const char below[] = "/dev/shm/";

    if (bytes != sizeof(*c) || !memchr(c->user, '\0', sizeof(c->user)) || !memchr(c->keep, '\0', sizeof(c->keep)))
        return false;
    if (c->kind == HELPER_SIGNAL)
        return n_fds == 0 && c->number > 0 && c->number < 65;
    if (c->kind != HELPER_START)
        return n_fds == 1 && (c->kind == HELPER_GIVE || c->kind == HELPER_GIVE_GROUP || c->kind == HELPER_GUARD);
    if (*c->keep && (strncmp(c->keep, below, sizeof(below) - 1) != 0 || strstr(c->keep, "/.") || strstr(c->keep, "//")))
        return false;
    return n_fds == HELPER_TMP || (n_fds >= HELPER_CGROUP && n_fds <= HELPER_FDS);
}

bool helper_receive(int fd, struct helper_call *ret, int fds[HELPER_FDS])
{
    char control[CMSG_SPACE(sizeof(int) * HELPER_FDS)] __attribute__((aligned(8)));
    struct iovec io = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    ssize_t n;
    int n_fds = 0;

    memset(fds, -1, HELPER_FDS * sizeof(*fds));
    while ((n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; /* there is room for one */
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)n_fds * sizeof(int));
    }
    return n > 0 && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && helper_check(ret, (size_t)n, n_fds);
}

void helper_tell(int fd, struct helper_told told)
{
    (void)send(fd, &told, sizeof(told), MSG_NOSIGNAL | MSG_DONTWAIT); /* who does not listen does not hold us */
}
