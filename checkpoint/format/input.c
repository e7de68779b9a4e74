#include "checkpoint/format/input.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/io.h"

int input_read(int fd, void *data, size_t len, uint64_t off)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = pread(fd, (char *)data + got, len - got, (off_t)(off + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EBADMSG;
        got += (size_t)n;
    }
    return 0;
}

int input_read_at(int fd, const char *path, uint64_t off, void *data, size_t len, struct merr *err)
{
    int r = input_read(fd, data, len, off);

    if (r == -EBADMSG)
        return merr_set(err, r, "'%s' ends early", path);
    return r < 0 ? merr_errno(err, r, "cannot read '%s'", path) : 0;
}

int input_open(const char *path, struct merr *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe in its place has nobody at the other end */
    struct stat st;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        io_close(&fd);
        return merr_set(err, -EBADMSG, "'%s' is no file", path);
    }
    return fd;
}
