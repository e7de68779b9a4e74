/* order - which rank has called something else than the others
 *
 * Members of a group make the same calls in the same order, and ranks of the same role the same operations of all their
 * groups. Both are told as digests (u32), which are the same for the same call. The rank that departs from most of its
 * peers is the odd one; of two, and where others have not come so far, the one that departs from its own last step.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_ORDER_H
#define MUSTER_SCHEDULER_DIAGNOSE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order_list {           /* the last operations of a rank */
    uint32_t role;            /* ranks of the same make the same; 0: no other rank does */
    uint64_t span[2], ops[2]; /* spans (a step's computation is one) of the same number hold the same operations: the
                                 present one and the one before, and how many it has made in each */
    uint64_t odd;             /* of the present span: 2 + the first that is another than a step ago; 1: none is; 0: it
                                 is not known */
    const uint32_t *window;   /* digests, the newest last */
    size_t n;
};

struct order_odd {
    uint64_t span, op;    /* the first operation that differs, in its span from 0 */
    uint32_t did, others; /* what the odd rank called there, and the others; 0: nothing, not known */
    bool found;
};

/* Where a departs from b: true, with a's digest in did and b's in others. */
bool order_departs(const struct order_list *a, const struct order_list *b, struct order_odd *ret);

/* The value that more than half of v[0 .. n) have; 0: none is. */
uint32_t order_most(const uint32_t *v, size_t n);

/* Ranks that depart from most of their role, the earliest alone, into odd (at most max). Returns how many there are;
 * list(arg, i) gives the list of rank i of n, NULL: it has none. */
size_t order_find(const struct order_list *(*list)(const void *arg, size_t i), const void *arg, size_t n, int *odd,
                  size_t max, struct order_odd *ret);

#endif
