#include "scheduler/sequence/draft.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* v with room for an n+1st element of size bytes, cap counting what it has; v itself once rc is set. */
static void *grow(struct draft *d, void *v, size_t *cap, size_t n, size_t size)
{
    size_t want = *cap ? *cap * 2 : 64;
    void *bigger;

    if (d->rc || n < *cap)
        return v;
    if (n >= SEQ_PIECES_MAX) {
        d->rc = -E2BIG;
        return v;
    }
    bigger = realloc(v, want * size);
    if (!bigger) {
        d->rc = -ENOMEM;
        return v;
    }
    *cap = want;
    return bigger;
}

struct seq_micro *draft_micro(struct draft *d, int replica)
{
    size_t cap = d->cap_micro;

    d->micro = grow(d, d->micro, &cap, d->n_micro, sizeof(d->micro[0]));
    d->replica = grow(d, d->replica, &d->cap_micro, d->n_micro, sizeof(d->replica[0]));
    if (d->rc)
        return &d->nowhere;
    d->replica[d->n_micro] = replica;
    d->micro[d->n_micro] = (struct seq_micro){.first = d->n_pieces, .sequence = -1};
    return &d->micro[d->n_micro++];
}

void draft_piece(struct draft *d, size_t seq, int64_t start, int64_t tokens, int rank, int degree)
{
    d->pieces = grow(d, d->pieces, &d->cap_pieces, d->n_pieces, sizeof(d->pieces[0]));
    if (d->rc)
        return;
    d->pieces[d->n_pieces++] = (struct seq_piece){(uint32_t)seq, (int16_t)rank, (int16_t)degree, start, tokens};
    d->micro[d->n_micro - 1].n++;
}

void draft_sharded(struct draft *d, size_t seq)
{
    draft_piece(d, seq, 0, d->b->tokens[seq], 0, d->c->ranks);
}

struct keyed {
    int64_t tokens;
    size_t index;
};

static int descending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

size_t *batch_descending(const struct seq_batch *b)
{
    struct keyed *v = malloc((b->n + 1) * sizeof(v[0]));
    size_t *order = malloc((b->n + 1) * sizeof(order[0]));

    for (size_t i = 0; v && i < b->n; i++)
        v[i] = (struct keyed){b->tokens[i], i};
    if (v)
        qsort(v, b->n, sizeof(v[0]), descending);
    for (size_t i = 0; v && order && i < b->n; i++)
        order[i] = v[i].index;
    if (!v) {
        free(order);
        order = NULL;
    }
    free(v);
    return order;
}

int batch_balance(const struct seq_config *c, const struct seq_batch *b, int *home)
{
    double load[SEQ_REPLICAS_MAX] = {0};
    size_t *order = batch_descending(b);

    if (!order)
        return -ENOMEM;
    for (size_t k = 0; k < b->n; k++) {
        int best = 0;

        for (int r = 1; r < c->replicas; r++)
            if (load[r] < load[best])
                best = r;
        home[order[k]] = best;
        load[best] += seq_time_peak(&c->cost, 0, b->tokens[order[k]]);
    }
    free(order);
    return 0;
}

/* Exchange hides behind what is local; a chunk gathers the keys of all before it too. A dropped chunk's forward is
 * computed twice, and its keys gathered once more of the three times they travel. */
void micro_measure(const struct seq_config *c, const struct seq_micro *m, const struct seq_piece *pieces,
                   double *rank_s, int64_t *rank_tokens)
{
    double local[SEQ_RANKS_MAX] = {0}, shared[SEQ_RANKS_MAX] = {0};
    int64_t units[SEQ_RANKS_MAX] = {0}, travels[SEQ_RANKS_MAX] = {0};
    double again = m->dropped ? 1 + c->cost.forward_share : 1;

    for (size_t k = 0; k < m->n; k++) {
        const struct seq_piece *p = &pieces[m->first + k];
        int64_t tokens = m->padded ? m->padded : p->tokens, start = m->padded ? 0 : p->start;
        int64_t held = seq_shard_units(tokens, p->degree, c->exact_shares) * (c->ranks / p->degree);
        double time_s = seq_time(&c->cost, start, tokens, p->degree) * again;

        if (c->ranks % p->degree) /* a degree that does not divide: round up to a unit */
            held = (seq_shard_units(tokens, p->degree, c->exact_shares) * c->ranks + p->degree - 1) / p->degree;
        for (int r = p->rank; r < p->rank + p->degree; r++) {
            units[r] += held;
            *(p->degree > 1 ? &shared[r] : &local[r]) += time_s;
            if (p->degree > 1)
                travels[r] += start + tokens;
        }
    }
    for (int r = 0; r < c->ranks; r++) {
        rank_s[r] = fmax(seq_time_comm(&c->cost, travels[r]) * again, local[r]) + shared[r];
        rank_tokens[r] = (units[r] + c->ranks - 1) / c->ranks;
    }
}
