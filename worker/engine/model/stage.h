/* stage - a contiguous run of a model's blocks, with the embedding and the head at its ends: the arithmetic
 *
 * Forward and backward of one micro-batch in an activation slot, differentiated by hand. A stage knows no
 * other stage: its input and the gradient of its output stand in the slot. All memory is taken by
 * stage_new(). Tensor-parallel cuts as in Megatron-LM (2019).
 *
 * A stage with a cache generates instead: stage_decode() takes the next tokens of one sequence and keeps the keys and
 * values of all before them.
 *
 * Backward makes again what forward did not keep, by the same calls and so with the same bits. What that is says a
 * policy: cfg.retain, retain/retain.h.
 *
 * A micro-batch is packed: documents one after the other, no row between them. stage_slot_layout() says how long each
 * is; until then a slot holds sizes.micro of sizes.length tokens. Positions restart with each document, and none looks
 * into another.
 *
 * A sequence longer than a micro-batch comes in pieces (ChunkFlow 2025), each in a slot of its own: stage_slot_piece().
 * A piece looks at the keys and values of those before it, which the stage keeps in a store, and its backward adds to
 * their gradients there. So forwards go in order and backwards descending. A piece may drop its activations, but for
 * slot->in and slot->out; backward makes them again first. With sizes.bodies, activations of fewer slots than there are
 * have room at once.
 *
 * slot->in    the input [trunk rows, hidden] (not on the first stage, which looks its tokens up)
 * slot->out   after forward the output; on the last stage, in training, already the gradient of the blocks'
 *             output. Before backward the gradient of the output, after it the gradient of the input.
 */
#ifndef MUSTER_WORKER_MODEL_STAGE_H
#define MUSTER_WORKER_MODEL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/comm/wire.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/context/context.h"
#include "worker/engine/model/model.h"
#include "worker/engine/model/param.h"
#include "worker/engine/model/retain/retain.h"

#define STAGE_HEAD_ROWS 512 /* logits are made for this many tokens at a time, unless a stage is told otherwise */

struct stage_part {            /* what of the model is here */
    struct layer_range layers; /* a chunk of params */
    bool first, last;          /* with the embedding before them; with the head after them */
    struct comm_group *tp;     /* NULL: alone */
    struct wire *tp_wire;      /* how sums over tp travel */
};

struct stage_sizes {
    int micro, length; /* sequences of a micro-batch, tokens of each here: together the rows there is memory for */
    int docs;          /* most documents of a micro-batch; 0: micro */
    int slots;
    int bodies;               /* slots that hold activations at once; 0: all */
    int stores, store_tokens; /* sequences in pieces at once, tokens of the longest; 0: none */
    int cache;                /* tokens to keep keys and values of, in f32; 0: a stage that trains */
    int head_rows;            /* tokens whose logits are made at a time; 0: STAGE_HEAD_ROWS */
};

struct stage_precision {
    enum kern_type type;  /* of what goes into and comes out of matrix products */
    const void *matrices; /* the arena in bf16, which products and embeddings read then; NULL in f32 */
    const float *vectors; /* with matrices: what has one dimension, by param.vector_at; NULL: in cfg.weights, too */
};

struct stage_cfg {
    const struct kern_ops *k;
    struct kern_stream *stream;
    const struct model_cfg *model;
    const struct params *params;
    const float *weights;        /* the arena; NULL with precision.vectors */
    float *reduce;               /* stage_reduce_floats() of memory that tp members can read in place; NULL: own */
    const struct stage *scratch; /* of the same rank, not at work while this is: its scratch serves both; NULL: own */
    bool split;                  /* the backward comes in two parts */
    struct stage_part part;
    struct stage_sizes sizes;
    struct stage_precision precision;
    struct retain_cfg retain;   /* which activations stay until the backward */
    struct context_cfg context; /* ranks that share sequences */
};

struct block_saves {         /* of one block and micro-batch; void: of cfg.precision.type */
    struct retain_stay stay; /* whether backward makes the following again */
    float *x;                /* [trunk rows, hidden] input */
    void *norm1;             /* [trunk rows, hidden] */
    float *mean1, *rstd1;    /* [trunk rows] */
    void *qkv, *att;         /* [rows, qkv local], [rows, q local] */
    void *raw[2];            /* queries and keys before their norms, without gaps; NULL: they have none */
    float *lse;              /* [rows, heads local] */
    float *mid;              /* [trunk rows, hidden] after attention */
    void *norm2;
    float *mean2, *rstd2;
    void *pre, *act; /* [rows, parts·ffn local] and [rows, ffn local]: around the activation */
};

struct stage_piece { /* the tokens [past, past + tokens) of a sequence */
    int32_t tokens, past;
    int store; /* below sizes.stores: the sequence's own from its first piece's forward to its first piece's backward */
    bool last; /* its backward comes first: the gradients of keys and values begin there */
    bool drop;
};

struct stage_slot {
    int rows, docs;              /* of this micro-batch; the layout is set by stage_slot_layout() */
    struct context_share shared; /* its sequences that are cut over cp; whole_sample set by the caller, as sample */
    int32_t *cu;                 /* [docs + 1] first row of each document, then rows */
    int32_t *position;           /* [rows] in its document */
    int32_t *tokens, *targets;   /* [rows]; set by the caller before forward (first, last) */
    uint64_t *sample;            /* [docs]; set by the caller: numbers since the run began */
    uint64_t *row_sample;        /* [rows], filled by forward */
    float *in, *out;
    struct stage_piece piece;  /* tokens 0: whole documents */
    struct block_saves *block; /* NULL: no activations are held */
    float *keep;               /* with plans: cfg.retain.keep_bytes, taken from the start by blocks that keep */
    size_t kept;               /* floats of it */
    double loss;               /* last stage: sum over this micro-batch's targets, nats, after forward */
};

struct stage;

/* 0, -ENOMEM, or -EINVAL with words when no stage can be all that cfg asks for: no job comes this far, as
 * api/spec_check.c refuses it before. */
int stage_new(const struct stage_cfg *cfg, struct stage **ret, struct merr *err);
void stage_free(struct stage *st);

struct stage_usage {   /* since the last look */
    size_t peak_bytes; /* most of the activation arena that was in use at once, scratch included */
    uint64_t dropped;  /* blocks of micro-batches that were made again as a whole, */
    uint64_t blocks;   /* of so many that went forward in training */
    uint64_t lacking;  /* of those dropped: the plan kept them, but there was no room */
};
void stage_usage_take(struct stage *st, struct stage_usage *ret);

/* Floats of cfg.reduce; of slot->in and slot->out. */
size_t stage_reduce_floats(const struct stage_cfg *cfg);
size_t stage_trunk_floats(const struct stage_cfg *cfg);
/* Bytes of the activation slots that stage_new will take, and of the scratch when it is its own: with it cfg.reduce,
 * wherever that will lie. */
size_t stage_bytes(const struct stage_cfg *cfg, bool own_scratch);
/* Bytes that one block of a full micro-batch keeps when it keeps all, beside its input. */
size_t stage_block_bytes(const struct stage_cfg *cfg);

struct stage_slot *stage_slot(struct stage *st, int i);

/* Lay out slot for n documents of these lengths, each at least 1: at most sizes.docs of them, and sizes.micro ·
 * sizes.length tokens together (a multiple of tp in sequence parallelism). With n 0 as after stage_new(): sizes.micro
 * sequences, with cfg.context all shared. */
void stage_slot_layout(struct stage *st, struct stage_slot *slot, const int *length, int n);

/* With cfg.context: lay out slot for sequences of whole[shared] rows that all ranks of cp have pieces of (zigzag.h),
 * and after those for n documents of its own. All ranks' micro-batches have the same sequences to share; the pieces
 * here that are not empty are the first documents, in order. On each rank they take two full pieces of its rows. */
void stage_slot_share(struct stage *st, struct stage_slot *slot, const int *whole, int shared, const int *length,
                      int n);

/* Lay out slot for a piece of at most sizes.micro · sizes.length tokens. */
void stage_slot_piece(struct stage *st, struct stage_slot *slot, const struct stage_piece *p);

/* grad: the gradient arena that weights' gradients are added to, or NULL to evaluate: no dropout, no gradient.
 * weight: the loss is scaled by this before it is differentiated (1 / targets of the global batch). */
int stage_forward(struct stage *st, struct stage_slot *slot, float *grad, float weight, struct merr *err);
int stage_backward(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err);

/* The same in two parts, with cfg.split: what the stage before waits for, which adds to the gradients of the norms and
 * of the embedding; and those of the blocks' matrices and biases, for which the slot has kept what is needed in the
 * places of activations that have served. */
int stage_backward_input(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err);
int stage_backward_weights(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err);

/* In each backward, or its weights' part, done() hears of a layer as soon as its matrices and biases have all of their
 * gradients, from the last layer down. NULL: nobody does. */
typedef int (*stage_layer_done)(void *arg, int layer, struct merr *err);
void stage_watch(struct stage *st, stage_layer_done done, void *arg);

/* Last stage, evaluation: logits [vocab_local] of one row of the last forward, into host memory. */
int stage_logits(struct stage *st, struct stage_slot *slot, int row, float *ret, struct merr *err);

/* The whole model on one rank, with a cache (micro 1): the n tokens follow those before them; logits [vocab_local] of
 * what comes after the last, into host memory. -EMSGSIZE when the cache would hold more than sizes.cache tokens; it is
 * unchanged then. */
int stage_decode(struct stage *st, const int32_t *token, int n, float *ret, struct merr *err);
/* Empty the cache. */
void stage_forget(struct stage *st);

#endif
