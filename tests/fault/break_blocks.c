/* Put before a rank's libraries (LD_PRELOAD), flips a bit of what goes out over a socket, after UCX has made it: in the
 * middle of one piece of MUSTER_BREAK_LONG bytes or more, once MUSTER_BREAK_AFTER of them have gone by. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

static size_t long_enough;
static long left = -1;

static void __attribute__((constructor)) read_wish(void)
{
    const char *bytes = getenv("MUSTER_BREAK_LONG"), *after = getenv("MUSTER_BREAK_AFTER");

    if (bytes && after) {
        long_enough = strtoul(bytes, NULL, 10);
        left = strtol(after, NULL, 10);
    }
}

static void spoil(void *data, size_t len)
{
    if (left >= 0 && len >= long_enough && left-- == 0)
        ((unsigned char *)data)[len / 2] ^= 0x10;
}

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "send");
    spoil((void *)(size_t)data, len);
    return next(fd, data, len, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
    for (size_t i = 0; i < m->msg_iovlen; i++)
        spoil(m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
    return next(fd, m, flags);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    static ssize_t (*next)(int, const struct iovec *, int);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "writev");
    for (int i = 0; i < n; i++)
        spoil(v[i].iov_base, v[i].iov_len);
    return next(fd, v, n);
}
