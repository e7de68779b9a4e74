#include "tests/fault/disk_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fault/disk_log_priv.h"

struct disk_log disk_log;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held over each call, so that the log has their order */
static char root[PATH_MAX];

/* --- who is who -------------------------------------------------------------------------------- */

static struct inode {
    dev_t dev;
    ino_t ino; /* 0: it is gone, and the number may come again */
} inode[LOG_OBJECTS_MAX];

static int object_of(const struct stat *st)
{
    for (int i = 0; i < disk_log.objects; i++)
        if (inode[i].ino == st->st_ino && inode[i].dev == st->st_dev)
            return i;
    assert(disk_log.objects < LOG_OBJECTS_MAX);
    inode[disk_log.objects] = (struct inode){st->st_dev, st->st_ino};
    disk_log.is_folder[disk_log.objects] = S_ISDIR(st->st_mode);
    return disk_log.objects++;
}

static int object_at(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? object_of(&st) : -1;
}

/* Is a path, or what fd is open for, below root? */
static bool is_ours(const char *path)
{
    size_t n = strlen(root);

    return n && strncmp(path, root, n) == 0 && (path[n] == '/' || !path[n]);
}

static bool fd_is_ours(int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0 && is_ours(path);
}

static int object_open(int fd)
{
    struct stat st;

    assert(fstat(fd, &st) == 0);
    return object_of(&st);
}

/* --- entries ----------------------------------------------------------------------------------- */

static struct change *add(enum change_kind kind, int object)
{
    struct change *c = &disk_log.v[disk_log.n];

    assert(disk_log.n < LOG_CHANGES_MAX);
    disk_log.n++;
    *c = (struct change){.kind = kind, .object = object};
    return c;
}

/* The folder and the name of a path. */
static void name_it(const char *path, int *ret_folder, char ret_name[LOG_NAME_MAX])
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    assert(slash && strlen(slash + 1) < LOG_NAME_MAX);
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    (void)snprintf(ret_name, LOG_NAME_MAX, "%s", slash + 1);
    *ret_folder = object_at(folder);
    assert(*ret_folder >= 0);
}

static void log_name(enum change_kind kind, const char *path, int object)
{
    struct change *c = add(kind, object);

    name_it(path, &c->folder, c->name);
}

static void log_write(int fd, const void *data, size_t len, off_t at)
{
    struct change *c = add(CHANGE_BYTES, object_open(fd));

    c->at = (size_t)at;
    c->len = len;
    if (data) {
        c->data = malloc(len);
        assert(c->data);
        memcpy(c->data, data, len);
    }
}

static void log_sync(int fd)
{
    (void)add(CHANGE_SYNC, object_open(fd));
}

/* A name is gone; so is what it named. */
static void log_gone(const char *path, int object)
{
    log_name(CHANGE_UNLINK, path, object);
    inode[object].ino = 0;
}

static void log_rename(const char *from, const char *to, int moved, int replaced)
{
    struct change *c = add(CHANGE_RENAME, moved);
    int folder;

    name_it(from, &folder, c->name);
    name_it(to, &c->folder, c->name_to);
    assert(folder == c->folder);
    if (replaced >= 0)
        inode[replaced].ino = 0;
}

static int removed, moved; /* what paths name before they change; -1: nothing of ours. Guarded by lock */

static bool remember(const char *path)
{
    removed = is_ours(path) ? object_at(path) : -1;
    return removed >= 0;
}

static bool remember_two(const char *from, const char *to)
{
    (void)remember(from);
    moved = removed;
    (void)remember(to);
    return moved >= 0;
}

static void log_exchange(const char *from, const char *to)
{
    struct change *c = add(CHANGE_EXCHANGE, moved);

    c->other = removed;
    name_it(from, &c->folder, c->name);
    name_it(to, &c->folder, c->name_to);
}

/* --- the calls --------------------------------------------------------------------------------- */

/* A call that returns r: 0 is good; then more is done. */
#define LOGGED(condition, call, more)                                                                                  \
    do {                                                                                                               \
        int r_;                                                                                                        \
        (void)pthread_mutex_lock(&lock);                                                                               \
        bool ours_ = condition;                                                                                        \
        r_ = call;                                                                                                     \
        int saved_ = errno;                                                                                            \
        if (ours_ && r_ == 0)                                                                                          \
            more;                                                                                                      \
        (void)pthread_mutex_unlock(&lock);                                                                             \
        errno = saved_;                                                                                                \
        return r_;                                                                                                     \
    } while (0)

#define REAL(type, name, params)                                                                                       \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params

REAL(int, fsync, (int fd))
{
    LOGGED(fd_is_ours(fd), __real_fsync(fd), log_sync(fd));
}

REAL(int, fdatasync, (int fd))
{
    LOGGED(fd_is_ours(fd), __real_fdatasync(fd), log_sync(fd));
}

REAL(int, fallocate, (int fd, int mode, off_t at, off_t len))
{
    LOGGED(fd_is_ours(fd), __real_fallocate(fd, mode, at, len), log_write(fd, NULL, (size_t)len, at));
}

REAL(int, mkdir, (const char *path, mode_t mode))
{
    LOGGED(is_ours(path), __real_mkdir(path, mode), log_name(CHANGE_LINK, path, object_at(path)));
}

REAL(int, unlink, (const char *path))
{
    LOGGED(remember(path), __real_unlink(path), log_gone(path, removed));
}

REAL(int, rmdir, (const char *path))
{
    LOGGED(remember(path), __real_rmdir(path), log_gone(path, removed));
}

REAL(int, remove, (const char *path))
{
    LOGGED(remember(path), __real_remove(path), log_gone(path, removed));
}

REAL(int, rename, (const char *from, const char *to))
{
    LOGGED(remember_two(from, to), __real_rename(from, to), log_rename(from, to, moved, removed));
}

REAL(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags))
{
    assert(!is_ours(from) || (a == AT_FDCWD && b == AT_FDCWD && flags == RENAME_EXCHANGE));
    LOGGED(remember_two(from, to), __real_renameat2(a, from, b, to, flags), log_exchange(from, to));
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    off_t at = 0;
    ssize_t r;

    (void)pthread_mutex_lock(&lock);
    bool ours = fd_is_ours(fd);
    if (ours)
        at = lseek(fd, 0, SEEK_CUR);
    r = __real_write(fd, p, n);
    if (ours && r > 0)
        log_write(fd, p, (size_t)r, at);
    (void)pthread_mutex_unlock(&lock);
    return r;
}

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t r;

    (void)pthread_mutex_lock(&lock);
    r = __real_pwrite(fd, p, n, at);
    if (fd_is_ours(fd) && r > 0)
        log_write(fd, p, (size_t)r, at);
    (void)pthread_mutex_unlock(&lock);
    return r;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list args;
    bool made;
    int fd;

    if (flags & O_CREAT) {
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    (void)pthread_mutex_lock(&lock);
    made = (flags & O_CREAT) && is_ours(path) && object_at(path) < 0;
    assert(!(flags & O_TRUNC) || made || !is_ours(path)); /* what is cut is not logged */
    fd = __real_open(path, flags, mode);
    if (made && fd >= 0)
        log_name(CHANGE_LINK, path, object_open(fd));
    (void)pthread_mutex_unlock(&lock);
    return fd;
}

/* --- for the test ------------------------------------------------------------------------------ */

void disk_log_begin(const char *path)
{
    (void)pthread_mutex_lock(&lock);
    assert(realpath(path, root));
    assert(object_at(root) == 0);
    (void)pthread_mutex_unlock(&lock);
}

void disk_log_end(void)
{
    (void)pthread_mutex_lock(&lock);
    root[0] = '\0';
    (void)pthread_mutex_unlock(&lock);
}

void disk_log_mark(uint64_t number)
{
    (void)pthread_mutex_lock(&lock);
    add(CHANGE_MARK, 0)->at = (size_t)number;
    (void)pthread_mutex_unlock(&lock);
}

size_t disk_log_length(void)
{
    return disk_log.n;
}

uint64_t disk_log_marked(size_t at)
{
    while (at-- > 0)
        if (disk_log.v[at].kind == CHANGE_MARK)
            return disk_log.v[at].at;
    return 0;
}
