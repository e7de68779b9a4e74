#include "checkpoint/format/part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/input.h"

/* Fill the super block and footer of a file. */
static void part_super(const struct mck_index *ix, struct mck_super *s)
{
    *s = (struct mck_super){.version = MCK_VERSION,
                            .hdr_len = sizeof(*s),
                            .step = ix->step,
                            .file_id = ix->rank,
                            .writer_rank = ix->rank,
                            .chunk_log2 = MCK_CHUNK_LOG2,
                            .align = MCK_ALIGN,
                            .flags = ix->writers,
                            .created_ns = ix->created_ns};
    memcpy(s->magic, MCK_MAGIC_SUPER, 8);
    memcpy(s->uuid, ix->uuid, 16);
    s->crc32c = hash_crc32c(0, s, sizeof(*s) - 4);
}

static void part_footer(const struct mck_index *ix, const void *index, uint64_t index_len, uint64_t index_off,
                        uint64_t file_len, struct mck_footer *f)
{
    *f = (struct mck_footer){.version = MCK_VERSION,
                             .file_id = ix->rank,
                             .step = ix->step,
                             .index_off = index_off,
                             .index_len = index_len,
                             .file_len = file_len,
                             .index_xxh3 = hash_xxh3(index, index_len)};
    memcpy(f->magic, MCK_MAGIC_FOOTER, 8);
    memcpy(f->uuid, ix->uuid, 16);
    f->crc32c = hash_crc32c(0, f, sizeof(*f) - 4);
}

static int make_tail(struct mck_index *ix, uint64_t end, struct buf *b, void **ret, uint32_t *ret_len, struct merr *err)
{
    uint64_t padded;
    void *tail = NULL;

    TRY(index_encode(ix, MCK_INDEX_PART, b, err)); /* for its length, which the file's length depends on */
    padded = mck_round(b->len, MCK_ALIGN);
    ix->file[0].file_len = end + padded + sizeof(struct mck_footer);
    buf_reset(b);
    TRY(index_encode(ix, MCK_INDEX_PART, b, err));
    if (posix_memalign(&tail, MCK_ALIGN, MCK_ALIGN + padded + sizeof(struct mck_footer)))
        return merr_set(err, -ENOMEM, "no memory for an index of %zu bytes", b->len);
    memset(tail, 0, MCK_ALIGN + padded);
    part_super(ix, tail);
    memcpy((char *)tail + MCK_ALIGN, b->data, b->len);
    part_footer(ix, b->data, b->len, end, ix->file[0].file_len, (void *)((char *)tail + MCK_ALIGN + padded));
    *ret = tail;
    *ret_len = (uint32_t)(padded + sizeof(struct mck_footer));
    return 0;
}

int part_tail(struct mck_index *ix, uint64_t end, void **ret, uint32_t *ret_len, struct merr *err)
{
    struct buf b;
    int r;

    buf_init(&b, INT32_MAX);
    r = make_tail(ix, end, &b, ret, ret_len, err);
    buf_clear(&b);
    return r;
}

uint32_t part_encode(struct chunk_coder *coder, enum chunk_codec codec, int dtype, const void *data, uint32_t n,
                     uint64_t off, void *to, struct mck_chunk *ret)
{
    struct chunk_form form;
    uint32_t whole;

    chunk_encode(coder, codec, dtype_part_size(dtype), dtype_is_float(dtype), data, n, to, &form);
    if (form.codec == CHUNK_RAW)
        memcpy(to, data, n);
    whole = (uint32_t)mck_round(form.len, MCK_ALIGN);
    memset((char *)to + form.len, 0, whole - form.len);
    *ret = (struct mck_chunk){.file_off = off,
                              .stored_len = form.len,
                              .codec = form.codec,
                              .filter = form.filter,
                              .flags = (uint16_t)dtype_part_size(dtype),
                              .logical_len = n,
                              .crc32c = hash_crc32c(0, to, form.len),
                              .xxh3 = hash_xxh3(data, n)};
    return whole;
}

/* Open a data file and read its ends. */
static int open_file(const char *path, int *ret_fd, struct mck_super *s, struct mck_footer *f, struct merr *err)
{
    IO_CLOSE_AUTO int fd = input_open(path, err);
    struct stat st;

    if (fd < 0)
        return fd;
    if (fstat(fd, &st))
        return merr_errno(err, -errno, "cannot read '%s'", path);
    if (st.st_size < (off_t)(sizeof(*s) + sizeof(*f)) || st.st_size % MCK_ALIGN)
        return merr_set(err, -EBADMSG, "'%s' has an impossible length of %lld bytes", path, (long long)st.st_size);
    TRY(input_read_at(fd, path, 0, s, sizeof(*s), err));
    TRY(input_read_at(fd, path, (uint64_t)st.st_size - sizeof(*f), f, sizeof(*f), err));
    if (memcmp(s->magic, MCK_MAGIC_SUPER, 8) != 0 || s->crc32c != hash_crc32c(0, s, sizeof(*s) - 4))
        return merr_set(err, -EBADMSG, "'%s': its super block is damaged", path);
    if (memcmp(f->magic, MCK_MAGIC_FOOTER, 8) != 0 || f->crc32c != hash_crc32c(0, f, sizeof(*f) - 4))
        return merr_set(err, -EBADMSG, "'%s': its footer is damaged or it is cut short", path);
    if (s->version != MCK_VERSION || f->version != MCK_VERSION)
        return merr_set(err, -EBADMSG, "'%s' has format version %u: use a newer Muster", path, s->version);
    if (memcmp(s->uuid, f->uuid, 16) != 0 || s->file_id != f->file_id || f->file_len != (uint64_t)st.st_size)
        return merr_set(err, -EBADMSG, "'%s' is mixed of two files or has lost bytes", path);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int part_check(const char *path, const uint8_t uuid[16], uint32_t file_id, uint64_t file_len, struct merr *err)
{
    struct mck_footer f;
    struct mck_super s;
    int fd;

    TRY(open_file(path, &fd, &s, &f, err));
    io_close(&fd);
    if (memcmp(s.uuid, uuid, 16) != 0 || s.file_id != file_id)
        return merr_set(err, -EBADMSG, "'%s' belongs to another attempt or rank", path);
    if (file_len && f.file_len != file_len)
        return merr_set(err, -EBADMSG, "'%s' has %llu bytes instead of %llu", path, (unsigned long long)f.file_len,
                        (unsigned long long)file_len);
    return 0;
}

/* data has memory for it. */
static int read_index(int fd, const char *path, const struct mck_footer *f, void *data, struct mck_index *ret,
                      struct merr *err)
{
    int r;

    TRY(input_read_at(fd, path, f->index_off, data, f->index_len, err));
    if (hash_xxh3(data, f->index_len) != f->index_xxh3)
        return merr_set(err, -EBADMSG, "'%s': its index fails its checksum", path);
    r = index_decode(data, f->index_len, MCK_INDEX_PART, ret, err);
    return r < 0 ? merr_prefix(err, r, "'%s'", path) : 0;
}

int part_read(const char *path, struct mck_index *ret, struct merr *err)
{
    struct mck_index ix;
    struct mck_footer f;
    struct mck_super s;
    void *data;
    int fd, r;

    TRY(open_file(path, &fd, &s, &f, err));
    if (f.index_len > MCK_INDEX_MAX || f.index_off > f.file_len || f.index_len > f.file_len - f.index_off) {
        io_close(&fd);
        return merr_set(err, -EBADMSG, "'%s': its index lies outside the file", path);
    }
    data = malloc(f.index_len + 1);
    r = data ? read_index(fd, path, &f, data, &ix, err)
             : merr_set(err, -ENOMEM, "no memory for the index of '%s'", path);
    io_close(&fd);
    free(data);
    if (r < 0)
        return r;
    if (memcmp(ix.uuid, s.uuid, 16) != 0 || ix.rank != s.file_id || ix.file[0].file_len != f.file_len) {
        index_clear(&ix);
        return merr_set(err, -EBADMSG, "'%s': its index is of another file", path);
    }
    *ret = ix;
    return 0;
}
