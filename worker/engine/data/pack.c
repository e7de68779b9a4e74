#include "worker/engine/data/pack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/zigzag.h"

void pack_init(struct pack *p)
{
    *p = (struct pack){0};
    buf_init(&p->ids, DOCSET_IDS_MAX);
}

void pack_clear(struct pack *p)
{
    buf_clear(&p->ids);
    free(p->doc);
    free(p->of);
    free(p->length);
    free(p->start);
    free(p->part);
    free(p->first);
    free(p->rows);
    free(p->whole);
    free(p->whole_of);
    free(p->first_whole);
    free(p->shared);
    pack_init(p);
}

void pack_reset(struct pack *p)
{
    buf_reset(&p->ids);
    p->docs = p->pieces = p->micros = p->wholes = 0;
    p->sequences = 0;
}

/* Room for element n in an array of elements of size bytes, of which there is memory for cap. */
static int grow(void *array, size_t size, size_t cap)
{
    void **at = array, *more = realloc(*at, size * cap);

    if (!more)
        return -ENOMEM;
    *at = more;
    return 0;
}

static size_t more_than(size_t cap)
{
    return cap > 0 ? 2 * cap : 32;
}

int pack_read(struct pack *p, const struct docset *docs, enum docset_side side, uint64_t i, uint64_t sample,
              struct merr *err)
{
    size_t at = p->ids.len / sizeof(int32_t);
    struct docset_doc doc;
    int rc = docset_read(docs, side, i, &p->ids, &doc, err);

    if (rc < 0 || doc.inputs == 0)
        return rc;
    if (p->docs == p->docs_cap) {
        if (grow(&p->doc, sizeof(*p->doc), more_than(p->docs_cap)) < 0)
            return merr_set(err, -ENOMEM, "no memory for %zu documents", more_than(p->docs_cap));
        p->docs_cap = more_than(p->docs_cap);
    }
    p->doc[p->docs++] = (struct pack_doc){at, doc.inputs, doc.masked, sample};
    return 1;
}

int pack_begin(struct pack *p, struct merr *err)
{
    size_t cap = more_than(p->micros_cap);

    if (p->micros + 1 >= p->micros_cap) { /* first[] and first_whole[] have one more */
        if (grow(&p->first, sizeof(*p->first), cap) < 0 || grow(&p->rows, sizeof(*p->rows), cap) < 0 ||
            grow(&p->part, sizeof(*p->part), cap) < 0 || grow(&p->first_whole, sizeof(*p->first_whole), cap) < 0 ||
            grow(&p->shared, sizeof(*p->shared), cap) < 0)
            return merr_set(err, -ENOMEM, "no memory for %zu micro-batches", cap);
        p->micros_cap = cap;
    }
    p->first[p->micros] = p->first[p->micros + 1] = p->pieces;
    p->first_whole[p->micros] = p->first_whole[p->micros + 1] = p->wholes;
    p->shared[p->micros] = 0;
    p->part[p->micros] = (struct pack_part){.sequence = -1};
    p->rows[p->micros++] = 0;
    return 0;
}

static int put(struct pack *p, uint32_t of, int start, int rows, struct merr *err)
{
    size_t cap = more_than(p->pieces_cap);

    assert(p->micros > 0 && rows > 0);
    if (p->pieces == p->pieces_cap) {
        if (grow(&p->of, sizeof(*p->of), cap) < 0 || grow(&p->length, sizeof(*p->length), cap) < 0 ||
            grow(&p->start, sizeof(*p->start), cap) < 0)
            return merr_set(err, -ENOMEM, "no memory for %zu documents of micro-batches", cap);
        p->pieces_cap = cap;
    }
    p->of[p->pieces] = of;
    p->start[p->pieces] = start;
    p->length[p->pieces++] = rows;
    p->first[p->micros] = p->pieces;
    p->rows[p->micros - 1] += rows;
    return 0;
}

int pack_put(struct pack *p, size_t doc, int rows, struct merr *err)
{
    assert(doc < p->docs && rows >= p->doc[doc].inputs);
    return put(p, (uint32_t)doc, 0, rows, err);
}

int pack_put_cut(struct pack *p, size_t doc, int rows, int ranks, int rank, struct merr *err)
{
    size_t cap = more_than(p->wholes_cap);

    assert(p->micros > 0 && doc < p->docs && rows >= p->doc[doc].inputs);
    if (p->wholes == p->wholes_cap) {
        if (grow(&p->whole, sizeof(*p->whole), cap) < 0 || grow(&p->whole_of, sizeof(*p->whole_of), cap) < 0)
            return merr_set(err, -ENOMEM, "no memory for %zu documents that ranks share", cap);
        p->wholes_cap = cap;
    }
    p->whole_of[p->wholes] = (uint32_t)doc;
    p->whole[p->wholes++] = rows;
    p->first_whole[p->micros] = p->wholes;
    for (int i = 0; i < ZIGZAG_PIECES; i++) {
        struct zigzag z = zigzag_piece(rows, ranks, rank, i);
        int rc = z.tokens > 0 ? put(p, (uint32_t)doc, (int)z.start, (int)z.tokens, err) : 0;

        if (rc < 0)
            return rc;
    }
    p->shared[p->micros - 1] = p->pieces - p->first[p->micros - 1];
    return 0;
}

size_t pack_shared(const struct pack *p, size_t m)
{
    assert(m < p->micros);
    return p->shared[m];
}

size_t pack_wholes(const struct pack *p, size_t m, const int **ret_rows)
{
    assert(m < p->micros);
    *ret_rows = p->whole + p->first_whole[m];
    return p->first_whole[m + 1] - p->first_whole[m];
}

int pack_put_part(struct pack *p, size_t doc, int start, int rows, bool drop, struct merr *err)
{
    int rc = pack_begin(p, err);

    assert(doc < p->docs && start >= 0 && rows <= p->doc[doc].inputs - start);
    if (rc < 0)
        return rc;
    p->sequences += start == 0;
    p->part[p->micros - 1] = (struct pack_part){
        .sequence = p->sequences - 1,
        .last = start + rows == p->doc[doc].inputs,
        .drop = drop,
    };
    return put(p, (uint32_t)doc, start, rows, err);
}

int pack_end(struct pack *p, int multiple, struct merr *err)
{
    int rows = p->rows[p->micros - 1], fill = rows > 0 ? (multiple - rows % multiple) % multiple : multiple;

    return fill > 0 ? put(p, PACK_FILL, 0, fill, err) : 0;
}

size_t pack_pieces(const struct pack *p, size_t m, const int **ret_length)
{
    assert(m < p->micros);
    *ret_length = p->length + p->first[m];
    return p->first[m + 1] - p->first[m];
}

void pack_samples(const struct pack *p, size_t m, uint64_t *sample)
{
    for (size_t i = p->first[m]; i < p->first[m + 1]; i++)
        *sample++ = p->of[i] == PACK_FILL ? PACK_FILL_SAMPLE : p->doc[p->of[i]].sample;
}

void pack_whole_samples(const struct pack *p, size_t m, uint64_t *sample)
{
    for (size_t i = p->first_whole[m]; i < p->first_whole[m + 1]; i++)
        *sample++ = p->doc[p->whole_of[i]].sample;
}

void pack_fill(const struct pack *p, size_t m, int32_t *tokens, int32_t *targets)
{
    const int32_t *ids = (const int32_t *)(const void *)p->ids.data;

    for (size_t i = p->first[m]; i < p->first[m + 1]; i++) {
        struct pack_doc none = {0};
        const struct pack_doc *d = p->of[i] == PACK_FILL ? &none : &p->doc[p->of[i]];

        for (int r = p->start[i]; r < p->start[i] + p->length[i]; r++) {
            *tokens++ = r < d->inputs ? ids[d->at + (size_t)r] : 0;
            *targets++ = r >= d->masked && r < d->inputs ? ids[d->at + (size_t)r + 1] : -1;
        }
    }
}
