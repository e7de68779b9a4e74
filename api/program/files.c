#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/program/handle.h"

const char *files_rank_path(const struct muster *m, const char *suffix, char ret[PATH_ROOM])
{
    (void)snprintf(ret, PATH_ROOM, "%s/rank-%05d.%s", m->run, m->rank, suffix);
    return ret;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int sync_folder(const char *path)
{
    char folder[PATH_ROOM];
    int fd, r;

    (void)snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = fsync(fd) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

/* Write all into the new file temp, and give it its name. */
static int fill(int fd, const char *temp, const char *path, const void *data, size_t len, bool durable)
{
    int r = write_all(fd, data, len);

    if (r < 0)
        return r;
    return fchmod(fd, 0640) < 0 || (durable && fsync(fd) < 0) || rename(temp, path) < 0 ? -errno : 0;
}

int files_publish(const char *path, const void *data, size_t len, bool durable)
{
    char temp[PATH_ROOM + 16];
    int fd, r;

    (void)snprintf(temp, sizeof(temp), "%s.XXXXXX", path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = fill(fd, temp, path, data, len, durable);
    (void)close(fd);
    if (r < 0)
        (void)unlink(temp);
    return r == 0 && durable ? sync_folder(path) : r;
}

long files_read(const char *path, char *text, size_t max)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? read(fd, text, max) : -EMEDIUMTYPE;
    if (n < 0 && n != -EMEDIUMTYPE)
        n = -errno;
    (void)close(fd);
    return (long)n;
}
