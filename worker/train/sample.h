/* sample - text from a trained model: one rank, one checkpoint */
#ifndef MUSTER_WORKER_TRAIN_SAMPLE_H
#define MUSTER_WORKER_TRAIN_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

#include "base/merr.h"

struct sample_cfg {
    const char *checkpoint; /* as state_open() */
    const char *prompt;     /* bytes; "" starts a new document */
    int tokens;             /* to generate */
    double temperature;     /* 0: always the likeliest */
    int top_k;              /* 0: all */
    uint64_t seed;
    int threads;
};

/* Write the prompt's continuation to out. Returns 0, or as state_open(), -EINVAL for a model that is not over bytes. */
int sample_text(const struct sample_cfg *cfg, FILE *out, struct merr *err);

/* The next token from logits[n]: those of the top_k likeliest divided by temperature, drawn by unit in [0, 1).
 * Changes logits. Ties go to the lower token. */
int sample_pick(float *logits, int n, double temperature, int top_k, double unit);

#endif
