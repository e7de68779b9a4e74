/* Skrull's global scheduling and its relatives: replicas balanced first, then long and short interleaved into the
 * fewest micro-batches that fit, each placed among the ranks. The sweep looks at a few more cuts and takes the best. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/draft.h"

enum cut {                  /* which of a replica's ascending sequences go together */
           CUT_INTERLEAVED, /* every m-th: each micro-batch has long and short ones */
           CUT_RUNS,        /* neighbours: those alike balance without being sharded */
           CUT_LEVEL,       /* longest first, each where there is most room: long ones leave the short ones to others */
           CUTS,
};

struct trial {
    enum cut cut;
    int64_t micros; /* of each replica */
    double step_s;  /* of the slowest replica */
    int16_t *place; /* of the k-th in the replicas' order */
};

struct part {
    double s;
    int rank;
};

struct balance {
    struct draft *d;
    enum seq_placer placer;
    size_t *sub;     /* sequences of replica 0, of replica 1, ..., each ascending by length */
    size_t *first;   /* replica r has sub[first[r]] to sub[first[r + 1]] */
    int64_t *micro;  /* micro-batch of the k-th under the cut */
    int64_t *tokens; /* of a micro-batch while it is placed */
    int64_t *held;   /* by each micro-batch of a replica that is cut */
    int16_t *place;
    struct part *load, *ahead; /* of each rank: local work of a micro-batch; of all since ranks last met, sorted */
    int16_t *as;               /* what a rank of the placement is called */
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

static void cut_level(struct balance *b, int replica, int64_t m)
{
    memset(b->held, 0, (size_t)m * sizeof(b->held[0]));
    for (size_t k = b->first[replica + 1]; k-- > b->first[replica];) {
        int64_t least = 0;

        for (int64_t j = 1; j < m; j++)
            if (b->held[j] < b->held[least])
                least = j;
        b->held[least] += b->d->b->tokens[b->sub[k]];
        b->micro[k] = least;
    }
}

/* Say into which of m micro-batches each sequence of the replica goes. */
static void cut_replica(struct balance *b, int replica, enum cut cut, int64_t m)
{
    size_t first = b->first[replica], end = b->first[replica + 1];
    int64_t sum = 0, before = 0;

    if (cut == CUT_LEVEL)
        cut_level(b, replica, m);
    for (size_t k = first; k < end; k++)
        sum += b->d->b->tokens[b->sub[k]];
    for (size_t k = first; cut != CUT_LEVEL && k < end; k++) {
        int64_t s = b->d->b->tokens[b->sub[k]];

        /* A run ends where its share of the tokens does; the middle of a sequence decides. */
        b->micro[k] = cut == CUT_INTERLEAVED ? (int64_t)(k - first) % m : (before + s / 2) * m / sum;
        before += s;
    }
}

/* Place the replica's j-th micro-batch and add its time. Returns 0, -ENOSPC, -ENOMEM. */
static int place_micro(struct balance *b, int replica, int64_t j, int16_t *place, double *step_s)
{
    const struct seq_config *c = b->d->c;
    struct seq_group g = {b->tokens, 0, c->ranks, c->capacity, c->exact_shares, &c->cost};
    struct seq_placed placed;
    int64_t sum = 0;
    size_t at = 0;
    int rc;

    for (size_t k = b->first[replica]; k < b->first[replica + 1]; k++)
        if (b->micro[k] == j)
            sum += b->tokens[g.n++] = b->d->b->tokens[b->sub[k]];
    *step_s += c->cost.micro_s;
    if (g.n == 0)
        return 0;
    if (sum > c->capacity * c->ranks)
        return -ENOSPC;
    rc = seq_place(&g, b->placer, b->place, &placed);
    if (rc)
        return rc;
    *step_s += placed.time_s;
    for (size_t k = b->first[replica]; k < b->first[replica + 1]; k++)
        if (b->micro[k] == j)
            place[k] = b->place[at++];
    return 0;
}

/* Fill the trial. Returns 0, -ENOSPC when some micro-batch does not fit or it takes limit_s or longer, -ENOMEM. */
static int run_trial(struct balance *b, enum cut cut, int64_t m, double limit_s, struct trial *t)
{
    t->cut = cut;
    t->micros = m;
    t->step_s = 0;
    for (int r = 0; r < b->d->c->replicas; r++) {
        double replica_s = 0;

        cut_replica(b, r, cut, m);
        for (int64_t j = 0; j < m; j++) {
            int rc = place_micro(b, r, j, t->place, &replica_s);

            if (rc || replica_s >= limit_s)
                return rc ? rc : -ENOSPC;
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

static int by_time(const void *x, const void *y)
{
    const struct part *a = x, *b = y;

    return a->s != b->s ? (a->s > b->s) - (a->s < b->s) : a->rank - b->rank;
}

/* Ranks meet in the micro-batches in which they share something, not in between: who has had less since then gets the
 * largest part of the next one. */
static void even_out(struct balance *b, int replica, int64_t j, int16_t *place)
{
    int ranks = b->d->c->ranks;
    bool met = false;

    for (int r = 0; r < ranks; r++)
        b->load[r] = (struct part){.rank = r};
    for (size_t k = b->first[replica]; k < b->first[replica + 1]; k++)
        if (b->micro[k] == j && place[k] == SEQ_SHARD)
            met = true;
        else if (b->micro[k] == j)
            b->load[place[k]].s -= seq_time(&b->d->c->cost, 0, b->d->b->tokens[b->sub[k]], 1);
    if (b->ahead[0].s < b->ahead[ranks - 1].s)
        qsort(b->load, (size_t)ranks, sizeof(b->load[0]), by_time); /* the most first */
    for (int i = 0; i < ranks; i++) {
        b->as[b->load[i].rank] = (int16_t)b->ahead[i].rank;
        b->ahead[i].s = met ? 0 : b->ahead[i].s - b->load[i].s;
    }
    qsort(b->ahead, (size_t)ranks, sizeof(b->ahead[0]), by_time);
    for (size_t k = b->first[replica]; k < b->first[replica + 1]; k++)
        if (b->micro[k] == j && place[k] != SEQ_SHARD)
            place[k] = b->as[place[k]];
}

static void write_trial(struct balance *b, const struct trial *t)
{
    for (int r = 0; r < b->d->c->replicas; r++) {
        cut_replica(b, r, t->cut, t->micros);
        for (int i = 0; i < b->d->c->ranks; i++)
            b->ahead[i] = (struct part){.rank = i};
        for (int64_t j = 0; j < t->micros; j++) {
            even_out(b, r, j, t->place);
            (void)draft_micro(b->d, r);
            for (size_t k = b->first[r]; k < b->first[r + 1]; k++) {
                size_t i = b->sub[k];

                if (b->micro[k] != j)
                    continue;
                if (t->place[k] == SEQ_SHARD)
                    draft_sharded(b->d, i);
                else
                    draft_piece(b->d, i, 0, b->d->b->tokens[i], t->place[k], 1);
            }
        }
    }
}

#define MORE_MICROS 3 /* beyond the fewest that fit: shorter ones may balance better */

/* Interleave into the fewest micro-batches that fit; to be thorough, take the best of more of them and of runs too. */
static int search(struct balance *b, struct trial *best, struct trial *other, bool thorough)
{
    int64_t least = fewest(b), last = (int64_t)b->d->b->n, m = least;
    int rc = -ENOSPC;

    for (; rc == -ENOSPC && m <= last; m++)
        rc = run_trial(b, CUT_INTERLEAVED, m, INFINITY, best);
    if (rc || !thorough)
        return rc;
    for (int64_t k = least; k <= m - 1 + MORE_MICROS && k <= last; k++)
        for (int cut = CUT_INTERLEAVED; cut < CUTS; cut++) {
            rc = run_trial(b, (enum cut)cut, k, best->step_s, other);
            if (rc == -ENOMEM)
                return rc;
            if (rc == 0) {
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
    struct balance b = {.d = d,
                        .placer = d->c->policy == SEQ_SWEEP    ? SEQ_PLACE_SWEEP
                                  : d->c->policy == SEQ_SKRULL ? SEQ_PLACE_DACP
                                                               : SEQ_PLACE_ROUND_ROBIN};
    struct trial best = {.place = malloc(n * sizeof(best.place[0]))};
    struct trial other = {.place = malloc(n * sizeof(other.place[0]))};
    size_t *order = batch_descending(d->b);
    int *home = malloc(n * sizeof(home[0]));
    int rc = -ENOMEM;

    b.sub = malloc(n * sizeof(b.sub[0]));
    b.first = malloc(((size_t)d->c->replicas + 1) * sizeof(b.first[0]));
    b.micro = malloc(n * sizeof(b.micro[0]));
    b.tokens = malloc(n * sizeof(b.tokens[0]));
    b.held = malloc(n * sizeof(b.held[0]));
    b.load = malloc((size_t)d->c->ranks * sizeof(b.load[0]));
    b.ahead = malloc((size_t)d->c->ranks * sizeof(b.ahead[0]));
    b.as = malloc((size_t)d->c->ranks * sizeof(b.as[0]));
    b.place = malloc(n * sizeof(b.place[0]));
    if (best.place && other.place && order && home && b.sub && b.first && b.micro && b.tokens && b.held && b.place &&
        b.load && b.ahead && b.as)
        rc = batch_balance(d->c, d->b, home);
    if (!rc) {
        sort_by_replica(&b, order, home);
        rc = search(&b, &best, &other, d->c->policy == SEQ_SWEEP);
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
    free(b.micro);
    free(b.tokens);
    free(b.held);
    free(b.load);
    free(b.ahead);
    free(b.as);
    free(b.place);
    return rc;
}
