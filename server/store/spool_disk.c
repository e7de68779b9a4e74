#include "server/store/spool_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "server/store/spool_saved.h"

struct spool_disk {
    char folder[4096];
    char jobs[4080]; /* where jobs have folders of their own */
    int64_t min_free;
};

#define SLICE ((size_t)256 << 10) /* written between two syncs */
#define PATH_BYTES (sizeof(((struct spool_disk *)NULL)->folder) + 32 + SPOOL_NAME_MAX)

/* A job's folder, or a file in it. */
static void path_of(const struct spool_disk *d, uint64_t job, const char *name, char ret[PATH_BYTES])
{
    (void)snprintf(ret, PATH_BYTES, "%s/j%llu%s%s", d->folder, (unsigned long long)job, name ? "/" : "",
                   name ? name : "");
}

static int make(void *self, uint64_t job, struct merr *err)
{
    const struct spool_disk *d = self;
    char path[PATH_BYTES];
    int own, r;

    (void)snprintf(path, sizeof(path), "%s/j%llu", d->jobs, (unsigned long long)job);
    own = io_mkdirs(path, 0750, err); /* an agent gives it to its user (worker/agent/account.h) */
    path_of(d, job, NULL, path);
    r = io_mkdirs(path, 0700, own < 0 ? NULL : err);
    return own < 0 ? own : r;
}

static int newest(void *self, uint64_t *ret_job, struct merr *err)
{
    const struct spool_disk *d = self;
    DIR *dir = opendir(d->jobs);
    unsigned long long found, last = 0;

    if (!dir)
        return merr_errno(err, -errno, "cannot read '%s'", d->jobs);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        int end = 0;

        if (sscanf(e->d_name, "j%15llu%n", &found, &end) == 1 && e->d_name[end] == '\0' && found > last)
            last = found;
    }
    (void)closedir(dir);
    *ret_job = last;
    return 0;
}

static void drop(void *self, uint64_t job)
{
    char path[PATH_BYTES];

    path_of(self, job, NULL, path);
    (void)io_remove_tree(path, NULL); /* what cannot be removed is found by whoever looks there */
}

static void drop_file(void *self, uint64_t job, const char *name)
{
    char path[PATH_BYTES];

    path_of(self, job, name, path);
    (void)unlink(path);
}

static bool known(void *self, uint64_t job)
{
    char path[PATH_BYTES];
    struct stat st;

    path_of(self, job, NULL, path);
    return stat(path, &st) == 0;
}

static int list(void *self, uint64_t job, spool_name_fn *fn, void *arg)
{
    char path[PATH_BYTES];
    DIR *dir;

    path_of(self, job, NULL, path);
    dir = opendir(path);
    if (!dir)
        return -errno;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        fn(arg, e->d_name);
    (void)closedir(dir);
    return 0;
}

static int write_at(int fd, const char *text, size_t len, int64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, text, len, offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text += n;
        offset += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Make it durable slice by slice. Whoever else syncs on this disk, as the store does for each change, waits for what
 * is on its way at that moment. */
static int write_synced(int fd, const char *text, size_t len, int64_t offset)
{
    for (size_t done = 0, n; done < len; done += n) {
        int r;

        n = len - done < SLICE ? len - done : SLICE;
        r = write_at(fd, text + done, n, offset + (int64_t)done);
        if (r < 0)
            return r;
        if (fdatasync(fd) < 0)
            return -errno;
    }
    return 0;
}

static bool leaves_room(const struct spool_disk *d, int fd, size_t len)
{
    struct statvfs v;

    return d->min_free == 0 || fstatvfs(fd, &v) < 0 ||
           (double)v.f_bavail * (double)v.f_frsize >= (double)d->min_free + (double)len;
}

static int64_t append(void *self, uint64_t job, const char *name, int64_t offset, const char *text, size_t len,
                      bool *ret_new)
{
    char path[PATH_BYTES];
    struct stat st;
    int r;

    path_of(self, job, name, path);
    IO_CLOSE_AUTO int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size >= SPOOL_FILE_MAX)
        return offset + (int64_t)len;
    if (st.st_size != offset)
        return st.st_size;
    if (!leaves_room(self, fd, len))
        return -ENOSPC;
    r = write_synced(fd, text, len, offset);
    if (r < 0) {
        (void)ftruncate(fd, offset);
        return r;
    }
    *ret_new = true;
    return offset + (int64_t)len;
}

static int mark(void *self, uint64_t job, const char *name)
{
    char path[PATH_BYTES];

    path_of(self, job, name, path);
    IO_CLOSE_AUTO int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int put(void *self, uint64_t job, const char *name, const char *text, size_t len)
{
    char path[PATH_BYTES], beside[PATH_BYTES + 8];
    int r;

    path_of(self, job, name, path);
    (void)snprintf(beside, sizeof(beside), "%s.new", path);
    (void)unlink(beside);
    IO_CLOSE_AUTO int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -errno;
    r = leaves_room(self, fd, len) ? write_at(fd, text, len, 0) : -ENOSPC;
    r = r == 0 && rename(beside, path) < 0 ? -errno : r;
    if (r < 0)
        (void)unlink(beside);
    return r;
}

static ssize_t read_at(void *self, uint64_t job, const char *name, int64_t offset, char *to, size_t n,
                       int64_t *ret_length)
{
    char path[PATH_BYTES];
    struct stat st;
    ssize_t got = 0;

    path_of(self, job, name, path);
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (n > 0 && offset < st.st_size && (got = pread(fd, to, n, offset)) < 0)
        return -errno;
    *ret_length = st.st_size;
    return got;
}

static int saved(void *self, uint64_t job, const char *dir, json_t **ret)
{
    const struct spool_disk *d = self;
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/j%llu", d->jobs, (unsigned long long)job);
    return spool_saved_scan(path, dir, ret);
}

/* Take over what an older server kept elsewhere, if nothing is here yet. */
static void move_here(const struct spool_disk *d, const char *before)
{
    if (access(before, F_OK) < 0 || access(d->folder, F_OK) == 0)
        return;
    if (rename(before, d->folder) < 0)
        log_warn("cannot move '%s' to '%s': %s; logs and metrics from before are not shown", before, d->folder,
                 strerror(errno));
}

int spool_disk_open(const struct spool_disk_cfg *cfg, struct spool_disk **ret, struct spool *ret_spool,
                    struct merr *err)
{
    static const struct spool_ops ops = {
        .make = make,
        .newest = newest,
        .drop = drop,
        .drop_file = drop_file,
        .known = known,
        .list = list,
        .append = append,
        .mark = mark,
        .put = put,
        .read = read_at,
        .saved = saved,
    };
    struct spool_disk *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return merr_set(err, -ENOMEM, "out of memory");
    (void)snprintf(d->jobs, sizeof(d->jobs), "%s", cfg->jobs);
    (void)snprintf(d->folder, sizeof(d->folder), "%s/.spool", d->jobs);
    d->min_free = cfg->min_free;
    if (cfg->before)
        move_here(d, cfg->before);
    r = io_mkdirs(d->folder, 0700, err);
    if (r < 0) {
        free(d);
        return r;
    }
    *ret_spool = (struct spool){.ops = &ops, .self = d};
    *ret = d;
    return 0;
}

void spool_disk_close(struct spool_disk *d)
{
    free(d);
}
