/* stage_priv - what stage.c (the ends), stage_pass.c (a pass through it), block.c (a block) and stage_memory.c
 * (what is kept where) share */
#ifndef MUSTER_WORKER_MODEL_STAGE_PRIV_H
#define MUSTER_WORKER_MODEL_STAGE_PRIV_H

#include "worker/engine/model/stage.h"

struct block_keys {      /* Philox keys of one block's dropout */
    uint32_t *attention; /* [heads local][2] */
    uint32_t attention_out[2], mlp_out[2];
};

struct store { /* of one block, for the tokens of one sequence */
    void *kv;  /* of cfg.precision.type, as kern_attention has it */
    float *dkv;
};

struct body { /* activations of a slot's blocks */
    struct block_saves *block;
    bool taken;
};

struct stage {
    struct stage_cfg cfg;
    int room, docs_room; /* rows and documents there is memory for */
    int blocks;
    struct stage_slot *slot;
    struct body *body;   /* [sizes.bodies], or [sizes.slots] that belong to the slots for good */
    struct store *store; /* [sizes.stores][blocks] */
    struct block_keys *keys;
    uint32_t embedding_key[2];
    uint32_t threshold;    /* of dropout */
    stage_layer_done done; /* NULL: nobody */
    void *done_arg;
    int rows, docs; /* of the slot that is worked on, as are the next two */
    int32_t *cu, *position;
    float *freq;                          /* [dim / 2], NULL: positions are not rotated */
    float **keys_cached, **values_cached; /* [blocks] of [sizes.cache, kv_heads·dim]; NULL: no cache */
    int past;                             /* tokens in the cache */
    void *activations;                    /* the memory behind the slots, */
    size_t floats;                        /* of it */
    struct retain *retain;
    size_t kept_now, kept_most; /* floats of all slots' keep */
    struct stage_usage usage;
    /* scratch, one micro-batch at a time */
    float *reduce;             /* [rows, hidden]: every sum over tp is made here */
    float *own_reduce;         /* the same when it is ours to free */
    struct block_saves *again; /* [retain_together()] what blocks and slots share because backward makes it again */
    /* void: of cfg.precision.type */
    void *d_pre, *d_act; /* [rows, parts·ffn], [rows, ffn]; the same memory when parts is 1 */
    void *d_qkv, *d_att;
    void *rounded; /* [rows, hidden], in bf16: a gradient of the trunk as products take it */
    float *tmp;
    void *whole; /* [rows, hidden], in sequence parallelism: of the trunk, gathered, f32 or typed */
    float *dy;   /* [trunk rows, hidden], with cfg.split: a gradient on its way into the slot */
    void *norm;  /* last stage: the head is done with a micro-batch within its forward */
    float *norm_mean, *norm_rstd;
    float *logits, *stats, *loss;
    void *dz;               /* of the logits; in f32 in their place */
    float *host_loss;       /* [rows] */
    struct context context; /* of sequences that are shared */
};

/* stage_memory.c: place every float of the stage in its memory at base; with NULL, only count them in st->floats. */
void stage_carve(struct stage *st, float *base);
/* The first rows of a slot go forward; then a block, and the end of it. */
int stage_keep_begin(struct stage *st, struct stage_slot *slot, bool train, struct merr *err);
void stage_keep_block(struct stage *st, struct stage_slot *slot, int i);
int stage_keep_end(struct stage *st, const struct stage_slot *slot, bool train, struct merr *err);
/* Nothing of the slot is needed any more. */
void stage_keep_forget(struct stage *st, struct stage_slot *slot);
/* Rows that the head works on at once. */
size_t stage_head_rows(const struct stage *st);

/* Give the slot's blocks places to keep their activations in, and take them back. */
void stage_body_take(struct stage *st, struct stage_slot *slot);
void stage_body_give(struct stage *st, struct stage_slot *slot);

static inline int stage_bodies(const struct stage *st)
{
    return st->cfg.sizes.bodies > 0 ? st->cfg.sizes.bodies : st->cfg.sizes.slots;
}

/* Columns of the keys and values of a token. */
static inline size_t kv_columns(const struct stage *st)
{
    return model_kv_columns(st->cfg.model);
}

int block_forward(struct stage *st, int i, struct stage_slot *slot, float *out, bool train, struct merr *err);
/* The same without the block's output, for what backward needs. */
int block_inside(struct stage *st, int i, struct stage_slot *slot, bool train, struct merr *err);
/* dx: the gradient of the block's output, becomes that of its input. whole: its matrices' gradients too; else the slot
 * keeps what block_weights() makes them of. */
int block_backward(struct stage *st, int i, struct stage_slot *slot, float *dx, bool whole, float *grad,
                   struct merr *err);
int block_weights(struct stage *st, int i, struct stage_slot *slot, float *grad, struct merr *err);

/* stage_pass.c: through all blocks, in their order, with the embedding before and the head after them where those are
 * here; or against it, as stage_backward(), stage_backward_input() and stage_backward_weights() have it without the
 * embedding, and st->done hears of layers. grad, weight: as for stage_head(); grad of the way back. */
enum pass { PASS_EVALUATE, PASS_FORWARD, PASS_BACKWARD, PASS_INPUT, PASS_WEIGHTS };
int stage_pass(struct stage *st, struct stage_slot *slot, enum pass what, float *grad, float weight, struct merr *err);

static inline int stage_cp(const struct stage *st)
{
    return context_size(&st->cfg.context);
}

/* With its places still to be taken. */
struct context stage_context(const struct stage_cfg *cfg);

/* The embedding of slot->tokens into slot->in. */
int stage_embed(struct stage *st, struct stage_slot *slot, bool train, struct merr *err);

/* The gradients of what it read, from slot->out. */
int stage_embed_backward(struct stage *st, struct stage_slot *slot, float *grad, struct merr *err);

/* The final norm, the head and the losses of tmp; to train (grad), slot->out becomes the gradient of tmp. */
int stage_head(struct stage *st, struct stage_slot *slot, float *grad, float weight, struct merr *err);

/* The sum over tp of reduce[rows, hidden] for the rows of the trunk that are here, in place: trunk_sum(). */
int stage_reduce(struct stage *st, struct merr *err);

/* All rows of something of the trunk of which every member holds its own, elements of size bytes: x itself, or
 * st->whole. */
int stage_gather(struct stage *st, const void *x, size_t size, const void **ret, struct merr *err);

/* y = dropout(x) of the trunk's rows; the same mask forward and backward. */
int stage_dropout(struct stage *st, const struct stage_slot *slot, const uint32_t key[2], const float *x, float *y,
                  struct merr *err);

/* The trunk is what blocks add to, [rows, hidden]. In sequence parallelism (Korthikanti 2022) a member of tp holds rows
 * [from, from + rows / tp) of it, of its norms and of its gradient. */
static inline int trunk_rows(const struct stage *st)
{
    return st->cfg.model->sequence_parallel ? st->rows / st->cfg.model->tp : st->rows;
}

static inline int trunk_from(const struct stage *st)
{
    return st->cfg.model->sequence_parallel ? st->cfg.model->tp_index * trunk_rows(st) : 0;
}

/* Those rows of reduce: what stage_reduce() leaves for this member. */
static inline float *trunk_sum(const struct stage *st)
{
    return st->reduce + (size_t)trunk_from(st) * st->cfg.model->hidden;
}

static inline const struct layer_params *block_params(const struct stage *st, int i)
{
    return &st->cfg.params->layer[st->cfg.part.layers.begin + i];
}

/* Element n of an array of the stage's type. */
static inline void *element(const struct stage *st, const void *array, size_t n)
{
    return (char *)array + n * kern_size(st->cfg.precision.type);
}

/* Element at of a matrix as products read it. */
static inline const void *matrix_of(const struct stage *st, int param, size_t at)
{
    at += st->cfg.params->v[param].at;
    return st->cfg.precision.type == KERN_F32 ? st->cfg.weights + at : element(st, st->cfg.precision.matrices, at);
}

/* A vector. */
static inline const float *weight_of(const struct stage *st, int param)
{
    const struct param *q = &st->cfg.params->v[param];

    return st->cfg.precision.vectors ? st->cfg.precision.vectors + q->vector_at : st->cfg.weights + q->at;
}

static inline float *grad_of(const struct stage *st, float *grad, int param)
{
    return grad + st->cfg.params->v[param].at;
}

#endif
