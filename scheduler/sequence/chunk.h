/* chunk - long sequences cut into chunks, short ones packed
 *
 * Peak memory follows the chunk's size, not the longest sequence. Chunks of one sequence depend on each other: a
 * later one reads the keys and values of the earlier ones, and its backward adds to their gradients, so backwards run
 * descending. Of n chunks the last K keep their activations; the first n - K are dropped after their forward and
 * computed a second time right before their backward, descending too. Source: ChunkFlow (2025), sections 4 and 5.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_CHUNK_H
#define MUSTER_SCHEDULER_SEQUENCE_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/sequence/cost.h"

struct chunk_piece {
    size_t seq; /* index of the length */
    int64_t start, tokens;
};

struct chunk {
    size_t first, n;  /* its pieces */
    int64_t sequence; /* of a dependent chunk, -1 of a pack */
    int index, of;
    int64_t tokens;
};

struct chunks { /* dependent ones first, sequence by sequence; then packs */
    struct chunk *v;
    size_t n;
    struct chunk_piece *pieces;
    size_t n_pieces;
};

/* Cut each length above z, pack the others first-fit decreasing. A packed one counts as its length rounded up to a
 * multiple of round. Returns 0 with *ret for chunks_clear(), -EINVAL, -ENOMEM. */
int chunks_build(const int64_t *tokens, size_t n, int64_t z, int64_t round, struct chunks *ret, struct merr *err);
void chunks_clear(struct chunks *c);

#endif
