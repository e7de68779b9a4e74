/* sample - text from a trained model: one rank, one checkpoint or folder of weights
 *
 * Keys and values of all tokens so far are kept, so a token costs one row. When the model's context is full, the newest
 * half of it is read again and what is older is forgotten.
 */
#ifndef MUSTER_WORKER_TRAIN_SAMPLE_H
#define MUSTER_WORKER_TRAIN_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

#include "base/merr.h"

struct sample_cfg {
    const char *checkpoint;    /* as state_open() */
    const char *prompt;        /* bytes; "" starts a new document */
    const char *prompt_tokens; /* numbers between blanks or commas instead, and numbers are written; NULL: bytes */
    int tokens;                /* to generate */
    double temperature;        /* 0: always the likeliest */
    int top_k;                 /* 0: all */
    double top_p;              /* share of the probability to draw from, likeliest first; 1: all */
    uint64_t seed;
    int threads;
};

/* Write the prompt's continuation to out. Returns 0, or as state_open(); -EINVAL for a bad prompt or for a model that
 * is not over bytes without prompt_tokens; -ENOTSUP for a model that is not known. */
int sample_text(const struct sample_cfg *cfg, FILE *out, struct merr *err);

/* The next token from logits[n]: those of the top_k likeliest divided by temperature, of these the likeliest that make
 * up top_p of the probability, drawn by unit in [0, 1). Changes logits. Ties go to the lower token. */
int sample_pick(float *logits, int n, double temperature, int top_k, double top_p, double unit);

#endif
