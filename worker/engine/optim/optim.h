/* optim - from the leaves' gradients to new weights: finish the tree, measure, clip, AdamW, share
 *
 * A step: optim_reduce() finishes the canonical tree (tree.h) for the pieces this rank owns, adds the parts of
 * gradients that other tensor-parallel ranks have of the same tensors, and the two parts of the tied tensor;
 * optim_squares() gives the sums of squares by tensor, which the caller adds over the world; optim_update() changes the
 * weights and shares them over dp. With zero 1 a rank keeps the moments of its own pieces, with 0 of everything. All
 * bits are the same for any dp and pp, and for zero 0 and 1.
 *
 * Where dp is coded (wire.h; zero 1 only), each replica adds up its leaves, the sums go to the owners coded, and owners
 * keep masters of their pieces beside the weights, which follow by coded differences: all replicas hold the same
 * weights, a fraction of a step from the masters. The bits then depend on dp. optim_settle() makes the
 * weights the masters', so that what is saved then is all there is to go on from.
 *
 * Ranks of cp hold the same: each adds its part of the owned pieces' gradients to the others', in their order, and then
 * makes the same update, so that moments are split over dp alone.
 *
 * In bf16 over a raw wire with zero 1 the pieces of others are held in bf16 alone, as matrix products read them, but
 * for what has one dimension; owners hold masters of theirs. optim_publish() makes all of that from the masters.
 *
 * With codecs keyed by tensor (keyed.h; zero 1 only) it is leaves that are coded, and weights on one replica too: all
 * bits are again the same for any dp and pp.
 */
#ifndef MUSTER_WORKER_OPTIM_OPTIM_H
#define MUSTER_WORKER_OPTIM_OPTIM_H

#include <stddef.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/mesh.h"
#include "worker/engine/comm/wire.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/param.h"
#include "worker/engine/optim/keyed.h"
#include "worker/engine/optim/tree.h"

/* Where masters and moments of the own pieces are in place of the device's memory (memory.optimizer): in tiles, of
 * which few are in memory at once. A pass takes all in turn and gives them back, changed. */
struct optim_store {
    void *arg;
    size_t tile_n; /* elements of a tile, but for the last one; they are placed as in m and v */
    int (*begin)(void *arg, bool blank, struct merr *err); /* blank: to be filled; else as the last pass left them */
    int (*take)(void *arg, size_t tile, void *ret[3], struct merr *err); /* masters, m, v */
    int (*give)(void *arg, size_t tile, struct merr *err);
    int (*settle)(void *arg, struct merr *err); /* until the last pass is safe */
    bool masters; /* are read back; else the weights stand for them, and they are only given */
};

struct optim_cfg {
    const struct kern_ops *k;
    struct kern_stream *stream;
    const struct params *params;
    struct mesh mesh;
    int leaves;       /* V */
    const int *share; /* [dp] leaves of each replica; borrowed; NULL: evenly */
    int zero;
    struct comm_group *dp;              /* NULL: alone */
    struct comm_group *cp;              /* ranks that have other tokens of the same sequences; NULL: alone */
    struct comm_group *sum[PARAM_SUMS]; /* NULL where no parameter is of that kind */
    struct wire *wire;                  /* how gradients and weights travel over dp; NULL: raw */
    bool coded;                         /* for optim_bytes: wire will be coded, */
    bool stored;                        /* or there will be a store, whose tiles are not counted */
    struct keyed *keyed;                /* NULL, or how they are coded over a raw wire; borrowed */
    struct comm_group *pair;            /* first and last stage, NULL: none or the model is not tied */
    float *weights;                     /* the arena; NULL: */
    bool narrow;    /* of the pieces of others a rank holds this alone, with zero 1 and a raw wire: */
    void *matrices; /* the arena in bf16, */
    float *vectors; /* and what has one dimension, by param.vector_at */
    float *master;  /* narrow: of our pieces; as m and v */
    float *m, *v;   /* moments of the whole arena, of which the own pieces are used, zeroed or as another
                     generation left them; borrowed. NULL: optim_new() makes some for the own pieces */
    const struct optim_store *store; /* NULL: m, v and master are memory; borrowed. With zero 1, cp 1, on the CPU */
    double beta1, beta2, eps, weight_decay;
    /* Before tensor params->by_place[i] and its moments change; what is saved may still be read. NULL: nobody asks. */
    int (*gate)(void *arg, int i, struct merr *err);
    void *gate_arg;
};

struct optim_range { /* of the weight arena */
    size_t begin, end;
    size_t state; /* where its moments start in m and v */
};

struct optim;

int optim_new(const struct optim_cfg *cfg, struct optim **ret, struct merr *err);
void optim_free(struct optim *o);

/* Bytes optim_new takes. */
size_t optim_bytes(const struct optim_cfg *cfg);

/* The pieces whose moments this rank keeps: two, rest and tied; one may be empty. */
const struct optim_range *optim_ranges(const struct optim *o);
/* The weights of those pieces, placed as moments; NULL: they stand in the arena. */
float *optim_master(struct optim *o);
/* What of them this rank reads when they are loaded: ranks that keep the same (those of cp, with zero 0 of dp too) each
 * read a part, and share. */
const struct optim_range *optim_load_ranges(const struct optim *o);
/* NULL with a store. */
float *optim_m(struct optim *o);
float *optim_v(struct optim *o);

/* A step begins: with a store its first tiles are fetched. With codecs keyed by tensor what is complete of a leaf goes
 * on its way (exchange.h). */
int optim_begin(struct optim *o, uint64_t step, struct merr *err);
int optim_leaf(struct optim *o, int leaf, float *buffer, size_t at, size_t n, struct merr *err);

/* In the last leaf under way of the tree, the gradients of the arena's rest are final from `from` on: send them on
 * their way. Calls of a step go down; optim_reduce() sees to what is left. */
int optim_reduce_from(struct optim *o, const struct tree *t, size_t from, struct merr *err);

/* step: of the job, for rounding by chance. */
int optim_reduce(struct optim *o, struct tree *t, uint64_t step, struct merr *err);

/* With a store it first sees to it that the state before this step is safe: the update after the sum over the world
 * then may write over that of the step before.
 * sums[params->tensors · tp], zeroed by the caller: tensor id and tp index; this rank puts in what it counts for,
 * so that adding over the world is exact and the order of the final sum is one for all layouts. */
int optim_squares(struct optim *o, double *sums, struct merr *err);

/* t: steps done before this one + 1. scale: the clip coefficient. What was made of the weights is stale then. */
int optim_update(struct optim *o, uint64_t t, double lr, double scale, struct merr *err);

/* Where dp is coded: the weights become the masters', on all replicas; are they? */
bool optim_settled(const struct optim *o);
int optim_settle(struct optim *o, struct merr *err);

/* Once each rank has filled its optim_load_ranges() of weights and moments: the rest of what it keeps, from those that
 * have it, and of weights all. All call it. */
int optim_share(struct optim *o, struct merr *err);

/* With a store: fill what it holds, tile by tile: fill is given a range of the arena, and where its masters and moments
 * (zero before) begin. */
typedef int (*optim_fill)(void *arg, const struct optim_range *r, float *master, float *m, float *v, struct merr *err);
int optim_store_fill(struct optim *o, optim_fill fill, void *arg, struct merr *err);

/* With a store, in place of optim_update(): nothing changes, but that the state is one of another step. */
int optim_carry(struct optim *o, struct merr *err);

/* Elements of masters or moments that this rank keeps. */
size_t optim_state_n(const struct optim *o);

/* Narrow: what all replicas hold is made from the masters. All call it. */
int optim_publish(struct optim *o, struct merr *err);

/* The wire was tuned again and may go another way now. The weights are settled. */
int optim_follow_wire(struct optim *o, struct merr *err);

/* Replicas (ranks of dp and cp) hold the same weights, all bits of them. Where they do not: */
struct optim_odd {
    int rank;   /* the first of those whose weights are not those of most, or of all if most do not agree */
    bool alone; /* most agree: it is they that are at fault */
};

/* A part of the weights, of which there are `parts`, or fewer if those would be small; they come in turn. -EDOM: not
 * all replicas hold the same. All call it, and those that have replicas in common find the same. */
int optim_check_replicas(struct optim *o, uint64_t turn, size_t parts, struct optim_odd *ret, struct merr *err);

/* The part whose turn it is, of n weights. */
void optim_part(size_t n, uint64_t turn, size_t parts, size_t *ret_begin, size_t *ret_end);

/* Whose of these n hashes are not that of most, or all n where most do not agree; how many is returned. */
int optim_odd_ones(const uint64_t *hash, int n, int *ret);

/* Learning rate of step s (from 0) of all steps. */
double optim_lr(const struct job_spec *spec, uint64_t s);

#endif
