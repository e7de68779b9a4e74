#include "checkpoint/write/collect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/read/read.h"

/* Is somebody reading it? Holds the lease exclusively in *ret_fd if not. */
static bool is_read(const char *path, int *ret_fd)
{
    char manifest[MCK_PATH_MAX];

    if (folder_join(path, "MANIFEST", manifest, NULL))
        return true;
    *ret_fd = open(manifest, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return *ret_fd >= 0 && flock(*ret_fd, LOCK_EX | LOCK_NB);
}

int collect_step(const char *dir, uint64_t step, struct merr *err)
{
    char path[MCK_PATH_MAX], trash[MCK_PATH_MAX], name[64];
    IO_CLOSE_AUTO int lease = -1;

    TRY(folder_step_path(dir, step, NULL, path, err));
    if (is_read(path, &lease))
        return 0;
    (void)snprintf(name, sizeof(name), ".trash-%08" PRIu64 "-%ld", step, (long)getpid());
    TRY(folder_join(dir, name, trash, err));
    if (rename(path, trash))
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot move '%s' away", path);
    TRY(io_sync_dir(dir, err));
    TRY(io_remove_tree(trash, err));
    return 1;
}

static int remove_trash(DIR *d, const char *dir, struct merr *err)
{
    char path[MCK_PATH_MAX];
    bool synced = false;
    const struct dirent *e;

    while ((e = readdir(d))) {
        bool archive = !strncmp(e->d_name, ARCHIVE_PREFIX, strlen(ARCHIVE_PREFIX));
        int r;

        if (!archive && strncmp(e->d_name, ".trash-", 7) != 0)
            continue;
        if (!synced) /* the process that renamed it may have died before it synced the folder */
            TRY(io_sync_dir(dir, err));
        synced = true;
        TRY(folder_join(dir, e->d_name, path, err));
        r = archive ? folder_remove_dead(path, NULL) : io_remove_tree(path, err);
        if (r < 0 && !(archive && r == -EBUSY))
            return r;
    }
    return 0;
}

int collect_trash(const char *dir, struct merr *err)
{
    DIR *d = opendir(dir);
    int r;

    if (!d)
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot list '%s'", dir);
    r = remove_trash(d, dir, err);
    (void)closedir(d);
    return r;
}

static bool has_manifest(const char *dir, uint64_t step)
{
    char path[MCK_PATH_MAX];

    return folder_step_path(dir, step, "MANIFEST", path, NULL) || access(path, F_OK) == 0;
}

static bool is_good(const char *dir, uint64_t step)
{
    char path[MCK_PATH_MAX];

    return folder_step_path(dir, step, NULL, path, NULL) == 0 && read_is_committed(path);
}

int collect_folder(const char *dir, int keep, uint64_t keep_every, struct merr *err)
{
    uint64_t *step = NULL, newest = 0;
    size_t n = 0;
    int good = 0, r = collect_trash(dir, err);

    if (keep < 2)
        keep = 2;
    if (r == 0)
        r = folder_steps(dir, &step, &n, err);
    for (size_t i = n; i-- > 0 && r == 0;) {
        bool committed = has_manifest(dir, step[i]), whole = committed && is_good(dir, step[i]);

        if (whole && good < keep) { /* only whole ones count towards those kept */
            good++;
            newest = step[i] > newest ? step[i] : newest;
            continue;
        }
        if (whole && keep_every && step[i] % keep_every == 0)
            continue; /* kept for good */
        if (good >= keep || (!committed && good && step[i] < newest))
            r = collect_step(dir, step[i], err);
        r = r > 0 ? 0 : r;
    }
    free(step);
    return r;
}
