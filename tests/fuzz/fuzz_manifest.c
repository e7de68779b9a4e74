/* MANIFEST and part indexes: what decodes can be encoded, and says the same again. The checksums are made good first,
 * so that the bytes behind them are reached. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_good(uint8_t *p, size_t size)
{
    struct mck_head h;
    struct mck_end end;

    if (size < sizeof(h) + sizeof(end))
        return;
    memcpy(&h, p, sizeof(h));
    if (h.section_count > MCK_SECTIONS_MAX)
        h.section_count = MCK_SECTIONS_MAX;
    for (uint32_t i = 0; i < h.section_count; i++) {
        struct mck_section *s = &h.section[i];

        if (s->off > size || s->len > size - s->off)
            continue;
        if (s->kind == MCK_FILES && s->len >= sizeof(struct mck_file))
            for (uint32_t k = 0; k < h.section_count; k++) {
                const struct mck_section *c = &h.section[k];
                struct mck_file f;

                memcpy(&f, p + s->off, sizeof(f));
                if (c->kind != MCK_CHUNKS || c->off > size || c->len > size - c->off ||
                    (uint64_t)f.chunk_count * sizeof(struct mck_chunk) > c->len)
                    continue;
                f.chunk_table_crc32c = hash_crc32c(0, p + c->off, f.chunk_count * sizeof(struct mck_chunk));
                memcpy(p + s->off, &f, sizeof(f));
            }
        s->crc32c = hash_crc32c(0, p + s->off, s->len);
    }
    h.crc32c = hash_crc32c(0, &h, sizeof(h) - 4);
    memcpy(p, &h, sizeof(h));
    memcpy(&end, p + size - sizeof(end), sizeof(end));
    memcpy(end.magic, MCK_MAGIC_END, 8);
    end.total_len = size;
    end.xxh3 = hash_xxh3(p, size - sizeof(end));
    memcpy(p + size - sizeof(end), &end, sizeof(end));
}

static void use(struct mck_index *ix, enum mck_index_kind kind)
{
    struct box_piece piece[BOX_PIECES_MAX];
    struct buf b;

    for (size_t i = 0; i < ix->shards; i++)
        assert(index_shard_cut(&ix->tensor[ix->shard[i].tensor], &ix->shard[i], piece) > 0);
    (void)index_check_cover(ix, NULL);
    buf_init(&b, MCK_INDEX_MAX);
    if (kind == MCK_INDEX_MANIFEST) {
        struct mck_index again;

        assert(index_encode(ix, kind, &b, NULL) == 0);
        assert(index_decode(b.data, b.len, kind, &again, NULL) == 0);
        assert(again.tensors == ix->tensors && again.shards == ix->shards && again.chunks == ix->chunks);
        index_clear(&again);
    }
    buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    struct mck_index ix;

    assert(copy);
    memcpy(copy, data, size);
    for (int made_good = 0; made_good < 2; made_good++) {
        for (int kind = MCK_INDEX_MANIFEST; kind <= MCK_INDEX_PART; kind++)
            if (index_decode(copy, size, (enum mck_index_kind)kind, &ix, NULL) == 0) {
                use(&ix, (enum mck_index_kind)kind);
                index_clear(&ix);
            }
        make_good(copy, size);
    }
    free(copy);
    return 0;
}
