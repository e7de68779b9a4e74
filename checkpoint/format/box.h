/* box - boxes of elements in a tensor: the geometry of re-sharding
 *
 * Source: papers/checkpointing.md sections 2.3 and 2.7 in words; the arithmetic is plain row-major indexing. A
 * dense box is one whose elements lie back to back in row-major order. A range [a, b) of a box in that order is at
 * most 2n-1 boxes, each dense where the range is.
 */
#ifndef MUSTER_CHECKPOINT_FORMAT_BOX_H
#define MUSTER_CHECKPOINT_FORMAT_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

#define BOX_PIECES_MAX (2 * MCK_DIMS_MAX)

struct box {
    int ndim; /* 0: a single element */
    uint64_t off[MCK_DIMS_MAX], len[MCK_DIMS_MAX];
};

struct box_piece {
    struct box box;
    uint64_t first; /* where its first element lies, counted from the start of the range */
};

/* Product of the first n values; false when it passes max. */
bool box_product(const uint64_t *v, int n, uint64_t max, uint64_t *ret);

uint64_t box_volume(const struct box *b);

/* Cut the range [begin, end) of b (row-major element numbers, end <= volume) into boxes. Returns their count. */
int box_cut(const struct box *b, uint64_t begin, uint64_t end, struct box_piece out[BOX_PIECES_MAX]);

/* What a and b share. Returns false when nothing. */
bool box_meet(const struct box *a, const struct box *b, struct box *ret);

/* Walks over what two dense boxes share, in runs that are contiguous in both. */
struct box_walk {
    uint64_t runs; /* how many */
    uint64_t run;  /* elements of each */
    int outer;     /* leading dims that are stepped through */
    uint64_t count[MCK_DIMS_MAX];
    uint64_t a_stride[MCK_DIMS_MAX], b_stride[MCK_DIMS_MAX];
    uint64_t a_base, b_base;
};

/* shared is box_meet(a, b). */
void box_walk_init(struct box_walk *w, const struct box *a, const struct box *b, const struct box *shared);

/* Element numbers in a and in b at which run i starts. That in a grows with i. */
void box_walk_at(const struct box_walk *w, uint64_t i, uint64_t *ret_a, uint64_t *ret_b);

#endif
