/* zigzag - which tokens of a sequence each of the ranks that share it has
 *
 * A sequence is cut into 2N equal pieces, the last ones shorter or empty where they do not come out even, and rank r of
 * N has pieces r and 2N - 1 - r: all ranks then have the same area under the causal diagonal.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_ZIGZAG_H
#define MUSTER_SCHEDULER_SEQUENCE_ZIGZAG_H

#include <stdint.h>

#define ZIGZAG_PIECES 2 /* of a sequence on each rank */

struct zigzag {
    int64_t start, tokens; /* tokens 0: the piece is empty, start is then anywhere up to the end */
};

/* Tokens of a piece that is not cut short. */
int64_t zigzag_size(int64_t tokens, int ranks);

/* Piece 0 or 1 of rank 0 <= rank < ranks, in the sequence's order. */
struct zigzag zigzag_piece(int64_t tokens, int ranks, int rank, int piece);

#endif
