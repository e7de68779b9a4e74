/* shape - a training job as the planner sees it, and one way to lay it over ranks
 *
 * Values only. What a spec says of a job is turned into these by api/spec_plan.h.
 */
#ifndef MUSTER_SCHEDULER_PLAN_SHAPE_H
#define MUSTER_SCHEDULER_PLAN_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/plan/layout.h"
#include "scheduler/plan/schedule.h"
#include "scheduler/plan/split.h"

#define PLAN_STAGES_MAX 256    /* whose layers are given one by one */
#define PLAN_MICRO_TOKENS 2048 /* what a micro-batch that nobody chose has at most */
#define PLAN_VOCAB_ALIGN 64    /* the vocabulary is padded to a multiple of this times tp */

enum plan_family { PLAN_GPT2, PLAN_LLAMA };
enum plan_recompute { PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_FULL, PLAN_RECOMPUTES };

struct plan_model {
    enum plan_family family;
    int layers, hidden, heads, kv_heads, ffn, context, vocab; /* each at least 1 */
    bool tied, qkv_bias;
    bool qk_norm, fused; /* norms of heads; queries, keys and values in one tensor, gate and up in another */
    int dim;             /* of a head; 0: hidden / heads, which heads divides then */
    int window;          /* tokens that one sees; 0: all before it */
};

struct plan_job {
    struct plan_model model;
    int sequences, length; /* a step's, tokens of each */
    int virtual_workers;   /* divides sequences */
    int eval_sequences;    /* most held-out ones looked at together; 0: none */
    int zero;              /* 1: the optimizer's state is split over replicas */
    bool bf16, sequence_parallel;
    bool cp_heads;          /* ranks of cp exchange heads, which they share evenly; else keys and values */
    bool dp_coded;          /* gradients between replicas are compressed */
    bool stored;            /* masters and moments are in files */
    bool dp_keyed;          /* and that leaf by leaf, so that bits do not depend on the layout */
    uint64_t program_bytes; /* of a rank of no model; 0: PLAN_PROGRAM_BYTES */
};

struct plan_shape {
    int tp, pp, dp;
    int cp;                      /* ranks that share each sequence; 0 counts as 1 */
    int chunks;                  /* of each pipeline rank; above 1 the schedule is interleaved */
    int micro;                   /* sequences a micro-batch; divides a virtual worker's */
    enum schedule_kind schedule; /* SCHEDULE_1F1B or SCHEDULE_ZB_H1 */
    enum plan_recompute recompute;
    int n_remade; /* pp · chunks, or 0: recompute is of all blocks. Else of so many of each stage, */
    uint16_t remade[PLAN_STAGES_MAX]; /* and the others keep their activations */
    int n_layers;                     /* pp · chunks, or 0: shared evenly, fewer where the head is */
    uint16_t layers[PLAN_STAGES_MAX];
};

struct plan_cut {   /* sizes of what one tensor-parallel rank holds */
    int dim, parts; /* of a head; matrices side by side in the first half of the feed-forward part */
    int heads, q, kv, qkv, ffn, vocab;
};

/* Sequences a micro-batch of a virtual worker's that nobody chose: the largest divisor within PLAN_MICRO_TOKENS,
 * whatever the layout. */
int plan_micro(int leaf_sequences, int length);

/* Ranks that share a sequence; ranks of a stage; tokens of a micro-batch that one rank has. */
int plan_cp(const struct plan_shape *shape);
int plan_stage_ranks(const struct plan_shape *shape);
size_t plan_rows(const struct plan_job *job, const struct plan_shape *shape);

/* Blocks of a stage of so many that make their activations again. */
int plan_remade(const struct plan_shape *shape, int stage, int blocks);

/* The ranks of a shape. */
struct layout plan_shape_layout(const struct plan_shape *shape);

/* Whether tp can cut the model; then *ret is filled in. */
bool plan_cut(const struct plan_model *m, int tp, struct plan_cut *ret);

/* Size of a head. */
int plan_dim(const struct plan_model *m);

/* Of a sequence of so many tokens, twice the mean of how many a token sees. */
double plan_seen(const struct plan_model *m, double length);

/* Elements of a block's matrices in the whole model. */
double plan_block_weights(const struct plan_model *m);

/* The layers of all stages; given points into shape. */
struct plan_split plan_split_of(const struct plan_model *m, const struct plan_shape *shape);

/* Micro-batches of a step of replica r, -1: of the one with most. */
int plan_micros(const struct plan_job *job, const struct plan_shape *shape, int r);

#endif
