#include "worker/snapshot/memory_quota.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"

#define LOCK_US (INT64_C(10) * 1000000)
#define RESERVED ".reserved"
#define HANDOFF "keep" /* the folder of handoff.c */

/* Bytes of the snapshots below a folder; a file with several names there counts once. */
static uint64_t used_in(const char *folder)
{
    char *path[] = {(char *)folder, NULL};
    FTS *walk = fts_open(path, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    uint64_t bytes = 0;
    FTSENT *e;

    while (walk && (e = fts_read(walk))) {
        if (e->fts_info == FTS_D && e->fts_level == 1 && strcmp(e->fts_name, HANDOFF) == 0)
            (void)fts_set(walk, e, FTS_SKIP);
        else if (e->fts_info == FTS_F && e->fts_statp->st_nlink > 0)
            bytes += (uint64_t)e->fts_statp->st_blocks * 512 / e->fts_statp->st_nlink;
    }
    if (walk)
        (void)fts_close(walk);
    return bytes;
}

/* What a job counts with. */
static uint64_t held_by(const char *folder)
{
    uint64_t used = used_in(folder), reserved = 0;
    char path[PATH_MAX];
    struct buf b;

    if (snprintf(path, sizeof(path), "%s/" RESERVED, folder) >= (int)sizeof(path))
        return used;
    buf_init(&b, 64);
    if (io_read_file(path, &b, NULL) == 0)
        reserved = strtoull(buf_text(&b), NULL, 10);
    buf_clear(&b);
    return used > reserved ? used : reserved;
}

static int held_by_others(const char *root, const char *name, uint64_t *ret, struct merr *err)
{
    DIR *d = opendir(root);
    char path[PATH_MAX];
    struct dirent *e;

    if (!d)
        return merr_errno(err, -errno, "cannot list '%s'", root);
    *ret = 0;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && strcmp(e->d_name, name) != 0 &&
            snprintf(path, sizeof(path), "%s/%s", root, e->d_name) < (int)sizeof(path))
            *ret += held_by(path);
    (void)closedir(d);
    return 0;
}

static int lock_root(const char *root, int *ret_fd, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", root);
    r = io_lock(fd, LOCK_EX, clock_mono_us() + LOCK_US);
    if (r < 0)
        return merr_errno(err, r, "cannot lock '%s'", root);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int memory_quota_reserve(const char *dir, uint64_t want, uint64_t one, uint64_t limit, struct merr *err)
{
    char root[PATH_MAX], path[PATH_MAX], text[32];
    const char *name = strrchr(dir, '/');
    IO_CLOSE_AUTO int lock = -1;
    uint64_t others = 0, used;

    if (!name || snprintf(path, sizeof(path), "%s/" RESERVED, dir) >= (int)sizeof(path))
        return merr_set(err, -EINVAL, "'%s' is no folder for snapshots", dir);
    (void)snprintf(root, sizeof(root), "%.*s", (int)(name - dir), dir);
    TRY(lock_root(root, &lock, err));
    TRY(held_by_others(root, name + 1, &others, err));
    used = used_in(dir);
    if (want < used + one)
        want = used + one;
    if (others > limit || want > limit - others) {
        (void)unlink(path);
        return merr_set(err, -ENOSPC,
                        "snapshots of this job want %llu MiB here, and the agent's --memory-limit of "
                        "%llu MiB leaves %llu beside other jobs; raise it, or set checkpoint.memory_every_steps to 0",
                        (unsigned long long)(want >> 20), (unsigned long long)(limit >> 20),
                        (unsigned long long)((others < limit ? limit - others : 0) >> 20));
    }
    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)want);
    return io_publish_file(path, text, strlen(text), 0600, err);
}
