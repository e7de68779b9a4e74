/* programs - runs of tensor, pipeline and data parallel ranks that stand still because of one of them
 *
 * Every rank has the same list of blocking operations as in training: for each micro-batch it receives from the stage
 * before, calls its tensor group some times and sends on; at the end of a step it calls its data group. They go on
 * until nobody can; the victim stops before an operation of its list.
 */
#ifndef MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_PROGRAMS_H
#define MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_PROGRAMS_H

#include <stdlib.h>
#include <string.h>

#include "scheduler/diagnose/hang.h"

#define PROGRAM_MICRO 3
#define PROGRAM_WINDOW 2 /* messages that the next stage has not taken */
#define PROGRAM_CALLS 2  /* of the tensor group in a micro-batch */

enum { OP_RECV, OP_TENSOR, OP_SEND, OP_DATA };

struct program {
    int tp, pp, dp, n, ops; /* ops: of a step */
    int victim;
    long stop; /* the victim does so many operations */
    struct hang_rank *rank;
    struct hang_group (*group)[3]; /* of each rank: tensor, data, pipeline */
    long *done;                    /* operations of each rank */
    int *sent;                     /* messages to the next stage */
    int *taken;
};

static int program_op(const struct program *p, int stage, long at)
{
    long k = at % p->ops, of = PROGRAM_CALLS + 2;

    if (k == PROGRAM_MICRO * of)
        return OP_DATA;
    if (k % of == 0)
        return stage > 0 ? OP_RECV : -1;
    if (k % of == of - 1)
        return stage < p->pp - 1 ? OP_SEND : -1;
    return OP_TENSOR;
}

/* A rank goes on until it has to wait; whether it did anything. */
static int program_go(struct program *p, int r)
{
    int t = r % p->tp, stage = r / p->tp % p->pp, went = 0, all;
    struct hang_rank *rank = &p->rank[r];
    struct hang_group *g;

    for (;;) {
        int op = program_op(p, stage, p->done[r]);

        if (r == p->victim && p->done[r] >= p->stop && !rank->inside)
            return went;
        if (op == OP_TENSOR || op == OP_DATA) {
            int step = op == OP_TENSOR ? 1 : p->tp * p->pp, members = op == OP_TENSOR ? p->tp : p->dp;
            int first = op == OP_TENSOR ? r - t : r % (p->tp * p->pp);

            g = &p->group[r][op == OP_DATA];
            if (!rank->inside) {
                g->entered++;
                rank->inside = true;
                rank->key = g->key;
                rank->call = g->entered;
                rank->peer = -1;
                went = 1;
            }
            all = 1;
            for (int m = 0; m < members; m++)
                all &= p->group[first + m * step][op == OP_DATA].entered >= g->entered;
            if (!all)
                return went;
        } else if (op == OP_RECV) {
            int from = r - p->tp;

            if (!rank->inside) {
                rank->inside = true;
                rank->key = p->group[r][2].key;
                rank->peer = from;
                went = 1;
            }
            if (p->sent[from] <= p->taken[r])
                return went;
            p->taken[r]++;
        } else if (op == OP_SEND) {
            if (p->sent[r] - p->taken[r + p->tp] >= PROGRAM_WINDOW) {
                went |= !rank->inside;
                rank->inside = rank->sends = true;
                rank->key = p->group[r][2].key;
                rank->peer = r + p->tp;
                return went;
            }
            p->sent[r]++;
        }
        rank->sends = false;
        rank->inside = false;
        p->done[r]++;
        went = 1;
    }
}

static void program_clear(struct program *p)
{
    free(p->rank);
    free(p->group);
    free(p->done);
    free(p->sent);
    free(p->taken);
}

static void program_run(struct program *p, int tp, int pp, int dp, int victim, long stop)
{
    *p = (struct program){.tp = tp, .pp = pp, .dp = dp, .n = tp * pp * dp, .victim = victim, .stop = stop};
    p->ops = PROGRAM_MICRO * (PROGRAM_CALLS + 2) + 1;
    p->rank = calloc((size_t)p->n, sizeof(*p->rank));
    p->group = calloc((size_t)p->n, sizeof(*p->group));
    p->done = calloc((size_t)p->n, sizeof(*p->done));
    p->sent = calloc((size_t)p->n, sizeof(*p->sent));
    p->taken = calloc((size_t)p->n, sizeof(*p->taken));
    if (!p->rank || !p->group || !p->done || !p->sent || !p->taken)
        abort();
    for (int r = 0; r < p->n; r++) {
        int stage = r / tp % pp, replica = r / (tp * pp);

        p->group[r][0] = (struct hang_group){.key = 1000000 + (uint64_t)(r / tp), .size = tp};
        p->group[r][1] = (struct hang_group){.key = 2000000 + (uint64_t)(r % (tp * pp)), .size = dp};
        p->group[r][2] = (struct hang_group){.key = 3000000 + (uint64_t)replica * 64 + (uint64_t)stage};
        p->rank[r] = (struct hang_rank){.told = true,
                                        .peer = -1,
                                        .phase = HANG_COMPUTES,
                                        .idle_us = 8000000,
                                        .gap_us = 20000,
                                        .group = p->group[r],
                                        .n_groups = 3};
    }
    for (int went = 1; went;) {
        went = 0;
        for (int r = 0; r < p->n; r++)
            went |= program_go(p, r);
    }
}

#endif
