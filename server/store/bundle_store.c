#include "server/store/bundle_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/bundle.h"
#include "base/io.h"
#include "base/try.h"

#define PART ".part" /* behind the name of one that is not complete */
#define USED ".used" /* behind that of a file as old as the last use: agents give the bundle itself away */

struct bundle_store {
    struct bundle_store_cfg cfg;
    char *jobs;
    pthread_mutex_t lock; /* of the folders: a quota is looked at and used in one go */
};

/* A folder that ranks may pass through; what is made in it has the group of those above, which is the agents'. */
static int make_folder(const char *path)
{
    struct stat st;

    if ((mkdir(path, 0711) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return -errno;
    return chmod(path, (st.st_mode & 02000) | 0711) < 0 ? -errno : 0;
}

int bundle_store_open(const struct bundle_store_cfg *cfg, struct bundle_store **ret, struct merr *err)
{
    struct bundle_store *b = calloc(1, sizeof(*b));
    char path[PATH_MAX];
    int r;

    if (!b || !(b->jobs = strdup(cfg->jobs))) {
        free(b);
        return merr_set(err, -ENOMEM, "out of memory");
    }
    b->cfg = *cfg;
    (void)snprintf(path, sizeof(path), "%.3900s/" BUNDLE_FOLDER, cfg->jobs);
    r = make_folder(path);
    if (r < 0) {
        free(b->jobs);
        free(b);
        return merr_errno(err, r, "cannot make '%s'", path);
    }
    (void)pthread_mutex_init(&b->lock, NULL);
    *ret = b;
    return 0;
}

void bundle_store_close(struct bundle_store *b)
{
    if (!b)
        return;
    (void)pthread_mutex_destroy(&b->lock);
    free(b->jobs);
    free(b);
}

static int look(const struct bundle_store *b, const char *user, const char *name, struct bundle_state *ret)
{
    char path[PATH_MAX + sizeof(PART)];
    struct stat st;

    TRY(bundle_path(b->jobs, user, name, path));
    *ret = (struct bundle_state){.complete = stat(path, &st) == 0};
    if (!ret->complete) {
        (void)snprintf(path + strlen(path), sizeof(PART), PART);
        if (stat(path, &st) < 0)
            return -errno;
    }
    ret->stored = (uint64_t)st.st_size;
    return 0;
}

int bundle_store_look(struct bundle_store *b, const char *user, const char *name, struct bundle_state *ret)
{
    return look(b, user, name, ret);
}

/* Whether what a sweep or a count comes across is of itself a bundle, or a part of one. */
static bool is_bundle(const char *file)
{
    return file[0] != '.' && !strstr(file, USED);
}

/* What a user has, but for this one: bytes and bundles. */
static void count(const char *folder, const char *name, uint64_t *ret_bytes, size_t *ret_n)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    struct stat st;

    *ret_bytes = 0;
    *ret_n = 0;
    while (d && (e = readdir(d)))
        if (is_bundle(e->d_name) && strncmp(e->d_name, name, strlen(name)) != 0 &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            *ret_bytes += (uint64_t)st.st_size;
            (*ret_n)++;
        }
    if (d)
        (void)closedir(d);
}

/* Whether a whole file is what its name says and may be unpacked; then it is kept under that name. */
static int keep(int fd, const char *folder, const char *part, const char *name, uint64_t size, struct merr *err)
{
    void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    char is[BUNDLE_NAME_BYTES], path[PATH_MAX + BUNDLE_NAME_BYTES];
    int r = 0;

    if (data == MAP_FAILED)
        return merr_errno(err, -errno, "cannot read what was uploaded");
    if (strcmp(bundle_name(data, (size_t)size, is), name) != 0)
        r = merr_set(err, -EBADMSG,
                     "what was uploaded is %s, not %s: its files have changed, or a piece has; "
                     "upload it again",
                     is, name);
    else if (bundle_check(data, (size_t)size, err) < 0)
        r = merr_prefix(err, -EBADMSG, "the upload is not taken");
    (void)munmap(data, (size_t)size);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (r == 0 && (fsync(fd) < 0 || rename(part, path) < 0))
        r = merr_errno(err, -errno, "cannot keep the upload");
    if (r == -EBADMSG)
        (void)unlink(part);
    return r == 0 ? io_sync_dir(folder, err) : r;
}

/* All under the lock: look, count, append. */
static int append(struct bundle_store *b, const char *user, const char *name, uint64_t size, uint64_t offset,
                  const void *data, size_t len, struct bundle_state *ret, struct merr *err)
{
    char folder[PATH_MAX], part[PATH_MAX + BUNDLE_NAME_BYTES + sizeof(PART)];
    IO_CLOSE_AUTO int fd = -1;
    uint64_t others;
    size_t n;
    int r = look(b, user, name, ret);

    if (r < 0 && r != -ENOENT)
        return merr_errno(err, r, "cannot look for the upload");
    if (r == 0 && ret->complete)
        return 0;
    if (ret->stored != offset)
        return merr_set(err, -ESTALE, "%llu bytes of it are here: go on from there", (unsigned long long)ret->stored);
    if (offset > size || len > size - offset || len == 0)
        return merr_set(err, -EINVAL, "a piece of %zu bytes at %llu is not of an upload of %llu bytes", len,
                        (unsigned long long)offset, (unsigned long long)size);
    (void)bundle_path(b->jobs, user, "", folder);
    count(folder, name, &others, &n);
    if (n >= BUNDLE_STORE_MAX || others + size > b->cfg.user_bytes)
        return merr_set(err, -EDQUOT,
                        "%llu MiB in %zu uploads are kept for you, and %llu more pass %llu MiB (musterd "
                        "--user-uploads) or %d uploads; those that no job needs go with time",
                        (unsigned long long)(others >> 20), n, (unsigned long long)(size >> 20),
                        (unsigned long long)(b->cfg.user_bytes >> 20), BUNDLE_STORE_MAX);
    r = make_folder(folder);
    if (r < 0)
        return merr_errno(err, r, "cannot make a folder for uploads");
    (void)snprintf(part, sizeof(part), "%s/%s" PART, folder, name);
    fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0640);
    if (fd < 0 || fchmod(fd, 0640) < 0)
        return merr_errno(err, -errno, "cannot keep the upload");
    if ((r = io_write_all(fd, data, len)) < 0) {
        if (ftruncate(fd, (off_t)offset) < 0) /* a part of a piece is none */
            (void)unlink(part);
        return merr_errno(err, r, "cannot keep the upload");
    }
    ret->stored = offset + len;
    ret->complete = ret->stored == size;
    return ret->complete ? keep(fd, folder, part, name, size, err) : 0;
}

int bundle_store_put(struct bundle_store *b, const char *user, const char *name, uint64_t size, uint64_t offset,
                     const void *data, size_t len, struct bundle_state *ret, struct merr *err)
{
    int r;

    if (size > b->cfg.bytes_max)
        return merr_set(err, -E2BIG,
                        "the upload has %llu MiB, and this server takes %llu (musterd --max-upload); name what the job "
                        "does not need in .musterignore, and keep data where the nodes can read it",
                        (unsigned long long)((size + (1 << 20) - 1) >> 20),
                        (unsigned long long)(b->cfg.bytes_max >> 20));
    (void)pthread_mutex_lock(&b->lock);
    r = append(b, user, name, size, offset, data, len, ret, err);
    (void)pthread_mutex_unlock(&b->lock);
    return r;
}

int bundle_store_use(struct bundle_store *b, const char *user, const char *name, int64_t now_us)
{
    struct timespec at[2] = {{.tv_sec = now_us / 1000000}, {.tv_sec = now_us / 1000000}};
    char path[PATH_MAX + sizeof(USED)];
    IO_CLOSE_AUTO int fd = -1;
    struct stat st;
    int r;

    TRY(bundle_path(b->jobs, user, name, path));
    (void)pthread_mutex_lock(&b->lock); /* a sweep does not come between */
    r = stat(path, &st) < 0 ? -errno : 0;
    if (r == 0) {
        (void)snprintf(path + strlen(path), sizeof(USED), USED);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        r = fd < 0 || futimens(fd, at) < 0 ? -errno : 0;
    }
    (void)pthread_mutex_unlock(&b->lock);
    return r;
}

/* When it was used last, or grew. */
static int64_t used_s(int dir, const char *name, const struct stat *st)
{
    char path[NAME_MAX + sizeof(USED)];
    struct stat used;

    (void)snprintf(path, sizeof(path), "%s" USED, name);
    return fstatat(dir, path, &used, AT_SYMLINK_NOFOLLOW) == 0 && used.st_mtim.tv_sec > st->st_mtim.tv_sec
               ? used.st_mtim.tv_sec
               : st->st_mtim.tv_sec;
}

static int sweep_user(const char *folder, const json_t *needed, int64_t before_s)
{
    const char *user = strrchr(folder, '/') + 1;
    DIR *d = opendir(folder);
    struct dirent *e;
    struct stat st;
    char key[512];
    int gone = 0;

    while (d && (e = readdir(d))) {
        (void)snprintf(key, sizeof(key), "%.200s/%.200s", user, e->d_name);
        if (!is_bundle(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            used_s(dirfd(d), e->d_name, &st) >= before_s || json_object_get(needed, key) ||
            unlinkat(dirfd(d), e->d_name, 0) < 0)
            continue;
        (void)snprintf(key, sizeof(key), "%.200s" USED, e->d_name);
        (void)unlinkat(dirfd(d), key, 0);
        gone++;
    }
    if (d)
        (void)closedir(d);
    return gone;
}

int bundle_store_sweep(struct bundle_store *b, const json_t *needed, int64_t now_us)
{
    int64_t before_s = (now_us - b->cfg.keep_us) / 1000000;
    char path[PATH_MAX], folder[PATH_MAX + 260];
    struct dirent *e;
    int gone = 0;
    DIR *d;

    (void)snprintf(path, sizeof(path), "%.3900s/" BUNDLE_FOLDER, b->jobs);
    d = opendir(path);
    (void)pthread_mutex_lock(&b->lock);
    while (d && (e = readdir(d))) {
        (void)snprintf(folder, sizeof(folder), "%s/%.255s", path, e->d_name);
        if (e->d_name[0] != '.')
            gone += sweep_user(folder, needed, before_s);
    }
    (void)pthread_mutex_unlock(&b->lock);
    if (d)
        (void)closedir(d);
    return gone;
}
