/* Which blocks to recompute, and what memory a choice takes at its peak. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/mimose.h"

#define ALIKE 0.9

struct sized {
    double bytes;
    int block, bucket;
};

static int by_bytes_falling(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Among free blocks that cover need the earliest of the smallest bucket; without any the earliest of the largest
 * bucket. -1: none is free. */
static int pick(const struct sized *v, int n, double need, const uint8_t *taken)
{
    int best = -1, covers = 0;

    for (int k = 0; k < n; k++) {
        int fits = v[k].bytes >= need;

        if (taken[v[k].block] || (covers && !fits))
            continue;
        if (best < 0 || fits > covers || (covers && v[k].bucket > v[best].bucket) ||
            (v[k].bucket == v[best].bucket && v[k].block < v[best].block))
            best = k;
        covers = covers || fits;
    }
    return best;
}

int mimose_choose(const double *bytes, int blocks, double need, bool spare_last, uint8_t *checkpoint, double *ret_left)
{
    struct sized v[MIMOSE_BLOCKS_MAX];
    int n = spare_last && blocks > 1 ? blocks - 1 : blocks, count = 0, bucket = 0;
    double head = 0;

    assert(blocks >= 1 && blocks <= MIMOSE_BLOCKS_MAX);
    memset(checkpoint, 0, (size_t)blocks);
    memset(v, 0, sizeof(v[0]) * (size_t)blocks);
    for (int l = 0; l < n; l++)
        v[l] = (struct sized){bytes[l], l, 0};
    qsort(v, (size_t)n, sizeof(v[0]), by_bytes_falling);
    for (int k = 0; k < n; k++) {
        if (k == 0 || v[k].bytes <= ALIKE * head) {
            head = v[k].bytes;
            bucket++;
        }
        v[k].bucket = bucket;
    }
    while (need > 0) {
        int k = pick(v, n, need, checkpoint), l = k >= 0 ? v[k].block : n;

        if (l == blocks || checkpoint[l]) /* even the last is taken */
            break;
        checkpoint[l] = 1;
        need -= bytes[l];
        count++;
    }
    if (ret_left)
        *ret_left = need;
    return count;
}

double mimose_peak(const double *bytes, int blocks, const uint8_t *checkpoint)
{
    double kept = 0, peak = 0;

    for (int l = 0; l < blocks; l++) {
        peak = fmax(peak, kept + bytes[l]); /* in forward, or rebuilt in backward: it and all kept before it */
        kept += checkpoint[l] ? 0 : bytes[l];
    }
    return fmax(peak, kept);
}
