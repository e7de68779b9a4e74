/* What nodes say of their snapshots: any bytes are taken in or refused, and whatever was taken in can be planned from.
 * The checksums of parities are made good first, so that the bytes behind them are reached. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "worker/snapshot/survey.h"

#define ENTRY 40 /* bytes before an entry's data files (worker/snapshot/survey.c) */
#define HEAD 4096
#define TABLE_SUM 192 /* where the head of a parity has the checksum of its tables (worker/snapshot/parity.c) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_good(uint8_t *p, size_t size)
{
    for (size_t at = 0; size - at >= ENTRY;) {
        uint64_t parity, sum;
        uint32_t parts, crc;

        memcpy(&parity, p + at + 24, sizeof(parity));
        memcpy(&parts, p + at + 36, sizeof(parts));
        at += ENTRY;
        if (parts > (size - at) / 16 || parity > size - at - parts * 16u)
            return;
        at += parts * 16u;
        if (parity >= HEAD) {
            uint32_t tables[2]; /* data files and pieces, 16 bytes each */
            uint64_t bytes;

            memcpy(tables, p + at + 56, sizeof(tables));
            bytes = ((uint64_t)tables[0] + tables[1]) * 16;
            if (bytes <= parity - HEAD) {
                sum = hash_xxh3(p + at + HEAD, bytes);
                memcpy(p + at + TABLE_SUM, &sum, sizeof(sum));
            }
            crc = hash_crc32c(0, p + at, HEAD - 4);
            memcpy(p + at + HEAD - 4, &crc, sizeof(crc));
        }
        at += parity;
    }
}

static void plan(const struct survey *s)
{
    uint64_t limit = UINT64_MAX;
    struct survey_plan p;
    struct merr lost;

    while (survey_newest(s, limit, &p, &lost, NULL) == 1) {
        assert(p.step < limit);
        for (uint32_t i = 0; i < p.writers; i++)
            assert(p.node[i] < 2 && (p.node[i] >= 0 || p.losses > 0));
        limit = p.step;
        survey_plan_clear(&p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    assert(copy);
    memcpy(copy, data, size);
    for (int made_good = 0; made_good < 2; made_good++) {
        struct survey *s = survey_new(2);

        assert(s);
        (void)survey_add(s, 0, copy, size, NULL);
        (void)survey_add(s, 1, copy, size / 2, NULL);
        plan(s);
        survey_free(s);
        make_good(copy, size);
    }
    free(copy);
    return 0;
}
