#include "worker/engine/comm/rendezvous.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "worker/engine/comm/wait.h"

#define CARD_MAGIC 0x3164726163636d73ULL

struct card {
    uint64_t magic, generation;
    uint32_t rank, size, bytes, crc;
};

static int card_path(const struct rendezvous *v, const char *kind, int rank, char path[PATH_MAX], struct merr *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s%s-%d", v->folder, v->world, kind, rank) >= PATH_MAX)
        return merr_set(err, -ENAMETOOLONG, "rendezvous folder's path is too long: '%s'", v->folder);
    return 0;
}

/* 1: taken; 0: not there, damaged or of an older generation (*ret_old); else a negative errno. */
static int card_read(const struct rendezvous *v, const char *path, int rank, struct buf *b, uint64_t *ret_old,
                     struct merr *err)
{
    struct buf file;
    struct card c;
    int r;

    buf_init(&file, sizeof(struct card) + RENDEZVOUS_BYTES_MAX);
    r = io_read_file(path, &file, err);
    if (r == -ENOENT) {
        buf_clear(&file);
        return 0;
    }
    if (r == 0 && file.len >= sizeof(c)) {
        memcpy(&c, file.data, sizeof(c));
        if (c.magic != CARD_MAGIC || c.rank != (uint32_t)rank || c.bytes != file.len - sizeof(c) ||
            c.crc != hash_crc32c(0, file.data + sizeof(c), c.bytes))
            r = merr_set(err, -EPROTO, "'%s' is no address of rank %d", path, rank);
        else if (c.generation > v->generation)
            r = merr_set(err, -EPROTO, "'%s' is of generation %llu: this rank's generation %llu is over", path,
                         (unsigned long long)c.generation, (unsigned long long)v->generation);
        else if (c.generation < v->generation)
            *ret_old = c.generation;
        else if (c.size != (uint32_t)v->size)
            r = merr_set(err, -EPROTO, "rank %d is in a world of %u ranks, rank %d in one of %d", rank, c.size, v->rank,
                         v->size);
        else
            r = buf_add(b, file.data + sizeof(c), c.bytes) < 0 ? merr_set(err, -ENOMEM, "no memory for '%s'", path) : 1;
    } else if (r == 0) {
        r = merr_set(err, -EPROTO, "'%s' is cut off", path);
    }
    buf_clear(&file);
    return r;
}

int rendezvous_publish(const struct rendezvous *v, const char *kind, const void *body, size_t bytes, struct merr *err)
{
    char path[PATH_MAX], file[sizeof(struct card) + RENDEZVOUS_BYTES_MAX];
    struct card c = {CARD_MAGIC,        v->generation,   (uint32_t)v->rank,
                     (uint32_t)v->size, (uint32_t)bytes, hash_crc32c(0, body, bytes)};
    struct buf there;
    uint64_t old;
    int r = card_path(v, kind, v->rank, path, err);

    if (r < 0)
        return r;
    if (bytes > RENDEZVOUS_BYTES_MAX)
        return merr_set(err, -EMSGSIZE, "the %s address of rank %d has %zu bytes, more than %d", kind, v->rank, bytes,
                        RENDEZVOUS_BYTES_MAX);
    buf_init(&there, RENDEZVOUS_BYTES_MAX);
    r = card_read(v, path, v->rank, &there, &old, err); /* a late rank must not put itself before a newer one */
    buf_clear(&there);
    if (r == -EPROTO)
        return r;
    memcpy(file, &c, sizeof(c));
    memcpy(file + sizeof(c), body, bytes);
    return io_publish_file(path, file, sizeof(c) + bytes, 0644, err); /* the folder says who may come in */
}

int rendezvous_wait(const struct rendezvous *v, const char *kind, int rank, int64_t deadline_us, struct buf *b,
                    struct merr *err)
{
    IO_CLOSE_AUTO int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char path[PATH_MAX], events[4096];
    uint64_t old = UINT64_MAX;
    int r = card_path(v, kind, rank, path, err);

    if (r < 0)
        return r;
    /* Without a watch (too many, or a file system that has none) the folder is looked at each slice. */
    if (watch >= 0)
        (void)inotify_add_watch(watch, v->folder, IN_MOVED_TO | IN_CLOSE_WRITE);
    for (;;) {
        struct pollfd p = {.fd = watch, .events = POLLIN};
        int64_t left;

        r = card_read(v, path, rank, b, &old, err);
        if (r != 0)
            return r < 0 ? r : 0;
        if (flight_aborted(v->flight))
            return merr_set(err, -ECANCELED, "told to give up while waiting for rank %d at the rendezvous", rank);
        left = deadline_us - clock_mono_us();
        if (left <= 0)
            break;
        (void)poll(&p, 1,
                   left < (watch < 0 ? 5000 : WAIT_SLICE_US) ? (int)(left / 1000) + 1
                                                             : (watch < 0 ? 5 : WAIT_SLICE_US / 1000));
        while (watch >= 0 && read(watch, events, sizeof(events)) > 0)
            ;
    }
    if (old != UINT64_MAX)
        return merr_set(err, -ETIMEDOUT, "rank %d did not come to the rendezvous: '%s' is of generation %llu, not %llu",
                        rank, path, (unsigned long long)old, (unsigned long long)v->generation);
    return merr_set(err, -ETIMEDOUT, "rank %d did not come to the rendezvous: no '%s'", rank, path);
}

void rendezvous_remove(const struct rendezvous *v, const char *kind)
{
    char path[PATH_MAX];

    if (card_path(v, kind, v->rank, path, NULL) == 0)
        (void)unlink(path);
}
