#include "checkpoint/archive.h"

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
#include "checkpoint/coordinate.h"
#include "checkpoint/part.h"
#include "checkpoint/scan.h"

#define NICE 19

struct archiver {
    char dir[MCK_PATH_MAX];
    uint64_t generation;
    enum chunk_codec codec;
    struct chunk_coder *coder; /* of the thread */
    uint64_t trying;           /* the step under way */
    uint64_t failed;           /* the last step that could not be archived, not tried again; UINT64_MAX: none */
    struct merr why;
    bool told;                 /* why was taken */
    atomic_bool stop;
    pthread_mutex_t lock; /* guards wake, why and told */
    pthread_cond_t cond;
    bool wake;
    pthread_t thread;
};

/* --- one data file ----------------------------------------------------------------------------- */

struct target {
    struct archiver *a;
    const char *path;
    struct mck_index ix; /* of the file that is read; its chunks become those of the new one */
    uint8_t *dtype;      /* of each chunk */
    int fd;
    char *out;           /* MCK_SLOT */
    uint32_t fill;
    uint64_t end; /* of the file so far, with what is in out */
    struct merr *err;
};

static int flush(struct target *t)
{
    int r = lseek(t->fd, (off_t)(t->end - t->fill), SEEK_SET) < 0 ? -errno : io_write_all(t->fd, t->out, t->fill);

    t->fill = 0;
    return r ? merr_errno(t->err, r, "cannot write '%s'", t->path) : 0;
}

static int take_chunk(void *arg, uint64_t i, const void *data, uint32_t len)
{
    struct target *t = arg;
    struct mck_chunk *e = &t->ix.chunk[i];
    uint64_t was = e->xxh3;
    uint32_t whole;
    int r = t->fill + MCK_CHUNK > MCK_SLOT ? flush(t) : 0;

    if (r)
        return r;
    if (atomic_load(&t->a->stop))
        return merr_set(t->err, -ECANCELED, "the archiver was stopped");
    whole = part_encode(t->a->coder, t->a->codec, t->dtype[i], data, len, t->end, t->out + t->fill, e);
    if (e->xxh3 != was)
        return merr_set(t->err, -EBADMSG, "'%s': chunk %llu changed while it was archived", t->path,
                        (unsigned long long)i);
    t->fill += whole;
    t->end += whole;
    return 0;
}

/* A chunk has one type: that of any tensor in it. */
static void find_types(struct target *t)
{
    for (size_t i = 0; i < t->ix.shards; i++) {
        const struct mck_shard *s = &t->ix.shard[i];

        for (uint64_t c = s->stream_off / MCK_CHUNK; s->bytes && c * MCK_CHUNK < s->stream_off + s->bytes; c++)
            t->dtype[c] = t->ix.tensor[s->tensor].dtype;
    }
}

static int write_tail(struct target *t, const uint8_t uuid[16])
{
    struct mck_file *f = &t->ix.file[0];
    void *tail = NULL;
    uint32_t len = 0;
    int r;

    memcpy(t->ix.uuid, uuid, 16);
    f->flags |= MCK_FILE_ARCHIVED;
    for (size_t i = 0; i < t->ix.shards; i++)
        t->ix.shard[i].file_id = f->file_id; /* as on disk; in memory they point at file[0] */
    f->chunk_table_crc32c = hash_crc32c(0, t->ix.chunk, t->ix.chunks * sizeof(*t->ix.chunk));
    r = part_tail(&t->ix, t->end, &tail, &len, t->err);
    if (r)
        return r;
    r = io_write_all(t->fd, (char *)tail + MCK_ALIGN, len);
    if (!r && pwrite(t->fd, tail, MCK_ALIGN, 0) != (ssize_t)MCK_ALIGN)
        r = errno ? -errno : -EIO;
    if (!r && fdatasync(t->fd))
        r = -errno;
    free(tail);
    (void)posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED); /* training wants the page cache */
    return r ? merr_errno(t->err, r, "cannot write '%s'", t->path) : 0;
}

static int recode(struct target *t, struct mck *c, uint32_t file, const uint8_t uuid[16])
{
    struct scan scan;
    uint64_t step = MCK_SLOT / MCK_CHUNK, to;
    int r = scan_init(&scan, c, t->err);

    find_types(t);
    for (uint64_t i = 0; i < t->ix.chunks && !r; i = to) {
        to = i + step < t->ix.chunks ? i + step : t->ix.chunks;
        r = scan_chunks(&scan, file, i, to, take_chunk, t, t->err);
    }
    scan_clear(&scan);
    if (!r)
        r = flush(t);
    return r ? r : write_tail(t, uuid);
}

static int archive_file(struct archiver *a, struct mck *c, uint32_t file, const char *temp, const uint8_t uuid[16],
                        struct merr *err)
{
    const char *from = c->paths[c->source[file].path], *slash = strrchr(from, '/');
    struct target t = {.a = a, .fd = -1, .end = MCK_ALIGN, .err = err};
    char path[MCK_PATH_MAX];
    int r = folder_join(temp, slash ? slash + 1 : from, path, err);

    if (!r)
        r = part_read(from, &t.ix, err);
    if (r)
        return r;
    t.path = path;
    t.dtype = calloc(t.ix.chunks + 1, 1);
    t.out = malloc(MCK_SLOT);
    t.fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (!t.dtype || !t.out)
        r = merr_set(err, -ENOMEM, "no memory to archive '%s'", from);
    else if (t.fd < 0)
        r = merr_errno(err, -errno, "cannot make '%s'", path);
    else
        r = recode(&t, c, file, uuid);
    io_close(&t.fd);
    free(t.out);
    free(t.dtype);
    index_clear(&t.ix);
    return r;
}

/* --- one step ---------------------------------------------------------------------------------- */

/* A new empty folder, locked by *ret_lock so that no collector takes it for a dead archiver's. */
static int make_folder(const char *path, int *ret_lock, struct merr *err)
{
    int r = folder_remove_dead(path, err);

    if (!r && mkdir(path, 0755))
        r = merr_errno(err, -errno, "cannot make '%s'", path);
    if (r)
        return r;
    *ret_lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_lock < 0 || flock(*ret_lock, LOCK_EX | LOCK_NB)) {
        r = merr_errno(err, -errno, "cannot lock '%s'", path);
        io_close(ret_lock);
    }
    return r;
}

static int write_archive(struct archiver *a, struct mck *c, const char *temp, struct merr *err)
{
    struct mck_index ix;
    struct mck *copy;
    uint8_t uuid[16];
    int r = 0;

    folder_attempt(hash_xxh3(c->ix.uuid, sizeof(c->ix.uuid)), c->ix.step, (uint32_t)a->codec, uuid);
    for (uint32_t i = 0; i < c->ix.files && !r; i++)
        r = archive_file(a, c, i, temp, uuid, err);
    if (!r)
        r = coordinate_merge(temp, c->ix.writers, &ix, err);
    if (r)
        return r;
    r = coordinate_write_manifest(&ix, NULL, temp, 0, false, err);
    index_clear(&ix);
    if (!r)
        r = mck_open_path(temp, &copy, err);
    if (r)
        return r;
    r = mck_verify(copy, NULL, NULL, NULL, err);
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
    int r = folder_fence(a->dir, a->generation, true, &fence, err);

    if (r)
        return r;
    if (flock(c->lease, LOCK_EX | LOCK_NB))
        return merr_set(err, -EBUSY, "'%s' is being read: it is not archived", c->path);
    if (!is_same(c))
        return merr_set(err, -ENOENT, "'%s' was removed while it was archived", c->path);
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, c->path, RENAME_EXCHANGE))
        return merr_errno(err, -errno, "cannot exchange '%s' and '%s'", temp, c->path);
    return io_sync_dir(a->dir, err);
}

/* 1: there was nothing to do. */
static int archive_step(struct archiver *a, uint64_t step, struct merr *err)
{
    char path[MCK_PATH_MAX], temp[MCK_PATH_MAX], name[40];
    IO_CLOSE_AUTO int lock = -1;
    struct mck *c;
    int r = folder_step_path(a->dir, step, NULL, path, err);

    (void)snprintf(name, sizeof(name), ARCHIVE_PREFIX "%08" PRIu64, step);
    if (!r)
        r = folder_join(a->dir, name, temp, err);
    if (!r)
        r = read_open_checked(path, &c, err);
    if (r)
        return r;
    if (!c->ix.files || (c->ix.file[0].flags & MCK_FILE_ARCHIVED)) {
        mck_free(c);
        return 1;
    }
    r = make_folder(temp, &lock, err);
    if (!r)
        r = write_archive(a, c, temp, err);
    if (!r)
        r = exchange(a, c, temp, err);
    mck_free(c);
    (void)io_remove_tree(temp, NULL); /* the collector takes what this leaves */
    return r;
}

/* --- the thread -------------------------------------------------------------------------------- */

/* Archive one step: the newest first of those behind the newest of all, for they stay longest. 1 when one was, 0 when
 * none is left, or why one could not be. */
static int archive_next(struct archiver *a, struct merr *err)
{
    uint64_t *step = NULL;
    size_t n = 0;
    bool newest = true;
    int r = folder_steps(a->dir, &step, &n, err), done = 0;

    while (n-- > 0 && !r && !done) {
        char path[MCK_PATH_MAX];

        r = folder_step_path(a->dir, step[n], NULL, path, err);
        if (r || !read_is_committed(path))
            continue;
        if (!newest && step[n] != a->failed) {
            a->trying = step[n];
            r = archive_step(a, step[n], err);
            done = r == 0;
            r = r > 0 ? 0 : r;
        }
        newest = false;
    }
    free(step);
    return r ? r : done;
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

static int alloc(const char *dir, uint64_t generation, enum chunk_codec codec, struct archiver **ret, struct merr *err)
{
    struct archiver *a = calloc(1, sizeof(*a));

    if (a)
        a->coder = chunk_coder_new();
    if (!a || !a->coder) {
        free(a);
        return merr_set(err, -ENOMEM, "no memory for an archiver");
    }
    a->generation = generation;
    a->codec = codec;
    a->failed = UINT64_MAX;
    a->told = true;
    (void)snprintf(a->dir, sizeof(a->dir), "%s", dir);
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->cond, NULL);
    *ret = a;
    return 0;
}

static void release(struct archiver *a)
{
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_cond_destroy(&a->cond);
    chunk_coder_free(a->coder);
    free(a);
}

int archiver_codec(const char *name, struct merr *err)
{
    static const char *const names[] = {[CHUNK_ZSTD] = "zstd", [CHUNK_LZ4] = "lz4", [CHUNK_PLANE] = "plane"};

    for (int i = CHUNK_ZSTD; i <= CHUNK_PLANE; i++)
        if (!strcmp(name, names[i]))
            return i;
    return merr_set(err, -EINVAL, "codec '%s' is not for archives: want plane, zstd or lz4", name);
}

int archiver_new(const char *dir, uint64_t generation, const char *codec, struct archiver **ret, struct merr *err)
{
    int number = archiver_codec(codec, err), r;
    struct archiver *a;

    if (number < 0)
        return number;
    r = alloc(dir, generation, (enum chunk_codec)number, &a, err);
    if (r)
        return r;
    r = pthread_create(&a->thread, NULL, archiver_run, a);
    if (r) {
        release(a);
        return merr_errno(err, -r, "cannot start the archiver's thread");
    }
    *ret = a;
    return 0;
}

int mck_archive(const char *dir, const char *codec, int *ret_steps, struct merr *err)
{
    int number = archiver_codec(codec, err), r;
    struct archiver *a;

    if (number < 0)
        return number;
    r = alloc(dir, UINT64_MAX, (enum chunk_codec)number, &a, err);
    if (r)
        return r;
    for (*ret_steps = 0; (r = archive_next(a, err)) > 0;)
        ++*ret_steps;
    release(a);
    return r;
}

void archiver_wake(struct archiver *a)
{
    (void)pthread_mutex_lock(&a->lock);
    a->wake = true;
    (void)pthread_cond_signal(&a->cond);
    (void)pthread_mutex_unlock(&a->lock);
}

int archiver_take_failure(struct archiver *a, struct merr *ret)
{
    int r;

    (void)pthread_mutex_lock(&a->lock);
    r = !a->told;
    if (r)
        *ret = a->why;
    a->told = true;
    (void)pthread_mutex_unlock(&a->lock);
    return r;
}

void archiver_free(struct archiver *a)
{
    if (!a)
        return;
    atomic_store(&a->stop, true);
    archiver_wake(a);
    (void)pthread_join(a->thread, NULL);
    release(a);
}
