/* coordinate - how the ranks of an attempt meet through files, and the commit
 *
 * A rank is prepared once its data file stands, durable, under its final name with the attempt's id in it; one
 * that failed leaves rank-00003.ATTEMPT.failed with its words. Rank 0 waits for all, merges, and renames MANIFEST.
 */
#ifndef MUSTER_CHECKPOINT_WRITE_COORDINATE_H
#define MUSTER_CHECKPOINT_WRITE_COORDINATE_H

#include <stdint.h>

#include "base/merr.h"
#include "checkpoint/format/index.h"

struct coordinate {
    const char *dir, *folder;
    uint64_t generation, step;
    const uint8_t *uuid;
    uint32_t writers;
    const uint32_t *rank; /* [writers]: the ranks whose files are here; NULL: all */
    int stop_fd;          /* readable: give up */
    int64_t deadline_us;
    uint64_t bytes, stored; /* out: of all files */
};

/* First 16 hex digits of an attempt's id. */
void coordinate_tag(const uint8_t uuid[16], char ret[17]);

/* Wait for the data files of the ranks. -ECOMM when one says that it failed, -ETIMEDOUT, -ECANCELED. */
int coordinate_wait(const struct coordinate *c, struct merr *err);

/* Wait for all data files, check that they fit and commit. On failure nothing is committed and the files of the
 * attempt stay. */
int coordinate_commit(struct coordinate *c, struct merr *err);

/* Merge the files of a folder into its MANIFEST: the end of a commit, and the whole of a repair. fenced:
 * under the fence of dir, which checks the generation; else the caller sees to that. */
int coordinate_write_manifest(const struct mck_index *ix, const char *dir, const char *folder, uint64_t generation,
                              bool fenced, struct merr *err);

/* Read and merge the parts of a folder. */
int coordinate_merge(const char *folder, uint32_t writers, struct mck_index *ret, struct merr *err);

/* Remove what belongs to an attempt that is given up: its data, temporary and failure files. */
void coordinate_abort(const char *folder, const uint8_t uuid[16]);

void coordinate_report_failure(const char *folder, const uint8_t uuid[16], uint32_t rank, const char *words);
void coordinate_clear_failure(const char *folder, const uint8_t uuid[16], uint32_t rank);

#endif
