/* mimose - which blocks to recompute so that activations fit a budget, by the size of each input
 *
 * The first steps run sheltered: every block is checkpointed (its activations dropped after forward and computed again
 * for backward) and measured. From the samples a quadratic in the input's size predicts each block; then each input
 * gets a plan of its own, cached by its size rounded up: small inputs recompute nothing, large ones just enough.
 * For packed sequences the size is the tokens on the rank in the micro-batch.
 *
 * A struct mimose has one owner thread. It depends on what it is told alone: no clock, no allocator of its own to
 * watch. Source: Mimose (2022), sections 4 and 5; what Muster adds is said in docs/sequence.md.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_MIMOSE_H
#define MUSTER_SCHEDULER_SEQUENCE_MIMOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define MIMOSE_BLOCKS_MAX 4096
#define MIMOSE_SAMPLES_MAX 64 /* the newest are kept */
#define MIMOSE_SAMPLES_MIN 10 /* sheltered steps, */
#define MIMOSE_SIZES_MIN 3    /* of at least so many sizes */
#define MIMOSE_PLANS_MAX 4096 /* cached; the cache begins anew when it is full */
#define MIMOSE_INPUT_MAX ((int64_t)1 << 40)

/* --- estimator: y = c0 + c1·x + c2·x² ------------------------------------------------------------------------- */

struct mimose_fit {
    bool fitted; /* else the upper envelope of what was seen */
    double c[3]; /* of the size scaled to [-1, 1]: (x - mid) / half */
    double mid, half;
    double residual;     /* largest |y - fit|, bytes */
    double error;        /* largest |y - fit| / y */
    double most, most_x; /* the largest seen, and the largest size */
};

/* Fit n >= 1 samples. With fewer than three sizes, or off by 10 % and by 10 MB, it is the envelope. */
void mimose_fit(const int64_t *x, const double *y, size_t n, struct mimose_fit *ret);

/* Bytes at size x, never negative; mimose_predict_safe adds the larger of 2 % and the largest residual. */
double mimose_predict(const struct mimose_fit *f, int64_t x);
double mimose_predict_safe(const struct mimose_fit *f, int64_t x);

/* --- planner ---------------------------------------------------------------------------------------------------- */

/* The size rounded up to a step of about 1.6 %, at least 8. */
int64_t mimose_quantise(int64_t x);

/* Choose blocks (checkpoint[l] = 1) whose bytes add up to need. Blocks within 10 % of each other are alike: the
 * smallest kind that covers what is left, else the largest there is; among alike ones the earliest. With spare_last
 * the last block comes only after all others: it is rebuilt at once when backward starts, while all others are still
 * alive, so it alone saves nothing. Returns the number chosen; *ret_left (may be NULL) is what is still needed then,
 * above 0 when all blocks do not suffice. */
int mimose_choose(const double *bytes, int blocks, double need, bool spare_last, uint8_t *checkpoint, double *ret_left);

/* Peak bytes of a step's block activations under a choice: at the end of forward, or while a block is rebuilt. */
double mimose_peak(const double *bytes, int blocks, const uint8_t *checkpoint);

/* --- a model that learns ------------------------------------------------------------------------------------------ */

struct mimose;

struct mimose_plan {
    int64_t key;               /* the size it is made for */
    const uint8_t *checkpoint; /* borrowed: until the next call that changes the model */
    int checkpointed;
    double peak_bytes; /* predicted, with static_bytes */
    bool sheltered;    /* not learned yet: everything is checkpointed, measure this step */
    bool cached;       /* it was there already */
    bool reachable;    /* else the budget is passed even with all blocks checkpointed */
};

/* A model of 1 to MIMOSE_BLOCKS_MAX blocks. budget_bytes is what activations and static_bytes (in use whatever the
 * input) may take together. Returns 0 with a new model, -EINVAL, -ENOMEM. */
int mimose_new(int blocks, double budget_bytes, double static_bytes, struct mimose **ret, struct merr *err);
void mimose_free(struct mimose *m);

/* The first n blocks, not all of them, cost next to nothing to make again: plans take them before any other. To be
 * said before the first plan. */
void mimose_prefer(struct mimose *m, int n);

/* A sheltered step of size x: bytes of each block beyond its kept output, and of the whole step without any
 * checkpoint. Returns 0, or -EINVAL for sizes and bytes that cannot be. Fits anew and drops all plans once there are
 * enough samples. */
int mimose_sample(struct mimose *m, int64_t x, const double *bytes, double whole, struct merr *err);

bool mimose_ready(const struct mimose *m); /* plans are not sheltered any more; for tests */

/* The plan for an input of size x >= 1. Returns 0, -EINVAL, -ENOMEM (*ret unchanged). */
int mimose_plan(struct mimose *m, int64_t x, struct mimose_plan *ret, struct merr *err);

/* What the step of size x really took. Above the prediction by 5 %: all plans are dropped, predictions are raised by
 * what was missing, and it returns true. */
bool mimose_observe(struct mimose *m, int64_t x, double measured_bytes);

/* Memory ran out at size x: predictions are raised by 10 %, plans of this size and above dropped. Run the step once
 * more with every block checkpointed. */
void mimose_overflow(struct mimose *m, int64_t x);

/* A new budget; plans are dropped. For tests and benchmarks. */
void mimose_set_budget(struct mimose *m, double budget_bytes, double static_bytes);

/* Plans made and plans found. For tests. */
void mimose_counts(const struct mimose *m, uint64_t *ret_made, uint64_t *ret_found);

#endif
