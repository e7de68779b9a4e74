/* store - masters and moments of a rank in files (memory.optimizer 'files'), which are its part of a checkpoint, too
 *
 * Two data files in turn (checkpoint's tiles.h), in a folder of the job beside its checkpoints. Each step reads the one
 * and writes the other. A checkpoint takes the file as it is. What a generation leaves there when it dies is made a
 * checkpoint by the next one before it looks for what to go on from.
 */
#ifndef MUSTER_WORKER_TRAIN_STORE_H
#define MUSTER_WORKER_TRAIN_STORE_H

#include <jansson.h>

#include "checkpoint/parts.h"
#include "worker/engine/optim/optim.h"
#include "worker/engine/train/rank.h"

struct store;

/* Whether the job wants one. */
bool store_wanted(const struct rank *rank);

/* What a store takes of memory, for n parameters of this rank's pieces. */
uint64_t store_bytes(uint64_t n);

/* Its calls, for optim_new(); its files come with store_open(). masters: are nowhere else. -ENOTSUP on a GPU,
 * -ENOMEM. */
int store_new(const struct rank *rank, bool masters, struct store **ret, struct merr *err);
void store_free(struct store *s);
const struct optim_store *store_calls(const struct store *s);

/* Files for what o keeps, empty; space for them is reserved (-ENOSPC). */
int store_open(struct store *s, struct optim *o, struct merr *err);

/* On rank 0, before any store_open(): commit what an earlier generation left whole. */
int store_commit(const struct rank *rank, struct merr *err);
/* On rank 0: remove all files of the job's stores, before there are any of this generation, or once its last state is
 * saved. */
void store_forget(const struct rank *rank);

/* What the last pass left is the state after so many steps, with the job's cursor. */
int store_seal(struct store *s, uint64_t step, const json_t *kv, struct merr *err);
/* As tiles_save(). */
int store_save(struct store *s, struct mck_file_of *ret, struct merr *err);

#endif
