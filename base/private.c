#include "base/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static bool is_ours(const struct stat *st)
{
    return geteuid() == 0 || st->st_uid == geteuid() || st->st_uid == 0;
}

int private_read_file(const char *path, struct buf *b, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a FIFO must not hold us */
    struct stat st;
    mode_t others;

    if (fd < 0 && errno == ELOOP)
        return merr_set(err, -EPERM, "'%s' is a symbolic link: put the file itself there", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (!S_ISREG(st.st_mode))
        return merr_set(err, -EPERM, "'%s' is no regular file", path);
    if (!is_ours(&st))
        return merr_set(err, -EPERM, "'%s' belongs to user %u: chown it to the user who reads it", path,
                        (unsigned)st.st_uid);
    others = st.st_mode & (st.st_uid == 0 ? 037 : 077);
    if (others)
        return merr_set(err, -EPERM,
                        "'%s' has mode %04o, so others have its contents: make a new one, and chmod 600 it", path,
                        (unsigned)(st.st_mode & 07777));
    return io_read_open(fd, path, b, err);
}

int private_check_folder(const char *path, struct merr *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return merr_errno(err, -errno, "cannot look at '%s'", path);
    if (!is_ours(&st))
        return merr_set(err, -EPERM, "the folder '%s' belongs to user %u: chown it to the user who uses it", path,
                        (unsigned)st.st_uid);
    if (st.st_mode & 022)
        return merr_set(err, -EPERM, "the folder '%s' has mode %04o, so others can write to it: chmod 700 it", path,
                        (unsigned)(st.st_mode & 07777));
    return 0;
}
