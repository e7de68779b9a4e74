/* index_merge - the parts of an attempt become one index, if they fit */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/index.h"

struct ref { /* a tensor of a part */
    const struct mck_index *part;
    const struct mck_tensor *t;
};

static int compare_refs(const void *x, const void *y)
{
    const struct ref *a = x, *b = y;
    int c = index_compare(a->part, a->t, index_name(b->part, b->t), b->t->name_len, b->t->role);

    return c ? c : (a->part->rank > b->part->rank) - (a->part->rank < b->part->rank);
}

static int compare_u64(const uint64_t *a, const uint64_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_shards(const void *x, const void *y)
{
    const struct mck_shard *a = x, *b = y;
    int c = compare_u64(a->off, b->off, MCK_DIMS_MAX);

    if (c == 0)
        c = compare_u64(a->len, b->len, MCK_DIMS_MAX);
    if (c == 0)
        c = compare_u64(&a->sub_begin, &b->sub_begin, 1);
    return c ? c : (a->file_id > b->file_id) - (a->file_id < b->file_id);
}

struct region {
    struct box box;
    uint32_t rank;
};

static int compare_regions(const void *x, const void *y)
{
    const struct region *a = x, *b = y;

    return compare_u64(a->box.off, b->box.off, MCK_DIMS_MAX);
}

/* Do two of the n regions meet? Sorted by their first dim, a region is held against those that begin before it ends. */
static bool any_overlap(struct region *v, size_t n, size_t *ret_a, size_t *ret_b)
{
    struct box both;

    qsort(v, n, sizeof(*v), compare_regions);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            if (v[i].box.ndim && v[j].box.off[0] >= v[i].box.off[0] + v[i].box.len[0])
                break;
            if (box_meet(&v[i].box, &v[j].box, &both)) {
                *ret_a = i;
                *ret_b = j;
                return true;
            }
        }
    return false;
}

static int check_tensor_cover(const struct mck_index *ix, const struct mck_tensor *t, struct merr *err)
{
    struct region *v = calloc((size_t)t->shard_count * BOX_PIECES_MAX + 1, sizeof(*v));
    uint64_t want, have = 0;
    size_t n = 0, a = 0, b = 0;
    int r = 0;

    if (!v)
        return merr_set(err, -ENOMEM, "no memory to check %u shards", t->shard_count);
    for (uint32_t i = 0; i < t->shard_count; i++) {
        const struct mck_shard *s = &ix->shard[t->shard_first + i];
        struct box_piece piece[BOX_PIECES_MAX];
        int k = index_shard_cut(t, s, piece);

        for (int j = 0; j < k; j++)
            v[n++] = (struct region){.box = piece[j].box, .rank = s->writer_rank};
        if (have > UINT64_MAX - (s->sub_end - s->sub_begin))
            have = UINT64_MAX;
        else
            have += s->sub_end - s->sub_begin;
    }
    (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, &want);
    if (have < want)
        r = merr_set(err, -EINVAL, "tensor '%.*s' (%s): only %llu of its %llu elements are stored by any rank",
                     (int)t->name_len, index_name(ix, t), role_name(t->role), (unsigned long long)have,
                     (unsigned long long)want);
    else if (any_overlap(v, n, &a, &b))
        r = merr_set(err, -EINVAL, "tensor '%.*s' (%s): rank %u and rank %u both store the same elements",
                     (int)t->name_len, index_name(ix, t), role_name(t->role), v[a].rank, v[b].rank);
    free(v);
    return r;
}

int index_check_cover(const struct mck_index *ix, struct merr *err)
{
    for (size_t i = 0; i < ix->tensors; i++)
        TRY(check_tensor_cover(ix, &ix->tensor[i], err));
    return 0;
}

static int check_parts(const struct mck_index *part, size_t n, struct merr *err)
{
    for (size_t i = 0; i < n; i++) {
        if (part[i].rank != i || part[i].writers != n)
            return merr_set(err, -EINVAL, "the file of rank %zu says it is rank %u of %u", i, part[i].rank,
                            part[i].writers);
        if (memcmp(part[i].uuid, part[0].uuid, 16) != 0 || part[i].step != part[0].step)
            return merr_set(err, -EINVAL, "the file of rank %zu is of another attempt than that of rank 0", i);
    }
    return 0;
}

static int allocate(const struct mck_index *part, size_t n, struct mck_index *ix, struct ref **ret_refs,
                    size_t *ret_count, struct merr *err)
{
    size_t tensors = 0, shards = 0, chunks = 0, strings = 0;

    for (size_t i = 0; i < n; i++) {
        tensors += part[i].tensors;
        shards += part[i].shards;
        chunks += part[i].chunks;
        strings += part[i].strings_len;
    }
    ix->strings = malloc(strings + 1);
    ix->file = calloc(n, sizeof(*ix->file));
    ix->tensor = calloc(tensors + 1, sizeof(*ix->tensor));
    ix->shard = calloc(shards + 1, sizeof(*ix->shard));
    ix->chunk = calloc(chunks + 1, sizeof(*ix->chunk));
    ix->kv = malloc(part[0].kv_len + 1);
    *ret_refs = calloc(tensors + 1, sizeof(**ret_refs));
    *ret_count = tensors;
    if (!ix->strings || !ix->file || !ix->tensor || !ix->shard || !ix->chunk || !ix->kv || !*ret_refs)
        return merr_set(err, -ENOMEM, "no memory to merge %zu tensors of %zu files", tensors, n);
    return 0;
}

static uint64_t add_string(struct mck_index *ix, const char *text, size_t len)
{
    uint64_t off = ix->strings_len;

    memcpy(ix->strings + off, text, len);
    ix->strings_len += len;
    return off;
}

static void add_files(const struct mck_index *part, size_t n, struct mck_index *ix)
{
    for (size_t i = 0; i < n; i++) {
        struct mck_file f = part[i].file[0];

        f.name_off = (uint32_t)add_string(ix, part[i].strings + f.name_off, f.name_len);
        f.chunk_first = ix->chunks;
        memcpy(ix->chunk + ix->chunks, part[i].chunk, part[i].chunks * sizeof(*ix->chunk));
        ix->chunks += part[i].chunks;
        ix->file[ix->files++] = f;
    }
}

/* Join what n parts say of one tensor. */
static int add_tensor(const struct ref *ref, size_t n, struct mck_index *ix, struct merr *err)
{
    const struct mck_tensor *first = ref[0].t;
    struct mck_tensor *t = &ix->tensor[ix->tensors];

    *t = *first;
    t->name_off = add_string(ix, index_name(ref[0].part, first), first->name_len);
    t->shard_first = (uint32_t)ix->shards;
    t->shard_count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mck_tensor *o = ref[i].t;

        if (o->dtype != first->dtype || o->ndim != first->ndim || compare_u64(o->shape, first->shape, MCK_DIMS_MAX))
            return merr_set(err, -EINVAL, "tensor '%.*s' (%s): rank %u and rank %u disagree on its shape or type",
                            (int)first->name_len, index_name(ref[0].part, first), role_name(first->role),
                            ref[0].part->rank, ref[i].part->rank);
        for (uint32_t k = 0; k < o->shard_count; k++) {
            struct mck_shard *s = &ix->shard[ix->shards++];

            *s = ref[i].part->shard[o->shard_first + k];
            s->tensor = (uint32_t)ix->tensors;
            s->file_id = ref[i].part->rank;
            t->shard_count++;
        }
    }
    qsort(ix->shard + t->shard_first, t->shard_count, sizeof(*ix->shard), compare_shards);
    ix->tensors++;
    return 0;
}

static int add_tensors(const struct mck_index *part, size_t n, struct ref *ref, struct mck_index *ix, struct merr *err)
{
    size_t count = 0, end;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < part[i].tensors; k++)
            ref[count++] = (struct ref){.part = &part[i], .t = &part[i].tensor[k]};
    qsort(ref, count, sizeof(*ref), compare_refs);
    for (size_t i = 0; i < count; i = end) {
        for (end = i + 1; end < count; end++)
            if (index_compare(ref[end].part, ref[end].t, index_name(ref[i].part, ref[i].t), ref[i].t->name_len,
                              ref[i].t->role) != 0)
                break;
        TRY(add_tensor(ref + i, end - i, ix, err));
    }
    return 0;
}

/* *ref is for the caller to free, also on failure. */
static int merge(const struct mck_index *part, size_t n, struct mck_index *ix, struct ref **ref, struct merr *err)
{
    size_t count = 0;

    TRY(check_parts(part, n, err));
    TRY(allocate(part, n, ix, ref, &count, err));
    memcpy(ix->uuid, part[0].uuid, 16);
    memcpy(ix->kv, part[0].kv, part[0].kv_len);
    ix->kv_len = part[0].kv_len;
    ix->kv[ix->kv_len] = '\0';
    add_files(part, n, ix);
    TRY(add_tensors(part, n, *ref, ix, err));
    return index_check_cover(ix, err);
}

int index_merge(const struct mck_index *part, size_t n, struct mck_index *ret, struct merr *err)
{
    struct mck_index ix = {.step = part[0].step, .created_ns = part[0].created_ns, .writers = (uint32_t)n};
    struct ref *ref = NULL;
    int r = merge(part, n, &ix, &ref, err);

    free(ref);
    if (r < 0)
        index_clear(&ix);
    else
        *ret = ix;
    return r;
}
