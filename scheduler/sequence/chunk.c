#include "scheduler/sequence/chunk.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/draft.h"

/* --- construction ----------------------------------------------------------------------------------------------- */

static void cut(struct chunks *c, size_t seq, int64_t tokens, int64_t z)
{
    int of = (int)((tokens + z - 1) / z);

    for (int i = 0; i < of; i++) {
        int64_t start = i * z, part = tokens - start < z ? tokens - start : z;

        c->v[c->n++] = (struct chunk){c->n_pieces, 1, (int64_t)seq, i, of, part};
        c->pieces[c->n_pieces++] = (struct chunk_piece){seq, start, part};
    }
}

/* First fit of the short ones, longest first: bin of each, counted from 0. Room is kept as a tree of maxima, so each
 * is found in the logarithm of their number. */
static size_t first_fit(const int64_t *tokens, const size_t *order, size_t n, int64_t z, int64_t round, size_t *bin,
                        int64_t *tree, size_t leaves)
{
    size_t bins = 0;

    for (size_t i = 0; i < 2 * leaves; i++)
        tree[i] = z;
    for (size_t k = 0; k < n; k++) {
        int64_t s = (tokens[order[k]] + round - 1) / round * round;
        size_t at = 1;

        while (at < leaves)
            at = tree[2 * at] >= s ? 2 * at : 2 * at + 1;
        bin[k] = at - leaves;
        if (bin[k] + 1 > bins)
            bins = bin[k] + 1;
        tree[at] -= s;
        while (at /= 2)
            tree[at] = tree[2 * at] > tree[2 * at + 1] ? tree[2 * at] : tree[2 * at + 1];
    }
    return bins;
}

static int pack(struct chunks *c, const int64_t *tokens, const size_t *order, size_t n, int64_t z, int64_t round)
{
    size_t leaves = 1, bins, *bin, *fill;
    int64_t *tree;

    while (leaves < n)
        leaves *= 2;
    bin = malloc((n + 1) * sizeof(bin[0]));
    tree = malloc(2 * leaves * sizeof(tree[0]));
    fill = calloc(n + 1, sizeof(fill[0]));
    if (!bin || !tree || !fill) {
        free(bin);
        free(tree);
        free(fill);
        return -ENOMEM;
    }
    bins = first_fit(tokens, order, n, z, round, bin, tree, leaves);
    for (size_t k = 0; k < n; k++)
        fill[bin[k] + 1]++; /* then: where each bin's pieces begin */
    for (size_t b = 0; b < bins; b++) {
        c->v[c->n + b] = (struct chunk){.first = c->n_pieces + fill[b], .n = fill[b + 1], .sequence = -1, .of = 1};
        fill[b + 1] += fill[b];
    }
    for (size_t k = 0; k < n; k++) {
        struct chunk *v = &c->v[c->n + bin[k]];

        c->pieces[c->n_pieces + fill[bin[k]]++] = (struct chunk_piece){order[k], 0, tokens[order[k]]};
        v->tokens += tokens[order[k]];
    }
    c->n += bins;
    c->n_pieces += n;
    free(bin);
    free(tree);
    free(fill);
    return 0;
}

int chunks_build(const int64_t *tokens, size_t n, int64_t z, int64_t round, struct chunks *ret, struct merr *err)
{
    struct seq_batch all = {.tokens = tokens, .n = n};
    struct chunks c = {0};
    size_t most = n, at = 0, *order;
    int rc;

    if (z < 1 || round < 1 || z % round)
        return merr_set(err, -EINVAL, "chunks of %" PRId64 " tokens: want a positive multiple of %" PRId64, z, round);
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 1 || tokens[i] > SEQ_TOKENS_MAX)
            return merr_set(err, -EINVAL, "sequence %zu has %" PRId64 " tokens: want 1 to %" PRId64, i, tokens[i],
                            SEQ_TOKENS_MAX);
        most += (size_t)(tokens[i] / z);
        if (most > SEQ_PIECES_MAX)
            return merr_set(err, -EINVAL, "more than %d chunks of %" PRId64 " tokens: use larger ones", SEQ_PIECES_MAX,
                            z);
    }
    order = batch_descending(&all);
    c.v = malloc((most + 1) * sizeof(c.v[0]));
    c.pieces = malloc((most + 1) * sizeof(c.pieces[0]));
    if (!order || !c.v || !c.pieces) {
        rc = -ENOMEM;
    } else {
        for (size_t i = 0; i < n; i++)
            if (tokens[i] > z)
                cut(&c, i, tokens[i], z);
        while (at < n && tokens[order[at]] > z)
            at++;
        rc = pack(&c, tokens, order + at, n - at, z, round);
    }
    free(order);
    if (rc) {
        chunks_clear(&c);
        return merr_set(err, rc, "no memory for %zu chunks", most);
    }
    *ret = c;
    return 0;
}

void chunks_clear(struct chunks *c)
{
    free(c->v);
    free(c->pieces);
    *c = (struct chunks){0};
}

/* --- the policy: every chunk a micro-batch, shared by all ranks of the group ------------------------------------ */

static int64_t chunk_size(const struct seq_config *c)
{
    int64_t round = c->ranks > 1 && !c->exact_shares ? 2 * (int64_t)c->ranks : 1;
    int64_t z = c->capacity * c->ranks / (c->keep_chunks ? c->keep_chunks : 1);

    return c->chunk_tokens ? c->chunk_tokens : z / round * round;
}

static int chunk_replica(struct draft *d, int replica, const size_t *seq, const int64_t *tokens, size_t n)
{
    int64_t round = d->c->ranks > 1 && !d->c->exact_shares ? 2 * (int64_t)d->c->ranks : 1;
    int keep = d->c->keep_chunks ? d->c->keep_chunks : 1;
    struct chunks c;
    int rc = chunks_build(tokens, n, chunk_size(d->c), round, &c, NULL);

    if (rc)
        return rc == -EINVAL ? -E2BIG : rc;
    for (size_t k = 0; k < c.n; k++) {
        struct seq_micro *m = draft_micro(d, replica);

        m->index = c.v[k].index;
        m->of = c.v[k].of;
        m->dropped = c.v[k].index < c.v[k].of - keep;
        if (c.v[k].sequence >= 0)
            m->sequence = (int64_t)seq[c.v[k].sequence];
        for (size_t x = c.v[k].first; x < c.v[k].first + c.v[k].n; x++)
            draft_piece(d, seq[c.pieces[x].seq], c.pieces[x].start, c.pieces[x].tokens, 0, d->c->ranks);
    }
    chunks_clear(&c);
    return d->rc;
}

int policy_chunk(struct draft *d)
{
    int *home = malloc(d->b->n * sizeof(home[0]));
    size_t *seq = malloc(d->b->n * sizeof(seq[0]));
    int64_t *tokens = malloc(d->b->n * sizeof(tokens[0]));
    int rc = home && seq && tokens ? batch_balance(d->c, d->b, home) : -ENOMEM;

    for (int r = 0; r < d->c->replicas && rc == 0; r++) {
        size_t n = 0;

        for (size_t i = 0; i < d->b->n; i++)
            if (home[i] == r) {
                tokens[n] = d->b->tokens[i];
                seq[n++] = i;
            }
        rc = chunk_replica(d, r, seq, tokens, n);
    }
    free(home);
    free(seq);
    free(tokens);
    return rc;
}
