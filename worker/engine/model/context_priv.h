/* context_priv - what context.c and its two exchanges share: which rows are whose, and messages to all of cp */
#ifndef MUSTER_WORKER_MODEL_CONTEXT_PRIV_H
#define MUSTER_WORKER_MODEL_CONTEXT_PRIV_H

#include "worker/engine/model/stage_priv.h"

/* A rank's pieces in turn, in rows: of the rank's block, in which each has its full size; of all sequences one after
 * the other; of the rank's own, without gaps. */
struct walk {
    int rank, next;
    size_t block, all, own, sequence;
    size_t rows, size; /* of this piece, some of its full size */
};
bool context_walk(const struct stage *st, const struct stage_slot *slot, struct walk *w);

/* Rows of a block: the same for all ranks. */
size_t context_block_rows(const struct stage *st, const struct stage_slot *slot);

/* Once the stream is done: bytes to each other member, those for member i from send + i * step on, and as many from it
 * to recv + i * bytes; context_settle() waits for all of them. */
int context_post(struct stage *st, const void *send, size_t step, void *recv, size_t bytes, struct merr *err);
/* Attention, or with a.dqkv its backward, of the documents that are whole on this rank; then context_settle(). */
int context_meanwhile(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a,
                      struct merr *err);

/* How ranks exchange what attention needs of the sequences that they share; each as the function of the same name. */
struct context_way {
    int (*forward)(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err);
    int (*backward_begin)(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a,
                          struct merr *err); /* NULL: nothing can go ahead */
    int (*backward)(struct stage *st, const struct stage_slot *slot, const struct kern_attention *a, struct merr *err);
};
extern const struct context_way context_keys;  /* context_keys.c */
extern const struct context_way context_heads; /* context_heads.c */

#endif
