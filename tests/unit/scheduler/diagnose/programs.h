/* programs - runs of tensor, pipeline and data parallel ranks that stand still because of one of them
 *
 * Every rank has the same list of blocking operations as in training: for each micro-batch it receives from the stage
 * before, calls its tensor group some times and sends on; at the end of a step it calls its data group, then all ranks.
 * They go on until nobody can; the victim stops before an operation of its list, or does it wrongly.
 */
#ifndef MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_PROGRAMS_H
#define MUSTER_TESTS_UNIT_SCHEDULER_DIAGNOSE_PROGRAMS_H

#include <stdlib.h>
#include <string.h>

#include "scheduler/diagnose/hang.h"

#define PROGRAM_MICRO 3
#define PROGRAM_WINDOW 2 /* messages that the next stage has not taken */
#define PROGRAM_CALLS 2  /* of the tensor group in a micro-batch */
#define PROGRAM_OPS 64   /* of the last that are told */
#define PROGRAM_WRONG 99

enum { OP_RECV, OP_TENSOR, OP_SEND, OP_DATA, OP_WORLD };
enum program_fault {
    PROGRAM_STOPS,
    PROGRAM_SKIPS, /* leaves the operation out */
    PROGRAM_SWAPS, /* does the one after it first */
    PROGRAM_SIZE,  /* of other bytes than the others */
};

struct program {
    int tp, pp, dp, n, ops; /* ops: of a step */
    int victim, blocker;
    enum program_fault fault;
    long stop; /* the operation at which the victim is at fault; the faults but STOPS: group calls alone */
    struct hang_rank *rank;
    struct hang_group (*group)[4]; /* of each rank: tensor, data, pipeline, all */
    struct order_list *order;      /* of each rank, with its window */
    uint32_t (*window)[PROGRAM_OPS];
    long *done; /* operations of each rank */
    int *sent;  /* messages to the next stage */
    int *taken;
};

static int program_op(const struct program *p, int stage, long at)
{
    long k = at % p->ops, of = PROGRAM_CALLS + 2;

    if (k >= PROGRAM_MICRO * of)
        return k == PROGRAM_MICRO * of ? OP_DATA : OP_WORLD;
    if (k % of == 0)
        return stage > 0 ? OP_RECV : -1;
    if (k % of == of - 1)
        return stage < p->pp - 1 ? OP_SEND : -1;
    return OP_TENSOR;
}

/* What the rank does at this place of its list: the victim's differs. */
static int program_does(const struct program *p, int r, long at)
{
    int stage = r / p->tp % p->pp;

    if (r != p->victim || p->fault == PROGRAM_STOPS || p->fault == PROGRAM_SIZE || at < p->stop)
        return program_op(p, stage, at);
    if (p->fault == PROGRAM_SKIPS)
        return program_op(p, stage, at + 1);
    return program_op(p, stage, at == p->stop ? at + 1 : at == p->stop + 1 ? at - 1 : at);
}

/* It enters an operation: what its page has of it. The n-th of a step is odd where the last step's was another. */
static void program_note(struct program *p, int r, int op)
{
    struct order_list *o = &p->order[r];
    bool victim = r == p->victim && p->done[r] >= p->stop;
    uint64_t span = 2 * (uint64_t)((p->done[r] + (victim && p->fault == PROGRAM_SKIPS)) / p->ops) + 1;
    uint32_t *w = p->window[r], digest = (uint32_t)op + 1;

    if (victim && p->fault == PROGRAM_SIZE && p->done[r] == p->stop)
        digest = PROGRAM_WRONG;
    if (o->span[0] != span) {
        o->span[1] = o->span[0];
        o->ops[1] = o->ops[0];
        o->span[0] = span;
        o->ops[0] = 0;
        o->odd = span > 1;
    }
    if (victim && p->fault != PROGRAM_STOPS && o->odd == 1)
        o->odd = o->ops[0] + 2;
    o->ops[0]++;
    if (o->n == PROGRAM_OPS)
        memmove(w, w + 1, (PROGRAM_OPS - 1) * sizeof(*w));
    o->n += o->n < PROGRAM_OPS;
    w[o->n - 1] = digest;
}

/* Whether the rank has made the call of g, as it is made there. */
static int program_there(const struct program *p, int r, int which, const struct hang_group *g)
{
    const struct hang_group *of = &p->group[r][which];

    return of->entered > g->entered || (of->entered == g->entered && of->digest == g->digest);
}

/* A rank goes on until it has to wait; whether it did anything. */
static int program_go(struct program *p, int r)
{
    int t = r % p->tp, went = 0, all;
    struct hang_rank *rank = &p->rank[r];
    struct hang_group *g;

    for (;;) {
        int op = program_does(p, r, p->done[r]);

        if (r == p->victim && p->fault == PROGRAM_STOPS && p->done[r] >= p->stop && !rank->inside)
            return went;
        if (op == OP_TENSOR || op == OP_DATA || op == OP_WORLD) {
            int step = op == OP_DATA ? p->tp * p->pp : 1, which = op == OP_WORLD ? 3 : op == OP_DATA;
            int members = op == OP_TENSOR ? p->tp : op == OP_DATA ? p->dp : p->n;
            int first = op == OP_TENSOR ? r - t : op == OP_DATA ? r % (p->tp * p->pp) : 0;

            g = &p->group[r][which];
            if (!rank->inside) {
                program_note(p, r, op);
                g->entered++;
                g->digest = p->window[r][p->order[r].n - 1];
                rank->inside = true;
                rank->key = g->key;
                rank->call = g->entered;
                rank->peer = -1;
                went = 1;
            }
            all = op != OP_WORLD || program_there(p, p->blocker, which, g);
            for (int m = 0; all && m < members; m++) {
                all = program_there(p, first + m * step, which, g);
                p->blocker = first + m * step; /* asked first the next time */
            }
            if (!all)
                return went;
        } else if (op == OP_RECV) {
            int from = r - p->tp;

            if (!rank->inside) {
                program_note(p, r, op);
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
                if (!rank->inside)
                    program_note(p, r, op);
                went |= !rank->inside;
                rank->inside = rank->sends = true;
                rank->key = p->group[r][2].key;
                rank->peer = r + p->tp;
                return went;
            }
            if (!rank->inside)
                program_note(p, r, op);
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
    free(p->window);
    free(p->order);
    free(p->done);
    free(p->sent);
    free(p->taken);
}

static void program_fail(struct program *p, int tp, int pp, int dp, int victim, enum program_fault fault, long stop)
{
    *p = (struct program){
        .tp = tp, .pp = pp, .dp = dp, .n = tp * pp * dp, .victim = victim, .fault = fault, .stop = stop};
    p->ops = PROGRAM_MICRO * (PROGRAM_CALLS + 2) + 2;
    p->order = calloc((size_t)p->n, sizeof(*p->order));
    p->window = calloc((size_t)p->n, sizeof(*p->window));
    p->rank = calloc((size_t)p->n, sizeof(*p->rank));
    p->group = calloc((size_t)p->n, sizeof(*p->group));
    p->done = calloc((size_t)p->n, sizeof(*p->done));
    p->sent = calloc((size_t)p->n, sizeof(*p->sent));
    p->taken = calloc((size_t)p->n, sizeof(*p->taken));
    if (!p->window || !p->order || !p->rank || !p->group || !p->done || !p->sent || !p->taken)
        abort();
    for (int r = 0; r < p->n; r++) {
        int stage = r / tp % pp, replica = r / (tp * pp);

        p->group[r][0] = (struct hang_group){.key = 1000000 + (uint64_t)(r / tp), .size = tp};
        p->group[r][1] = (struct hang_group){.key = 2000000 + (uint64_t)(r % (tp * pp)), .size = dp};
        p->group[r][2] = (struct hang_group){.key = 3000000 + (uint64_t)replica * 64 + (uint64_t)stage};
        p->group[r][3] = (struct hang_group){.key = 4000000, .size = p->n};
        p->rank[r] = (struct hang_rank){.told = true,
                                        .peer = -1,
                                        .phase = HANG_COMPUTES,
                                        .idle_us = 8000000,
                                        .gap_us = 20000,
                                        .group = p->group[r],
                                        .n_groups = 4,
                                        .order = &p->order[r]};
        p->order[r] = (struct order_list){.role = 1 + (uint32_t)stage, .window = p->window[r]};
    }
    for (int went = 1; went;) {
        went = 0;
        for (int r = 0; r < p->n; r++)
            went |= program_go(p, r);
    }
}

static inline void program_run(struct program *p, int tp, int pp, int dp, int victim, long stop)
{
    program_fail(p, tp, pp, dp, victim, PROGRAM_STOPS, stop);
}

#endif
