/* 1F1B over chunks: each stage issues its actions in an order fixed beforehand, each as soon as what it needs is
 * there. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/chunk.h"
#include "scheduler/sequence/plan.h"

struct pipe {
    const struct chunk_unit *u;
    size_t n;
    int stages, keep;
    size_t *back;                /* units in the order of their backwards: groups turned round */
    double *f, *b;               /* [stage · n + unit]: when it ends; negative: not yet */
    size_t *issued_f, *issued_b; /* of each stage */
    double *now;
};

static void order_backwards(const struct chunk_unit *u, size_t n, size_t *back)
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
static int wants_forward(const struct pipe *p, int s)
{
    size_t warm = (size_t)(p->stages - s) < p->n ? (size_t)(p->stages - s) : p->n;
    size_t f = p->issued_f[s], b = p->issued_b[s];

    if (f == p->n)
        return 0;
    return f < warm + b || p->back[b] >= f;
}

/* Issue the stage's next action if what it needs is done. */
static int advance(struct pipe *p, int s)
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

static int run(struct pipe *p)
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

int chunk_pipe(const struct chunk_unit *u, size_t n, int stages, int keep, double *ret_makespan_s, struct merr *err)
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

double chunk_pipe_bound(const struct chunk_unit *u, size_t n, int stages)
{
    double sum = 0, f = INFINITY, b = INFINITY;

    for (size_t i = 0; i < n; i++) {
        sum += u[i].forward_s + u[i].backward_s;
        f = fmin(f, u[i].forward_s);
        b = fmin(b, u[i].backward_s);
    }
    return n ? sum + (stages - 1) * (f + b) : 0;
}

/* The packs first, then the groups: what is short fills the pipeline while it warms up. */
static size_t units_of(const struct chunks *c, const struct seq_cost *cost, int stages, struct chunk_unit *u)
{
    size_t at = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < c->n; k++) {
            const struct chunk *v = &c->v[k];
            double time_s = cost->micro_s;

            if ((v->sequence < 0) != (pass == 0))
                continue;
            for (size_t x = v->first; x < v->first + v->n; x++)
                time_s += seq_time(cost, c->pieces[x].start, c->pieces[x].tokens, 1);
            time_s /= stages;
            u[at++] = (struct chunk_unit){time_s * cost->forward_share, time_s * (1 - cost->forward_share),
                                          (int)v->sequence, v->index, v->of};
        }
    return at;
}

int chunk_choose(const int64_t *tokens, size_t n, const struct seq_cost *c, int stages, int64_t budget,
                 const int64_t *z, size_t nz, int keep_max, struct chunk_choice *ret, struct merr *err)
{
    struct chunk_choice best = {.time_s = INFINITY};

    if (stages < 1 || stages > SEQ_STAGES_MAX || keep_max < 1)
        return merr_set(err, -EINVAL, "%d stages and %d chunks kept: want 1 to %d and 1 or more", stages, keep_max,
                        SEQ_STAGES_MAX);
    for (size_t i = 0; i < nz; i++) {
        struct chunk_unit *u;
        struct chunks v;
        int rc;

        if (z[i] > budget)
            continue;
        rc = chunks_build(tokens, n, z[i], 1, &v, err);
        if (rc)
            return rc;
        u = malloc((v.n + 1) * sizeof(u[0]));
        rc = u ? 0 : merr_set(err, -ENOMEM, "no memory for %zu chunks", v.n);
        if (u)
            (void)units_of(&v, c, stages, u);
        for (int keep = 1; rc == 0 && keep <= keep_max && z[i] * keep <= budget; keep++) {
            double time_s;

            rc = chunk_pipe(u, v.n, stages, keep, &time_s, err);
            if (rc == 0 && (time_s < best.time_s || (time_s == best.time_s && z[i] > best.z)))
                best = (struct chunk_choice){z[i], keep, time_s};
        }
        free(u);
        chunks_clear(&v);
        if (rc)
            return rc;
    }
    if (best.z == 0)
        return merr_set(err, -ENOSPC, "none of %zu chunk sizes fits the budget: allow smaller ones", nz);
    *ret = best;
    return 0;
}
