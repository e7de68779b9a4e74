/* Which blocks to recompute, and what memory a choice takes at its peak. */
#include <assert.h>
#include <errno.h>
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

void mimose_runs(int blocks, uint8_t *start)
{
    int run = (int)ceil(sqrt((double)blocks));

    for (int l = 0; l < blocks; l++)
        start[l] = l % run == 0;
}

double mimose_runs_peak(const double *bytes, int blocks, const uint8_t *start)
{
    double run = 0, peak = 0;

    for (int l = 0; l < blocks; l++) {
        run = start[l] ? bytes[l] : run + bytes[l];
        peak = fmax(peak, run);
    }
    return peak;
}

/* --- least time for the memory ---------------------------------------------------------------------------------- */

/* best[g] is the least time that saves at least g steps of memory with the blocks so far. */
static void knapsack(const double *bytes, const double *again_s, int blocks, double step, int grid, double *best,
                     uint8_t *took)
{
    for (int g = 1; g <= grid; g++)
        best[g] = INFINITY;
    best[0] = 0;
    for (int l = 0; l < blocks; l++) {
        int saves = bytes[l] / step < grid ? (int)(bytes[l] / step) : grid;

        for (int g = grid; g >= 0; g--) {
            int before = g > saves ? g - saves : 0;

            took[(size_t)l * ((size_t)grid + 1) + (size_t)g] = g > 0 && best[before] + again_s[l] < best[g];
            if (g > 0 && best[before] + again_s[l] < best[g])
                best[g] = best[before] + again_s[l];
        }
    }
}

/* What the knapsack took, read backwards. */
static void read_back(const double *bytes, int blocks, double step, int grid, const uint8_t *took, uint8_t *checkpoint)
{
    int g = grid;

    memset(checkpoint, 0, (size_t)blocks);
    for (int l = blocks - 1; l >= 0; l--) {
        int saves = bytes[l] / step < grid ? (int)(bytes[l] / step) : grid;

        if (!took[(size_t)l * ((size_t)grid + 1) + (size_t)g])
            continue;
        checkpoint[l] = 1;
        g = g > saves ? g - saves : 0;
    }
}

int mimose_knapsack(const double *bytes, const double *again_s, int blocks, double limit, int grid, uint8_t *checkpoint,
                    struct merr *err)
{
    double total = 0, need, *best;
    int eligible = blocks > 1 ? blocks - 1 : 1; /* the last one saves nothing, see mimose_choose() */
    uint8_t *took;

    if (blocks < 1 || blocks > MIMOSE_BLOCKS_MAX || grid < 1 || grid > 4096)
        return merr_set(err, -EINVAL, "%d blocks over %d steps of memory: want 1 to %d and 1 to 4096", blocks, grid,
                        MIMOSE_BLOCKS_MAX);
    for (int l = 0; l < blocks; l++)
        total += bytes[l];
    need = total - limit;
    memset(checkpoint, 0, (size_t)blocks);
    best = malloc(((size_t)grid + 1) * sizeof(best[0]));
    took = malloc(((size_t)grid + 1) * (size_t)blocks);
    /* A block that is rebuilt takes its memory back beside those kept before it: ask for more until the peak fits. */
    while (best && took && mimose_peak(bytes, blocks, checkpoint) > limit && need <= total) {
        knapsack(bytes, again_s, eligible, fmax(need, 1) / grid, grid, best, took);
        if (isinf(best[grid]))
            break;
        read_back(bytes, eligible, fmax(need, 1) / grid, grid, took, checkpoint);
        need += fmax(total / 64, 1);
    }
    free(best);
    free(took);
    if (!best || !took)
        return merr_set(err, -ENOMEM, "no memory for a knapsack of %d blocks", blocks);
    if (mimose_peak(bytes, blocks, checkpoint) <= limit)
        return 0;
    memset(checkpoint, 1, (size_t)blocks);
    if (mimose_peak(bytes, blocks, checkpoint) <= limit)
        return 0;
    return merr_set(err, -ENOSPC,
                    "%.0f bytes of activations are out of reach: with all %d blocks recomputed it is "
                    "%.0f",
                    limit, blocks, mimose_peak(bytes, blocks, checkpoint));
}
