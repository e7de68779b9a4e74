#include "checkpoint/format/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"

#define LOCK_WAIT_US (10 * 1000000)
#define STEPS_MAX 1000000

void folder_attempt(uint64_t generation, uint64_t step, uint32_t try, uint8_t ret[16])
{
    uint64_t in[4] = {generation, step, 1, try}, out[2];

    out[0] = hash_xxh3(in, sizeof(in));
    in[2] = 2;
    out[1] = hash_xxh3(in, sizeof(in));
    memcpy(ret, out, 16);
}

int folder_join(const char *path, const char *name, char out[MCK_PATH_MAX], struct merr *err)
{
    int n = snprintf(out, MCK_PATH_MAX, "%s/%s", path, name);

    return n < MCK_PATH_MAX ? 0 : merr_set(err, -ENAMETOOLONG, "the path '%s' is too long", path);
}

int folder_step_path(const char *dir, uint64_t step, const char *name, char out[MCK_PATH_MAX], struct merr *err)
{
    int n = snprintf(out, MCK_PATH_MAX, "%s/step-%08" PRIu64 "%s%s", dir, step, name ? "/" : "", name ? name : "");

    return n < MCK_PATH_MAX ? 0 : merr_set(err, -ENAMETOOLONG, "the path '%s' is too long", dir);
}

bool folder_parse_step(const char *name, uint64_t *ret_step)
{
    char again[40];
    char *end;

    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    errno = 0;
    *ret_step = strtoull(name + 5, &end, 10);
    (void)snprintf(again, sizeof(again), "step-%08" PRIu64, *ret_step);
    return !errno && !*end && !strcmp(again, name);
}

int folder_make(const char *dir, struct merr *err)
{
    char part[MCK_PATH_MAX];
    size_t n = strlen(dir), all = n;

    if (n >= sizeof(part))
        return merr_set(err, -ENAMETOOLONG, "the path '%s' is too long", dir);
    memcpy(part, dir, n + 1);
    while (n && access(part, F_OK)) { /* to what is there already */
        while (n && part[n - 1] != '/')
            n--;
        while (n > 1 && part[n - 1] == '/')
            n--;
        part[n] = '\0';
    }
    TRY(io_mkdirs(dir, 0755, err));
    while (n < all) { /* what was made has its name in the folder above */
        memcpy(part, dir, n);
        part[n] = '\0';
        TRY(io_sync_dir(n ? part : ".", err));
        n += strspn(dir + n, "/");
        n += strcspn(dir + n, "/");
        n += dir[n + strspn(dir + n, "/")] ? 0 : all - n; /* the last one has nothing in it yet */
    }
    return 0;
}

static int lock_file(int fd, int how, struct merr *err)
{
    int r = io_lock(fd, how, clock_mono_us() + LOCK_WAIT_US);

    if (r == -ETIMEDOUT)
        return merr_set(err, r, "the checkpoint folder is locked by another writer for 10 s");
    return r < 0 ? merr_errno(err, r, "cannot lock the checkpoint folder") : 0;
}

static int open_generation(const char *dir, int how, uint64_t *ret_recorded, int *ret_fd, struct merr *err)
{
    char path[MCK_PATH_MAX], text[32] = "";
    IO_CLOSE_AUTO int fd = -1;

    TRY(folder_join(dir, ".generation", path, err));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    TRY(lock_file(fd, how, err));
    if (pread(fd, text, sizeof(text) - 1, 0) < 0)
        return merr_errno(err, -errno, "cannot read '%s'", path);
    *ret_recorded = strtoull(text, NULL, 10);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int stale(uint64_t mine, uint64_t recorded, struct merr *err)
{
    return merr_set(err, -ESTALE, "generation %" PRIu64 " is over: generation %" PRIu64 " writes checkpoints now", mine,
                    recorded);
}

int folder_raise_generation(const char *dir, uint64_t generation, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    uint64_t recorded;
    char text[32];
    int n;

    TRY(open_generation(dir, LOCK_EX, &recorded, &fd, err));
    if (recorded > generation)
        return stale(generation, recorded, err);
    if (recorded == generation)
        return 0;
    n = snprintf(text, sizeof(text), "%020" PRIu64 "\n", generation);
    if (pwrite(fd, text, (size_t)n, 0) != n || fdatasync(fd))
        return merr_errno(err, errno ? -errno : -EIO, "cannot record the generation in '%s/.generation'", dir);
    return io_sync_dir(dir, err);
}

int folder_fence(const char *dir, uint64_t generation, bool exclusive, int *ret_fd, struct merr *err)
{
    uint64_t recorded;
    int fd;

    TRY(open_generation(dir, exclusive ? LOCK_EX : LOCK_SH, &recorded, &fd, err));
    if (recorded > generation) {
        io_close(&fd);
        return stale(generation, recorded, err);
    }
    *ret_fd = fd;
    return 0;
}

int folder_remove_dead(const char *path, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB))
        return merr_set(err, -EBUSY, "another archiver works in '%s'", path);
    return io_remove_tree(path, err);
}

static int compare_steps(const void *x, const void *y)
{
    const uint64_t *a = x, *b = y;

    return (*a > *b) - (*a < *b);
}

/* Add the steps in d to *v, n of them. */
static int list_steps(DIR *d, const char *dir, uint64_t **v, size_t *n, struct merr *err)
{
    const struct dirent *e;
    size_t cap = 0;
    uint64_t step;

    while ((e = readdir(d))) {
        if (!folder_parse_step(e->d_name, &step))
            continue;
        if (*n == cap) {
            uint64_t *more = *n < STEPS_MAX ? realloc(*v, (cap = cap ? 2 * cap : 64) * sizeof(**v)) : NULL;

            if (!more)
                return merr_set(err, -ENOMEM, "'%s' holds more than %zu checkpoints", dir, *n);
            *v = more;
        }
        (*v)[(*n)++] = step;
    }
    return 0;
}

int folder_steps(const char *dir, uint64_t **ret, size_t *ret_n, struct merr *err)
{
    DIR *d = opendir(dir);
    uint64_t *v = NULL;
    size_t n = 0;
    int r;

    if (!d && errno != ENOENT)
        return merr_errno(err, -errno, "cannot list '%s'", dir);
    r = d ? list_steps(d, dir, &v, &n, err) : 0;
    if (d)
        (void)closedir(d);
    if (r < 0) {
        free(v);
        return r;
    }
    if (n)
        qsort(v, n, sizeof(*v), compare_steps);
    *ret = v;
    *ret_n = n;
    return 0;
}
