#include "worker/agent/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/bundle.h"
#include "base/io.h"
#include "base/try.h"

/* The folder that holds path, made where it is missing: folder by folder, through no link. A new descriptor, with the
 * last part of the path; or a negative errno. */
static int enter(int dir_fd, const char *path, const char **ret_name)
{
    int at = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), next;
    char part[NAME_MAX + 1];
    const char *slash;

    for (; at >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        next = mkdirat(at, part, 0755) < 0 && errno != EEXIST
                   ? -1
                   : openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            next = -errno;
        (void)close(at);
        at = next;
    }
    *ret_name = path;
    return at == -1 ? -errno : at;
}

static int lay_out(const struct bundle_entry *e, int dir_fd)
{
    const char *name;
    IO_CLOSE_AUTO int in = -1, fd = -1;
    char target[BUNDLE_PATH_BYTES];
    int r = enter(dir_fd, e->path, &name);

    if (r < 0)
        return r;
    in = r;
    if (e->kind == BUNDLE_LINK) {
        (void)snprintf(target, sizeof(target), "%.*s", (int)e->size, e->data);
        return symlinkat(target, in, name) < 0 ? -errno : 0;
    }
    fd =
        openat(in, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, e->kind == BUNDLE_PROGRAM ? 0755 : 0644);
    return fd < 0 ? -errno : io_write_all(fd, e->data, (size_t)e->size);
}

int unpack_bundle(const void *data, size_t len, int dir_fd, struct merr *err)
{
    struct bundle_reader b;
    struct bundle_entry e;
    int more;

    TRY(bundle_open(&b, data, len, err));
    while ((more = bundle_next(&b, &e, err)) > 0) {
        int r = lay_out(&e, dir_fd);

        if (r < 0)
            return merr_errno(err, r, "cannot make '%s' of the upload", e.path);
    }
    return more;
}

int unpack_file(const char *path, const char *name, int dir_fd, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char is[BUNDLE_NAME_BYTES];
    struct stat st;
    void *data;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return merr_errno(err, -errno, "cannot open the upload '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size > BUNDLE_BYTES_MAX)
        return merr_set(err, -EBADMSG, "'%s' is no upload", path);
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return merr_errno(err, -errno, "cannot read the upload '%s'", path);
    r = strcmp(bundle_name(data, (size_t)st.st_size, is), name) == 0
            ? unpack_bundle(data, (size_t)st.st_size, dir_fd, err)
            : merr_set(err, -EBADMSG, "the upload '%s' is damaged: its content is %s", path, is);
    (void)munmap(data, (size_t)st.st_size);
    return r;
}
