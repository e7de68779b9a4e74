/* rope - the frequencies of the rotation of positions, as Hugging Face computes them
 *
 * Pure. Scaling for long contexts: linear divides all frequencies by factor; llama3 divides the slow ones, leaves the
 * quick ones alone and blends between.
 */
#ifndef MUSTER_WORKER_MODEL_ROPE_H
#define MUSTER_WORKER_MODEL_ROPE_H

#include "api/hf.h"

/* freq[dim / 2], radians a position. */
void rope_frequencies(const struct rope *r, int dim, float *freq);

#endif
