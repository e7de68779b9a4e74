/* schedule - pipeline schedules as data: what each rank of a pipeline does, in order
 *
 * Generate, check, add the messages ("lower"), simulate; the trainer runs the lists with one switch. The
 * messages are placed in one global order in which each send and its receive are adjacent, so even
 * channels that hold nothing cannot deadlock, and each pair of ranks agrees on the order without tags.
 * Sources: PipeDream-Flush / 1F1B (2021); GPipe (2019), the oracle of tests.
 */
#ifndef MUSTER_WORKER_TRAIN_SCHEDULE_H
#define MUSTER_WORKER_TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"

#define SCHEDULE_STAGES_MAX 1024
#define SCHEDULE_MICROS_MAX 65536

enum act_op {
    ACT_F,  /* forward */
    ACT_B,  /* backward, input and weights */
    ACT_SF, /* send the forward output to the next stage */
    ACT_RF, /* receive the forward input from the stage before */
    ACT_SB, /* send the input's gradient to the stage before */
    ACT_RB, /* receive the output's gradient from the next stage */
};

struct action {
    uint8_t op;
    int16_t stage; /* one a rank: the pipeline index */
    int32_t micro;
    int16_t peer;  /* of a message: pipeline index, else -1 */
};

struct action_list {
    struct action *v;
    size_t n;
};

enum schedule_kind { SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_FORWARD /* evaluation: no backward */ };

struct schedule {
    int stages, micros;
    enum schedule_kind kind;
    struct action_list *rank; /* one a stage, messages included */
};

/* Make, check and lower. -EINVAL out of range, -ENOMEM. */
int schedule_new(enum schedule_kind kind, int stages, int micros, struct schedule **ret, struct merr *err);
void schedule_free(struct schedule *s);

/* Every stage has each F once, and B once after it (none in SCHEDULE_FORWARD), micro-batches in order for
 * each. -EPROTO says where not. */
int schedule_check(const struct schedule *s, struct merr *err);

/* Run the lists on channels that hold nothing, with times for F and B: *ret_span is the time until all is
 * done. -EDEADLK with the place when they hang. */
int schedule_simulate(const struct schedule *s, double f_time, double b_time, double *ret_span, struct merr *err);

/* Most micro-batches of a rank that are begun and not done at once: the activation slots it needs. */
int schedule_slots(const struct schedule *s, int rank);

/* "r0: 0F0 0SF0 ..." one line a rank. */
void schedule_print(const struct schedule *s, struct buf *out);

#endif
