/* archive - committed checkpoints written anew with a codec, in the background: smaller, and the same to whoever reads;
 * with "optq" but for AdamW's moments, which are then within bounds of what they were
 *
 * A step is written into DIR/.archive-00000200, verified there and then exchanged with its folder in one rename, so
 * that at each instant one of the two stands under its name; what was there before is removed. The newest checkpoint
 * stays as it is. One thread of the lowest priority does it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/read/read.h"
#include "checkpoint/tools/recode.h"
#include "checkpoint/write/coordinate.h"
#include "checkpoint/write/writer.h"

#define NICE 19

struct archiver {
    char dir[MCK_PATH_MAX];
    uint64_t generation;
    struct recoder *recoder; /* of the thread */
    uint64_t trying;         /* the step under way */
    uint64_t failed;         /* the last step that could not be archived, not tried again; UINT64_MAX: none */
    struct merr why;
    bool told; /* why was taken */
    atomic_bool stop;
    pthread_mutex_t lock; /* guards wake, why and told */
    pthread_cond_t cond;
    bool wake;
    pthread_t thread;
};

/* --- one step ---------------------------------------------------------------------------------- */

/* A new empty folder, locked by *ret_lock so that no collector takes it for a dead archiver's. */
static int make_folder(const char *path, int *ret_lock, struct merr *err)
{
    int r;

    TRY(folder_remove_dead(path, err));
    if (mkdir(path, 0755))
        return merr_errno(err, -errno, "cannot make '%s'", path);
    *ret_lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_lock >= 0 && flock(*ret_lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    r = merr_errno(err, -errno, "cannot lock '%s'", path);
    io_close(ret_lock);
    return r;
}

static int write_archive(struct archiver *a, struct mck *c, const char *temp, struct merr *err)
{
    struct mck_index ix;
    struct mck *copy;
    uint8_t uuid[16];
    int r;

    folder_attempt(hash_xxh3(c->ix.uuid, sizeof(c->ix.uuid)), c->ix.step, recoder_key(a->recoder), uuid);
    for (uint32_t i = 0; i < c->ix.files; i++)
        TRY(recode_file(a->recoder, c, i, temp, uuid, err));
    TRY(coordinate_merge(temp, c->ix.writers, &ix, err));
    r = coordinate_write_manifest(&ix, NULL, temp, 0, false, err);
    index_clear(&ix);
    TRY(r);
    TRY(mck_open_path(temp, &copy, err));
    r = mck_verify(copy, NULL, err);
    mck_free(copy);
    return r;
}

/* Does the folder still hold the MANIFEST that was opened? */
static bool is_same(const struct mck *c)
{
    char path[MCK_PATH_MAX];
    struct stat open_one, there;

    return folder_join(c->path, "MANIFEST", path, NULL) == 0 && fstat(c->lease, &open_one) == 0 &&
           stat(path, &there) == 0 && open_one.st_ino == there.st_ino && open_one.st_dev == there.st_dev;
}

/* The archive takes the step's name, unless somebody reads the step, or another generation writes here. */
static int exchange(const struct archiver *a, const struct mck *c, const char *temp, struct merr *err)
{
    IO_CLOSE_AUTO int fence = -1;

    TRY(folder_fence(a->dir, a->generation, true, &fence, err));
    if (flock(c->lease, LOCK_EX | LOCK_NB))
        return merr_set(err, -EBUSY, "'%s' is being read: it is not archived", c->path);
    if (!is_same(c))
        return merr_set(err, -ENOENT, "'%s' was removed while it was archived", c->path);
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, c->path, RENAME_EXCHANGE))
        return merr_errno(err, -errno, "cannot exchange '%s' and '%s'", temp, c->path);
    return 0;
}

/* 1: there was nothing to do. */
static int archive_step(struct archiver *a, uint64_t step, struct merr *err)
{
    char path[MCK_PATH_MAX], temp[MCK_PATH_MAX], name[40];
    IO_CLOSE_AUTO int lock = -1;
    struct mck *c;
    int r;

    (void)snprintf(name, sizeof(name), ARCHIVE_PREFIX "%08" PRIu64, step);
    TRY(folder_step_path(a->dir, step, NULL, path, err));
    TRY(folder_join(a->dir, name, temp, err));
    TRY(read_open_checked(path, &c, err));
    if (!c->ix.files || (c->ix.file[0].flags & MCK_FILE_ARCHIVED)) {
        mck_free(c);
        return 1;
    }
    r = make_folder(temp, &lock, err);
    if (r == 0)
        r = write_archive(a, c, temp, err);
    if (r == 0)
        r = exchange(a, c, temp, err);
    mck_free(c);
    if (r == 0)
        TRY(io_sync_dir(a->dir, err)); /* the old one stays until it is known which of them has the name */
    (void)io_remove_tree(temp, NULL);  /* the collector takes what this leaves */
    return r;
}

/* --- the thread -------------------------------------------------------------------------------- */

/* One of n steps, ascending: see archive_next. */
static int archive_one(struct archiver *a, const uint64_t *step, size_t n, struct merr *err)
{
    bool newest = true;

    while (n-- > 0) {
        char path[MCK_PATH_MAX];
        int r = 1;

        TRY(folder_step_path(a->dir, step[n], NULL, path, err));
        if (!read_is_committed(path))
            continue;
        if (!newest && step[n] != a->failed) {
            a->trying = step[n];
            r = archive_step(a, step[n], err);
        }
        if (r <= 0)
            return r < 0 ? r : 1;
        newest = false;
    }
    return 0;
}

/* Archive one step: the newest first of those behind the newest of all, for they stay longest. 1 when one was, 0 when
 * none is left, or why one could not be. */
static int archive_next(struct archiver *a, struct merr *err)
{
    uint64_t *step = NULL;
    size_t n = 0;
    int r = folder_steps(a->dir, &step, &n, err);

    if (r == 0)
        r = archive_one(a, step, n, err);
    free(step);
    return r;
}

/* What is read, gone or stopped may be archived another time. */
static void note_failure(struct archiver *a, int code, const struct merr *err)
{
    if (code == -EBUSY || code == -ENOENT || code == -ECANCELED)
        return;
    (void)pthread_mutex_lock(&a->lock);
    a->failed = a->trying;
    a->told = false;
    a->why = *err;
    (void)pthread_mutex_unlock(&a->lock);
}

static void *archiver_run(void *arg)
{
    struct archiver *a = arg;
    struct merr err = {.text = ""};
    int r;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    (void)pthread_mutex_lock(&a->lock);
    while (!atomic_load(&a->stop)) {
        if (!a->wake) {
            (void)pthread_cond_wait(&a->cond, &a->lock);
            continue;
        }
        a->wake = false;
        (void)pthread_mutex_unlock(&a->lock);
        do
            r = atomic_load(&a->stop) ? 0 : archive_next(a, &err);
        while (r > 0);
        if (r < 0)
            note_failure(a, r, &err);
        (void)pthread_mutex_lock(&a->lock);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void release(struct archiver *a)
{
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_cond_destroy(&a->cond);
    recoder_free(a->recoder);
    free(a);
}

static int alloc(const char *dir, uint64_t generation, const char *codec, const struct mck_bounds *bounds,
                 struct archiver **ret, struct merr *err)
{
    struct archiver *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return merr_set(err, -ENOMEM, "no memory for an archiver");
    a->generation = generation;
    a->failed = UINT64_MAX;
    a->told = true;
    (void)snprintf(a->dir, sizeof(a->dir), "%s", dir);
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->cond, NULL);
    r = recoder_new(codec, bounds, &a->stop, &a->recoder, err);
    if (r < 0)
        release(a);
    else
        *ret = a;
    return r;
}

int mck_archive(const char *dir, const char *codec, const struct mck_bounds *bounds, int *ret_steps, struct merr *err)
{
    struct archiver *a;
    int r;

    TRY(alloc(dir, UINT64_MAX, codec, bounds, &a, err));
    for (*ret_steps = 0; (r = archive_next(a, err)) > 0;)
        ++*ret_steps;
    release(a);
    return r;
}

/* --- behind a writer ----------------------------------------------------------------------------- */

static void archiver_wake(void *archiver)
{
    struct archiver *a = archiver;

    (void)pthread_mutex_lock(&a->lock);
    a->wake = true;
    (void)pthread_cond_signal(&a->cond);
    (void)pthread_mutex_unlock(&a->lock);
}

static int archiver_next_failure(void *archiver, struct merr *ret)
{
    struct archiver *a = archiver;
    int r;

    (void)pthread_mutex_lock(&a->lock);
    r = !a->told;
    if (r)
        *ret = a->why;
    a->told = true;
    (void)pthread_mutex_unlock(&a->lock);
    return r;
}

/* Stops after the chunk under way, or once what was written is verified. */
static void archiver_free(void *archiver)
{
    struct archiver *a = archiver;

    atomic_store(&a->stop, true);
    archiver_wake(a);
    (void)pthread_join(a->thread, NULL);
    release(a);
}

int mck_archive_behind(struct mck_writer *w, const char *codec, struct merr *err)
{
    static const struct writer_follower follower = {archiver_wake, archiver_next_failure, archiver_free};
    const struct mck_cfg *cfg = writer_cfg(w);
    struct archiver *a;
    int r;

    TRY(alloc(cfg->dir, cfg->generation, codec, NULL, &a, err));
    r = pthread_create(&a->thread, NULL, archiver_run, a);
    if (r != 0) {
        release(a);
        return merr_errno(err, -r, "cannot start the archiver's thread");
    }
    writer_follow(w, &follower, a);
    return 0;
}
