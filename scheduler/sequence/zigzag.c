#include "scheduler/sequence/zigzag.h"

#include <assert.h>

int64_t zigzag_size(int64_t tokens, int ranks)
{
    assert(tokens >= 0 && ranks >= 1);
    return (tokens + 2 * ranks - 1) / (2 * ranks);
}

struct zigzag zigzag_piece(int64_t tokens, int ranks, int rank, int piece)
{
    int64_t size = zigzag_size(tokens, ranks), start, left;

    assert(rank >= 0 && rank < ranks && piece >= 0 && piece < ZIGZAG_PIECES);
    start = size * (piece == 0 ? rank : 2 * ranks - 1 - rank);
    if (start > tokens)
        start = tokens;
    left = tokens - start;
    return (struct zigzag){.start = start, .tokens = left < size ? left : size};
}
