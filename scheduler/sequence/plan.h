/* plan - how one step's global batch is laid out over replicas, micro-batches and ranks
 *
 * A plan is data: a pure function of lengths, configuration and cost, the same on every rank, compiler and thread
 * count. Every replica has the same number of micro-batches (empty ones at its end when it has less), so collectives
 * of a micro-batch never wait for a partner that has none. Only the order of a step's sequences changes, never their
 * multiset: gradients are those of the unplanned batch when losses use the plan's global denominators.
 *
 * The runtime refuses a plan that seq_plan_check() refuses.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_PLAN_H
#define MUSTER_SCHEDULER_SEQUENCE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/sequence/cost.h"

#define SEQ_PLAN_VERSION 1
#define SEQ_BATCH_MAX 65536 /* sequences of a global batch */
#define SEQ_REPLICAS_MAX 1024
#define SEQ_TOKENS_MAX ((int64_t)1 << 31) /* of one sequence, and of one rank's capacity */
#define SEQ_PIECES_MAX 16777216           /* of a plan */
#define SEQ_CELLS_MAX 67108864            /* replicas · micro-batches · ranks of a plan */

enum seq_policy {
    SEQ_PAD,         /* arrival order, a fixed number a micro-batch, padded to its longest; all sharded */
    SEQ_STATIC,      /* one sequence a micro-batch; all sharded */
    SEQ_SORTED,      /* sorted, cut into micro-batches for all replicas, shuffled; all sharded */
    SEQ_PACK,        /* first-fit decreasing into the group's memory; all sharded */
    SEQ_PACK_LPT,    /* the same, after balancing the replicas */
    SEQ_ROUND_ROBIN, /* balanced replicas; the roomiest rank takes the next, roll-back */
    SEQ_DYNAMIC,     /* balanced replicas; each sequence on as many ranks (a power of two) as its length needs */
    SEQ_SKRULL,      /* balanced replicas, interleaved micro-batches, DACP in each */
    SEQ_SWEEP,       /* the same with the threshold sweep, for the best number of micro-batches: the default */
    SEQ_CHUNK,       /* chunks of equal size: long sequences cut, short ones packed */
    SEQ_POLICIES,
};

const char *seq_policy_name(enum seq_policy p);
int seq_policy_find(const char *name, enum seq_policy *ret, struct merr *err); /* 0 or -ENOENT, naming all */

struct seq_config {
    enum seq_policy policy;
    int replicas;         /* D >= 1 */
    int ranks;            /* N >= 1: of each replica's context-parallel group */
    int64_t capacity;     /* C: tokens a rank holds */
    int exact_shares;     /* as struct seq_group */
    int micro;            /* pad, sorted: sequences a micro-batch; 0 is 1 */
    uint64_t seed;        /* sorted: of the shuffle */
    int64_t chunk_tokens; /* chunk: Z, tokens a chunk; 0: the largest that fits with keep_chunks */
    int keep_chunks;      /* chunk: K, chunks of a sequence kept for backward; 0 is 1 */
    struct seq_cost cost;
};

struct seq_batch {
    const int64_t *tokens;  /* borrowed: n lengths, each >= 1 */
    const int64_t *targets; /* borrowed: tokens that count in the loss, 0 to tokens; NULL: all of them */
    size_t n;
};

struct seq_piece {
    uint32_t seq;          /* index in the batch */
    int16_t rank, degree;  /* on ranks [rank, rank + degree); local when degree is 1 */
    int64_t start, tokens; /* the part of the sequence; all of it but in chunks */
};

struct seq_micro {
    size_t first, n;     /* its pieces; n is 0 in an empty one */
    int64_t padded;      /* each piece is brought to this length; 0: none is */
    int64_t sequence;    /* chunk: the sequence that its dependent pieces belong to, -1 for none */
    int index, of;       /* chunk: the place in that sequence */
    int dropped;         /* chunk: activations are dropped after forward and computed again */
    double time_s;       /* predicted, of its slowest rank with the fixed part */
    int64_t peak_tokens; /* of its fullest rank */
};

struct seq_bounds {
    double work_s;  /* all compute, evenly over all ranks */
    double long_s;  /* the longest sequence on one group */
    double comm_s;  /* those longer than a rank holds: exchange and compute */
    int64_t micros; /* fewest micro-batches a replica */
    double step_s;  /* the largest of the three, and the fixed part of those micro-batches */
    double plain_s; /* without comm_s and with one micro-batch: what the scores of docs/sequence.md divide by */
};

struct seq_score {
    double step_s;            /* predicted: the slowest replica */
    double rho, rho_plain;    /* step_s over bounds.step_s and bounds.plain_s */
    double replica_imbalance; /* largest over mean of the replicas' times */
    double rank_imbalance;    /* sum of the micro-batches' slowest ranks over that of their means */
    double sharded_share;     /* of the tokens */
    double padding_share;     /* of what is computed */
    double peak_share;        /* fullest rank over capacity; above 1 the plan is void */
    double recomputed_share;  /* of the tokens: second forward passes */
};

struct seq_plan {
    struct seq_config config;
    uint64_t digest;          /* of the batch */
    size_t n;                 /* sequences of the batch */
    int64_t tokens, targets;  /* of the batch: the loss's denominators with n */
    int64_t micros;           /* of each replica */
    struct seq_micro *micro;  /* replica i's j-th is [i · micros + j] */
    struct seq_piece *pieces; /* in the order of the micro-batches */
    size_t n_pieces;
    double *rank_s; /* predicted: [(i · micros + j) · ranks + rank] */
    int64_t *rank_tokens;
    struct seq_bounds bounds;
    struct seq_score score;
};

/* Longest sequence that the configuration takes, tokens. */
int64_t seq_longest(const struct seq_config *c);

/* Plan a batch. Returns 0 with a plan that seq_plan_clear() frees, or
 *   -EINVAL  the configuration or the batch is out of range, or a sequence is empty
 *   -E2BIG   a sequence is longer than seq_longest(), or the plan would pass a limit above
 *   -ENOMEM
 * with words in err that name the sequence, and *ret unchanged. */
int seq_plan_make(const struct seq_config *c, const struct seq_batch *b, struct seq_plan *ret, struct merr *err);
void seq_plan_clear(struct seq_plan *p);

/* May the plan be run on this batch? Each token of each sequence is placed exactly once, its digest is the batch's,
 * no rank passes the capacity, and the pieces lie on ranks there are. Returns 0, -ESTALE for another batch's plan,
 * -EINVAL for the rest. */
int seq_plan_check(const struct seq_plan *p, const struct seq_batch *b, struct merr *err);

/* One JSON document, one line. Check buf_failed() at the end. */
void seq_plan_print(const struct seq_plan *p, struct buf *out);

#endif
