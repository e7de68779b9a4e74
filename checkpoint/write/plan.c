#include "checkpoint/write/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "checkpoint/format/buffer.h"
#include "checkpoint/format/dtype.h"

static int compare_stream(const void *x, const void *y)
{
    const struct mck_buffer *a = *(const struct mck_buffer *const *)x, *b = *(const struct mck_buffer *const *)y;

    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    if (a->role != b->role)
        return a->role < b->role ? -1 : 1;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return (a > b) - (a < b); /* as registered */
}

static int compare_key(const void *x, const void *y)
{
    const struct mck_buffer *a = *(const struct mck_buffer *const *)x, *b = *(const struct mck_buffer *const *)y;
    int c = strcmp(a->name, b->name);

    if (c)
        return c;
    return a->role != b->role ? (a->role < b->role ? -1 : 1) : (a > b) - (a < b);
}

static int compare_pieces(const void *x, const void *y)
{
    const struct piece *a = x, *b = y;

    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    if (a->extent != b->extent)
        return a->extent < b->extent ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int same_tensor(const struct mck_buffer *a, const struct mck_buffer *b, struct merr *err)
{
    bool same = a->dtype == b->dtype && a->ndim == b->ndim;

    for (int d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d];
    return same ? 0 : merr_set(err, -EINVAL, "buffer '%s' is registered with two shapes or types", a->name);
}

/* Cut a shard of bytes at stream offset off, followed by zeros up to end, at the borders of extents. What shares a
 * page with its memory can be read. */
static void add_pieces(struct plan *p, const struct mck_buffer *b, uint64_t off, uint64_t bytes, uint64_t end)
{
    uintptr_t memory = (uintptr_t)b->data, mapped = mck_round(memory + bytes + b->pad, MCK_ALIGN) - memory;

    for (uint64_t at = off, to; at < end; at = to) {
        uint64_t border = (at / MCK_SLOT + 1) * MCK_SLOT, data = at < off + bytes ? off + bytes - at : 0;

        to = end < border ? end : border;
        data = data < to - at ? data : to - at;
        p->piece[p->pieces++] = (struct piece){.src = (const char *)b->data + (at - off),
                                               .bucket = (uint32_t)b->bucket,
                                               .extent = (uint32_t)(at / MCK_SLOT),
                                               .at = (uint32_t)(at % MCK_SLOT),
                                               .len = (uint32_t)data,
                                               .pad = (uint32_t)(to - at - data),
                                               .seen = to - off <= mapped};
    }
}

struct slice { /* where a stored buffer lies */
    const struct mck_buffer *b;
    uint64_t off, bytes, end;
};

/* Lay the buffers one after another; returns the stream's length and counts pieces and groups. */
static void lay_out(const struct mck_buffer *const *v, size_t n, struct slice *out, struct plan *p, size_t *ret_pieces)
{
    uint64_t off = 0;
    size_t pieces = 0;

    for (size_t i = 0; i < n; i++) {
        bool first = !i || v[i]->dtype != v[i - 1]->dtype || v[i]->role != v[i - 1]->role;

        uint64_t bytes = mck_buffer_bytes(v[i]);

        off = mck_round(off, first ? MCK_CHUNK : MCK_ALIGN);
        p->groups += first;
        if (i)
            out[i - 1].end = off;
        out[i] = (struct slice){.b = v[i], .off = off, .bytes = bytes};
        pieces += bytes / MCK_SLOT + 3; /* the last two for the border that padding may pass */
        out[i].end = off + bytes;
        off += bytes + v[i]->pad;
    }
    p->stream_len = n ? out[n - 1].end : 0;
    *ret_pieces = pieces;
}

static int count_pieces(struct plan *p, struct merr *err)
{
    p->extents = (uint32_t)(mck_round(p->stream_len, MCK_SLOT) / MCK_SLOT);
    p->extent_pieces = calloc(p->extents + 1, sizeof(*p->extent_pieces));
    p->bucket_pieces = calloc(p->buckets + 1, sizeof(*p->bucket_pieces));
    p->extent_first = calloc(p->extents + 1, sizeof(*p->extent_first));
    p->by_extent = calloc(p->pieces + 1, sizeof(*p->by_extent));
    if (!p->extent_pieces || !p->bucket_pieces || !p->extent_first || !p->by_extent)
        return merr_set(err, -ENOMEM, "no memory for the plan of %u extents", p->extents);
    for (size_t i = 0; i < p->pieces; i++) {
        p->extent_pieces[p->piece[i].extent]++;
        p->bucket_pieces[p->piece[i].bucket]++;
    }
    for (uint32_t i = 0, end = 0; i <= p->extents; i++)
        p->extent_first[i] = end += i < p->extents ? p->extent_pieces[i] : 0;
    for (size_t i = p->pieces; i-- > 0;) /* each extent is filled from its end down, to where it begins */
        p->by_extent[--p->extent_first[p->piece[i].extent]] = (uint32_t)i;
    return 0;
}

/* The extents that need no copy: their pieces lie in memory as in the stream, gaps of less than a page among them. */
static int find_in_place(struct plan *p, struct merr *err)
{
    uint32_t *left = calloc(p->extents + 1, sizeof(*left));

    p->extent_src = calloc(p->extents + 1, sizeof(*p->extent_src));
    if (!left || !p->extent_src) {
        free(left);
        return merr_set(err, -ENOMEM, "no memory for the plan of %u extents", p->extents);
    }
    for (size_t i = 0; i < p->pieces; i++) {
        const struct piece *q = &p->piece[i];
        uintptr_t base = (uintptr_t)q->src - q->at;

        if (!p->extent_src[q->extent] && base % MCK_ALIGN == 0)
            p->extent_src[q->extent] = q->src - q->at;
        if ((uintptr_t)p->extent_src[q->extent] != base || (q->pad && !q->seen))
            left[q->extent] = 1; /* not this one */
    }
    for (uint32_t i = 0; i < p->extents; i++) {
        if (left[i] || (uint64_t)(i + 1) * MCK_SLOT > p->stream_len)
            p->extent_src[i] = NULL;
        p->in_place_bytes += p->extent_src[i] ? MCK_SLOT : 0;
    }
    free(left);
    return 0;
}

static int make_stream(const struct mck_buffer *const *v, size_t n, struct slice *slice, struct plan *p,
                       struct merr *err)
{
    size_t pieces;

    lay_out(v, n, slice, p, &pieces);
    if (p->stream_len > (uint64_t)UINT32_MAX * MCK_CHUNK / 2)
        return merr_set(err, -EINVAL, "the state of this rank is too large for one file");
    p->chunks = (uint32_t)(mck_round(p->stream_len, MCK_CHUNK) / MCK_CHUNK);
    p->piece = calloc(pieces + 1, sizeof(*p->piece));
    p->chunk_dtype = calloc(p->chunks + 1, 1);
    if (!p->piece || !p->chunk_dtype)
        return merr_set(err, -ENOMEM, "no memory for a plan of %zu pieces", pieces);
    for (size_t i = 0; i < n; i++) {
        add_pieces(p, slice[i].b, slice[i].off, slice[i].bytes, slice[i].end);
        for (uint64_t c = slice[i].off / MCK_CHUNK; slice[i].bytes && c * MCK_CHUNK < slice[i].end; c++)
            p->chunk_dtype[c] = (uint8_t)slice[i].b->dtype;
        if ((uint32_t)slice[i].b->bucket >= p->buckets)
            p->buckets = (uint32_t)slice[i].b->bucket + 1;
    }
    qsort(p->piece, p->pieces, sizeof(*p->piece), compare_pieces);
    TRY(count_pieces(p, err));
    return find_in_place(p, err);
}

static const struct slice *find_slice(const struct slice *s, size_t n, const struct mck_buffer *b)
{
    for (size_t lo = 0, hi = n; lo < hi;) { /* slices lie in the order of compare_stream */
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_stream(&s[mid].b, &b);

        if (!c)
            return &s[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static void add_shard(struct plan *p, const struct slice *s, uint32_t rank)
{
    struct mck_index *ix = &p->index;
    struct mck_shard *d = &ix->shard[ix->shards++];
    struct box box;

    buffer_range(s->b, &box, &d->sub_begin, &d->sub_end);
    for (int i = 0; i < MCK_DIMS_MAX; i++) {
        d->off[i] = i < box.ndim ? box.off[i] : 0;
        d->len[i] = i < box.ndim ? box.len[i] : 1;
    }
    d->tensor = (uint32_t)ix->tensors - 1;
    d->file_id = d->writer_rank = rank;
    d->stream_off = s->off;
    d->bytes = s->bytes;
    d->replicas = 1;
    ix->tensor[ix->tensors - 1].shard_count++;
}

/* Tables of the part; v is sorted by key. */
static int make_tables(const struct mck_buffer *const *v, size_t n, const struct slice *slice, size_t slices,
                       uint32_t rank, struct plan *p, struct merr *err)
{
    struct mck_index *ix = &p->index;
    size_t strings = 0;

    for (size_t i = 0; i < n; i++)
        strings += strlen(v[i]->name);
    ix->strings = malloc(strings + 64);
    ix->tensor = calloc(n + 1, sizeof(*ix->tensor));
    ix->shard = calloc(n + 1, sizeof(*ix->shard));
    if (!ix->strings || !ix->tensor || !ix->shard)
        return merr_set(err, -ENOMEM, "no memory for the tables of %zu buffers", n);
    for (size_t i = 0; i < n; i++) {
        const struct slice *s = find_slice(slice, slices, v[i]);

        if (i && !strcmp(v[i]->name, v[i - 1]->name) && v[i]->role == v[i - 1]->role) {
            TRY(same_tensor(v[i - 1], v[i], err));
        } else {
            struct mck_tensor *t = &ix->tensor[ix->tensors++];

            t->name_off = ix->strings_len;
            t->name_len = (uint32_t)strlen(v[i]->name);
            memcpy(ix->strings + ix->strings_len, v[i]->name, t->name_len);
            ix->strings_len += t->name_len;
            t->dtype = (uint8_t)v[i]->dtype;
            t->role = (uint8_t)v[i]->role;
            t->ndim = (uint8_t)v[i]->ndim;
            t->shard_first = (uint32_t)ix->shards;
            for (int d = 0; d < MCK_DIMS_MAX; d++)
                t->shape[d] = d < v[i]->ndim ? v[i]->shape[d] : 1;
        }
        if (s && s->bytes)
            add_shard(p, s, rank);
    }
    return 0;
}

/* Those that are stored in the order of the stream, and all by their keys. Both have memory for all. */
static int sort_buffers(const struct mck_buffer *bufs, size_t n, const struct mck_buffer **stream,
                        const struct mck_buffer **key, size_t *ret_stored, struct merr *err)
{
    size_t stored = 0;

    for (size_t i = 0; i < n; i++) {
        TRY(buffer_check(&bufs[i], err));
        key[i] = &bufs[i];
        if (!bufs[i].replica && mck_buffer_bytes(&bufs[i]))
            stream[stored++] = &bufs[i];
    }
    if (stored)
        qsort(stream, stored, sizeof(*stream), compare_stream);
    if (n)
        qsort(key, n, sizeof(*key), compare_key);
    *ret_stored = stored;
    return 0;
}

/* stream, key and slice have memory for all buffers. */
static int make_plan(const struct mck_buffer *bufs, size_t n, uint32_t rank, const struct mck_buffer **stream,
                     const struct mck_buffer **key, struct slice *slice, struct plan *p, struct merr *err)
{
    size_t stored;

    TRY(sort_buffers(bufs, n, stream, key, &stored, err));
    TRY(make_stream(stream, stored, slice, p, err));
    return make_tables(key, n, slice, stored, rank, p, err);
}

int plan_make(const struct mck_buffer *bufs, size_t n, uint32_t rank, struct plan *ret, struct merr *err)
{
    const struct mck_buffer **stream = calloc(n + 1, sizeof(*stream)), **key = calloc(n + 1, sizeof(*key));
    struct slice *slice = calloc(n + 1, sizeof(*slice));
    struct plan p = {0};
    int r = stream && key && slice ? make_plan(bufs, n, rank, stream, key, slice, &p, err)
                                   : merr_set(err, -ENOMEM, "no memory for %zu buffers", n);

    free(stream);
    free(key);
    free(slice);
    if (r < 0) {
        plan_clear(&p);
        return r;
    }
    *ret = p;
    return 0;
}

void plan_clear(struct plan *p)
{
    free(p->piece);
    free(p->extent_pieces);
    free(p->extent_src);
    free(p->extent_first);
    free(p->by_extent);
    free(p->bucket_pieces);
    free(p->chunk_dtype);
    index_clear(&p->index);
    *p = (struct plan){0};
}

/* As make_plan. */
static int make_index_at(const struct mck_buffer *bufs, size_t n, uint32_t rank, const char *base, uint64_t len,
                         const struct mck_buffer **stream, const struct mck_buffer **key, struct slice *slice,
                         struct plan *p, struct merr *err)
{
    size_t stored;

    TRY(sort_buffers(bufs, n, stream, key, &stored, err));
    for (size_t i = 0; i < stored; i++) {
        const struct mck_buffer *b = stream[i];
        uint64_t off = (uint64_t)((const char *)b->data - base), bytes = mck_buffer_bytes(b);

        if (off % MCK_SHARD_ALIGN || off > len || bytes > len - off)
            return merr_set(err, -EINVAL, "buffer '%s' does not lie at a multiple of %u bytes in its file", b->name,
                            MCK_SHARD_ALIGN);
        slice[i] = (struct slice){.b = b, .off = off, .bytes = bytes, .end = off + bytes};
    }
    return make_tables(key, n, slice, stored, rank, p, err);
}

int plan_index_at(const struct mck_buffer *bufs, size_t n, uint32_t rank, const void *base, uint64_t len,
                  struct mck_index *ret, struct merr *err)
{
    const struct mck_buffer **stream = calloc(n + 1, sizeof(*stream)), **key = calloc(n + 1, sizeof(*key));
    struct slice *slice = calloc(n + 1, sizeof(*slice));
    struct plan p = {0};
    int r = stream && key && slice ? make_index_at(bufs, n, rank, base, len, stream, key, slice, &p, err)
                                   : merr_set(err, -ENOMEM, "no memory for %zu buffers", n);

    free(stream);
    free(key);
    free(slice);
    if (r < 0)
        plan_clear(&p);
    else
        *ret = p.index;
    return r;
}
