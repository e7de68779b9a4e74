/* checkpoint_model - what the programs here save: tensors whose elements follow from the step, cut over two ranks,
 * each with its own writer */
#ifndef MUSTER_TESTS_FAULT_CHECKPOINT_MODEL_H
#define MUSTER_TESTS_FAULT_CHECKPOINT_MODEL_H

#include <stdint.h>

#include "checkpoint/checkpoint.h"

#define MODEL_RANKS 2
#define MODEL_POOL_BYTES (4u << 20)

/* rows x columns at most 1200 x 240, of which the first cut are rank 0's. apart: the tensors have three roles, which do
 * not share chunks. Once. */
void model_make(int rows, int columns, int cut, bool apart);

/* What there is in memory is that of a step. */
void model_fill(uint64_t step);

/* Load and verify the newest in dir: *ret_step, 0 for none. -1 when it is not what its step has. */
int model_check(const char *dir, uint64_t *ret_step, struct merr *err);

/* The same of one step, which must be there. */
int model_check_step(const char *dir, uint64_t step, struct merr *err);

/* Load that many of the columns of all rows of the newest in dir. */
int model_load_columns(const char *dir, int columns, struct merr *err);

/* Codec "archive": none, and all but the newest are written anew in the background once generation is above 1. */
bool model_archives(const char *codec);

int model_open(const char *dir, uint64_t generation, const char *codec, struct mck_writer *ret[MODEL_RANKS],
               struct merr *err);

/* Writers opened from now on keep as many, and those of a step that every divides (0: none). By default 2 and none. */
void model_keep(int keep, uint64_t every);

/* Writers opened from now on take a disk for stuck after so long. */
void model_stuck(int64_t us);

/* Checkpoints that the writers removed before their time, for the disk was full. */
uint32_t model_removed(void);

/* Fill and save a step; returns once rank 0 has committed it. */
int model_write(struct mck_writer *const w[MODEL_RANKS], uint64_t step, struct merr *err);

/* Begin a step on one rank. */
int model_begin(struct mck_writer *w, uint64_t step, struct merr *err);

#endif
