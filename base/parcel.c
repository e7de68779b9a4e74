#include "base/parcel.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

struct head {
    uint32_t n_args, n_env, bytes;
};

static uint32_t add_words(struct buf *text, char *const *words)
{
    uint32_t n = 0;

    for (; words[n]; n++)
        (void)buf_add(text, words[n], strlen(words[n]) + 1);
    return n;
}

/* The head, with the descriptors. */
static int send_head(int fd, const struct head *head, const int *fds, int n_fds)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(PARCEL_FDS * sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)head, .iov_len = sizeof(*head)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (n_fds > 0) {
        control.head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, (size_t)n_fds * sizeof(int));
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
    }
    while ((n = sendmsg(fd, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return n == (ssize_t)sizeof(*head) ? 0 : n < 0 ? -errno : -EPIPE;
}

static int send_text(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

int parcel_send(int fd, char *const *args, char *const *env, const int *fds, int n_fds)
{
    BUF_CLEAR_AUTO struct buf text;
    struct head head;
    int r;

    buf_init(&text, PARCEL_BYTES);
    if (n_fds > PARCEL_FDS)
        return -EINVAL;
    head.n_args = add_words(&text, args);
    head.n_env = add_words(&text, env);
    if (buf_failed(&text))
        return -E2BIG;
    head.bytes = (uint32_t)text.len;
    r = send_head(fd, &head, fds, n_fds);
    return r < 0 ? r : send_text(fd, text.data, text.len);
}

static int receive_head(int fd, struct head *head, int fds[PARCEL_FDS])
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(PARCEL_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = head, .iov_len = sizeof(*head)};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    const struct cmsghdr *c;
    ssize_t n;

    while ((n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL)) < 0 && errno == EINTR)
        ;
    c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    if (n <= 0)
        return -EPIPE;
    return n == (ssize_t)sizeof(*head) && head->bytes <= PARCEL_BYTES && head->n_args <= head->bytes &&
                   head->n_env <= head->bytes
               ? 0
               : -EPROTO;
}

/* Both arrays, into text of so many bytes. -EPROTO: it has not so many words. */
static int cut(const struct head *head, struct parcel *p)
{
    char *at = p->text, *end = p->text + head->bytes;

    for (uint32_t i = 0; i < head->n_args + head->n_env; i++) {
        if (at >= end)
            return -EPROTO;
        if (i < head->n_args)
            p->args[i] = at;
        else
            p->env[i - head->n_args] = at;
        at += strlen(at) + 1; /* a NUL stands behind all */
    }
    return at == end ? 0 : -EPROTO;
}

static void clear(struct parcel *p)
{
    free(p->args);
    free(p->env);
    free(p->text);
    for (int i = 0; i < PARCEL_FDS; i++)
        io_close(&p->fds[i]);
}

/* What follows the head. What is made is p's, also on failure. */
static int receive_text(int fd, const struct head *head, struct parcel *p)
{
    p->n_args = (int)head->n_args;
    p->args = calloc((size_t)head->n_args + 1, sizeof(*p->args));
    p->env = calloc((size_t)head->n_env + 1, sizeof(*p->env));
    p->text = calloc(1, (size_t)head->bytes + 1);
    if (!p->args || !p->env || !p->text)
        return -ENOMEM;
    if (io_read_full(fd, p->text, head->bytes) != (ssize_t)head->bytes)
        return -EPIPE;
    return cut(head, p);
}

int parcel_receive(int fd, struct parcel *ret)
{
    struct parcel p = {.fds = {-1, -1}};
    struct head head;
    int r = receive_head(fd, &head, p.fds);

    r = r < 0 ? r : receive_text(fd, &head, &p);
    if (r < 0)
        clear(&p);
    else
        *ret = p;
    return r;
}
