#include "worker/engine/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static int check(const char *what, const char *path, int fd, uint64_t *ret_size, struct merr *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return merr_errno(err, -errno, "cannot look at '%s'", path);
    if (S_ISDIR(st.st_mode))
        return merr_set(err, -EISDIR, "%s '%s' is a directory; name one file", what, path);
    if (!S_ISREG(st.st_mode))
        return merr_set(err, -EINVAL, "%s '%s' is not a regular file; copy it to one", what, path);
    if (st.st_size == 0)
        return merr_set(err, -EINVAL, "%s '%s' is empty", what, path);
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

int file_open(const char *what, const char *path, int *ret_fd, uint64_t *ret_size, struct merr *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc; /* a FIFO must not hold us up */

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open %s '%s'%s", what, path,
                          path[0] == '/' ? "" : " (a relative path starts in the rank's working directory)");
    rc = check(what, path, fd, ret_size, err);
    if (rc < 0) {
        io_close(&fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int file_open_corpus(const struct job_spec *spec, char **ret_path, int *ret_fd, uint64_t *ret_size, struct merr *err)
{
    char *path;
    int rc;

    if (!spec->train.data.path)
        return merr_set(err, -EINVAL, "the spec names no corpus; set train.data.path");
    path = strdup(spec->train.data.path);
    if (!path)
        return merr_set(err, -ENOMEM, "no memory for a path");
    rc = file_open("the corpus", path, ret_fd, ret_size, err);
    if (rc < 0) {
        free(path);
        return rc;
    }
    *ret_path = path;
    return 0;
}

int file_read(int fd, const char *path, uint64_t at, void *data, size_t len, struct merr *err)
{
    for (size_t got = 0; got < len;) {
        ssize_t k = pread(fd, (char *)data + got, len - got, (off_t)(at + got));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            (void)merr_errno(err, -errno, "cannot read '%s' at byte %llu", path, (unsigned long long)(at + got));
            return -EIO;
        }
        if (k == 0)
            return merr_set(err, -EIO, "'%s' ends at byte %llu: it has shrunk since it was opened; restore it", path,
                            (unsigned long long)(at + got));
        got += (size_t)k;
    }
    return 0;
}
