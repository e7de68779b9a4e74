#include "checkpoint/tools/moments.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN INT64_MAX

static bool holds_the_same(const struct mck_shard *a, const struct mck_shard *b)
{
    return a->bytes == b->bytes && a->sub_begin == b->sub_begin && a->sub_end == b->sub_end &&
           memcmp(a->off, b->off, sizeof(a->off)) == 0 && memcmp(a->len, b->len, sizeof(a->len)) == 0;
}

/* The other moment of t, beside it in the order of names and roles; or NULL. */
static const struct mck_tensor *find_twin(const struct mck_index *ix, const struct mck_tensor *t)
{
    const size_t at = (size_t)(t - ix->tensor), other = t->role == MCK_MOMENT1 ? at + 1 : at - 1;
    const int role = t->role == MCK_MOMENT1 ? MCK_MOMENT2 : MCK_MOMENT1;

    if ((t->role != MCK_MOMENT1 && t->role != MCK_MOMENT2) || other >= ix->tensors)
        return NULL;
    if (index_compare(ix, &ix->tensor[other], index_name(ix, t), t->name_len, role) != 0)
        return NULL;
    return t->dtype == MCK_F32 && ix->tensor[other].dtype == MCK_F32 ? &ix->tensor[other] : NULL;
}

/* How many chunks behind a shard of moments the other moments of its elements lie; 0: it has no such. */
static int64_t distance(const struct mck_index *ix, const struct mck_shard *s)
{
    const struct mck_tensor *t = &ix->tensor[s->tensor], *twin = find_twin(ix, t);
    const size_t i = (size_t)(s - ix->shard) - t->shard_first;
    int64_t bytes;

    if (!twin || i >= twin->shard_count || !holds_the_same(s, &ix->shard[twin->shard_first + i]))
        return 0;
    bytes = (int64_t)ix->shard[twin->shard_first + i].stream_off - (int64_t)s->stream_off;
    if (bytes % MCK_CHUNK != 0 || (bytes > 0) != (t->role == MCK_MOMENT1))
        return 0;
    return bytes / MCK_CHUNK;
}

uint32_t *moments_pair(const struct mck_index *ix)
{
    int64_t *to = malloc((ix->chunks + 1) * sizeof(*to)); /* where all that is in a chunk has its other moments */
    uint32_t *second = malloc((ix->chunks + 1) * sizeof(*second));

    for (size_t c = 0; to && c < ix->chunks; c++)
        to[c] = UNKNOWN;
    for (size_t i = 0; to && i < ix->shards; i++) {
        const struct mck_shard *s = &ix->shard[i];
        const int64_t d = distance(ix, s);

        for (uint64_t c = s->stream_off / MCK_CHUNK; s->bytes && c * MCK_CHUNK < s->stream_off + s->bytes; c++)
            to[c] = to[c] == UNKNOWN || to[c] == d ? d : 0;
    }
    for (size_t c = 0; to && second && c < ix->chunks; c++) {
        const bool first = to[c] != UNKNOWN && to[c] > 0;

        second[c] = first && to[c + (size_t)to[c]] == -to[c] ? (uint32_t)(c + (size_t)to[c]) : MOMENTS_NONE;
    }
    if (!to) {
        free(second);
        second = NULL;
    }
    free(to);
    return second;
}
