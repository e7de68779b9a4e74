#include "worker/agent/packets.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

void packets_init(struct packets *p, int fd)
{
    p->fd = fd;
    buf_init(&p->wait, PACKETS_WAIT_MAX);
}

void packets_clear(struct packets *p)
{
    buf_clear(&p->wait);
}

short packets_events(const struct packets *p)
{
    return (short)(POLLIN | (p->wait.len > 0 ? POLLOUT : 0));
}

/* A packet of two parts. 1: it was taken. */
static int put(int fd, const char *first, size_t first_len, const void *data, size_t len)
{
    struct iovec parts[2] = {{.iov_base = (void *)first, .iov_len = first_len},
                             {.iov_base = (void *)data, .iov_len = len}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n;

    while ((n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    if (n >= 0)
        return 1;
    return errno == EAGAIN || errno == ENOBUFS ? 0 : -EPIPE;
}

int packets_send(struct packets *p, enum session_message kind, const void *data, size_t len)
{
    char first = (char)kind;
    uint32_t size = (uint32_t)len + 1;
    int r = 0;

    if (len > FRAME_MAX)
        return -EMSGSIZE;
    if (p->wait.len == 0)
        r = put(p->fd, &first, 1, data, len);
    if (r != 0)
        return r < 0 ? r : 0;
    if (buf_add(&p->wait, &size, sizeof(size)) < 0 || buf_add(&p->wait, &first, 1) < 0 ||
        buf_add(&p->wait, data, len) < 0)
        return -EMSGSIZE;
    return 0;
}

int packets_flush(struct packets *p)
{
    size_t at = 0;
    int r = 1;

    while (at < p->wait.len && r > 0) {
        uint32_t size;

        memcpy(&size, p->wait.data + at, sizeof(size));
        r = put(p->fd, p->wait.data + at + sizeof(size), size, NULL, 0);
        at += r > 0 ? sizeof(size) + size : 0;
    }
    buf_drop(&p->wait, at);
    return r < 0 ? r : 0;
}

ssize_t packets_receive(struct packets *p, char text[1 + FRAME_MAX])
{
    ssize_t n;

    /* ECONNRESET comes once, before what the other end has sent last, where it has not read all when it ended. */
    while ((n = recv(p->fd, text, 1 + FRAME_MAX, MSG_DONTWAIT)) < 0 && (errno == EINTR || errno == ECONNRESET))
        ;
    if (n > 0)
        return n;
    return n < 0 && errno == EAGAIN ? 0 : -EPIPE;
}
