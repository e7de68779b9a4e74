#include "worker/agent/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"

void memory_root(const char *where, const char *state, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%.3900s/muster-%u-%016llx", where, (unsigned)getuid(),
                   (unsigned long long)hash_xxh3(state, strlen(state)));
}

static int job_path(const char *root, const char *job, char ret[PATH_MAX], struct merr *err)
{
    if (snprintf(ret, PATH_MAX - 16, "%s/%s", root, job) >= PATH_MAX - 16)
        return merr_set(err, -ENAMETOOLONG, "the path of the memory of %s is too long", job);
    return 0;
}

/* What tells the job's folder from any other that had or will have its path. */
static int identity(const char *dir, char *ret, size_t size, struct merr *err)
{
    struct statx st;

    if (statx(AT_FDCWD, dir, 0, STATX_INO | STATX_BTIME, &st) < 0)
        return merr_errno(err, -errno, "cannot look at '%s'", dir);
    (void)snprintf(ret, size, "%u:%u:%llu:%lld.%09u\n", st.stx_dev_major, st.stx_dev_minor,
                   (unsigned long long)st.stx_ino, (long long)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
    return 0;
}

static bool is_of(const char *path, const char *id)
{
    char owner[PATH_MAX + 8];
    struct buf b;
    bool same;

    (void)snprintf(owner, sizeof(owner), "%s/.owner", path);
    buf_init(&b, 4096);
    same = io_read_plain(owner, &b, NULL) == 0 && strcmp(buf_text(&b), id) == 0;
    buf_clear(&b);
    return same;
}

/* Folders in a tmpfs lie where everybody may make some: ours is one that we made. */
static int make_root(const char *root, struct merr *err)
{
    struct stat st;
    int r = io_mkdirs(root, 0700, err);

    if (r == 0 && lstat(root, &st) < 0)
        r = merr_errno(err, -errno, "cannot look at '%s'", root);
    if (r == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)))
        r = merr_set(err, -EPERM, "'%s' is not a folder of this user alone; remove it, or give another --memory", root);
    return r;
}

int memory_open(struct waste *waste, const char *root, const char *job, const char *dir, char ret[PATH_MAX],
                struct merr *err)
{
    char id[128], path[PATH_MAX], owner[PATH_MAX + 8];
    int r = identity(dir, id, sizeof(id), err);

    if (r == 0)
        r = make_root(root, err);
    if (r == 0)
        r = job_path(root, job, path, err);
    if (r == 0 && !is_of(path, id)) {
        r = waste_take(waste, path, err);
        if (r == 0)
            r = io_mkdirs(path, 0700, err);
        (void)snprintf(owner, sizeof(owner), "%s/.owner", path);
        if (r == 0)
            r = io_publish_file(owner, id, strlen(id), 0600, err);
    }
    if (r == 0)
        (void)snprintf(ret, PATH_MAX, "%s", path);
    return r;
}

void memory_close(struct waste *waste, const char *root, const char *job, bool done)
{
    char path[PATH_MAX];

    if (job_path(root, job, path, NULL) < 0)
        return;
    if (done) {
        (void)waste_take(waste, path, NULL); /* what stays is swept later */
        (void)rmdir(root);                   /* unless another job has memory */
    } else {
        (void)utimensat(AT_FDCWD, path, NULL, 0); /* kept from now on */
    }
}

void memory_sweep(struct waste *waste, const char *root, bool (*used)(const void *arg, const char *job),
                  const void *arg, int64_t wall_us)
{
    DIR *d = opendir(root);
    char path[PATH_MAX];
    struct dirent *e;
    struct stat st;

    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.' || used(arg, e->d_name) || job_path(root, e->d_name, path, NULL) < 0)
            continue;
        if (lstat(path, &st) == 0 && wall_us / 1000000 - st.st_mtime > MEMORY_KEEP_S)
            (void)waste_take(waste, path, NULL);
    }
    if (d)
        (void)closedir(d);
    (void)rmdir(root); /* unless a job has memory */
}
