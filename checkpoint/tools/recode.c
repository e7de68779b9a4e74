#include "checkpoint/tools/recode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/coding.h"
#include "checkpoint/format/part.h"
#include "checkpoint/read/scan.h"
#include "checkpoint/tools/moments.h"
#include "compress/optq.h"

#define RHO_USUAL 0.01f
#define EB_USUAL 0x1p-7f

struct recoder {
    enum chunk_codec codec; /* of what is not coded with loss */
    struct chunk_coder *coder;
    char *out;         /* MCK_SLOT */
    struct optq *optq; /* NULL: moments are like other tensors */
    struct optq_bounds bounds;
    float *moments; /* first, then second ones, of CHUNK_MOMENTS elements */
    const atomic_bool *stop;
};

/* CHUNK_MOMENT1: with the coding of moments. */
static int archive_codec(const char *name, struct merr *err)
{
    int codec = strcmp(name, "optq") == 0 ? CHUNK_MOMENT1 : coding_parse(name);

    if (codec > CHUNK_RAW)
        return codec;
    return merr_set(err, -EINVAL, "codec '%s' is not for archives: want plane, zstd, lz4 or optq", name);
}

/* Memory for moments; false when it is short. */
static bool make_moments(struct recoder *r, const struct optq_bounds *bounds)
{
    r->codec = CHUNK_PLANE;
    r->bounds = *bounds;
    r->optq = optq_new();
    r->moments = malloc(2 * (size_t)MCK_CHUNK);
    return r->optq && r->moments;
}

int recoder_new(const char *codec, const struct mck_bounds *bounds, const atomic_bool *stop, struct recoder **ret,
                struct merr *err)
{
    const struct optq_bounds of_moments = {.rho = bounds && bounds->rho != 0 ? bounds->rho : RHO_USUAL,
                                           .eb = bounds && bounds->eb != 0 ? bounds->eb : EB_USUAL};
    int number = archive_codec(codec, err);
    struct recoder *r;

    if (number < 0)
        return number;
    TRY(optq_check_bounds(&of_moments, err));
    r = calloc(1, sizeof(*r));
    if (r) {
        r->codec = (enum chunk_codec)number;
        r->coder = chunk_coder_new();
        r->out = malloc(MCK_SLOT);
        r->stop = stop;
    }
    if (!r || !r->coder || !r->out || (number == CHUNK_MOMENT1 && !make_moments(r, &of_moments))) {
        recoder_free(r);
        return merr_set(err, -ENOMEM, "no memory for an archiver");
    }
    *ret = r;
    return 0;
}

void recoder_free(struct recoder *r)
{
    if (!r)
        return;
    chunk_coder_free(r->coder);
    optq_free(r->optq);
    free(r->moments);
    free(r->out);
    free(r);
}

uint32_t recoder_key(const struct recoder *r)
{
    return hash_crc32c((uint32_t)r->codec, &r->bounds, sizeof(r->bounds));
}

struct target {
    struct recoder *r;
    const char *path;
    struct mck_index ix; /* of the file that is read; its chunks become those of the new one */
    uint8_t *dtype;      /* of each chunk */
    uint32_t *second;    /* of each chunk: see moments_pair; NULL: moments are like other tensors */
    struct scan pairs;   /* reads second moments beside the first */
    uint32_t file;       /* number of the one that is read */
    int fd;
    uint32_t fill; /* of r->out */
    uint64_t end;  /* of the file so far, with what is in r->out */
    struct merr *err;
};

static int flush(struct target *t)
{
    int r = lseek(t->fd, (off_t)(t->end - t->fill), SEEK_SET) < 0 ? -errno : io_write_all(t->fd, t->r->out, t->fill);

    t->fill = 0;
    return r < 0 ? merr_errno(t->err, r, "cannot write '%s'", t->path) : 0;
}

/* --- moments ----------------------------------------------------------------------------------- */

#define WRITTEN (UINT32_MAX - 1) /* in second: the chunk was coded with its first moments */

static int take_second(void *arg, uint64_t i, const void *data, uint32_t len)
{
    const struct target *t = arg;

    (void)i;
    memcpy(t->r->moments + CHUNK_MOMENTS, data, len);
    return 0;
}

/* Let chunk i be what the coded moments behind what was written decode to as codec. */
static int seal(struct target *t, uint64_t i, enum chunk_codec codec, uint32_t len)
{
    const struct chunk_form form = {.codec = (uint8_t)codec, .len = len};
    const char *coded = t->r->out + t->fill;
    struct mck_chunk *e = &t->ix.chunk[i];

    if (chunk_decode(t->r->coder, &form, sizeof(float), coded, t->r->moments, e->logical_len))
        return merr_set(t->err, -EBADMSG, "'%s': the moments of chunk %llu do not decode again", t->path,
                        (unsigned long long)i);
    *e = (struct mck_chunk){.file_off = t->end,
                            .stored_len = len,
                            .codec = (uint8_t)codec,
                            .flags = sizeof(float),
                            .logical_len = e->logical_len,
                            .crc32c = hash_crc32c(0, coded, len),
                            .xxh3 = hash_xxh3(t->r->moments, e->logical_len)};
    return 0;
}

/* Code chunk i of first moments, and the second ones with it. 1 when that would not halve them. */
static int put_moments(struct target *t, uint64_t i, const void *data, uint32_t len)
{
    const uint32_t other = t->second[i];
    struct recoder *r = t->r;
    size_t coded;
    uint32_t whole;

    memset(r->moments, 0, 2 * (size_t)MCK_CHUNK);
    memcpy(r->moments, data, len);
    TRY(scan_chunks(&t->pairs, t->file, other, other + 1, take_second, t, t->err));
    if (t->fill + optq_size_max(CHUNK_MOMENTS) > MCK_SLOT)
        TRY(flush(t));
    TRY(optq_encode(r->optq, &r->bounds, r->moments, r->moments + CHUNK_MOMENTS, CHUNK_MOMENTS, r->out + t->fill,
                    &coded, t->err));
    if (coded > ((size_t)len + t->ix.chunk[other].logical_len) / 2)
        return 1;
    TRY(seal(t, i, CHUNK_MOMENT1, (uint32_t)coded));
    TRY(seal(t, other, CHUNK_MOMENT2, (uint32_t)coded));
    t->second[other] = WRITTEN;
    whole = (uint32_t)mck_round(coded, MCK_ALIGN);
    memset(r->out + t->fill + coded, 0, whole - coded);
    t->fill += whole;
    t->end += whole;
    return 0;
}

/* --- all chunks -------------------------------------------------------------------------------- */

static int take_chunk(void *arg, uint64_t i, const void *data, uint32_t len)
{
    struct target *t = arg;
    struct mck_chunk *e = &t->ix.chunk[i];
    uint64_t was = e->xxh3;
    uint32_t whole;

    if (atomic_load(t->r->stop))
        return merr_set(t->err, -ECANCELED, "the archiver was stopped");
    if (t->second && t->second[i] == WRITTEN)
        return 0;
    if (t->second && t->second[i] != MOMENTS_NONE) {
        int r = put_moments(t, i, data, len);

        if (r <= 0)
            return r;
    }
    if (t->fill + MCK_CHUNK > MCK_SLOT)
        TRY(flush(t));
    whole = part_encode(t->r->coder, t->r->codec, t->dtype[i], data, len, t->end, t->r->out + t->fill, e);
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
    TRY(part_tail(&t->ix, t->end, &tail, &len, t->err));
    r = io_write_all(t->fd, (char *)tail + MCK_ALIGN, len);
    if (r == 0 && pwrite(t->fd, tail, MCK_ALIGN, 0) != (ssize_t)MCK_ALIGN)
        r = errno ? -errno : -EIO;
    if (r == 0 && fdatasync(t->fd))
        r = -errno;
    free(tail);
    (void)posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED); /* training wants the page cache */
    return r < 0 ? merr_errno(t->err, r, "cannot write '%s'", t->path) : 0;
}

static int recode(struct target *t, struct mck *c, uint32_t file, const uint8_t uuid[16])
{
    struct scan scan;
    uint64_t step = MCK_SLOT / MCK_CHUNK, to;
    int r = scan_init(&scan, c, t->err);

    if (r == 0 && t->second)
        r = scan_init(&t->pairs, c, t->err);
    find_types(t);
    for (uint64_t i = 0; i < t->ix.chunks && r == 0; i = to) {
        to = i + step < t->ix.chunks ? i + step : t->ix.chunks;
        r = scan_chunks(&scan, file, i, to, take_chunk, t, t->err);
    }
    scan_clear(&scan);
    scan_clear(&t->pairs);
    TRY(r);
    TRY(flush(t));
    return write_tail(t, uuid);
}

int recode_file(struct recoder *r, struct mck *c, uint32_t f, const char *folder, const uint8_t uuid[16],
                struct merr *err)
{
    const char *from = c->paths[c->source[f].path], *slash = strrchr(from, '/');
    struct target t = {.r = r, .pairs = {.fd = -1}, .file = f, .fd = -1, .end = MCK_ALIGN, .err = err};
    char path[MCK_PATH_MAX];
    int code;

    TRY(folder_join(folder, slash ? slash + 1 : from, path, err));
    TRY(part_read(from, &t.ix, err));
    t.path = path;
    t.dtype = calloc(t.ix.chunks + 1, 1);
    t.second = r->optq ? moments_pair(&t.ix) : NULL;
    t.fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (!t.dtype || (r->optq && !t.second))
        code = merr_set(err, -ENOMEM, "no memory to archive '%s'", from);
    else if (t.fd < 0)
        code = merr_errno(err, -errno, "cannot make '%s'", path);
    else
        code = recode(&t, c, f, uuid);
    io_close(&t.fd);
    free(t.second);
    free(t.dtype);
    index_clear(&t.ix);
    return code;
}
