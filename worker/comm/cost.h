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
    double bytes; /* of a value on the wire */
};

enum cost_shape { COST_ALL_REDUCE, COST_REDUCE_SCATTER, COST_ALL_GATHER, COST_SEND };

/* The line of n measured times by growing sizes: the fixed part is the shortest's, the slope that between the two
 * longest, for shapers and buffers let the first bytes through at once. */
struct cost_line cost_fit(const double *bytes, const double *us, int n);

/* A call over members with vectors of count values. link: of messages. */
double cost_coded_us(enum cost_shape shape, int members, size_t count, size_t slice, const struct cost_line *link,
                     const struct cost_codec *codec);

/* The same with the best slice: that of coded.h, unless another saves 3 %. */
double cost_best_us(enum cost_shape shape, int members, size_t count, const struct cost_line *link,
                    const struct cost_codec *codec, size_t *ret_slice);

/* Whether to code what takes so long either way. It must save 5 %: less is within the error of the model. */
bool cost_worth(double raw_us, double coded_us);

#endif
