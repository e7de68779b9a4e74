#include "scheduler/sequence/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler/sequence/draft.h"

static const struct policy {
    const char *name;
    int (*lay)(struct draft *d); /* writes the draft */
} policies[SEQ_POLICIES] = {
    [SEQ_PAD] = {"pad", policy_fixed},           [SEQ_STATIC] = {"static", policy_fixed},
    [SEQ_SORTED] = {"sorted", policy_fixed},     [SEQ_PACK] = {"pack", policy_pack},
    [SEQ_PACK_LPT] = {"pack-lpt", policy_pack},  [SEQ_ROUND_ROBIN] = {"round-robin", policy_balanced},
    [SEQ_DYNAMIC] = {"dynamic", policy_dynamic}, [SEQ_SKRULL] = {"skrull", policy_balanced},
    [SEQ_SWEEP] = {"sweep", policy_balanced},    [SEQ_CHUNK] = {"chunk", policy_chunk},
};

const char *seq_policy_name(enum seq_policy p)
{
    assert((unsigned)p < SEQ_POLICIES);
    return policies[p].name;
}

int seq_policy_find(const char *name, enum seq_policy *ret, struct merr *err)
{
    struct buf known;

    for (int p = 0; p < SEQ_POLICIES; p++)
        if (strcmp(policies[p].name, name) == 0) {
            *ret = (enum seq_policy)p;
            return 0;
        }
    buf_init(&known, 512);
    for (int p = 0; p < SEQ_POLICIES; p++)
        (void)buf_printf(&known, "%s%s", p ? ", " : "", policies[p].name);
    (void)merr_set(err, -ENOENT, "no policy '%s'; there are %s", name, buf_text(&known));
    buf_clear(&known);
    return -ENOENT;
}

/* --- what comes in ---------------------------------------------------------------------------------------------- */

int64_t seq_longest(const struct seq_config *c)
{
    int64_t capacity = c->capacity;

    if (c->policy == SEQ_CHUNK)
        return SEQ_TOKENS_MAX; /* in chunks, whatever its length */
    if (c->ranks > 1 && !c->exact_shares)
        capacity -= capacity % 2;
    return capacity * c->ranks > SEQ_TOKENS_MAX ? SEQ_TOKENS_MAX : capacity * c->ranks;
}

static int check_config(const struct seq_config *c, struct merr *err)
{
    int64_t pieces = c->ranks > 1 && !c->exact_shares ? 2 * (int64_t)c->ranks : 1;
    int64_t keep = c->keep_chunks ? c->keep_chunks : 1;

    if ((unsigned)c->policy >= SEQ_POLICIES)
        return merr_set(err, -EINVAL, "no policy has the number %d", (int)c->policy);
    if (c->replicas < 1 || c->replicas > SEQ_REPLICAS_MAX)
        return merr_set(err, -EINVAL, "%d replicas: want 1 to %d", c->replicas, SEQ_REPLICAS_MAX);
    if (c->ranks < 1 || c->ranks > SEQ_RANKS_MAX)
        return merr_set(err, -EINVAL, "%d ranks a replica: want 1 to %d", c->ranks, SEQ_RANKS_MAX);
    if (c->capacity < 2 || c->capacity > SEQ_TOKENS_MAX)
        return merr_set(err, -EINVAL, "a capacity of %" PRId64 " tokens a rank: want 2 to %" PRId64, c->capacity,
                        SEQ_TOKENS_MAX);
    if (c->micro < 0 || c->micro > SEQ_BATCH_MAX)
        return merr_set(err, -EINVAL, "%d sequences a micro-batch: want 1 to %d", c->micro, SEQ_BATCH_MAX);
    if (c->policy != SEQ_CHUNK)
        return 0;
    if (c->keep_chunks < 0 || keep > SEQ_BATCH_MAX)
        return merr_set(err, -EINVAL, "%d chunks kept: want 1 to %d", c->keep_chunks, SEQ_BATCH_MAX);
    if (c->chunk_tokens < 0 || c->chunk_tokens % pieces)
        return merr_set(err, -EINVAL,
                        "chunks of %" PRId64 " tokens: want a multiple of %" PRId64 ", so that %d ranks "
                        "share them evenly",
                        c->chunk_tokens, pieces, c->ranks);
    if ((c->chunk_tokens ? c->chunk_tokens : pieces) * keep > c->capacity * c->ranks)
        return merr_set(err, -EINVAL,
                        "%" PRId64 " chunks of %" PRId64 " tokens pass the %" PRId64 " that %d ranks "
                        "hold",
                        keep, c->chunk_tokens ? c->chunk_tokens : pieces, c->capacity * c->ranks, c->ranks);
    return 0;
}

static int check_batch(const struct seq_config *c, const struct seq_batch *b, struct merr *err)
{
    if (b->n == 0 || b->n > SEQ_BATCH_MAX)
        return merr_set(err, -EINVAL, "a batch of %zu sequences: want 1 to %d", b->n, SEQ_BATCH_MAX);
    for (size_t i = 0; i < b->n; i++) {
        if (b->tokens[i] < 1)
            return merr_set(err, -EINVAL, "sequence %zu is empty: leave it out of the batch", i);
        if (b->tokens[i] > seq_longest(c))
            return merr_set(err, -E2BIG,
                            "sequence %zu has %" PRId64 " tokens and a group holds %" PRId64 ": cut it, "
                            "or use more ranks or the policy chunk",
                            i, b->tokens[i], seq_longest(c));
        if (b->targets && (b->targets[i] < 0 || b->targets[i] > b->tokens[i]))
            return merr_set(err, -EINVAL, "sequence %zu has %" PRId64 " targets in %" PRId64 " tokens", i,
                            b->targets[i], b->tokens[i]);
    }
    return 0;
}

static uint64_t digest_of(const struct seq_batch *b)
{
    uint64_t parts[3] = {b->n, hash_xxh3(b->tokens, b->n * sizeof(b->tokens[0]))};

    parts[2] = b->targets ? hash_xxh3(b->targets, b->n * sizeof(b->targets[0])) : 0;
    return hash_xxh3(parts, sizeof(parts));
}

/* --- what no plan beats ----------------------------------------------------------------------------------------- */

/* What no plan of the batch can beat. */
static void bounds_of(const struct seq_config *c, const struct seq_batch *b, struct seq_bounds *ret)
{
    struct seq_bounds l = {.micros = 1};
    int whole = c->policy != SEQ_DYNAMIC && c->policy != SEQ_CHUNK; /* all ranks share what is longer than C */
    double world = (double)c->replicas * c->ranks, sum = 0;

    for (size_t i = 0; i < b->n; i++) {
        double peak = seq_time_peak(&c->cost, 0, b->tokens[i]);

        sum += (double)b->tokens[i];
        l.work_s += peak / world;
        l.long_s = fmax(l.long_s, peak / c->ranks);
        if (whole && c->ranks > 1 && b->tokens[i] > c->capacity)
            l.comm_s += ((double)b->tokens[i] * c->cost.comm_token_s + peak / c->ranks) / c->replicas;
    }
    if (ceil(sum / (world * (double)c->capacity)) > 1)
        l.micros = (int64_t)ceil(sum / (world * (double)c->capacity));
    l.step_s = fmax(l.work_s, fmax(l.long_s, l.comm_s)) + (double)l.micros * c->cost.micro_s;
    l.plain_s = fmax(l.work_s, l.long_s) + c->cost.micro_s;
    *ret = l;
}

/* --- from a draft to a plan ------------------------------------------------------------------------------------- */

static int lay_out(const struct draft *d, struct seq_plan *p, struct merr *err)
{
    int64_t at[SEQ_REPLICAS_MAX] = {0}, most = 1;
    size_t cells, micros;

    for (size_t k = 0; k < d->n_micro; k++)
        if (++at[d->replica[k]] > most)
            most = at[d->replica[k]];
    micros = (size_t)most * (size_t)d->c->replicas;
    cells = micros * (size_t)d->c->ranks;
    if (cells > SEQ_CELLS_MAX)
        return merr_set(err, -E2BIG,
                        "%d replicas of %" PRId64 " micro-batches on %d ranks pass the limit of %d: use "
                        "smaller batches",
                        d->c->replicas, most, d->c->ranks, SEQ_CELLS_MAX);
    p->micros = most;
    p->micro = malloc(micros * sizeof(p->micro[0]));
    p->rank_s = malloc(cells * sizeof(p->rank_s[0]));
    p->rank_tokens = malloc(cells * sizeof(p->rank_tokens[0]));
    if (!p->micro || !p->rank_s || !p->rank_tokens)
        return merr_set(err, -ENOMEM, "no memory for a plan of %zu micro-batches", micros);
    for (size_t k = 0, j = 0; k < micros; k++) {
        int replica = (int)(k / (size_t)most);

        if (j < d->n_micro && d->replica[j] == replica)
            p->micro[k] = d->micro[j++];
        else
            p->micro[k] = (struct seq_micro){.first = j < d->n_micro ? d->micro[j].first : d->n_pieces, .sequence = -1};
    }
    return 0;
}

/* Predict each micro-batch, then the step and its score. */
static void predict(struct seq_plan *p)
{
    const struct seq_config *c = &p->config;
    double slowest = 0, mean = 0, total = 0, sharded = 0, tokens = 0, billed = 0, again = 0;
    struct seq_score s = {0};

    for (int i = 0; i < c->replicas; i++) {
        double replica_s = 0;

        for (int64_t j = 0; j < p->micros; j++) {
            size_t k = (size_t)(i * p->micros + j);
            struct seq_micro *m = &p->micro[k];
            double *rank_s = p->rank_s + k * (size_t)c->ranks, most = 0;
            int64_t *rank_tokens = p->rank_tokens + k * (size_t)c->ranks;

            micro_measure(c, m, p->pieces, rank_s, rank_tokens);
            for (int r = 0; r < c->ranks; r++) {
                most = fmax(most, rank_s[r]);
                mean += rank_s[r] / c->ranks;
                if (rank_tokens[r] > m->peak_tokens)
                    m->peak_tokens = rank_tokens[r];
            }
            slowest += most;
            m->time_s = most + c->cost.micro_s; /* an empty one too: it takes part in what all do */
            replica_s += m->time_s;
            s.peak_share = fmax(s.peak_share, (double)m->peak_tokens / (double)c->capacity);
            for (size_t x = m->first; x < m->first + m->n; x++) {
                const struct seq_piece *q = &p->pieces[x];

                tokens += (double)q->tokens;
                billed += (double)(m->padded ? m->padded : q->tokens);
                sharded += q->degree > 1 ? (double)q->tokens : 0;
                again += m->dropped ? (double)q->tokens : 0;
            }
        }
        s.step_s = fmax(s.step_s, replica_s);
        total += replica_s;
    }
    s.rho = s.step_s / p->bounds.step_s;
    s.rho_plain = s.step_s / p->bounds.plain_s;
    s.replica_imbalance = s.step_s * c->replicas / total;
    s.rank_imbalance = mean > 0 ? slowest / mean : 1;
    s.sharded_share = sharded / tokens;
    s.padding_share = 1 - tokens / billed;
    s.recomputed_share = again / tokens;
    p->score = s;
}

int seq_plan_make(const struct seq_config *c, const struct seq_batch *b, struct seq_plan *ret, struct merr *err)
{
    struct seq_plan p = {.config = *c, .n = b->n};
    struct draft d = {.c = c, .b = b};
    int rc = check_config(c, err);

    if (!rc)
        rc = check_batch(c, b, err);
    if (rc)
        return rc;
    rc = policies[c->policy].lay(&d);
    if (rc)
        rc = merr_set(err, rc,
                      rc == -ENOMEM  ? "no memory to plan %zu sequences"
                      : rc == -E2BIG ? "%zu sequences make too many pieces: use larger chunks"
                                     : "%zu sequences do not fit: use more ranks or smaller batches",
                      b->n);
    else
        rc = lay_out(&d, &p, err);
    free(d.micro);
    free(d.replica);
    p.pieces = d.pieces;
    p.n_pieces = d.n_pieces;
    if (rc) {
        seq_plan_clear(&p);
        return rc;
    }
    for (size_t i = 0; i < b->n; i++) {
        p.tokens += b->tokens[i];
        p.targets += b->targets ? b->targets[i] : b->tokens[i];
    }
    p.digest = digest_of(b);
    bounds_of(c, b, &p.bounds);
    predict(&p);
    assert(p.score.peak_share <= 1);
    *ret = p;
    return 0;
}

void seq_plan_clear(struct seq_plan *p)
{
    free(p->micro);
    free(p->pieces);
    free(p->rank_s);
    free(p->rank_tokens);
    *p = (struct seq_plan){0};
}

/* --- may it be run? --------------------------------------------------------------------------------------------- */

/* Pieces of a sequence lie in the order of the plan of its replica, so each must begin where the last one ended. */
static int check_pieces(const struct seq_plan *p, const struct seq_batch *b, int64_t *done, struct merr *err)
{
    int64_t next = 0;

    for (int64_t k = 0; k < p->micros * p->config.replicas; k++) {
        const struct seq_micro *m = &p->micro[k];

        if (m->first != (size_t)next || m->n > p->n_pieces - m->first)
            return merr_set(err, -EINVAL, "micro-batch %" PRId64 " has pieces that are not its own", k);
        next += (int64_t)m->n;
        for (size_t x = m->first; x < m->first + m->n; x++) {
            const struct seq_piece *q = &p->pieces[x];

            if (q->seq >= b->n || q->tokens < 1 || q->start != done[q->seq] || q->tokens > b->tokens[q->seq] - q->start)
                return merr_set(err, -EINVAL,
                                "micro-batch %" PRId64 " takes tokens of sequence %" PRIu32 " twice, out "
                                "of order, or that it does not have",
                                k, q->seq);
            if (q->rank < 0 || q->degree < 1 || q->rank + q->degree > p->config.ranks)
                return merr_set(err, -EINVAL,
                                "micro-batch %" PRId64 " puts sequence %" PRIu32 " on ranks that are not "
                                "there",
                                k, q->seq);
            done[q->seq] += q->tokens;
        }
    }
    return 0;
}

int seq_plan_check(const struct seq_plan *p, const struct seq_batch *b, struct merr *err)
{
    double rank_s[SEQ_RANKS_MAX];
    int64_t rank_tokens[SEQ_RANKS_MAX], *done;
    int rc;

    if (p->n != b->n || p->digest != digest_of(b))
        return merr_set(err, -ESTALE, "the plan is for another batch: plan again");
    done = calloc(b->n + 1, sizeof(done[0]));
    if (!done)
        return merr_set(err, -ENOMEM, "no memory to check a plan of %zu sequences", b->n);
    rc = check_pieces(p, b, done, err);
    for (size_t i = 0; rc == 0 && i < b->n; i++)
        if (done[i] != b->tokens[i])
            rc =
                merr_set(err, -EINVAL, "the plan misses %" PRId64 " tokens of sequence %zu", b->tokens[i] - done[i], i);
    free(done);
    for (int64_t k = 0; rc == 0 && k < p->micros * p->config.replicas; k++) {
        micro_measure(&p->config, &p->micro[k], p->pieces, rank_s, rank_tokens);
        for (int r = 0; rc == 0 && r < p->config.ranks; r++)
            if (rank_tokens[r] > p->config.capacity)
                rc = merr_set(err, -EINVAL,
                              "micro-batch %" PRId64 " puts %" PRId64 " tokens on rank %d, which holds %" PRId64, k,
                              rank_tokens[r], r, p->config.capacity);
    }
    return rc;
}
