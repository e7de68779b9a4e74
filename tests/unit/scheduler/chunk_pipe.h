/* chunk_pipe - 1F1B over chunks, reckoned in the plainest way: the twin of schedule_new_pieces()
 *
 * Each stage issues its actions in an order fixed beforehand, each as soon as what it needs is there.
 */
#ifndef MUSTER_TESTS_UNIT_SCHEDULER_CHUNK_PIPE_H
#define MUSTER_TESTS_UNIT_SCHEDULER_CHUNK_PIPE_H

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/merr.h"
#include "scheduler/sequence/plan.h"

#define SEQ_STAGES_MAX 256

struct chunk_unit {               /* in the order of forwards; chunks of one group are consecutive */
    double forward_s, backward_s; /* on one stage */
    int group;                    /* units of one group depend on each other; -1 alone */
    int index, of;                /* in the group */
};

struct pipe {
    const struct chunk_unit *u;
    size_t n;
    int stages, keep;
    size_t *back;                /* units in the order of their backwards: groups turned round */
    double *f, *b;               /* [stage · n + unit]: when it ends; negative: not yet */
    size_t *issued_f, *issued_b; /* of each stage */
    double *now;
};

static inline void order_backwards(const struct chunk_unit *u, size_t n, size_t *back)
{
    for (size_t i = 0; i < n;) {
        size_t j = i + 1;

        while (j < n && u[i].group >= 0 && u[j].group == u[i].group)
            j++;
        for (size_t k = i; k < j; k++)
            back[k] = i + (j - 1 - k);
        i = j;
    }
}

/* Forwards before the first backward, then one backward, one forward; but a backward waits for its own forward, which
 * in a group comes with the last chunk. */
static inline int wants_forward(const struct pipe *p, int s)
{
    size_t warm = (size_t)(p->stages - s) < p->n ? (size_t)(p->stages - s) : p->n;
    size_t f = p->issued_f[s], b = p->issued_b[s];

    if (f == p->n)
        return 0;
    return f < warm + b || p->back[b] >= f;
}

/* Issue the stage's next action if what it needs is done. */
static inline int advance(struct pipe *p, int s)
{
    size_t n = p->n;

    if (p->issued_b[s] == n)
        return 0;
    if (wants_forward(p, s)) {
        size_t i = p->issued_f[s];
        double ready = s ? p->f[(size_t)(s - 1) * n + i] : 0;

        if (ready < 0)
            return 0;
        p->now[s] = fmax(p->now[s], ready) + p->u[i].forward_s;
        p->f[(size_t)s * n + i] = p->now[s];
        p->issued_f[s]++;
    } else {
        size_t i = p->back[p->issued_b[s]];
        int dropped = p->u[i].group >= 0 && p->u[i].index < p->u[i].of - p->keep;
        double ready = s + 1 < p->stages ? p->b[(size_t)(s + 1) * n + i] : p->f[(size_t)s * n + i];

        if (ready < 0)
            return 0;
        if (dropped && s + 1 < p->stages) /* the second forward needs nothing from the stage after */
            p->now[s] = fmax(p->now[s] + p->u[i].forward_s, ready) + p->u[i].backward_s;
        else
            p->now[s] = fmax(p->now[s], ready) + (dropped ? p->u[i].forward_s : 0) + p->u[i].backward_s;
        p->b[(size_t)s * n + i] = p->now[s];
        p->issued_b[s]++;
    }
    return 1;
}

static inline int run(struct pipe *p)
{
    size_t left = 2 * p->n * (size_t)p->stages;

    while (left) {
        size_t before = left;

        for (int s = 0; s < p->stages; s++)
            while (advance(p, s))
                left--;
        if (left == before)
            return -EINVAL;
    }
    return 0;
}

/* Time from the first forward to the last backward of 1F1B over stages, with K chunks kept; a dropped chunk computes
 * its forward again right before its backward. Returns 0, -EINVAL, -ENOMEM. */
static inline int chunk_pipe(const struct chunk_unit *u, size_t n, int stages, int keep, double *ret_makespan_s,
                             struct merr *err)
{
    struct pipe p = {.u = u, .n = n, .stages = stages, .keep = keep};
    size_t cells = n * (size_t)(stages > 0 ? stages : 0);
    int rc = -ENOMEM;

    if (stages < 1 || stages > SEQ_STAGES_MAX || keep < 1 || n > SEQ_PIECES_MAX / SEQ_STAGES_MAX)
        return merr_set(err, -EINVAL, "%zu chunks over %d stages with %d kept: want at most %d, 1 to %d and 1 or more",
                        n, stages, keep, SEQ_PIECES_MAX / SEQ_STAGES_MAX, SEQ_STAGES_MAX);
    p.back = malloc((n + 1) * sizeof(p.back[0]));
    p.f = malloc((2 * cells + 1) * sizeof(p.f[0]));
    p.issued_f = calloc(2 * (size_t)stages, sizeof(p.issued_f[0]));
    p.now = calloc((size_t)stages, sizeof(p.now[0]));
    if (p.back && p.f && p.issued_f && p.now) {
        p.b = p.f + cells;
        p.issued_b = p.issued_f + stages;
        for (size_t i = 0; i < 2 * cells; i++)
            p.f[i] = -1;
        order_backwards(u, n, p.back);
        rc = run(&p);
    }
    if (rc == 0)
        *ret_makespan_s = 0;
    for (int s = 0; rc == 0 && s < stages; s++)
        *ret_makespan_s = fmax(*ret_makespan_s, p.now[s]);
    free(p.back);
    free(p.f);
    free(p.issued_f);
    free(p.now);
    if (rc)
        return merr_set(err, rc,
                        rc == -ENOMEM
                            ? "no memory for a pipeline of %zu chunks over %d stages"
                            : "a pipeline of %zu chunks over %d stages cannot go on: groups must be consecutive",
                        n, stages);
    return 0;
}

/* --- one group ------------------------------------------------------------------------------------------ */

enum chunk_step { CHUNK_FORWARD, CHUNK_FORWARD_DROP, CHUNK_FORWARD_AGAIN, CHUNK_BACKWARD };

struct chunk_action {
    enum chunk_step step;
    int index;
};

/* The actions of a group of n chunks of which keep are kept: at most 3 · n of them, to v. Returns how many. */
static inline size_t chunk_trace(int n, int keep, struct chunk_action *v)
{
    int kept = keep < n ? keep : n;
    size_t at = 0;

    assert(n >= 1 && keep >= 1);
    for (int i = 0; i < n; i++)
        v[at++] = (struct chunk_action){i < n - kept ? CHUNK_FORWARD_DROP : CHUNK_FORWARD, i};
    for (int i = n - 1; i >= 0; i--) {
        if (i < n - kept)
            v[at++] = (struct chunk_action){CHUNK_FORWARD_AGAIN, i};
        v[at++] = (struct chunk_action){CHUNK_BACKWARD, i};
    }
    return at;
}

#endif
