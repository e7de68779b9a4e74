#include "checkpoint/format/index.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "compress/chunk.h"

void index_clear(struct mck_index *ix)
{
    free(ix->strings);
    free(ix->file);
    free(ix->tensor);
    free(ix->shard);
    free(ix->chunk);
    free(ix->kv);
    *ix = (struct mck_index){0};
}

void index_shard_box(const struct mck_tensor *t, const struct mck_shard *s, struct box *ret)
{
    *ret = (struct box){.ndim = t->ndim};
    memcpy(ret->off, s->off, sizeof(ret->off));
    memcpy(ret->len, s->len, sizeof(ret->len));
}

int index_shard_cut(const struct mck_tensor *t, const struct mck_shard *s, struct box_piece out[BOX_PIECES_MAX])
{
    struct box b;

    index_shard_box(t, s, &b);
    return box_cut(&b, s->sub_begin, s->sub_end, out);
}

int index_compare(const struct mck_index *ix, const struct mck_tensor *t, const char *name, size_t len, int role)
{
    size_t n = t->name_len < len ? t->name_len : len;
    int c = memcmp(index_name(ix, t), name, n);

    if (c == 0)
        c = t->name_len < len ? -1 : t->name_len > len;
    return c ? c : (int)t->role - role;
}

const struct mck_tensor *index_find(const struct mck_index *ix, const char *name, int role)
{
    size_t lo = 0, hi = ix->tensors, len = strlen(name);

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = index_compare(ix, &ix->tensor[mid], name, len, role);

        if (!c)
            return &ix->tensor[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* --- encode ------------------------------------------------------------------------------------ */

struct table {
    uint32_t kind;
    const void *data;
    size_t len;
};

static void add_tables(struct mck_head *h, const struct table *t, size_t n, struct buf *out)
{
    uint64_t off = sizeof(*h);

    for (size_t i = 0; i < n; i++) {
        static const char zero[8];

        h->section[h->section_count++] = (struct mck_section){
            .kind = t[i].kind, .crc32c = hash_crc32c(0, t[i].data, t[i].len), .off = off, .len = t[i].len};
        (void)buf_add(out, t[i].data, t[i].len);
        (void)buf_add(out, zero, mck_round(t[i].len, 8) - t[i].len);
        off += mck_round(t[i].len, 8);
    }
}

int index_encode(const struct mck_index *ix, enum mck_index_kind kind, struct buf *out, struct merr *err)
{
    struct mck_head h = {.version = MCK_VERSION,
                         .hdr_len = sizeof(h),
                         .step = ix->step,
                         .chunk_log2 = MCK_CHUNK_LOG2,
                         .align = MCK_ALIGN,
                         .flags = ix->writers,
                         .created_ns = ix->created_ns};
    const struct table tables[] = {
        {MCK_STRINGS, ix->strings, ix->strings_len},
        {MCK_FILES, ix->file, ix->files * sizeof(*ix->file)},
        {MCK_TENSORS, ix->tensor, ix->tensors * sizeof(*ix->tensor)},
        {MCK_SHARDS, ix->shard, ix->shards * sizeof(*ix->shard)},
        {MCK_CHUNKS, ix->chunk, ix->chunks * sizeof(*ix->chunk)},
        {MCK_KV, ix->kv, ix->kv_len},
    };
    struct mck_end end = {.total_len = 0};
    size_t start = out->len;

    memcpy(h.magic, kind == MCK_INDEX_PART ? MCK_MAGIC_PART : MCK_MAGIC_MANIFEST, 8);
    memcpy(h.uuid, ix->uuid, 16);
    if (kind == MCK_INDEX_PART)
        h.file_id = h.writer_rank = ix->rank;
    (void)buf_add(out, &h, sizeof(h));
    add_tables(&h, tables, sizeof(tables) / sizeof(tables[0]), out);
    if (buf_failed(out))
        return merr_set(err, -EMSGSIZE, "the index of step %llu passes %llu bytes", (unsigned long long)ix->step,
                        (unsigned long long)out->limit);
    h.crc32c = hash_crc32c(0, &h, sizeof(h) - 4);
    memcpy(out->data + start, &h, sizeof(h));
    memcpy(end.magic, MCK_MAGIC_END, 8);
    end.total_len = out->len - start + sizeof(end);
    end.xxh3 = hash_xxh3(out->data + start, out->len - start);
    if (buf_add(out, &end, sizeof(end)))
        return merr_set(err, -EMSGSIZE, "the index of step %llu is too large", (unsigned long long)ix->step);
    return 0;
}

/* --- decode ------------------------------------------------------------------------------------ */

static int bad(struct merr *err, const char *what)
{
    return merr_set(err, -EBADMSG, "%s", what);
}

static int check_frame(const void *data, size_t len, enum mck_index_kind kind, struct mck_head *h, struct merr *err)
{
    struct mck_end end;

    if (len < sizeof(*h) + sizeof(end))
        return merr_set(err, -EBADMSG, "the index has only %zu bytes", len);
    memcpy(h, data, sizeof(*h));
    memcpy(&end, (const char *)data + len - sizeof(end), sizeof(end));
    if (memcmp(h->magic, kind == MCK_INDEX_PART ? MCK_MAGIC_PART : MCK_MAGIC_MANIFEST, 8) != 0)
        return bad(err, "the index does not begin with its magic number");
    if (h->crc32c != hash_crc32c(0, h, sizeof(*h) - 4))
        return bad(err, "the index header fails its checksum");
    if (h->version != MCK_VERSION)
        return merr_set(err, -EBADMSG, "format version %u is not known here (1 is): use a newer Muster", h->version);
    if (h->hdr_len != sizeof(*h) || h->chunk_log2 != MCK_CHUNK_LOG2 || h->align != MCK_ALIGN)
        return bad(err, "the index header has unknown sizes");
    if (memcmp(end.magic, MCK_MAGIC_END, 8) != 0 || end.total_len != len)
        return bad(err, "the index is cut short or has no end mark");
    if (end.xxh3 != hash_xxh3(data, len - sizeof(end)))
        return bad(err, "the index fails its checksum");
    if (h->section_count > MCK_SECTIONS_MAX)
        return bad(err, "the index has too many sections");
    return 0;
}

static const size_t record_size[MCK_SECTION_KINDS] = {
    [MCK_STRINGS] = 1,
    [MCK_FILES] = sizeof(struct mck_file),
    [MCK_TENSORS] = sizeof(struct mck_tensor),
    [MCK_SHARDS] = sizeof(struct mck_shard),
    [MCK_CHUNKS] = sizeof(struct mck_chunk),
    [MCK_KV] = 1,
};

/* Copy the sections out, each at most once; all known ones must be there. */
static int copy_sections(const char *data, size_t len, const struct mck_head *h, void *copy[MCK_SECTION_KINDS],
                         size_t count[MCK_SECTION_KINDS], struct merr *err)
{
    for (uint32_t i = 0; i < h->section_count; i++) {
        const struct mck_section *s = &h->section[i];

        if (s->off < sizeof(*h) || s->off > len || s->len > len - s->off)
            return merr_set(err, -EBADMSG, "section %u lies outside the index", s->kind);
        if (hash_crc32c(0, data + s->off, s->len) != s->crc32c)
            return merr_set(err, -EBADMSG, "section %u fails its checksum", s->kind);
        if (s->kind == 0 || s->kind >= MCK_SECTION_KINDS)
            continue; /* of a later minor version */
        if (copy[s->kind] || s->len % record_size[s->kind])
            return merr_set(err, -EBADMSG, "section %u is doubled or has an odd length", s->kind);
        copy[s->kind] = malloc(s->len + 1);
        if (!copy[s->kind])
            return merr_set(err, -ENOMEM, "no memory for an index of %zu bytes", len);
        memcpy(copy[s->kind], data + s->off, s->len);
        ((char *)copy[s->kind])[s->len] = '\0';
        count[s->kind] = s->len / record_size[s->kind];
    }
    for (int k = 1; k < MCK_SECTION_KINDS; k++)
        if (!copy[k])
            return merr_set(err, -EBADMSG, "section %d is missing", k);
    return 0;
}

static bool name_ok(const struct mck_index *ix, uint64_t off, uint32_t len, uint32_t max)
{
    if (!len || len > max || off > ix->strings_len || len > ix->strings_len - off)
        return false;
    for (uint32_t i = 0; i < len; i++)
        if ((unsigned char)ix->strings[off + i] < 0x20 || ix->strings[off + i] == 0x7f)
            return false;
    return true;
}

static int check_chunk(const struct mck_file *f, const struct mck_chunk *c, size_t i, struct merr *err)
{
    uint64_t left = f->stream_len - (uint64_t)i * MCK_CHUNK;
    uint64_t want = left < MCK_CHUNK ? left : MCK_CHUNK;

    if (c->logical_len != want || !c->stored_len || c->stored_len > MCK_CHUNK || c->codec >= CHUNK_CODECS ||
        c->filter > CHUNK_ROTATE || (c->codec == CHUNK_RAW && (c->stored_len != c->logical_len || c->filter)))
        return merr_set(err, -EBADMSG, "chunk %zu of file %u has impossible sizes", i, f->file_id);
    if (c->file_off < MCK_ALIGN || c->file_off % MCK_ALIGN || c->file_off > f->file_len ||
        c->stored_len > f->file_len - c->file_off)
        return merr_set(err, -EBADMSG, "chunk %zu of file %u lies outside its file", i, f->file_id);
    return 0;
}

static int check_file(const struct mck_index *ix, size_t i, uint64_t *next_chunk, struct merr *err)
{
    const struct mck_file *f = &ix->file[i];
    char want[32];

    (void)snprintf(want, sizeof(want), "rank-%05u.mck", f->file_id);
    if (!name_ok(ix, f->name_off, f->name_len, 31) || strlen(want) != f->name_len ||
        memcmp(want, ix->strings + f->name_off, f->name_len) != 0)
        return merr_set(err, -EBADMSG, "file %zu is not named '%s'", i, want);
    if (f->stream_len > MCK_BYTES_MAX || f->chunk_count != mck_round(f->stream_len, MCK_CHUNK) / MCK_CHUNK)
        return merr_set(err, -EBADMSG, "file %zu has an impossible stream length", i);
    if (f->file_len > INT64_MAX || f->chunk_first != *next_chunk || f->chunk_count > ix->chunks - *next_chunk)
        return merr_set(err, -EBADMSG, "file %zu has chunks outside the table", i);
    if (f->chunk_table_crc32c != hash_crc32c(0, ix->chunk + f->chunk_first, f->chunk_count * sizeof(*ix->chunk)))
        return merr_set(err, -EBADMSG, "the chunk table of file %zu fails its checksum", i);
    *next_chunk += f->chunk_count;
    for (uint32_t k = 0; k < f->chunk_count; k++)
        TRY(check_chunk(f, &ix->chunk[f->chunk_first + k], k, err));
    return 0;
}

static int check_tensor(const struct mck_index *ix, size_t i, uint64_t *next_shard, struct merr *err)
{
    const struct mck_tensor *t = &ix->tensor[i];
    uint64_t volume;

    if (!name_ok(ix, t->name_off, t->name_len, MCK_NAME_MAX))
        return merr_set(err, -EBADMSG, "tensor %zu has no clean name", i);
    if (!dtype_size(t->dtype))
        return merr_set(err, -EBADMSG, "tensor '%.*s' is of type %u, which this version does not know",
                        (int)t->name_len, index_name(ix, t), t->dtype);
    if (t->role >= MCK_ROLES || t->ndim > MCK_DIMS_MAX)
        return merr_set(err, -EBADMSG, "tensor %zu has an unknown role or number of dims", i);
    if (!box_product(t->shape, t->ndim, MCK_BYTES_MAX / dtype_size(t->dtype), &volume))
        return merr_set(err, -EBADMSG, "tensor %zu has an impossible shape", i);
    for (int d = 0; d < MCK_DIMS_MAX; d++)
        if (d < t->ndim ? t->shape[d] > MCK_BYTES_MAX : t->shape[d] != 1)
            return merr_set(err, -EBADMSG, "tensor %zu has an impossible shape", i);
    if (t->shard_first != *next_shard || t->shard_count > ix->shards - *next_shard)
        return merr_set(err, -EBADMSG, "tensor %zu has shards outside the table", i);
    if (i && index_compare(ix, t - 1, index_name(ix, t), t->name_len, t->role) >= 0)
        return merr_set(err, -EBADMSG, "tensor %zu is out of order or doubled", i);
    *next_shard += t->shard_count;
    return 0;
}

static int check_shard(const struct mck_index *ix, size_t tensor, size_t i, struct merr *err)
{
    const struct mck_shard *s = &ix->shard[i];
    const struct mck_tensor *t = &ix->tensor[tensor];
    uint64_t volume;

    if (s->tensor != tensor || s->file_id >= ix->files)
        return merr_set(err, -EBADMSG, "shard %zu belongs to no tensor or file", i);
    for (int d = 0; d < MCK_DIMS_MAX; d++) {
        bool in = d < t->ndim ? s->len[d] <= t->shape[d] && s->off[d] <= t->shape[d] - s->len[d]
                              : s->off[d] == 0 && s->len[d] == 1;
        if (!in)
            return merr_set(err, -EBADMSG, "shard %zu lies outside its tensor", i);
    }
    if (!box_product(s->len, t->ndim, MCK_BYTES_MAX, &volume) || s->sub_begin >= s->sub_end || s->sub_end > volume)
        return merr_set(err, -EBADMSG, "shard %zu has an impossible range", i);
    if (s->bytes != (s->sub_end - s->sub_begin) * dtype_size(t->dtype) || s->stream_off % MCK_SHARD_ALIGN ||
        s->stream_off > ix->file[s->file_id].stream_len || s->bytes > ix->file[s->file_id].stream_len - s->stream_off)
        return merr_set(err, -EBADMSG, "shard %zu lies outside its stream", i);
    return 0;
}

/* A part index keeps the file's own number on disk; in memory its shards point at file[0]. */
static int localise_part(struct mck_index *ix, const struct mck_head *h, struct merr *err)
{
    if (ix->files != 1 || ix->file[0].file_id != h->file_id || h->file_id != h->writer_rank)
        return bad(err, "the part index is not of one file");
    for (size_t i = 0; i < ix->shards; i++) {
        if (ix->shard[i].file_id != h->file_id)
            return merr_set(err, -EBADMSG, "shard %zu of a part index lies in another file", i);
        ix->shard[i].file_id = 0;
    }
    return 0;
}

static int check_all(struct mck_index *ix, enum mck_index_kind kind, const struct mck_head *h, struct merr *err)
{
    uint64_t chunk = 0, shard = 0;

    if (ix->writers == 0 || ix->writers > MCK_RANKS_MAX || h->flags >> 32 || h->file_id >= ix->writers)
        return bad(err, "the number of writers is impossible");
    if (ix->kv_len > MCK_KV_MAX)
        return bad(err, "the cursor is too large");
    if (kind == MCK_INDEX_PART)
        TRY(localise_part(ix, h, err));
    else if (ix->files != ix->writers)
        return bad(err, "the number of files is not that of writers");
    for (size_t i = 0; i < ix->files; i++) {
        if (kind == MCK_INDEX_MANIFEST && ix->file[i].file_id != i)
            return merr_set(err, -EBADMSG, "file %zu has number %u", i, ix->file[i].file_id);
        TRY(check_file(ix, i, &chunk, err));
    }
    for (size_t i = 0; i < ix->tensors; i++) {
        uint64_t first = shard;

        TRY(check_tensor(ix, i, &shard, err));
        for (uint64_t k = first; k < shard; k++)
            TRY(check_shard(ix, i, k, err));
    }
    if (chunk != ix->chunks || shard != ix->shards)
        return bad(err, "the index has chunks or shards that belong to nothing");
    return 0;
}

int index_decode(const void *data, size_t len, enum mck_index_kind kind, struct mck_index *ret, struct merr *err)
{
    void *copy[MCK_SECTION_KINDS] = {0};
    size_t count[MCK_SECTION_KINDS] = {0};
    struct mck_index ix = {0};
    struct mck_head h;
    int r;

    TRY(check_frame(data, len, kind, &h, err));
    r = copy_sections(data, len, &h, copy, count, err);
    ix = (struct mck_index){
        .step = h.step,
        .created_ns = h.created_ns,
        .writers = (uint32_t)h.flags,
        .rank = h.writer_rank,
        .strings = copy[MCK_STRINGS],
        .strings_len = count[MCK_STRINGS],
        .file = copy[MCK_FILES],
        .files = count[MCK_FILES],
        .tensor = copy[MCK_TENSORS],
        .tensors = count[MCK_TENSORS],
        .shard = copy[MCK_SHARDS],
        .shards = count[MCK_SHARDS],
        .chunk = copy[MCK_CHUNKS],
        .chunks = count[MCK_CHUNKS],
        .kv = copy[MCK_KV],
        .kv_len = count[MCK_KV],
    };
    memcpy(ix.uuid, h.uuid, 16);
    if (r == 0)
        r = check_all(&ix, kind, &h, err);
    if (r < 0) {
        index_clear(&ix);
        return r;
    }
    *ret = ix;
    return 0;
}
