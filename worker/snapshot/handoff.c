#include "worker/snapshot/handoff.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "base/version.h"

#define MARK_MAGIC UINT64_C(0x314b52414d50454b)
#define FOLDER "keep" /* and the magic number: names on disk, as earlier versions gave them */
#define ARENA "arena-t%d-c%d-p%d-d%d"

struct handoff {
    int arena, moments; /* descriptors, -1: not open */
    float *m;           /* the moments' mapping */
    size_t weight_n, moment_bytes;
    bool masters;
    bool used;
};

struct mark_file {
    uint64_t magic;
    char version[24];
    struct handoff_mark mark;
    uint64_t hash; /* of all before */
};

static int path_of(const char *memory, const char *name, char ret[PATH_MAX], struct merr *err)
{
    if (snprintf(ret, PATH_MAX, "%s/" FOLDER "/%s", memory, name) >= PATH_MAX)
        return merr_set(err, -ENAMETOOLONG, "the path of the job's memory is too long");
    return 0;
}

/* --- files ------------------------------------------------------------------------------------------------- */

/* A file of so many bytes, all of them backed by memory: a page that cannot be had later would be a signal. */
static int open_sized(const char *memory, const char *name, size_t bytes, bool *ret_used, int *ret_fd, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    char path[PATH_MAX];
    struct stat st;

    TRY(path_of(memory, name, path, err));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (st.st_size > 0)
        *ret_used = true;
    if ((size_t)st.st_size != bytes && ftruncate(fd, (off_t)bytes) < 0)
        return merr_errno(err, -errno, "cannot give '%s' %zu bytes", path, bytes);
    if (fstat(fd, &st) < 0 || ((size_t)st.st_blocks * 512 < bytes && fallocate(fd, 0, 0, (off_t)bytes) < 0)) {
        int code = -errno;

        (void)unlink(path);
        return merr_errno(err, code, "no room for %zu MiB in '%s'", bytes >> 20, memory);
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int in_memory(const char *memory, struct merr *err)
{
    struct statfs fs;

    if (statfs(memory, &fs) < 0)
        return merr_errno(err, -errno, "cannot look at '%s'", memory);
    if (fs.f_type != TMPFS_MAGIC)
        return merr_set(err, -ENOTSUP, "'%s' is not in memory (a tmpfs)", memory);
    return 0;
}

static int open_files(const struct handoff_cfg *cfg, struct handoff *k, struct merr *err)
{
    char name[80];

    (void)snprintf(name, sizeof(name), ARENA, cfg->tp_index, cfg->cp_index, cfg->pp_index, cfg->dp_index);
    TRY(open_sized(cfg->memory, name, cfg->arena_bytes, &k->used, &k->arena, err));
    (void)snprintf(name, sizeof(name), "moments-t%d-c%d-p%d", cfg->tp_index, cfg->cp_index, cfg->pp_index);
    TRY(open_sized(cfg->memory, name, k->moment_bytes, &k->used, &k->moments, err));
    k->m = mmap(NULL, k->moment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->moments, 0);
    if (k->m == MAP_FAILED) {
        k->m = NULL;
        return merr_errno(err, -errno, "cannot map %zu bytes", k->moment_bytes);
    }
    return 0;
}

int handoff_open(const struct handoff_cfg *cfg, struct handoff **ret, struct merr *err)
{
    char path[PATH_MAX];
    struct handoff *k;
    int r;

    TRY(in_memory(cfg->memory, err));
    TRY(path_of(cfg->memory, "", path, err));
    TRY(io_mkdirs(path, 0700, err));
    k = calloc(1, sizeof(*k));
    if (!k)
        return merr_set(err, -ENOMEM, "no memory");
    *k = (struct handoff){.arena = -1,
                          .moments = -1,
                          .weight_n = cfg->weight_n,
                          .masters = cfg->masters,
                          .moment_bytes = (cfg->masters ? 3 : 2) * cfg->weight_n * sizeof(float)};
    r = open_files(cfg, k, err);
    if (r == 0)
        *ret = k;
    else
        handoff_close(k);
    return r;
}

void handoff_close(struct handoff *k)
{
    int saved = errno;

    if (!k)
        return;
    if (k->m)
        (void)munmap(k->m, k->moment_bytes);
    io_close(&k->arena);
    io_close(&k->moments);
    free(k);
    errno = saved;
}

int handoff_arena(const struct handoff *k)
{
    return k->arena;
}

bool handoff_was_used(const struct handoff *k)
{
    return k->used;
}

float *handoff_m(struct handoff *k)
{
    return k->m;
}

float *handoff_v(struct handoff *k)
{
    return k->m + k->weight_n;
}

float *handoff_master(struct handoff *k)
{
    return k->masters ? k->m + 2 * k->weight_n : NULL;
}

/* --- the mark ---------------------------------------------------------------------------------------------- */

int handoff_mark_put(const char *memory, const struct handoff_mark *m, struct merr *err)
{
    struct mark_file f;
    char path[PATH_MAX];

    memset(&f, 0, sizeof(f)); /* padding too: it is hashed */
    f.magic = MARK_MAGIC;
    (void)snprintf(f.version, sizeof(f.version), "%s", MUSTER_VERSION);
    f.mark = *m;
    f.hash = hash_xxh3(&f, offsetof(struct mark_file, hash));
    TRY(path_of(memory, "mark", path, err));
    return io_publish_file(path, &f, sizeof(f), 0600, err);
}

int handoff_mark_get(const char *memory, struct handoff_mark *ret)
{
    IO_CLOSE_AUTO int fd = -1;
    struct mark_file f;
    char path[PATH_MAX];

    if (path_of(memory, "mark", path, NULL) < 0)
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || io_read_full(fd, &f, sizeof(f)) != (ssize_t)sizeof(f) || f.magic != MARK_MAGIC ||
        f.hash != hash_xxh3(&f, offsetof(struct mark_file, hash)) ||
        strncmp(f.version, MUSTER_VERSION, sizeof(f.version)) != 0)
        return 0;
    *ret = f.mark;
    return 1;
}

int handoff_mark_drop(const char *memory, struct merr *err)
{
    char path[PATH_MAX];

    TRY(path_of(memory, "mark", path, err));
    if (unlink(path) < 0 && errno != ENOENT)
        return merr_errno(err, -errno, "cannot remove '%s'", path);
    return 0;
}

/* --- all files --------------------------------------------------------------------------------------------- */

/* Replica of an arena's name, -1: no arena. */
static int replica_of(const char *name)
{
    int t, c, p, d;

    return sscanf(name, ARENA, &t, &c, &p, &d) == 4 ? d : -1;
}

uint64_t handoff_bytes(const char *memory)
{
    char path[PATH_MAX];
    DIR *dir = path_of(memory, "", path, NULL) == 0 ? opendir(path) : NULL;
    uint64_t bytes = 0;
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)))
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    if (dir)
        (void)closedir(dir);
    return bytes;
}

void handoff_trim(const char *memory, int dp)
{
    char path[PATH_MAX];
    struct dirent *e;
    DIR *dir;

    if (path_of(memory, "", path, NULL) < 0 || (dp == 0 && handoff_mark_drop(memory, NULL) < 0))
        return;
    if (dp == 0) {
        (void)io_remove_tree(path, NULL);
        return;
    }
    dir = opendir(path);
    while (dir && (e = readdir(dir)))
        if (replica_of(e->d_name) >= dp)
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        (void)closedir(dir);
}
