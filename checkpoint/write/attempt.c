#include "checkpoint/write/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/part.h"
#include "checkpoint/read/read.h"
#include "checkpoint/write/collect.h"
#include "checkpoint/write/coordinate.h"
#include "checkpoint/write/space.h"

#define MANIFEST_BYTES (1u << 20) /* about */

static int set_paths(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    char name[32], temp[64], tag[17];

    coordinate_tag(a->uuid, tag);
    (void)snprintf(name, sizeof(name), "rank-%05d.mck", w->cfg.rank);
    (void)snprintf(temp, sizeof(temp), "%s.%s.tmp", name, tag);
    TRY(folder_step_path(w->cfg.dir, a->step, NULL, a->folder, err));
    TRY(folder_join(a->folder, name, a->final, err));
    return folder_join(a->folder, temp, a->temp, err);
}

/* A whole MANIFEST means the step is committed; a damaged one is removed, so that this attempt can commit, and so is
 * one that an earlier generation left where there are only parts now. */
static int check_committed(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    IO_CLOSE_AUTO int fence = -1;
    char path[MCK_PATH_MAX];

    TRY(folder_join(a->folder, "MANIFEST", path, err));
    TRY(folder_fence(w->cfg.dir, w->cfg.generation, true, &fence, err));
    if (access(path, F_OK))
        return 0;
    if (!w->cfg.parts && read_is_committed(a->folder)) {
        (void)pthread_mutex_lock(&w->lock); /* the capture looks at it meanwhile */
        a->skip = true;
        (void)pthread_mutex_unlock(&w->lock);
    } else if (unlink(path) && errno != ENOENT)
        return merr_errno(err, -errno, "cannot remove the %s '%s'", w->cfg.parts ? "older" : "damaged", path);
    return 0;
}

bool attempt_make_space(struct mck_writer *w, struct attempt *a, uint64_t bytes, bool in_vain)
{
    struct space m = {.dir = w->cfg.dir, .generation = w->cfg.generation, .keep_every = w->cfg.keep_every};
    int r = w->cfg.parts ? 0 : space_make(&m, bytes, in_vain, NULL); /* of parts others collect */

    (void)pthread_mutex_lock(&w->lock);
    a->removed += m.removed;
    (void)pthread_mutex_unlock(&w->lock);
    return r > 0;
}

static uint64_t file_bytes(const struct mck_writer *w)
{
    return MCK_ALIGN + mck_round(w->plan.stream_len, MCK_ALIGN);
}

/* Reserve what the file takes. Where that cannot be, rank 0 sees to it that there is as much for all files as the last
 * checkpoint took. */
static int reserve(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    uint64_t bytes = atomic_load(&w->last_bytes);

    if (!w->coder && w->plan.stream_len && fallocate(a->fd, 0, 0, (off_t)file_bytes(w)) == 0)
        return 0;
    if (!w->coder && w->plan.stream_len && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return merr_errno(err, -errno, "checkpoint of step %llu: no space for %llu bytes in '%s'",
                          (unsigned long long)a->step, (unsigned long long)file_bytes(w), a->folder);
    if (w->cfg.rank == 0 && !space_has(w->cfg.dir, bytes))
        (void)attempt_make_space(w, a, bytes, false); /* it may take less: the writes tell */
    return 0;
}

/* The folder and the temporary file, with space reserved for it. */
static int make_file(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    const int flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC;

    if (mkdir(a->folder, 0755) && errno != EEXIST)
        return merr_errno(err, -errno, "cannot make '%s'", a->folder);
    if (w->cfg.rank == 0) /* also where another process made it and died */
        TRY(io_sync_dir(w->cfg.dir, err));
    coordinate_clear_failure(a->folder, a->uuid, (uint32_t)w->cfg.rank);
    io_close(&a->fd);
    (void)unlink(a->temp); /* of a process that died in this attempt, or of the last try */
    if (a->file.path[0]) {
        if (rename(a->file.path, a->temp) != 0)
            return merr_errno(err, -errno, "cannot move '%s' to '%s'", a->file.path, a->folder);
        a->fd = open(a->temp, O_RDONLY | O_CLOEXEC);
        a->bytes = a->stored = a->file.bytes;
        return a->fd >= 0 ? 0 : merr_errno(err, -errno, "cannot open '%s'", a->temp);
    }
    a->fd = open(a->temp, flags | mio_open_flags(w->mio), 0644);
    if (a->fd < 0 && errno == EINVAL) { /* a file system without O_DIRECT: it may have made the file all the same */
        (void)unlink(a->temp);
        a->fd = open(a->temp, flags, 0644);
    }
    if (a->fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", a->temp);
    return reserve(w, a, err);
}

int attempt_open(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    bool in_vain = false;
    int r;

    TRY(set_paths(w, a, err));
    TRY(check_committed(w, a, err));
    if (a->skip && a->file.path[0])
        (void)unlink(a->file.path);
    if (a->skip)
        return 0;
    while (space_is_short(r = make_file(w, a, err)) && attempt_make_space(w, a, file_bytes(w), in_vain))
        in_vain = true;
    return r;
}

static void describe(struct mck_writer *w, struct attempt *a, struct mck_file *file, struct mck_index *ix)
{
    char name[32];
    int n = snprintf(name, sizeof(name), "rank-%05d.mck", w->cfg.rank);

    *ix = w->plan.index; /* borrowed; its strings leave space for the file's name */
    memcpy(ix->strings + ix->strings_len, name, (size_t)n);
    *file = (struct mck_file){.file_id = (uint32_t)w->cfg.rank,
                              .name_off = (uint32_t)ix->strings_len,
                              .name_len = (uint32_t)n,
                              .stream_len = w->plan.stream_len,
                              .chunk_count = w->plan.chunks};
    file->chunk_table_crc32c = hash_crc32c(0, a->chunk, w->plan.chunks * sizeof(*a->chunk));
    ix->strings_len += (size_t)n;
    ix->step = a->step;
    ix->created_ns = (uint64_t)clock_wall_us() * 1000;
    ix->writers = (uint32_t)w->cfg.size;
    ix->rank = (uint32_t)w->cfg.rank;
    memcpy(ix->uuid, a->uuid, 16);
    ix->file = file;
    ix->files = 1;
    ix->chunk = a->chunk;
    ix->chunks = w->plan.chunks;
    ix->kv = a->kv;
    ix->kv_len = strlen(a->kv);
}

int attempt_make_tail(struct mck_writer *w, struct attempt *a, uint32_t *ret_len, struct merr *err)
{
    struct mck_file file;
    struct mck_index ix;

    describe(w, a, &file, &ix);
    a->bytes = w->plan.stream_len;
    return part_tail(&ix, a->append, &a->tail, ret_len, err);
}

/* The file under its final name, unless a newer generation or a commit came between. */
static int move_into_place(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    IO_CLOSE_AUTO int fence = -1;
    char manifest[MCK_PATH_MAX];

    TRY(folder_join(a->folder, "MANIFEST", manifest, err));
    TRY(folder_fence(w->cfg.dir, w->cfg.generation, false, &fence, err));
    if (access(manifest, F_OK) == 0)
        return merr_set(err, -EEXIST, "step %llu was committed by another attempt meanwhile",
                        (unsigned long long)a->step);
    if (rename(a->temp, a->final))
        return merr_errno(err, -errno, "cannot rename '%s'", a->temp);
    return io_sync_dir(a->folder, err);
}

int attempt_publish(struct mck_writer *w, struct attempt *a, struct merr *err)
{
    struct coordinate c = {.dir = w->cfg.dir,
                           .folder = a->folder,
                           .generation = w->cfg.generation,
                           .step = a->step,
                           .uuid = a->uuid,
                           .writers = (uint32_t)w->cfg.size,
                           .stop_fd = w->stop_event,
                           .deadline_us = clock_mono_us() + w->cfg.timeout_us};
    bool in_vain = false;
    int r;

    io_close(&a->fd);
    TRY(move_into_place(w, a, err));
    if (w->cfg.rank != 0 || w->cfg.parts)
        return 0;
    while (space_is_short(r = coordinate_commit(&c, err)) && attempt_make_space(w, a, MANIFEST_BYTES, in_vain))
        in_vain = true;
    if (r < 0)
        return r;
    a->bytes = c.bytes;
    a->stored = c.stored;
    atomic_store(&w->last_bytes, c.stored);
    /* if it fails, what is old goes after the next commit */
    (void)collect_folder(w->cfg.dir, w->cfg.keep, w->cfg.keep_every, NULL);
    return 0;
}

void attempt_discard(struct mck_writer *w, struct attempt *a)
{
    io_close(&a->fd);
    if (a->file.path[0])
        (void)unlink(a->file.path);
    if (!a->temp[0] && set_paths(w, a, NULL)) /* it failed before its file was open: it is told, too */
        return;
    (void)unlink(a->temp);
    if (w->cfg.rank == 0 && !w->cfg.parts)
        coordinate_abort(a->folder, a->uuid);
    else if (a->code != -ECANCELED && (mkdir(a->folder, 0755) == 0 || errno == EEXIST))
        coordinate_report_failure(a->folder, a->uuid, (uint32_t)w->cfg.rank, a->err.text);
    (void)rmdir(a->folder); /* only when nothing of the others is in it */
}
