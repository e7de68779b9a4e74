/* place - where the sequences of one micro-batch go among the ranks of one context-parallel group
 *
 * A sequence is local (whole on one rank) or sharded over all ranks. Memory counts tokens: the local ones of a rank
 * and its shares of the sharded ones may not pass the capacity. Time of a rank is
 *
 *     max(exchange of the sharded, compute of its local ones) + compute of its shares
 *
 * since the exchange hides behind local compute. Ties are broken by the lowest index, so a placement is a function
 * of its input. Sources: Skrull (2025), section 4; the sweep is Muster's own, see docs/sequence.md.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_PLACE_H
#define MUSTER_SCHEDULER_SEQUENCE_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler/sequence/cost.h"

#define SEQ_SHARD (-1)

struct seq_group {
    const int64_t *tokens; /* borrowed: n lengths, each >= 1 */
    size_t n;
    int ranks;                   /* 1 to SEQ_RANKS_MAX */
    int64_t capacity;            /* tokens a rank holds */
    int exact_shares;            /* shares are quotients, not whole zig-zag pieces: for comparison with the papers */
    const struct seq_cost *cost; /* borrowed; load of a sequence is its time at full speed */
};

enum seq_placer {
    SEQ_PLACE_DACP,        /* avoid sharding, balance load, roll back where memory runs out */
    SEQ_PLACE_ROUND_ROBIN, /* the same without the balance: the roomiest rank takes the next */
    SEQ_PLACE_SWEEP,       /* shard the d longest, for the best d */
    /* As DACP was published: a roll-back charges one rank only, so a rank may get more than it holds. Never run. */
    SEQ_PLACE_PUBLISHED,
};

struct seq_placed {
    size_t rollbacks;   /* sequences that were local first and are sharded now */
    int64_t peak_units; /* fullest rank, in 1/ranks of a token */
    double time_s;      /* of the slowest rank, without the fixed part of a micro-batch */
};

/* Place each sequence: place[i] is a rank or SEQ_SHARD. Returns 0, -ENOSPC when they do not fit (place is then in no
 * order), -ENOMEM. ret may be NULL. */
int seq_place(const struct seq_group *g, enum seq_placer placer, int16_t *place, struct seq_placed *ret);

/* Measure a placement: time of the slowest rank, and its fullest rank. load[ranks] and units[ranks] get the loads and
 * the memory (in 1/ranks of a token) of each rank, or are NULL. */
struct seq_placed seq_place_measure(const struct seq_group *g, const int16_t *place, double *load, int64_t *units);

#endif
