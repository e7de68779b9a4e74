#include "checkpoint/write/space.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/read/read.h"
#include "checkpoint/write/collect.h"

#define LEAST 2                              /* whole ones that stay whatever is asked for */
#define LOCK_WAIT_US (INT64_C(60) * 1000000) /* for what others remove */
#define BLOCK_BYTES UINT64_C(512)            /* of st_blocks */

bool space_is_short(int code)
{
    return code == -ENOSPC || code == -EDQUOT;
}

/* UINT64_MAX when that cannot be known. */
static uint64_t bytes_free(const char *dir)
{
    struct statvfs fs;

    return statvfs(dir, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
}

bool space_has(const char *dir, uint64_t bytes)
{
    return bytes_free(dir) >= bytes;
}

static bool is_whole(const char *dir, uint64_t step)
{
    char path[MCK_PATH_MAX];

    return folder_step_path(dir, step, NULL, path, NULL) == 0 && read_is_committed(path);
}

static bool is_committed(const char *dir, uint64_t step)
{
    char path[MCK_PATH_MAX];

    return folder_step_path(dir, step, "MANIFEST", path, NULL) == 0 && access(path, F_OK) == 0;
}

/* What the files of a step take. */
static uint64_t step_bytes(const char *dir, uint64_t step)
{
    char path[MCK_PATH_MAX];
    DIR *d = folder_step_path(dir, step, NULL, path, NULL) ? NULL : opendir(path);
    const struct dirent *e;
    uint64_t bytes = 0;
    struct stat st;

    while (d && (e = readdir(d)))
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * BLOCK_BYTES;
    if (d)
        (void)closedir(d);
    return bytes;
}

/* Of n steps, ascending, keep those that may go, which what is under way may not. Returns how many. */
static size_t select_oldest(const struct space *m, uint64_t *step, size_t n)
{
    size_t end = n, may = 0;
    int whole = 0;

    while (end && whole < LEAST)
        whole += is_whole(m->dir, step[--end]);
    for (size_t i = 0; i < end; i++)
        if ((!m->keep_every || step[i] % m->keep_every != 0) && is_committed(m->dir, step[i]))
            step[may++] = step[i];
    return may;
}

static int remove_oldest(struct space *m, uint64_t *step, size_t n, uint64_t bytes, bool in_vain, struct merr *err)
{
    uint64_t least = bytes_free(m->dir);
    bool one = false;

    for (size_t i = 0; i < n && least < bytes; i++)
        least += step_bytes(m->dir, step[i]);
    if (least < bytes)
        return 0;
    for (size_t i = 0; i < n && ((in_vain && !one) || !space_has(m->dir, bytes)); i++) {
        int r = collect_step(m->dir, step[i], err);

        if (r < 0)
            return r;
        one |= r > 0;
        m->removed += r > 0;
    }
    return one || (!in_vain && space_has(m->dir, bytes));
}

int space_make(struct space *m, uint64_t bytes, bool in_vain, struct merr *err)
{
    IO_CLOSE_AUTO int fence = -1, lock = -1;
    char path[MCK_PATH_MAX];
    uint64_t *step = NULL;
    size_t n = 0;
    int r = 0;

    TRY(folder_fence(m->dir, m->generation, false, &fence, err));
    io_close(&fence); /* what goes takes longer than others wait for it */
    TRY(folder_join(m->dir, ".room", path, err));
    lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock >= 0) /* a disk so full that it cannot be made costs the turns alone */
        r = io_lock(lock, LOCK_EX, clock_mono_us() + LOCK_WAIT_US);
    if (r < 0)
        return merr_errno(err, r, "cannot lock '%s'", path);
    TRY(collect_trash(m->dir, err));
    if (!in_vain && space_has(m->dir, bytes))
        return 1;
    TRY(folder_steps(m->dir, &step, &n, err));
    r = remove_oldest(m, step, select_oldest(m, step, n), bytes, in_vain, err);
    free(step);
    return r;
}
