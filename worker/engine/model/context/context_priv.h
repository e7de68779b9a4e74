/* context_priv - the table of operations that each mode fills in, and what they have in common */
#ifndef MUSTER_WORKER_MODEL_CONTEXT_PRIV_H
#define MUSTER_WORKER_MODEL_CONTEXT_PRIV_H

#include <stdbool.h>

#include "worker/engine/model/context/context.h"

/* Each as the function of the same name in context.h. */
struct context_ops {
    int (*check)(const struct context_cfg *cfg, const struct model_cfg *model, struct merr *err); /* NULL: any goes */
    void (*carve)(struct context *cx, struct carve *c);
    int (*forward)(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                   struct merr *err);
    int (*backward_begin)(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                          struct merr *err); /* NULL: nothing can go ahead */
    int (*backward)(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                    struct merr *err);
};

extern const struct context_ops context_zigzag, context_ulysses;

/* A rank's pieces in turn, in rows: of the rank's block, in which each has its full size; of all sequences one after
 * the other; of the rank's own, without gaps. */
struct context_walk {
    int rank, next;
    size_t block, all, own, sequence;
    size_t rows, size; /* of this piece, some of its full size */
};
bool context_walk(const struct context *cx, const struct context_share *shared, struct context_walk *w);

/* Rows of a block: the same for all ranks. */
size_t context_block_rows(const struct context *cx, const struct context_share *shared);

/* Once the stream is done: bytes to each other member, those for member i from send + i * step on, and as many from it
 * to recv + i * bytes; context_settle() waits for all of them. */
int context_post(struct context *cx, const void *send, size_t step, void *recv, size_t bytes, struct merr *err);
/* Attention, or with a.dqkv its backward, of the documents that are whole on this rank; then context_settle(). */
int context_meanwhile(struct context *cx, const struct context_share *shared, const struct kern_attention *a,
                      struct merr *err);

#endif
