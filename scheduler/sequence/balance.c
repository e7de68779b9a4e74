/* Skrull's global scheduling and its relatives: replicas balanced first, then long and short interleaved into the
 * fewest micro-batches that fit, each placed among the ranks. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/draft.h"

struct trial {
    int64_t micros; /* of each replica */
    double step_s;  /* of the slowest replica */
    int16_t *place; /* of the k-th in the replicas' order */
};

struct balance {
    struct draft *d;
    enum seq_placer placer;
    size_t *sub;     /* sequences of replica 0, of replica 1, ..., each ascending by length */
    size_t *first;   /* replica r has sub[first[r]] to sub[first[r + 1]] */
    int64_t *tokens; /* of a micro-batch while it is placed */
    int16_t *place;
};

static void sort_by_replica(struct balance *b, const size_t *descending, const int *home)
{
    size_t at = 0;

    for (int r = 0; r < b->d->c->replicas; r++) {
        b->first[r] = at;
        for (size_t k = b->d->b->n; k-- > 0;) /* of equal ones the later index first: turned below */
            if (home[descending[k]] == r)
                b->sub[at++] = descending[k];
        for (size_t i = b->first[r]; i < at;) {
            size_t j = i + 1;

            while (j < at && b->d->b->tokens[b->sub[j]] == b->d->b->tokens[b->sub[i]])
                j++;
            for (size_t x = i, y = j - 1; x < y; x++, y--) {
                size_t keep = b->sub[x];

                b->sub[x] = b->sub[y];
                b->sub[y] = keep;
            }
            i = j;
        }
    }
    b->first[b->d->c->replicas] = at;
}

/* Place every m-th sequence of the replica from the j-th on. Adds its time. Returns 0, -ENOSPC, -ENOMEM. */
static int place_micro(struct balance *b, int replica, int64_t m, int64_t j, int16_t *place, double *step_s)
{
    const struct seq_config *c = b->d->c;
    size_t first = b->first[replica], n = b->first[replica + 1] - first, count = 0;
    struct seq_group g = {b->tokens, 0, c->ranks, c->capacity, c->exact_shares, &c->cost};
    struct seq_placed placed;
    int64_t sum = 0;
    int rc;

    for (size_t k = (size_t)j; k < n; k += (size_t)m) {
        b->tokens[count++] = b->d->b->tokens[b->sub[first + k]];
        sum += b->tokens[count - 1];
    }
    g.n = count;
    *step_s += c->cost.micro_s;
    if (sum > c->capacity * c->ranks)
        return -ENOSPC;
    rc = seq_place(&g, b->placer, b->place, &placed);
    if (rc)
        return rc;
    *step_s += placed.time_s;
    count = 0;
    for (size_t k = (size_t)j; k < n; k += (size_t)m)
        place[first + k] = b->place[count++];
    return 0;
}

/* Fill the trial for m micro-batches a replica. Returns 0, -ENOSPC when some do not fit, -ENOMEM. */
static int try_micros(struct balance *b, int64_t m, struct trial *t)
{
    t->micros = m;
    t->step_s = 0;
    for (int r = 0; r < b->d->c->replicas; r++) {
        double replica_s = 0;

        for (int64_t j = 0; j < m; j++) {
            int rc = place_micro(b, r, m, j, t->place, &replica_s);

            if (rc)
                return rc;
        }
        t->step_s = fmax(t->step_s, replica_s);
    }
    return 0;
}

/* Fewest micro-batches that memory could allow to the fullest replica. */
static int64_t fewest(const struct balance *b)
{
    int64_t most = 1, group = b->d->c->capacity * b->d->c->ranks;

    for (int r = 0; r < b->d->c->replicas; r++) {
        int64_t sum = 0, m;

        for (size_t k = b->first[r]; k < b->first[r + 1]; k++)
            sum += b->d->b->tokens[b->sub[k]];
        m = (sum + group - 1) / group;
        most = m > most ? m : most;
    }
    return most;
}

static void write_trial(struct balance *b, const struct trial *t)
{
    for (int r = 0; r < b->d->c->replicas; r++)
        for (int64_t j = 0; j < t->micros; j++) {
            (void)draft_micro(b->d, r);
            for (size_t k = b->first[r] + (size_t)j; k < b->first[r + 1]; k += (size_t)t->micros) {
                size_t i = b->sub[k];

                if (t->place[k] == SEQ_SHARD)
                    draft_sharded(b->d, i);
                else
                    draft_piece(b->d, i, 0, b->d->b->tokens[i], t->place[k], 1);
            }
        }
}

#define MORE_MICROS 2 /* beyond the fewest that fit: shorter ones may balance better */

/* The first number of micro-batches that fits all replicas, or with more the best of the next ones too. */
static int search(struct balance *b, struct trial *best, struct trial *other, int more)
{
    int64_t m = fewest(b), last = (int64_t)b->d->b->n;
    int rc = -ENOSPC;

    for (; rc == -ENOSPC && m <= last; m++)
        rc = try_micros(b, m, best);
    if (rc)
        return rc;
    for (int k = 0; k < more && m <= last; k++, m++) {
        rc = try_micros(b, m, other);
        if (rc == -ENOMEM)
            return rc;
        if (rc == 0 && other->step_s < best->step_s) {
            struct trial keep = *best;

            *best = *other;
            *other = keep;
        }
    }
    return 0;
}

int policy_balanced(struct draft *d)
{
    size_t n = d->b->n;
    struct balance b = {.d = d, .placer = d->c->policy == SEQ_SWEEP ? SEQ_PLACE_SWEEP
                                          : d->c->policy == SEQ_SKRULL ? SEQ_PLACE_DACP : SEQ_PLACE_ROUND_ROBIN};
    struct trial best = {.place = malloc(n * sizeof(best.place[0]))};
    struct trial other = {.place = malloc(n * sizeof(other.place[0]))};
    size_t *order = batch_descending(d->b);
    int *home = malloc(n * sizeof(home[0]));
    int rc = -ENOMEM;

    b.sub = malloc(n * sizeof(b.sub[0]));
    b.first = malloc(((size_t)d->c->replicas + 1) * sizeof(b.first[0]));
    b.tokens = malloc(n * sizeof(b.tokens[0]));
    b.place = malloc(n * sizeof(b.place[0]));
    if (best.place && other.place && order && home && b.sub && b.first && b.tokens && b.place)
        rc = batch_balance(d->c, d->b, home);
    if (!rc) {
        sort_by_replica(&b, order, home);
        rc = search(&b, &best, &other, d->c->policy == SEQ_SWEEP ? MORE_MICROS : 0);
    }
    if (!rc) {
        write_trial(&b, &best);
        rc = d->rc;
    }
    free(best.place);
    free(other.place);
    free(order);
    free(home);
    free(b.sub);
    free(b.first);
    free(b.tokens);
    free(b.place);
    return rc;
}
