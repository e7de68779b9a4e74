#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/try.h"

#define LOCK_LOOK_MS 2

int io_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t io_read_full(int fd, void *data, size_t len)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = read(fd, (char *)data + got, len - got);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int io_read_file(const char *path, struct buf *b, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    return io_read_open(fd, path, b, err);
}

int io_open_plain(const char *path, int flags)
{
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0)
        return errno == ENXIO || errno == EISDIR ? -EMEDIUMTYPE : -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    (void)close(fd);
    return -EMEDIUMTYPE;
}

int io_read_plain(const char *path, struct buf *b, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    int r = io_open_plain(path, O_RDONLY);

    if (r < 0)
        return merr_errno(err, r, "cannot open '%s' as a plain file", path);
    fd = r;
    return io_read_open(fd, path, b, err);
}

int io_read_open(int fd, const char *path, struct buf *b, struct merr *err)
{
    char chunk[16384];
    ssize_t n;
    int r;

    while ((n = io_read_full(fd, chunk, sizeof(chunk))) > 0) {
        r = buf_add(b, chunk, (size_t)n);
        if (r == -EMSGSIZE)
            return merr_set(err, r, "'%s' is larger than the limit of %zu bytes", path, b->limit);
        if (r < 0)
            return merr_errno(err, r, "cannot hold '%s'", path);
    }
    if (n < 0)
        return merr_errno(err, (int)n, "cannot read '%s'", path);
    return 0;
}

/* Write all into the new file temp, and give it its name. */
static int fill_file(int fd, const char *temp, const char *path, const void *data, size_t len, mode_t mode, int durable)
{
    TRY(io_write_all(fd, data, len));
    return fchmod(fd, mode) < 0 || (durable && fsync(fd) < 0) || rename(temp, path) < 0 ? -errno : 0;
}

/* The folder that path lies in. */
static int folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 1;

    if (n >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(out, slash ? path : ".", n);
    out[n] = '\0';
    if (slash == path)
        memcpy(out, "/", 2);
    return 0;
}

int io_sync_dir(const char *path, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open folder '%s'", path);
    if (fsync(fd) < 0)
        return merr_errno(err, -errno, "cannot sync folder '%s'", path);
    return 0;
}

static int put_file(const char *path, const void *data, size_t len, mode_t mode, int durable, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    char temp[PATH_MAX], folder[PATH_MAX];
    int r;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp) || folder_of(path, folder) < 0)
        return merr_set(err, -ENAMETOOLONG, "path too long: '%s'", path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot create '%s'", temp);
    r = fill_file(fd, temp, path, data, len, mode, durable);
    if (r < 0) {
        (void)unlink(temp);
        return merr_errno(err, r, "cannot write '%s'", path);
    }
    return durable ? io_sync_dir(folder, err) : 0;
}

int io_write_file(const char *path, const void *data, size_t len, mode_t mode, struct merr *err)
{
    return put_file(path, data, len, mode, 1, err);
}

int io_publish_file(const char *path, const void *data, size_t len, mode_t mode, struct merr *err)
{
    return put_file(path, data, len, mode, 0, err);
}

int io_mkdirs(const char *path, mode_t mode, struct merr *err)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    struct stat st;

    if (len == 0 || len >= sizeof(part))
        return merr_set(err, len ? -ENAMETOOLONG : -EINVAL, "not a usable folder name: '%s'", path);
    memcpy(part, path, len + 1);
    for (char *p = part + 1;; p++) {
        char c = *p;

        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return merr_errno(err, -errno, "cannot make folder '%s'", part);
        if (c == '\0')
            break;
        *p = c;
    }
    if (stat(path, &st) < 0)
        return merr_errno(err, -errno, "cannot use folder '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return merr_set(err, -ENOTDIR, "'%s' is in the way: it is no folder", path);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path) < 0 && errno != ENOENT ? -errno : 0;
}

int io_remove_tree(const char *path, struct merr *err)
{
    int r = nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);

    if (r == -1 && errno == ENOENT)
        return 0;
    if (r == -1)
        r = -errno;
    return r < 0 ? merr_errno(err, r, "cannot remove '%s'", path) : 0;
}

/* It looks again and again, since no wait for a lock ends at a deadline: a signal that did would be the whole
 * process's, a thread that waits in its place could not be told to stop, and the locks of fcntl(2) have no timed form
 * either. What is locked so is held for the time of a rename, so the first look is nearly always the last. */
int io_lock(int fd, int how, int64_t deadline_us)
{
    while (flock(fd, how | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (clock_mono_us() > deadline_us)
            return -ETIMEDOUT;
        (void)poll(NULL, 0, LOCK_LOOK_MS);
    }
    return 0;
}

void io_close(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        (void)close(*fd); /* Linux has released the number whatever close says */
    *fd = -1;
    errno = saved;
}
