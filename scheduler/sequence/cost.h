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

/* y = slope·x + base by least squares over n >= 2 points with differing x. Returns 0, or -EINVAL. residual is the
 * largest |y - fit| / y. */
struct seq_line {
    double slope, base, residual;
};

int seq_line_fit(const double *x, const double *y, size_t n, struct seq_line *ret, struct merr *err);

#define SEQ_RESIDUAL_MAX 0.05 /* of a memory profile; beyond it memory is not linear in tokens */

/* Tokens one rank holds (BucketSize) when activations take bytes(tokens) on a device of device_bytes of which
 * static_bytes and reserve_bytes are gone. Returns 0, -EINVAL when the profile is not a rising line within
 * SEQ_RESIDUAL_MAX, -ENOSPC when not one token fits. */
int seq_capacity(const struct seq_line *bytes, double device_bytes, double static_bytes, double reserve_bytes,
                 int64_t *ret_tokens, struct merr *err);

/* Tokens each of ranks holds of a sharded sequence: zig-zag shards of two equal pieces, or with exact_shares the
 * quotient, in units of 1/ranks of a token so that it is whole. */
int64_t seq_shard_units(int64_t tokens, int ranks, int exact_shares);

/* Measured against predicted times: a line refitted with each pair, old pairs forgotten by 1 % each. */
#define SEQ_REFIT_ERRORS 65

struct seq_refit {
    double w, x, y, xx, xy;
    double errors[SEQ_REFIT_ERRORS]; /* the last relative errors */
    size_t n;                        /* pairs seen */
};

/* Count a micro-batch that was predicted and measured, both > 0. */
void seq_refit_add(struct seq_refit *r, double predicted, double measured);

/* The line from predicted to measured; slope 1 and base 0 until two different predictions were seen. */
void seq_refit_line(const struct seq_refit *r, struct seq_line *ret);

/* Median relative error of the last pairs, 0 before the first; an alarm is due above 0.15. */
double seq_refit_error(const struct seq_refit *r);

#endif
