/* cost - how long a call of a group takes raw and coded, and so which way to go: an alpha-beta model, values only
 *
 * A link is a straight line: everyone sends everyone m bytes in fixed_us + m · byte_us. A coded call moves fewer
 * bytes and works on every value; slices overlap both but for the first one's work, and each pays the fixed time again.
 * The same numbers give the same choice on all ranks.
 */
#ifndef MUSTER_WORKER_COMM_COST_H
#define MUSTER_WORKER_COMM_COST_H

#include <stdbool.h>
#include <stddef.h>

struct cost_line {
    double fixed_us, byte_us;
};

struct cost_codec { /* us a value; reduce: of one part of a sum */
    double encode_us, decode_us, reduce_us;
    double bytes;    /* of a value on the wire */
    double start_us; /* of each call besides: a GPU's kernels take as long to begin */
};

enum cost_shape { COST_ALL_REDUCE, COST_REDUCE_SCATTER, COST_ALL_GATHER, COST_SEND };

/* The line of n measured times by growing sizes: the fixed part is the shortest's, the slope that between the two
 * longest, for shapers and buffers let the first bytes through at once. So times grow faster and faster: a second
 * longest that is above the chord between its neighbours was disturbed, and counts as lying on it. */
struct cost_line cost_fit(const double *bytes, const double *us, int n);

/* A call over members with vectors of count values. link: of messages. */
double cost_coded_us(enum cost_shape shape, int members, size_t count, size_t slice, const struct cost_line *link,
                     const struct cost_codec *codec);

/* The same with the best slice: that of coded.h, unless another saves 3 %. */
double cost_best_us(enum cost_shape shape, int members, size_t count, const struct cost_line *link,
                    const struct cost_codec *codec, size_t *ret_slice);

/* How often to try both ways in turn before one is taken by predictions: 0 or an odd number up to COST_TRIALS_MAX. Not
 * where that takes long and the predictions are far from each other: a slow link is measured well. */
#define COST_TRIALS_MAX 7
int cost_trials(double raw_us, double coded_us);

/* Of n times (odd, at most COST_TRIALS_MAX). */
double cost_median(const double *us, int n);

/* Whether to code what takes so long either way. It must save 3 %. */
bool cost_worth(double raw_us, double coded_us);
/* The same for a group that has a way already: another must save 5 %, or groups would change for noise. */
bool cost_worth_still(bool coded, double raw_us, double coded_us);

/* Whether calls still take what they took when their way was chosen: of each step its time in calls and the predicted
 * one. The median quotient of the first COST_WATCH_FIRST steps is the usual one, whatever else it holds: waiting
 * for others, work beside the wire. It departs when it is COST_WATCH_FAR times that, or below it, in as many steps in
 * a row as patience says. Calls of less than a millisecond a step do not matter. */
#define COST_WATCH_FIRST COST_TRIALS_MAX
#define COST_WATCH_FAR 1.5
#define COST_WATCH_STEPS 5
#define COST_WATCH_STEPS_MAX 160

struct cost_watch {
    double first[COST_WATCH_FIRST], usual;
    int seen, side, run; /* steps in a row on one side: 1 above, -1 below */
    int patience;
};

/* The way was chosen, or with in_vain chosen again: then patience doubles up to COST_WATCH_STEPS_MAX. */
void cost_watch_start(struct cost_watch *w, bool in_vain);
/* One step: whether it is time to choose again. */
bool cost_watch_step(struct cost_watch *w, double spent_us, double predicted_us);

#endif
