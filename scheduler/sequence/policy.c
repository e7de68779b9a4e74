/* Policies without thought for the step as a whole: those that others run, to compare with. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/sequence/draft.h"
#include "scheduler/sequence/workload.h"

static int64_t group_units(const struct seq_config *c)
{
    return c->capacity * c->ranks;
}

static int64_t share_units(const struct seq_config *c, int64_t tokens)
{
    return seq_shard_units(tokens, c->ranks, c->exact_shares);
}

/* --- a fixed number of sequences a micro-batch ------------------------------------------------------------------ */

/* n sequences, each brought to the longest when pad; cut into several micro-batches where they do not fit. */
static void write_micros(struct draft *d, int replica, const size_t *seq, size_t n, int pad)
{
    for (size_t k = 0; k < n;) {
        struct seq_micro *m = draft_micro(d, replica);
        int64_t longest = 0, sum = 0;
        size_t first = k;

        for (; k < n; k++) {
            int64_t s = share_units(d->c, d->b->tokens[seq[k]]), most = s > longest ? s : longest;

            if (k > first && (pad ? most * (int64_t)(k - first + 1) : sum + s) > group_units(d->c))
                break;
            longest = most;
            sum += s;
            if (pad && d->b->tokens[seq[k]] > m->padded)
                m->padded = d->b->tokens[seq[k]];
        }
        for (size_t i = first; i < k; i++)
            draft_sharded(d, seq[i]);
        if (pad && k == first + 1)
            m->padded = 0; /* alone it is as long as itself */
    }
}

/* Blocks of consecutive sequences for the replicas, micro of them a micro-batch. */
static int arrival(struct draft *d, size_t micro, int pad)
{
    size_t per = (d->b->n + (size_t)d->c->replicas - 1) / (size_t)d->c->replicas;
    size_t *seq = malloc((d->b->n + 1) * sizeof(seq[0]));

    if (!seq)
        return -ENOMEM;
    for (size_t i = 0; i < d->b->n; i++)
        seq[i] = i;
    for (int r = 0; r < d->c->replicas; r++) {
        size_t end = per * (size_t)(r + 1) < d->b->n ? per * (size_t)(r + 1) : d->b->n;

        for (size_t k = per * (size_t)r; k < end; k += micro)
            write_micros(d, r, seq + k, end - k < micro ? end - k : micro, pad);
    }
    free(seq);
    return d->rc;
}

/* Sorted, cut into groups of replicas · micro, the groups shuffled; each replica takes its part of each group. */
static int sorted(struct draft *d, size_t micro)
{
    size_t size = micro * (size_t)d->c->replicas, groups = (d->b->n + size - 1) / size;
    size_t *seq = batch_descending(d->b), *order = malloc((groups + 1) * sizeof(order[0]));
    uint64_t state = d->c->seed;

    if (!seq || !order) {
        free(seq);
        free(order);
        return -ENOMEM;
    }
    for (size_t g = 0; g < groups; g++)
        order[g] = g;
    for (size_t g = groups; g > 1; g--) {
        size_t other = seq_random(&state) % g, keep = order[other];

        order[other] = order[g - 1];
        order[g - 1] = keep;
    }
    for (int r = 0; r < d->c->replicas; r++)
        for (size_t g = 0; g < groups; g++) {
            size_t at = order[g] * size + (size_t)r * micro;

            if (at < d->b->n)
                write_micros(d, r, seq + at, d->b->n - at < micro ? d->b->n - at : micro, micro > 1);
        }
    free(seq);
    free(order);
    return d->rc;
}

int policy_fixed(struct draft *d)
{
    size_t micro = d->c->micro ? (size_t)d->c->micro : 1;

    if (d->c->policy == SEQ_SORTED)
        return sorted(d, micro);
    return d->c->policy == SEQ_PAD ? arrival(d, micro, 1) : arrival(d, 1, 0);
}

/* --- packs ------------------------------------------------------------------------------------------------------ */

/* First fit of the replica's sequences, longest first: bin[k] of order[k]. Returns the number of bins. */
static size_t first_fit(const struct draft *d, const size_t *order, const int *home, int replica, size_t *bin,
                        int64_t *room)
{
    size_t bins = 0;

    for (size_t k = 0; k < d->b->n; k++) {
        int64_t s = share_units(d->c, d->b->tokens[order[k]]);
        size_t b = 0;

        if (home[order[k]] != replica)
            continue;
        while (b < bins && room[b] < s)
            b++;
        if (b == bins)
            room[bins++] = group_units(d->c);
        room[b] -= s;
        bin[k] = b;
    }
    return bins;
}

static void write_bins(struct draft *d, const size_t *order, const int *home, int replica, const size_t *bin,
                       size_t bins)
{
    for (size_t b = 0; b < bins; b++) {
        (void)draft_micro(d, replica);
        for (size_t k = 0; k < d->b->n; k++)
            if (home[order[k]] == replica && bin[k] == b)
                draft_sharded(d, order[k]);
    }
}

int policy_pack(struct draft *d)
{
    size_t n = d->b->n, per = (n + (size_t)d->c->replicas - 1) / (size_t)d->c->replicas;
    size_t *order = batch_descending(d->b), *bin = malloc((n + 1) * sizeof(bin[0]));
    int64_t *room = malloc((n + 1) * sizeof(room[0]));
    int *home = malloc((n + 1) * sizeof(home[0]));
    int rc = -ENOMEM;

    if (!order || !bin || !room || !home)
        goto out;
    for (size_t i = 0; i < n; i++)
        home[i] = (int)(i / per);
    rc = d->c->policy == SEQ_PACK_LPT ? batch_balance(d->c, d->b, home) : 0;
    for (int r = 0; r < d->c->replicas && rc == 0; r++) {
        write_bins(d, order, home, r, bin, first_fit(d, order, home, r, bin, room));
        rc = d->rc;
    }
out:
    free(order);
    free(bin);
    free(room);
    free(home);
    return rc;
}

/* --- each sequence on as many ranks as its length needs --------------------------------------------------------- */

struct dynamic {
    struct draft *d;
    const int *home;
    const size_t *order;    /* by falling length, so by falling degree */
    int16_t *rank, *degree; /* of the k-th of the order */
    int64_t *micro;         /* of the k-th; -1: of another replica */
    int64_t *room;          /* [micro · ranks + rank], units */
    double *load;
};

static int degree_for(const struct seq_config *c, int64_t tokens)
{
    int degree = 1;

    while (degree < c->ranks && seq_shard_units(tokens, degree, c->exact_shares) > c->capacity * degree)
        degree = degree * 2 <= c->ranks ? degree * 2 : c->ranks;
    return degree;
}

static int64_t dynamic_units(const struct dynamic *y, int64_t tokens, int degree)
{
    int64_t units = seq_shard_units(tokens, degree, y->d->c->exact_shares) * y->d->c->ranks;

    return (units + degree - 1) / degree;
}

/* The aligned ranks of some micro-batch with room whose busiest is least busy. 0 when there are none. */
static int dynamic_put(struct dynamic *y, size_t k, size_t micros, int degree)
{
    int64_t tokens = y->d->b->tokens[y->order[k]], units = dynamic_units(y, tokens, degree);
    double work = seq_time_peak(&y->d->c->cost, 0, tokens) / degree, least = 0;
    int ranks = y->d->c->ranks, found = 0;

    for (size_t j = 0; j < micros; j++)
        for (int r = 0; r + degree <= ranks; r += degree) {
            double most = 0;
            int fits = 1;

            for (int q = r; q < r + degree; q++) {
                fits = fits && y->room[j * (size_t)ranks + (size_t)q] >= units;
                if (y->load[j * (size_t)ranks + (size_t)q] > most)
                    most = y->load[j * (size_t)ranks + (size_t)q];
            }
            if (!fits || (found && most >= least))
                continue;
            found = 1;
            least = most;
            y->micro[k] = (int64_t)j;
            y->rank[k] = (int16_t)r;
        }
    y->degree[k] = (int16_t)degree;
    for (int q = y->rank[k]; found && q < y->rank[k] + degree; q++) {
        y->room[(size_t)y->micro[k] * (size_t)ranks + (size_t)q] -= units;
        y->load[(size_t)y->micro[k] * (size_t)ranks + (size_t)q] += work;
    }
    return found;
}

/* Where one sequence outlasts the mean of its micro-batch by more than a twentieth, give it twice the ranks. */
static int dynamic_degree(const struct dynamic *y, size_t k, double mean)
{
    int64_t tokens = y->d->b->tokens[y->order[k]];
    int degree = degree_for(y->d->c, tokens);

    while (degree * 2 <= y->d->c->ranks && seq_time_peak(&y->d->c->cost, 0, tokens) / degree > 1.05 * mean &&
           tokens > 256 * degree)
        degree *= 2;
    return degree;
}

static int dynamic_try(struct dynamic *y, int replica, size_t micros)
{
    size_t cells = micros * (size_t)y->d->c->ranks;
    double mean = 0;

    for (size_t i = 0; i < cells; i++) {
        y->room[i] = y->d->c->capacity * y->d->c->ranks;
        y->load[i] = 0;
    }
    for (size_t k = 0; k < y->d->b->n; k++)
        if (y->home[y->order[k]] == replica)
            mean += seq_time_peak(&y->d->c->cost, 0, y->d->b->tokens[y->order[k]]) / (double)cells;
    for (size_t k = 0; k < y->d->b->n; k++) {
        y->micro[k] = -1;
        if (y->home[y->order[k]] == replica && !dynamic_put(y, k, micros, dynamic_degree(y, k, mean)) &&
            !dynamic_put(y, k, micros, degree_for(y->d->c, y->d->b->tokens[y->order[k]])))
            return 0;
    }
    return 1;
}

static void dynamic_write(struct dynamic *y, int replica, size_t micros)
{
    for (size_t j = 0; j < micros; j++) {
        (void)draft_micro(y->d, replica);
        for (size_t k = 0; k < y->d->b->n; k++)
            if (y->micro[k] == (int64_t)j)
                draft_piece(y->d, y->order[k], 0, y->d->b->tokens[y->order[k]], y->rank[k], y->degree[k]);
    }
}

static int dynamic_replica(struct dynamic *y, int replica)
{
    int64_t sum = 0;
    size_t micros;

    for (size_t i = 0; i < y->d->b->n; i++)
        sum += y->home[i] == replica ? y->d->b->tokens[i] : 0;
    if (sum == 0)
        return 0;
    for (micros = (size_t)((sum - 1) / group_units(y->d->c)) + 1; micros <= y->d->b->n; micros++)
        if (dynamic_try(y, replica, micros)) {
            dynamic_write(y, replica, micros);
            return y->d->rc;
        }
    return -ENOSPC;
}

int policy_dynamic(struct draft *d)
{
    size_t n = d->b->n, cells = n * (size_t)d->c->ranks;
    int *home = malloc(n * sizeof(home[0]));
    size_t *order = batch_descending(d->b);
    struct dynamic y = {.d = d, .home = home, .order = order};
    int rc = -ENOMEM;

    y.rank = malloc(n * sizeof(y.rank[0]));
    y.degree = malloc(n * sizeof(y.degree[0]));
    y.micro = malloc(n * sizeof(y.micro[0]));
    y.room = malloc(cells * sizeof(y.room[0]));
    y.load = malloc(cells * sizeof(y.load[0]));
    if (home && order && y.rank && y.degree && y.micro && y.room && y.load)
        rc = batch_balance(d->c, d->b, home);
    for (int r = 0; r < d->c->replicas && rc == 0; r++)
        rc = dynamic_replica(&y, r);
    free(home);
    free(order);
    free(y.rank);
    free(y.degree);
    free(y.micro);
    free(y.room);
    free(y.load);
    return rc;
}
