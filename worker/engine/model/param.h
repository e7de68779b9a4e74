/* param - the record of every tensor a rank holds: name, logical shape, the boxes of it here, its places
 *
 * Names and shapes are those of Hugging Face (a weight of GPT-2 is [in, out], one of Llama [out, in]), so that a global
 * tensor can be rebuilt from any layout by names and boxes alone. A tensor's elements lie in one piece in the weight
 * arena: its boxes one after another, each dense and row-major, then padding with zeros up to a multiple of PARAM_BLOCK
 * elements.
 *
 *   weight arena    [ rest ............ | tied ]            tied: the token embedding, when head and
 *   gradient arena  [ rest ............ | tied | head ]      embedding share it (first and last stage)
 *
 * head: the head's part of the tied tensor's gradient, kept apart so that one stage or several add the two
 * parts in the same order; only where one rank holds both. Rest and tied are each cut over dp in whole blocks.
 */
#ifndef MUSTER_WORKER_MODEL_PARAM_H
#define MUSTER_WORKER_MODEL_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "scheduler/plan/split.h"
#include "worker/engine/comm/mesh.h"
#include "worker/engine/model/model.h"

#define PARAM_BLOCK                                                                                                    \
    2048 /* elements: unit of starts, of cuts over dp and of the gradient norm; groups of codecs
                            divide it, so no two tensors share a scale */
#define PARAM_NAME_MAX 64
#define PARAM_BOXES_MAX 3
#define PARAM_CHUNKS_MAX 64

struct param_box {
    uint64_t off[2], len[2]; /* of the logical tensor; ndim 1 uses the first */
    size_t at;               /* its first element among the parameter's, dense from there */
};

/* Whose parts of a gradient add up to it: a rank's own comes from some of the tokens, or some of the heads. */
enum param_sum { PARAM_SUM_NONE, PARAM_SUM_TP, PARAM_SUM_KV /* ranks with the same keys and values */, PARAM_SUMS };

struct param {
    char name[PARAM_NAME_MAX];
    int ndim;
    uint64_t shape[2]; /* logical */
    struct param_box box[PARAM_BOXES_MAX];
    int boxes;
    size_t n;         /* elements here, with a padded vocabulary, without the padding to a block */
    size_t at;        /* in both arenas; a multiple of PARAM_BLOCK */
    size_t vector_at; /* of one dimension: its place among all such, one after the other; a multiple of PARAM_BLOCK */
    int id;           /* number of the tensor in the whole model's canonical order */
    bool decay;       /* weight decay applies */
    enum param_sum sum;
    bool early;     /* of a norm: its gradient is made together with that of the input */
    bool copy;      /* stored and counted by another: the first of the tp ranks that hold the same, the first stage for
                      * the tied embedding */
    float std;      /* fresh weights: normal with this deviation, or */
    float constant; /* this value, when std is 0 */
};

/* Indexes into params.v; -1: there is none. */
struct norm_params {
    int w, b;
};

struct linear { /* n matrices whose outputs lie side by side */
    int w[PARAM_BOXES_MAX], bias[PARAM_BOXES_MAX];
    int n;
    bool out_in; /* stored [out, in] */
};

struct layer_params { /* of one block */
    size_t at;        /* where its matrices and biases begin in the arenas; they lie together */
    struct norm_params norm1, norm2;
    int q_norm, k_norm; /* of each head's queries and keys */
    struct linear qkv, proj, fc, out;
};

struct layer_range {
    int begin, end;
};

struct param_builder;

struct params {
    struct param *v;
    const struct param **by_place; /* [n] the same, as they lie: the order of updates, and of saving */
    int n;
    int tensors;                /* in the whole model */
    struct layer_params *layer; /* by number, those of the chunks filled in */
    struct layer_range chunk[PARAM_CHUNKS_MAX];
    int chunks;
    int wte, wpe, head;              /* -1 where not held; head is wte when tied on one rank */
    struct norm_params norm;         /* the last one */
    size_t rest_n, tied_n, weight_n; /* elements of the arenas */
    size_t vector_n;                 /* of those, of tensors of one dimension */
    /* A chunk's part of rest begins at chunk_at with its embedding and norms; its blocks' matrices and biases begin at
     * blocks_at. After the last chunk comes the final norm. */
    size_t chunk_at[PARAM_CHUNKS_MAX + 1], blocks_at[PARAM_CHUNKS_MAX];
    size_t grad_head_at; /* of the head's own gradient of the tied tensor, 0: none */
    size_t grad_n;
};

/* The tensors of a rank whose stages have these layers, 1 to PARAM_CHUNKS_MAX of them in the model's order; first and
 * last say which ends of the model it has. */
int params_init(struct params *p, const struct model_cfg *c, const struct layer_range *chunk, int chunks, bool first,
                bool last, struct merr *err);
void params_clear(struct params *p);

/* Fresh weights into the arena, which is all zeros: each element depends on seed, name and its place in the
 * logical tensor alone, whatever the number of threads (at least 1) that draw them. */
void params_fill(const struct params *p, uint64_t seed, int threads, float *weights);
/* The same of [begin, end) of the arena alone; weights: element begin. */
void params_fill_part(const struct params *p, uint64_t seed, int threads, size_t begin, size_t end, float *weights);

/* The name of tensor id of the whole model, into name[PARAM_NAME_MAX], and the stage that counts it. */
int params_place(const struct model_cfg *c, int id, const struct plan_split *split, char *name);

/* A piece [*ret_begin, *ret_end) of a region of n elements (a multiple of PARAM_BLOCK): piece i of d. */
void params_cut(size_t n, int d, int i, size_t *ret_begin, size_t *ret_end);

#endif
