#include "checkpoint/write/coordinate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/part.h"

#define LOOK_AGAIN_MS 200 /* a rename on another machine raises no event here */

void coordinate_tag(const uint8_t uuid[16], char ret[17])
{
    for (int i = 0; i < 8; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", uuid[i]);
}

static void failure_path(const char *folder, const uint8_t uuid[16], uint32_t rank, char out[MCK_PATH_MAX])
{
    char tag[17];

    coordinate_tag(uuid, tag);
    (void)snprintf(out, MCK_PATH_MAX, "%s/rank-%05u.%s.failed", folder, rank, tag);
}

void coordinate_report_failure(const char *folder, const uint8_t uuid[16], uint32_t rank, const char *words)
{
    char path[MCK_PATH_MAX];
    int fd;

    failure_path(folder, uuid, rank, path);
    if (io_publish_file(path, words, strlen(words), 0644, NULL) == 0) /* rank 0 reads it as soon as it is there */
        return;
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644); /* no space for words; else rank 0 waits for its deadline */
    io_close(&fd);
}

void coordinate_clear_failure(const char *folder, const uint8_t uuid[16], uint32_t rank)
{
    char path[MCK_PATH_MAX];

    failure_path(folder, uuid, rank, path);
    (void)unlink(path);
}

/* Remove entries of the folder: those of this attempt (ours), or all that are not its data files. */
static void sweep(const char *folder, const uint8_t uuid[16], bool ours, uint32_t writers)
{
    DIR *d = opendir(folder);
    char tag[17], path[MCK_PATH_MAX], name[32];
    struct dirent *e;

    coordinate_tag(uuid, tag);
    while (d && (e = readdir(d))) {
        unsigned rank = 0;
        bool data = sscanf(e->d_name, "rank-%5u.mck", &rank) == 1;

        (void)snprintf(name, sizeof(name), "rank-%05u.mck", rank);
        data = data && !strcmp(name, e->d_name);
        if (e->d_name[0] == '.' || folder_join(folder, e->d_name, path, NULL))
            continue;
        if (ours ? (data ? part_check(path, uuid, rank, 0, NULL) == 0 : strstr(e->d_name, tag) != NULL)
                 : (data ? rank >= writers : strcmp(e->d_name, "MANIFEST") != 0 && !strstr(e->d_name, tag)))
            (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
}

void coordinate_abort(const char *folder, const uint8_t uuid[16])
{
    sweep(folder, uuid, true, 0);
}

/* --- waiting ----------------------------------------------------------------------------------- */

static int rank_state(const struct coordinate *c, uint32_t rank, bool *ready, struct merr *err)
{
    char path[MCK_PATH_MAX], name[32], words[512] = "";
    IO_CLOSE_AUTO int fd = -1;

    failure_path(c->folder, c->uuid, rank, path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)io_read_full(fd, words, sizeof(words) - 1);
        return merr_set(err, -ECOMM, "rank %u could not write its part: %s", rank, *words ? words : "no words left");
    }
    (void)snprintf(name, sizeof(name), "rank-%05u.mck", rank);
    TRY(folder_join(c->folder, name, path, err));
    *ready = part_check(path, c->uuid, rank, 0, NULL) == 0;
    return 0;
}

/* Wait for a change in the folder, at most LOOK_AGAIN_MS. */
static int wait_change(const struct coordinate *c, int watch, struct merr *err)
{
    struct pollfd p[2] = {{.fd = c->stop_fd, .events = POLLIN}, {.fd = watch, .events = POLLIN}};
    char events[4096];
    int ms = clock_poll_ms(c->deadline_us);

    if (poll(p, watch >= 0 ? 2 : 1, ms < LOOK_AGAIN_MS ? ms : LOOK_AGAIN_MS) > 0) {
        if (p[0].revents)
            return merr_set(err, -ECANCELED, "the writer was stopped while it waited for the other ranks");
        (void)!read(watch, events, sizeof(events));
    }
    return 0;
}

static uint32_t rank_at(const struct coordinate *c, uint32_t i)
{
    return c->rank ? c->rank[i] : i;
}

int coordinate_wait(const struct coordinate *c, struct merr *err)
{
    IO_CLOSE_AUTO int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    uint32_t next = 0; /* ranks below are ready */

    if (watch >= 0)
        (void)inotify_add_watch(watch, c->folder, IN_MOVED_TO | IN_CREATE | IN_CLOSE_WRITE);
    for (;;) {
        bool ready = true;

        while (next < c->writers && ready) {
            TRY(rank_state(c, rank_at(c, next), &ready, err));
            next += ready;
        }
        for (uint32_t i = next + 1; i < c->writers; i++) /* a failure further on ends the wait at once */
            TRY(rank_state(c, rank_at(c, i), &(bool){false}, err));
        if (next == c->writers)
            return 0;
        if (clock_mono_us() >= c->deadline_us)
            return merr_set(err, -ETIMEDOUT, "rank %u has not written its part of step %llu in time", rank_at(c, next),
                            (unsigned long long)c->step);
        TRY(wait_change(c, watch, err));
    }
}

/* --- commit ------------------------------------------------------------------------------------ */

static int read_parts(const char *folder, uint32_t writers, struct mck_index *part, struct merr *err)
{
    char path[MCK_PATH_MAX], name[32];

    for (uint32_t i = 0; i < writers; i++) {
        (void)snprintf(name, sizeof(name), "rank-%05u.mck", i);
        TRY(folder_join(folder, name, path, err));
        TRY(part_read(path, &part[i], err));
    }
    return 0;
}

int coordinate_merge(const char *folder, uint32_t writers, struct mck_index *ret, struct merr *err)
{
    struct mck_index *part = calloc(writers, sizeof(*part));
    int r = part ? read_parts(folder, writers, part, err)
                 : merr_set(err, -ENOMEM, "no memory for the indexes of %u files", writers);

    if (r == 0)
        r = index_merge(part, writers, ret, err);
    for (uint32_t i = 0; part && i < writers; i++)
        index_clear(&part[i]);
    free(part);
    return r;
}

static int write_synced(const char *path, const struct buf *b, struct merr *err)
{
    int fd, r;

    (void)unlink(path);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot make '%s'", path);
    r = io_write_all(fd, b->data, b->len);
    if (r == 0 && fsync(fd))
        r = -errno;
    io_close(&fd);
    if (r < 0)
        (void)unlink(path);
    return r < 0 ? merr_errno(err, r, "cannot write '%s'", path) : 0;
}

static int write_index(const struct mck_index *ix, const char *path, struct merr *err)
{
    struct buf b;
    int r;

    buf_init(&b, MCK_INDEX_MAX);
    r = index_encode(ix, MCK_INDEX_MANIFEST, &b, err);
    if (r == 0)
        r = write_synced(path, &b, err);
    buf_clear(&b);
    return r;
}

int coordinate_write_manifest(const struct mck_index *ix, const char *dir, const char *folder, uint64_t generation,
                              bool fenced, struct merr *err)
{
    IO_CLOSE_AUTO int fence = -1;
    char temp[MCK_PATH_MAX], final[MCK_PATH_MAX], name[64], tag[17];
    int r;

    coordinate_tag(ix->uuid, tag);
    (void)snprintf(name, sizeof(name), "MANIFEST.%s.tmp", tag);
    TRY(folder_join(folder, name, temp, err));
    TRY(folder_join(folder, "MANIFEST", final, err));
    TRY(write_index(ix, temp, err));
    r = fenced ? folder_fence(dir, generation, true, &fence, err) : 0;
    if (r == 0 && rename(temp, final)) /* the commit */
        r = merr_errno(err, -errno, "cannot rename '%s'", temp);
    if (r < 0) {
        (void)unlink(temp);
        return r;
    }
    r = io_sync_dir(folder, err);
    if (r < 0) /* not known to be durable: take it back before anybody relies on it */
        (void)unlink(final);
    return r;
}

int coordinate_commit(struct coordinate *c, struct merr *err)
{
    struct mck_index ix;
    int r = coordinate_wait(c, err);

    if (r == 0)
        r = coordinate_merge(c->folder, c->writers, &ix, err);
    if (r < 0)
        return merr_prefix(err, r, "checkpoint of step %llu", (unsigned long long)c->step);
    sweep(c->folder, c->uuid, false, c->writers);
    r = coordinate_write_manifest(&ix, c->dir, c->folder, c->generation, true, err);
    c->bytes = c->stored = 0;
    for (size_t i = 0; i < ix.files; i++)
        c->bytes += ix.file[i].stream_len;
    for (size_t i = 0; i < ix.chunks; i++)
        c->stored += ix.chunk[i].stored_len;
    index_clear(&ix);
    return r;
}
