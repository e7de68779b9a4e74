/* Put before a rank's libraries (LD_PRELOAD), breaks a coded block on its way out over a socket: the first byte of the
 * first place in what is sent that equals the bytes of MUSTER_BREAK (in hex), once MUSTER_BREAK_AFTER of them have
 * gone by. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static unsigned char want[32];
static size_t want_n;
static long left = -1;

static void __attribute__((constructor)) read_wish(void)
{
    const char *hex = getenv("MUSTER_BREAK"), *after = getenv("MUSTER_BREAK_AFTER");
    char byte[3] = "";

    for (; hex && hex[0] && hex[1] && want_n < sizeof(want); hex += 2) {
        memcpy(byte, hex, 2);
        want[want_n++] = (unsigned char)strtoul(byte, NULL, 16);
    }
    left = want_n > 0 ? strtol(after ? after : "0", NULL, 10) : -1;
}

static void spoil(void *data, size_t len)
{
    unsigned char *at = data, *end = at + len, *hit;

    while (left >= 0 && (hit = memmem(at, (size_t)(end - at), want, want_n)) != NULL) {
        if (left-- == 0)
            *hit = 0xFF;
        at = hit + want_n;
    }
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
