#include "checkpoint/read/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/input.h"

#define TENSORS_MAX 100 /* named of a place */

int scan_init(struct scan *s, struct mck *c, struct merr *err)
{
    void *stored = NULL;

    *s = (struct scan){.c = c, .fd = -1, .coder = chunk_coder_new(), .plain = malloc(MCK_CHUNK)};
    if (posix_memalign(&stored, MCK_ALIGN, MCK_SLOT + MCK_CHUNK) == 0)
        s->stored = stored;
    if (!s->coder || !s->stored || !s->plain)
        return merr_set(err, -ENOMEM, "no memory to read a checkpoint");
    return 0;
}

void scan_clear(struct scan *s)
{
    io_close(&s->fd);
    chunk_coder_free(s->coder);
    free(s->stored);
    free(s->plain);
}

json_t *scan_tensors(const struct mck *c, uint32_t file, uint64_t lo, uint64_t hi)
{
    json_t *names = json_array();

    for (size_t i = 0; i < c->ix.shards && json_array_size(names) < TENSORS_MAX; i++) {
        const struct mck_shard *s = &c->ix.shard[i];
        const struct mck_tensor *t = &c->ix.tensor[s->tensor];

        if (index_shard_meets(s, file, lo, hi))
            (void)json_array_append_new(
                names, json_sprintf("%.*s (%s)", (int)t->name_len, index_name(&c->ix, t), role_name(t->role)));
    }
    return names;
}

void scan_add_tensors(const struct mck *c, uint32_t file, uint64_t lo, uint64_t hi, struct merr *err)
{
    json_t *names = scan_tensors(c, file, lo, hi);
    size_t n = json_array_size(names), len = strlen(err->text);

    if (n)
        (void)snprintf(err->text + len, sizeof(err->text) - len, ": it holds '%s'%s",
                       json_string_value(json_array_get(names, 0)), n > 1 ? " and others" : "");
    json_decref(names);
}

static int corrupt(const struct scan *s, uint64_t chunk, const char *what, struct merr *err)
{
    if (err) {
        (void)merr_set(err, 0, "'%s': chunk %llu %s", s->c->paths[s->c->source[s->file].path],
                       (unsigned long long)chunk, what);
        scan_add_tensors(s->c, s->file, chunk * MCK_CHUNK, (chunk + 1) * MCK_CHUNK, err);
    }
    return -EBADMSG;
}

/* len bytes at off. Past the page cache where that can be had, for half the processor's time (not sooner); whole blocks
 * are read then, which fit into stored. */
static int read_stored(struct scan *s, char *to, uint64_t len, uint64_t off)
{
    bool direct = s->may_direct && !s->cached;

    if (direct != s->direct && fcntl(s->fd, F_SETFL, direct ? O_DIRECT : 0))
        return -errno;
    s->direct = direct;
    if (s->cached)
        (void)posix_fadvise(s->fd, (off_t)off, (off_t)len, POSIX_FADV_WILLNEED);
    if (s->direct && off % MCK_ALIGN == 0 && (uintptr_t)to % MCK_ALIGN == 0) {
        if (input_read(s->fd, to, mck_round(len, MCK_ALIGN), off) == 0)
            return 0;
    }
    if (s->direct && fcntl(s->fd, F_SETFL, 0)) /* odd places, the end of a foreign or cut file */
        return -errno;
    s->may_direct = s->direct = false;
    return input_read(s->fd, to, len, off);
}

/* Bytes stored as they are have two sums of the same: the wider one, which is also the quicker, tells enough. */
static bool is_right(const struct mck_chunk *e, const char *data)
{
    return e->codec == CHUNK_RAW ? hash_xxh3(data, e->stored_len) == e->xxh3
                                 : hash_crc32c(0, data, e->stored_len) == e->crc32c;
}

/* Check stored bytes; read them once more past the page cache when they are wrong. */
static int check_stored(struct scan *s, uint64_t i, const struct mck_chunk *e, char *data, struct merr *err)
{
    if (is_right(e, data))
        return 0;
    (void)posix_fadvise(s->fd, (off_t)e->file_off, e->stored_len, POSIX_FADV_DONTNEED);
    if (read_stored(s, data, e->stored_len, e->file_off) == 0 && is_right(e, data))
        return 0;
    return corrupt(s, i, "fails its checksum", err);
}

static int decode(struct scan *s, uint64_t i, const struct mck_chunk *e, const char *data, const void **ret,
                  struct merr *err)
{
    struct chunk_form form = {.codec = e->codec, .filter = e->filter, .len = e->stored_len};

    *ret = data;
    if (e->codec == CHUNK_RAW)
        return 0;
    if (chunk_decode(s->coder, &form, e->flags & 15u, data, s->plain, e->logical_len))
        return corrupt(s, i, "cannot be decoded", err);
    *ret = s->plain;
    if (hash_xxh3(*ret, e->logical_len) != e->xxh3)
        return corrupt(s, i, "decodes to other bytes than were written", err);
    return 0;
}

/* The last chunk of the run from i that one read of a slot can fetch; bytes of it all. */
static uint64_t extend(const struct scan *s, uint32_t file, uint64_t i, uint64_t to, uint64_t *ret_bytes)
{
    struct mck_chunk first, e;
    uint64_t k = i;

    read_chunk_entry(s->c, file, i, &first);
    *ret_bytes = first.stored_len;
    while (++k < to) {
        read_chunk_entry(s->c, file, k, &e);
        if (e.file_off < first.file_off + *ret_bytes || e.file_off + e.stored_len - first.file_off > MCK_SLOT)
            break;
        *ret_bytes = e.file_off + e.stored_len - first.file_off;
    }
    return k;
}

/* Check, decode and hand on chunk k, which is stored at data. */
static int give_chunk(struct scan *s, uint64_t k, const struct mck_chunk *e, char *stored,
                      int (*take)(void *arg, uint64_t chunk, const void *data, uint32_t len), void *arg,
                      struct merr *err)
{
    const void *data = stored;

    if (!s->c->source[s->file].foreign) {
        TRY(check_stored(s, k, e, stored, err));
        TRY(decode(s, k, e, stored, &data, err));
    }
    return take ? take(arg, k, data, e->logical_len) : 0;
}

static int open_file(struct scan *s, uint32_t file, struct merr *err)
{
    const char *kind = getenv("MUSTER_IO");
    int fd;

    if (s->fd >= 0 && s->file == file)
        return 0;
    fd = read_open_file(s->c, file, err);
    if (fd < 0)
        return fd;
    io_close(&s->fd);
    s->fd = fd;
    s->file = file;
    s->direct =
        !s->c->source[file].foreign && !(kind && !strcmp(kind, "buffered")) && fcntl(fd, F_SETFL, O_DIRECT) == 0;
    s->may_direct = s->direct;
    return 0;
}

int scan_chunks(struct scan *s, uint32_t file, uint64_t from, uint64_t to,
                int (*take)(void *arg, uint64_t chunk, const void *data, uint32_t len), void *arg, struct merr *err)
{
    uint64_t bytes, end;

    TRY(open_file(s, file, err));
    for (uint64_t i = from; i < to; i = end) {
        struct mck_chunk first, e;
        int r;

        end = extend(s, file, i, to, &bytes);
        read_chunk_entry(s->c, file, i, &first);
        r = read_stored(s, s->stored, bytes, first.file_off);
        if (r < 0)
            return r == -EBADMSG ? corrupt(s, i, "lies behind the end of the file", err)
                                 : merr_errno(err, r, "cannot read '%s'", s->c->paths[s->c->source[file].path]);
        for (uint64_t k = i; k < end; k++) {
            read_chunk_entry(s->c, file, k, &e);
            TRY(give_chunk(s, k, &e, s->stored + (e.file_off - first.file_off), take, arg, err));
        }
    }
    return 0;
}

void scan_check(struct scan *s, uint32_t file,
                void (*tell)(void *arg, uint32_t file, uint64_t chunk, const struct merr *why), void *arg)
{
    uint64_t bytes = s->c->ix.file[file].stream_len, chunks = mck_round(bytes, MCK_CHUNK) / MCK_CHUNK, end;
    struct merr err;

    for (uint64_t i = 0; i < chunks; i = end) {
        uint64_t begin = i * MCK_CHUNK, slot = bytes - begin < MCK_SLOT ? bytes - begin : MCK_SLOT;

        end = i + mck_round(slot, MCK_CHUNK) / MCK_CHUNK;
        if (scan_chunks(s, file, i, end, NULL, NULL, &err))
            for (uint64_t k = i; k < end; k++) /* which of them */
                if (scan_chunks(s, file, k, k + 1, NULL, NULL, &err))
                    tell(arg, file, k, &err);
        read_watch_add(s->c, slot);
    }
}
