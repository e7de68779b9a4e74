#include "worker/agent/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"

#define SOCKETS_MAX 64 /* that listen on one port */
#define ENVIRONMENT_MAX (4 << 20)
#define CONNECT_MS 5000

struct sockets {
    uint64_t inode[SOCKETS_MAX];
    bool held[SOCKETS_MAX]; /* by a process of the job */
    int n;
};

/* Whether who listens on this address of /proc/net/tcp, or tcp6, is reached by 127.0.0.1. */
static bool has_loopback(const char *address)
{
    return strcmp(address, "0100007F") == 0 || strspn(address, "0") == strlen(address) ||
           strcmp(address, "0000000000000000FFFF00000100007F") == 0;
}

/* Those that listen on the port, of a table of the kernel; one that is not there has none. */
static int read_sockets(const char *path, int port, struct sockets *s)
{
    FILE *f = fopen(path, "re");
    char line[512], address[33];
    unsigned at, state;
    uint64_t inode;
    int r = 0;

    while (f && r == 0 && fgets(line, sizeof(line), f)) {
        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %" SCNu64, address, &at, &state,
                   &inode) != 4 ||
            state != 0x0A || (int)at != port || !has_loopback(address))
            continue;
        if (s->n < SOCKETS_MAX)
            s->inode[s->n++] = inode;
        else
            r = -E2BIG;
    }
    if (f)
        (void)fclose(f);
    return r;
}

static bool is_of_job(const char *proc, const char *pid, const char *variable)
{
    BUF_CLEAR_AUTO struct buf b;
    char path[PATH_MAX];

    buf_init(&b, ENVIRONMENT_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s/environ", proc, pid);
    if (io_read_file(path, &b, NULL) < 0)
        return false;
    for (const char *p = b.data, *end = p + b.len; p < end; p += strlen(p) + 1)
        if (strcmp(p, variable) == 0)
            return true;
    return false;
}

/* Mark those that a process holds. */
static void mark_held(const char *proc, const char *pid, struct sockets *s)
{
    char path[PATH_MAX], file[PATH_MAX + 256], target[64];
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/%s/fd", proc, pid);
    dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        uint64_t inode;
        ssize_t n;

        (void)snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        n = readlink(file, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (sscanf(target, "socket:[%" SCNu64 "]", &inode) == 1)
            for (int i = 0; i < s->n; i++)
                s->held[i] = s->held[i] || s->inode[i] == inode;
    }
    if (dir)
        (void)closedir(dir);
}

int listener_find(const char *proc, int port, const char *job, struct merr *err)
{
    struct sockets s = {.n = 0};
    char path[PATH_MAX], variable[128];
    DIR *dir;
    int r;

    (void)snprintf(path, sizeof(path), "%s/self/net/tcp", proc);
    r = read_sockets(path, port, &s);
    (void)snprintf(path, sizeof(path), "%s/self/net/tcp6", proc);
    r = r < 0 ? r : read_sockets(path, port, &s);
    if (r < 0)
        return merr_set(err, r, "more than %d sockets listen on port %d", SOCKETS_MAX, port);
    if (s.n == 0)
        return merr_set(err, -ECONNREFUSED, "nobody listens on port %d of 127.0.0.1", port);
    (void)snprintf(variable, sizeof(variable), "MUSTER_JOB=%s", job);
    dir = opendir(proc);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_of_job(proc, e->d_name, variable))
            mark_held(proc, e->d_name, &s);
    if (dir)
        (void)closedir(dir);
    for (int i = 0; i < s.n; i++)
        if (!s.held[i])
            return merr_set(err, -EACCES, "who listens on port %d is no program of job '%s'", port, job);
    return 0;
}

int listener_connect(int port, const char *job, int *ret_fd, struct merr *err)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    IO_CLOSE_AUTO int fd = -1;
    int fault = 0;
    socklen_t size = sizeof(fault);

    TRY(listener_find("/proc", port, job, err));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        fault = errno == EINPROGRESS ? 0 : errno;
        if (fault == 0 && poll(&p, 1, CONNECT_MS) <= 0)
            fault = ETIMEDOUT;
        else if (fault == 0)
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size);
    }
    if (fault != 0)
        return merr_errno(err, -fault, "cannot connect to port %d", port);
    *ret_fd = fd;
    fd = -1;
    return 0;
}
