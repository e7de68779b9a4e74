/* schedule - pipeline schedules as data: what each rank of a pipeline does, in order
 *
 * Generate, check, add the messages ("lower"), simulate; the trainer runs the lists with one switch. The
 * messages are placed in one global order in which each send and its receive are adjacent, so even
 * channels that hold nothing cannot deadlock, and each pair of ranks agrees on the order without tags.
 * Rank r of P holds the stages r, P + r, 2P + r, ...: one for each of its chunks.
 * Sources: PipeDream-Flush / 1F1B (2021); Megatron-LM (2021), interleaved; Zero Bubble (2024), ZB-H1; GPipe (2019),
 * the oracle of tests.
 */
#ifndef MUSTER_SCHEDULER_PLAN_SCHEDULE_H
#define MUSTER_SCHEDULER_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

#define SCHEDULE_RANKS_MAX 1024
#define SCHEDULE_CHUNKS_MAX 64
#define SCHEDULE_MICROS_MAX 65536
#define SCHEDULE_ACTIONS_MAX (1 << 20) /* forwards of a rank */

enum act_op {
    ACT_F,  /* forward */
    ACT_B,  /* backward, input and weights */
    ACT_I,  /* backward, input only */
    ACT_W,  /* backward, weights only: after I */
    ACT_SF, /* send the forward output to the next stage */
    ACT_RF, /* receive the forward input from the stage before */
    ACT_SB, /* send the input's gradient to the stage before */
    ACT_RB, /* receive the output's gradient from the next stage */
};

struct action {
    uint8_t op;
    int16_t peer;  /* of a message: a rank of the pipeline, else -1 */
    int32_t stage; /* of this rank */
    int32_t micro;
};

struct action_list {
    struct action *v;
    size_t n;
};

enum schedule_kind {
    SCHEDULE_1F1B,  /* interleaved when there are chunks */
    SCHEDULE_ZB_H1, /* the same with the backward in two parts */
    SCHEDULE_GPIPE,
    SCHEDULE_FORWARD, /* evaluation: no backward */
};

struct schedule {
    int ranks, chunks, micros;
    enum schedule_kind kind;
    struct action_list *rank; /* one a rank, messages included */
    int32_t *slots;           /* [ranks · chunks] as schedule_slots() has counted them; 0: it has not yet */
    int32_t *order, *turn;    /* [micros] the backwards in order, and when each micro-batch's comes; NULL: in order */
};

/* Make, check and lower. More than one chunk takes two ranks or more. -EINVAL out of range, -ENOMEM. */
int schedule_new(enum schedule_kind kind, int ranks, int chunks, int micros, struct schedule **ret, struct merr *err);
/* 1F1B over micro-batches some of which are pieces of sequences (ChunkFlow 2025): neighbours of the same sequence[i]
 * from 0 on depend on each other, and their backwards descend; -1 stands alone. */
int schedule_new_pieces(int ranks, int micros, const int32_t *sequence, struct schedule **ret, struct merr *err);
void schedule_free(struct schedule *s);

/* Every stage has each F once, and B once after it, or I once after F and W once after I (none of them in
 * SCHEDULE_FORWARD); micro-batches in order for each, or backwards in the schedule's own. -EPROTO says where not. */
int schedule_check(const struct schedule *s, struct merr *err);

struct schedule_times { /* of one stage and micro-batch; B takes the sum of I and W */
    double f, i, w;
    double hop; /* of a message to the next stage, and of one from there */
};

/* Run the lists on channels that hold nothing: *ret_span is the time until all is done. t: of each of the n stages, or
 * with n 1 of every one. -EDEADLK with the place when they hang. */
int schedule_simulate(const struct schedule *s, const struct schedule_times *t, int n, double *ret_span,
                      struct merr *err);

/* Most micro-batches of a rank's chunk from the oldest begun and not done to the newest: the activation slots it needs,
 * when micro-batch i takes slot i modulo their number. */
int schedule_slots(const struct schedule *s, int rank, int chunk);
/* Most of those that hold activations at once, one chunk: drop[i] says that micro-batch i has none between its forward
 * and its backward. */
int schedule_bodies(const struct schedule *s, int rank, const bool *drop);

/* "r0: 0F0 0SF0 ..." one line a rank: stage, operation, micro-batch. */
void schedule_print(const struct schedule *s, struct buf *out);

#endif
