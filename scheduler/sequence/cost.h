/* cost - what a sequence costs: floating-point work, time, bytes on the links, memory
 *
 * Pure functions of a model's shape and a profile of the machine. Work grows with the square of a sequence's length,
 * memory with the length: the planners of this folder weigh the two against each other. Times are seconds of one
 * rank. Sources: Skrull (2025), sections 3 and 4; the shape of the profile is Muster's own, see docs/sequence.md.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_COST_H
#define MUSTER_SCHEDULER_SEQUENCE_COST_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define SEQ_RANKS_MAX 1024 /* that share one sequence */

struct seq_model {
    int64_t hidden, kv_hidden; /* kv_hidden: key/value heads times their width */
    int layers;
};

/* Time of a collective: t0_s below v0_bytes, where latency rules, then bytes · s_per_byte + base_s. */
struct seq_link {
    double t0_s, v0_bytes, s_per_byte, base_s;
};

/* What planners and simulator reckon with; forward and backward together, all layers. */
struct seq_cost {
    double lin_s, quad_s; /* of S tokens at full speed: lin_s·S + quad_s·S² */
    double half_tokens;   /* a kernel over x tokens reaches x / (x + half_tokens) of full speed */
    double copy_token_s;  /* what each rank that shares a token moves in its own memory: hides behind nothing */
    double comm_token_s;  /* exchange of keys and values, a sharded token */
    double comm_call_s;   /* and for each micro-batch that shards anything */
    double comm_floor_s;  /* instead of both below comm_floor_tokens */
    double comm_floor_tokens;
    double micro_s;       /* fixed part of a micro-batch: launches, step of the loop */
    double forward_share; /* of the compute: what recomputing a forward pass adds */
};

/* Reckon with a rank of flops_per_s, links as given and micro_s a micro-batch. Three passes' worth of work, keys and
 * values in two bytes gathered forward, gathered again and reduced backward. */
void seq_cost_init(struct seq_cost *c, const struct seq_model *m, double flops_per_s, const struct seq_link *link,
                   double micro_s);

/* The profile of the comparison in docs/sequence.md: 400 TFLOP/s, 50 us a call and 6.3 us a MiB, 8 ms a micro-batch. */
void seq_cost_reference(struct seq_cost *c, const struct seq_model *m);

/* Tokens [start, start + tokens) of one sequence, on one rank at full speed. start is 0 for a whole sequence. */
double seq_time_peak(const struct seq_cost *c, int64_t start, int64_t tokens);

/* The same on each of ranks that share it evenly, at the speed their kernels reach; ranks is 1 for a local one. */
double seq_time(const struct seq_cost *c, int64_t start, int64_t tokens, int ranks);

/* Exchange for so many sharded tokens of one micro-batch; 0 for none. */
double seq_time_comm(const struct seq_cost *c, int64_t sharded_tokens);

/* Tokens each of ranks holds of a sharded sequence: zig-zag shards of two equal pieces, or with exact_shares the
 * quotient, in units of 1/ranks of a token so that it is whole. */
int64_t seq_shard_units(int64_t tokens, int ranks, int exact_shares);

#endif
