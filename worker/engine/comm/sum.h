/* sum - a call that adds up vectors: where each member's share of the result lies, whatever the call's form */
#ifndef MUSTER_WORKER_COMM_SUM_H
#define MUSTER_WORKER_COMM_SUM_H

#include "worker/engine/comm/group.h"

struct sum {
    struct comm_group *g;
    const char *in;            /* the vector of the own rank */
    char *out;                 /* all of it, or only the own share (scatter) */
    size_t size, count, share; /* bytes of an element; elements in all, of a full share */
    size_t per;                /* elements of a piece, of which shares are cut */
    bool scatter;
    enum comm_type type;
    enum comm_op op;
};

/* The elements of member's share in round k: [*ret_at, *ret_at + returned). */
size_t sum_piece(const struct sum *s, int member, size_t k, size_t *ret_at);
/* Where the result of the own piece goes. */
char *sum_own(const struct sum *s, size_t at);

#endif
