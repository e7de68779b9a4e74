#include "worker/engine/comm/sum.h"

size_t sum_piece(const struct sum *s, int member, size_t k, size_t *ret_at)
{
    size_t begin = (size_t)member * s->share, end = begin + s->share;

    if (end > s->count)
        end = s->count;
    begin += k * s->per;
    *ret_at = begin;
    return begin >= end ? 0 : end - begin < s->per ? end - begin : s->per;
}

char *sum_own(const struct sum *s, size_t at)
{
    return s->out + (s->scatter ? at - (size_t)s->g->index * s->share : at) * s->size;
}
