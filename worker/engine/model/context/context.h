/* context - attention of sequences that several ranks share (context parallelism)
 *
 * Each rank of cp has two pieces of the rows of each sequence (scheduler/sequence/zigzag.h). What the ranks exchange
 * for attention is up to the mode: each is a file with a table of operations. While something is on its way between
 * ranks, each attends to the documents that are whole on it.
 *
 *   zigzag   every rank gets the keys and values of all rows
 *   ulysses  every rank gets some heads of all rows
 *
 * All ranks of cp call the functions below for the same micro-batches and blocks, in the same order.
 */
#ifndef MUSTER_WORKER_MODEL_CONTEXT_H
#define MUSTER_WORKER_MODEL_CONTEXT_H

#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/engine/comm/comm.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/model/carve.h"
#include "worker/engine/model/model.h"

struct context_cfg {
    enum cp_mode mode;
    struct comm_group *group; /* ranks that share sequences; NULL: it is not there yet */
    int size, index;          /* of it; 0: alone */
};

struct context_share {      /* of a micro-batch: the sequences that are cut over cp, and this rank's pieces of them */
    int n, docs, rows;      /* sequences; documents and rows that are pieces of them, before all others */
    int32_t *whole;         /* [n] rows of each on all ranks */
    int whole_rows;         /* of all of them */
    int32_t *whole_cu;      /* [n + 1] first row of each among those */
    uint64_t *whole_sample; /* [n] numbers since the run began */
    int32_t *past, *kv_at;  /* [docs] rows before a piece in its sequence; before that in all of them */
    int32_t *own_cu;        /* cu of the other documents, from 0 */
};

/* What a mode works in, one block at a time; void: of the stage's type. */
struct context_places {
    float *all, *mine; /* what travels: of every rank in turn, of this one */
    /* zigzag: [size · room, columns of keys and values] of all rows in order, and their gradients */
    void *kv;
    float *dkv;
    /* ulysses: of this rank's heads, [size · room, their columns] */
    void *qkv, *out, *dout, *dqkv;
    float *lse;
};

/* Its owner fills in everything above request. */
struct context {
    struct context_cfg cfg;
    const struct kern_ops *k;
    struct kern_stream *stream;
    const struct model_cfg *model;
    enum kern_type type;
    int room;                      /* rows there is memory for */
    struct comm_request **request; /* [2 · size] on their way */
    struct context_places at;
};

static inline int context_size(const struct context_cfg *cfg)
{
    return cfg->size > 1 ? cfg->size : 1;
}

/* 0, or -EINVAL when ranks cannot share sequences of this model so. */
int context_check(const struct context_cfg *cfg, const struct model_cfg *model, struct merr *err);

/* 0, or -ENOMEM. */
int context_open(struct context *cx, struct merr *err);
void context_close(struct context *cx);

/* Room for at most so many documents and sequences: 0, or -ENOMEM with what there is still to be cleared. */
int context_share_init(struct context_share *s, int docs);
void context_share_clear(struct context_share *s);

/* Take its places from c: none when alone. */
void context_carve(struct context *cx, struct carve *c);

/* a: attention of the whole micro-batch as for one that shares nothing. */
int context_forward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err);
int context_backward(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                     struct merr *err);
/* Before it, as soon as a.qkv is there: what travels while a.dout is made. Then context_backward() comes, or
 * context_settle() with the code of what failed: it waits for all that travels, and returns the first failure. */
int context_backward_begin(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                           struct merr *err);
int context_settle(struct context *cx, int r, struct merr *err);

#endif
