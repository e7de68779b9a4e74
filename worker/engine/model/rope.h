/* rope - the frequencies of the rotation of positions, as Hugging Face computes them
 *
 * Pure. Scaling for long contexts: linear divides all frequencies by factor; llama3 divides the slow ones, leaves the
 * quick ones alone and blends between.
 */
#ifndef MUSTER_WORKER_MODEL_ROPE_H
#define MUSTER_WORKER_MODEL_ROPE_H

#include <jansson.h>

#include "base/merr.h"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 };

struct rope {
    double theta; /* 0: positions are not rotated */
    enum rope_scaling scaling;
    double factor, low, high; /* low, high, original: llama3 */
    int original;             /* context before scaling */
};

/* freq[dim / 2], radians a position. */
void rope_frequencies(const struct rope *r, int dim, float *freq);

/* rope_theta and rope_scaling (or rope_parameters) of a config.json. -ENOTSUP for a scaling that is not known, -EINVAL
 * for numbers that cannot be. */
int rope_from_config(const json_t *config, struct rope *ret, struct merr *err);

/* The value of rope_scaling for a config.json, new; JSON null when there is none. */
json_t *rope_scaling_config(const struct rope *r);

#endif
