/* chunk - long sequences cut into chunks, short ones packed, and the order in which a pipeline runs them
 *
 * Peak memory follows the chunk's size, not the longest sequence. Chunks of one sequence depend on each other: a
 * later one reads the keys and values of the earlier ones, and its backward adds to their gradients, so backwards run
 * descending. Of n chunks the last K keep their activations; the first n - K are dropped after their forward and
 * computed a second time right before their backward, descending too. Source: ChunkFlow (2025), sections 4 and 5.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_CHUNK_H
#define MUSTER_SCHEDULER_SEQUENCE_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/sequence/cost.h"

#define SEQ_STAGES_MAX 256

struct chunk_piece {
    size_t seq; /* index of the length */
    int64_t start, tokens;
};

struct chunk {
    size_t first, n;  /* its pieces */
    int64_t sequence; /* of a dependent chunk, -1 of a pack */
    int index, of;
    int64_t tokens;
};

struct chunks { /* dependent ones first, sequence by sequence; then packs */
    struct chunk *v;
    size_t n;
    struct chunk_piece *pieces;
    size_t n_pieces;
};

/* Cut each length above z, pack the others first-fit decreasing. A packed one counts as its length rounded up to a
 * multiple of round. Returns 0 with *ret for chunks_clear(), -EINVAL, -ENOMEM. */
int chunks_build(const int64_t *tokens, size_t n, int64_t z, int64_t round, struct chunks *ret, struct merr *err);
void chunks_clear(struct chunks *c);

/* One thing to do with chunk `index` of a dependent group. */
enum chunk_step { CHUNK_FORWARD, CHUNK_FORWARD_DROP, CHUNK_FORWARD_AGAIN, CHUNK_BACKWARD };

struct chunk_action {
    enum chunk_step step;
    int index;
};

/* The actions of a group of n chunks of which keep are kept: at most 3 · n of them, to v. Returns how many. */
size_t chunk_trace(int n, int keep, struct chunk_action *v);

/* "F0* F1 B1 F0 B0": a star where activations are dropped. */
void chunk_trace_print(const struct chunk_action *v, size_t n, struct buf *out);

/* --- a pipeline of chunks --------------------------------------------------------------------------------------- */

struct chunk_unit {               /* in the order of forwards; chunks of one group are consecutive */
    double forward_s, backward_s; /* on one stage */
    int group;                    /* units of one group depend on each other; -1 alone */
    int index, of;                /* in the group */
};

/* Time from the first forward to the last backward of 1F1B over stages, with K chunks kept; a dropped chunk computes
 * its forward again right before its backward. Returns 0, -EINVAL, -ENOMEM. */
int chunk_pipe(const struct chunk_unit *u, size_t n, int stages, int keep, double *ret_makespan_s, struct merr *err);

/* What no order of the units can beat. */
double chunk_pipe_bound(const struct chunk_unit *u, size_t n, int stages);

/* Peak tokens of activations a stage holds, and keys and values beside: bytes(keep · z) + longest · 2 · kv_bytes. */
double chunk_peak_bytes(const struct seq_line *activation, int64_t z, int keep, int64_t longest, double kv_bytes_token);

struct chunk_choice {
    int64_t z;
    int keep;
    double time_s; /* predicted, of one replica's batch */
};

/* The size (from z[0..nz)) and number kept (1 to keep_max) with z · keep <= budget tokens that run a replica's batch
 * soonest over the stages; the larger size on ties. Returns 0, -ENOSPC when no size fits, -EINVAL, -ENOMEM. */
int chunk_choose(const int64_t *tokens, size_t n, const struct seq_cost *c, int stages, int64_t budget,
                 const int64_t *z, size_t nz, int keep_max, struct chunk_choice *ret, struct merr *err);

#endif
