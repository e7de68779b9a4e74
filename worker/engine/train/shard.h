/* shard - this rank's share of the model in training: weights, gradients, optimizer, and the stages that compute
 *
 * With the two counters it is all that a checkpoint holds (state.h) and that one generation hands to the next
 * (handover.h). Between two steps its bytes mean the same on every rank.
 */
#ifndef MUSTER_WORKER_TRAIN_SHARD_H
#define MUSTER_WORKER_TRAIN_SHARD_H

#include "worker/engine/model/stage.h"
#include "worker/engine/optim/optim.h"
#include "worker/engine/optim/tree.h"
#include "worker/engine/train/pipe.h"
#include "worker/engine/train/rank.h"
#include "worker/engine/train/source.h"
#include "worker/engine/train/state.h"

struct store;

struct shard {
    const struct rank *rank;
    const struct source *source; /* for its sizes */
    uint64_t step;               /* steps done */
    uint64_t tokens;             /* trained on in them */

    int run_blocks;     /* of a run that is made again at once, where the policy has runs */
    size_t *keep_bytes; /* [chunks] memory.policy mimose: what blocks of a slot may keep */
    float *weights, *reduce;
    void *matrices; /* the weights in bf16, NULL in f32 */
    float *vectors; /* where the weights are held in bf16 alone (optim.h): what has one dimension; weights is NULL */
    float **pool;   /* gradient buffers of the tree */
    int buffers;
    bool weights_owned, pool_owned; /* from mem_alloc, not from the shared arena */
    struct stage **stage;           /* [chunks] */
    struct tree *tree;              /* [trees] of the chunks, then of the head where it is */
    int trees;
    struct store *store; /* memory.optimizer 'files'; NULL: masters and moments are in memory */
    struct optim *optim;
    struct pipe *pipe;
};

/* Where it is to lie, and who is asked before it changes. */
struct shard_place {
    bool shared;           /* in the world's shared arena, although no other replica reads it there */
    float *m, *v, *master; /* the moments, and masters; NULL: the optimizer's own memory */
    int (*gate)(void *arg, int place, struct merr *err); /* before a tensor (a place in params.by_place) changes */
    void *gate_arg;
};

/* After source_plan(): what is kept of activations. */
int shard_plan(struct shard *shard, const struct rank *rank, const struct source *source, struct merr *err);

/* Whether weights are held in bf16 alone, but for what the optimizer's owners update. */
bool shard_is_narrow(const struct rank *rank);

/* What node-mates read in place; all: also what this rank has to itself, so that it lies there. */
size_t shard_shared_bytes(const struct shard *shard, bool all);

/* Whether it fits into this node and its GPU. Before ranks meet: none of them has allocated anything yet. */
int shard_check_fit(const struct shard *shard, struct merr *err);
void shard_print_plan(const struct shard *shard);

/* Allocate all, once ranks have met. place is copied. */
int shard_build(struct shard *shard, const struct shard_place *place, struct merr *err);
void shard_clear(struct shard *shard);

/* Let auto decide how the groups of one kind travel; between steps. */
int shard_tune(struct shard *shard, int kind, struct merr *err);

/* The weights have new values; products read them from now on. */
int shard_weights_changed(struct shard *shard, struct merr *err);

/* What is saved and loaded. */
struct state_view shard_view(const struct shard *shard, bool moments);

/* Zeros for weights and moments that are in memory, as they are when a run begins. */
void shard_zero(struct shard *shard);

/* Have all pages of it that lie in shared memory, so that the first step need not wait for them. */
void shard_touch(struct shard *shard);

#endif
