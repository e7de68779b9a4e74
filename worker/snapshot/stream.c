#include "worker/snapshot/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "checkpoint/parts.h"

struct file {
    int fd;
    uint64_t from, to; /* in the stream */
};

struct stream {
    char *folder; /* for words */
    uint32_t n;
    struct file file[];
};

void stream_path(const char *folder, uint32_t rank, const char *suffix, char ret[STREAM_PATH_MAX])
{
    (void)snprintf(ret, STREAM_PATH_MAX, "%.4000s/rank-%05u.mck%s", folder, rank, suffix);
}

int stream_write_at(int fd, const char *path, uint64_t at, const void *data, size_t len, struct merr *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)data + done, len - done, (off_t)(at + done));

        if (n < 0 && errno != EINTR)
            return merr_errno(err, -errno, "cannot write '%s'", path);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int open_part(const char *folder, const char *suffix, const struct parity_part *part, enum stream_mode mode,
                     int *ret_fd, struct merr *err)
{
    static const int flags[] = {
        [STREAM_READ] = O_RDONLY, [STREAM_CHANGE] = O_RDWR, [STREAM_MAKE] = O_CREAT | O_EXCL | O_RDWR};
    bool make = mode == STREAM_MAKE;
    char path[STREAM_PATH_MAX];
    struct stat st;
    int r;

    stream_path(folder, part->rank, suffix, path);
    if (make)
        (void)unlink(path);
    *ret_fd = open(path, flags[mode] | O_CLOEXEC, 0600);
    if (*ret_fd < 0)
        return merr_errno(err, -errno, "cannot %s '%s'", make ? "make" : "open", path);
    if (make) {
        r = -posix_fallocate(*ret_fd, 0, (off_t)part->bytes);
        return r ? merr_errno(err, r, "no room for %llu MiB in '%s'", (unsigned long long)part->bytes >> 20, path) : 0;
    }
    if (fstat(*ret_fd, &st) != 0 || (uint64_t)st.st_size != part->bytes)
        return merr_set(err, -EBADMSG, "'%s' has not the %llu bytes it had", path, (unsigned long long)part->bytes);
    return 0;
}

int stream_open(const char *folder, const char *suffix, const struct parity_part *part, uint32_t n,
                enum stream_mode mode, struct stream **ret, struct merr *err)
{
    struct stream *s = calloc(1, sizeof(*s) + n * sizeof(s->file[0]));
    uint64_t at = 0;
    int r = 0;

    if (s)
        s->folder = strdup(folder);
    if (!s || !s->folder) {
        free(s);
        return merr_set(err, -ENOMEM, "no memory for %u data files", n);
    }
    for (; s->n < n && r == 0; s->n++) {
        s->file[s->n].from = at;
        s->file[s->n].to = at += part[s->n].bytes;
        r = open_part(folder, suffix, &part[s->n], mode, &s->file[s->n].fd, err);
    }
    if (r == 0)
        *ret = s;
    else
        stream_free(s);
    return r;
}

int stream_read(struct stream *s, uint64_t at, void *data, size_t len, struct merr *err)
{
    memset(data, 0, len);
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t from = s->file[i].from > at ? s->file[i].from : at;
        uint64_t to = s->file[i].to < at + len ? s->file[i].to : at + len;
        int r = 0;

        if (from < to)
            r = input_read_at(s->file[i].fd, s->folder, from - s->file[i].from, (char *)data + (from - at), to - from,
                              err);
        if (r != 0)
            return r;
    }
    return 0;
}

int stream_write(struct stream *s, uint64_t at, const void *data, size_t len, struct merr *err)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t from = s->file[i].from > at ? s->file[i].from : at;
        uint64_t to = s->file[i].to < at + len ? s->file[i].to : at + len;
        int r = 0;

        if (from < to)
            r = stream_write_at(s->file[i].fd, s->folder, from - s->file[i].from, (const char *)data + (from - at),
                                to - from, err);
        if (r != 0)
            return r;
    }
    return 0;
}

void stream_free(struct stream *s)
{
    for (uint32_t i = 0; s && i < s->n; i++)
        io_close(&s->file[i].fd);
    if (s)
        free(s->folder);
    free(s);
}
