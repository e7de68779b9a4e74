/* tiles - state that lies in two files in turn, each a whole data file of a checkpoint
 *
 * State is planes of equal length, cut into tiles. A pass takes the tiles one after another from the newest file, and
 * gives them, changed, to the other one; sealing it makes that the newest, a data file of a step. So whatever ends the
 * process, one of both is whole: the newest is written over no sooner than the next but one pass gives its first tile,
 * and the caller sees to it that all ranks' files of the step between are sealed by then (tiles_wait).
 *
 * A thread of its own reads, checks checksums, makes them and writes, by mio.h; what it holds is tiles_ring_bytes().
 * Calls come from one thread, which waits in tiles_take() and tiles_wait(). The first failure answers all later calls.
 */
#ifndef MUSTER_CHECKPOINT_WRITE_TILES_H
#define MUSTER_CHECKPOINT_WRITE_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/folder.h"

#define TILES_PLANES 3
#define TILES_AT_ONCE 4 /* under way at once */

struct tiles_cfg {
    const char *dir; /* where the two files are; made when missing */
    int rank, size;
    uint64_t generation;
    const struct mck_buffer *buf; /* what the planes hold, but for gaps; data are addresses from base on, that are no */
    size_t n;                     /* memory; names are borrowed for as long as it is open */
    const void *base;             /* plane p lies at base + p · plane_bytes */
    uint64_t plane_bytes;         /* a multiple of MCK_CHUNK */
    size_t tile_bytes;            /* of each plane, likewise */
    unsigned unread;              /* bit p: plane p is not read back, as the caller has it */
};

struct tiles;

/* Both files with their space reserved (-ENOSPC), empty: what was in them is gone. -EINVAL, -ENOMEM, or an errno. */
int tiles_open(const struct tiles_cfg *cfg, struct tiles **ret, struct merr *err);
/* Waits for what is under way; what is not sealed by then is lost. */
void tiles_close(struct tiles *s);

size_t tiles_count(const struct tiles *s);

/* A pass begins, and its first tiles are read; blank: all are zero, and so is what the files held. A pass that has not
 * been sealed is given up. */
int tiles_begin(struct tiles *s, bool blank, struct merr *err);

/* Tile i, in turn, once it is here and found whole: its planes in *ret, memory of the ring until tiles_give. -EBADMSG
 * names what is damaged. */
int tiles_take(struct tiles *s, size_t i, void *ret[TILES_PLANES], struct merr *err);
int tiles_give(struct tiles *s, size_t i, struct merr *err);

/* All tiles are given: they are the state after step, with the job's cursor (as mck_begin). Returns at once. */
int tiles_seal(struct tiles *s, uint64_t step, const json_t *kv, struct merr *err);

/* Until what was sealed last is durable. */
int tiles_wait(struct tiles *s, struct merr *err);

/* A name of its own for the file sealed last, once it is durable, whose bytes then stay as they are: for
 * mck_begin_file. */
int tiles_save(struct tiles *s, struct mck_file_of *ret, struct merr *err);

/* Commit what all ranks of an earlier generation left sealed in dir, where that is newer than what checkpoints holds,
 * as checkpoints there. *ret_step: the newest, 0: none. For one rank. */
int tiles_commit(const char *dir, const char *checkpoints, uint64_t generation, uint64_t *ret_step, struct merr *err);

/* Remove all such files of dir. */
void tiles_clear(const char *dir);

#endif
