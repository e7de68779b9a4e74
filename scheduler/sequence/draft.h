/* draft - a plan while a policy writes it, for the files of this folder only */
#ifndef MUSTER_SCHEDULER_SEQUENCE_DRAFT_H
#define MUSTER_SCHEDULER_SEQUENCE_DRAFT_H

#include "scheduler/sequence/place.h"
#include "scheduler/sequence/plan.h"

/* Micro-batches are written replica by replica, the pieces of each right after it. */
struct draft {
    const struct seq_config *c;
    const struct seq_batch *b;
    struct seq_micro *micro;
    int *replica; /* of each micro-batch */
    size_t n_micro, cap_micro;
    struct seq_piece *pieces;
    size_t n_pieces, cap_pieces;
    int rc;                   /* the first failure */
    struct seq_micro nowhere; /* written to after a failure, never read */
};

/* Begin a micro-batch of the replica; the pointer holds until the next. Never NULL: a failure is kept in rc. */
struct seq_micro *draft_micro(struct draft *d, int replica);
/* Add to the last micro-batch, on ranks [rank, rank + degree). */
void draft_piece(struct draft *d, size_t seq, int64_t start, int64_t tokens, int rank, int degree);
/* A whole sequence over all ranks of the group. */
void draft_sharded(struct draft *d, size_t seq);

/* Indices of the batch by falling length, then index; new, n of them. NULL when memory is short. */
size_t *batch_descending(const struct seq_batch *b);

/* Longest-processing-time packing over replicas: home[i] is the replica of sequence i. Returns 0 or -ENOMEM. */
int batch_balance(const struct seq_config *c, const struct seq_batch *b, int *home);

/* Time of each rank in a micro-batch, exchange included, and the tokens it holds (rounded up). */
void micro_measure(const struct seq_config *c, const struct seq_micro *m, const struct seq_piece *pieces,
                   double *rank_s, int64_t *rank_tokens);

/* Policies: each writes all its micro-batches. Return 0, -ENOSPC when the batch does not fit, or draft's failure. */
int policy_fixed(struct draft *d); /* pad, static, sorted */
int policy_pack(struct draft *d);  /* pack, pack-lpt */
int policy_dynamic(struct draft *d);
int policy_balanced(struct draft *d); /* round-robin, skrull, sweep */
int policy_chunk(struct draft *d);

#endif
