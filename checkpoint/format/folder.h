/* folder - names, attempt ids and fences of a job's checkpoint folder
 *
 *   DIR/.generation     the newest generation that wrote here, 20 digits; flock guards it and every rename
 *   DIR/step-00000200/  MANIFEST, rank-00003.mck; while under way rank-00003.mck.ATTEMPT.tmp
 *   DIR/.trash-*        a deletion under way
 *   DIR/.archive-*      an archive that is to take a step's place; its archiver holds a flock on it
 */
#ifndef MUSTER_CHECKPOINT_FORMAT_FOLDER_H
#define MUSTER_CHECKPOINT_FORMAT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

#define MCK_PATH_MAX 4096
#define ARCHIVE_PREFIX ".archive-"

/* Id of the try-th attempt (from 0) of a step by a generation: all ranks derive it without talking. */
void folder_attempt(uint64_t generation, uint64_t step, uint32_t try, uint8_t ret[16]);

/* DIR/step-%08u (with /NAME unless NULL). Returns 0, or -ENAMETOOLONG. */
int folder_step_path(const char *dir, uint64_t step, const char *name, char out[MCK_PATH_MAX], struct merr *err);
int folder_join(const char *path, const char *name, char out[MCK_PATH_MAX], struct merr *err);

/* Is name that of a step's folder? */
bool folder_parse_step(const char *name, uint64_t *ret_step);

/* Make dir and its missing parents, durable. An existing one is fine. */
int folder_make(const char *dir, struct merr *err);

/* Record a generation. -ESTALE when a newer one was here. */
int folder_raise_generation(const char *dir, uint64_t generation, struct merr *err);

/* Hold the fence while renaming: *ret_fd to close after. -ESTALE when a newer generation was here. exclusive keeps
 * all others out. Waits at most ten seconds (-ETIMEDOUT). */
int folder_fence(const char *dir, uint64_t generation, bool exclusive, int *ret_fd, struct merr *err);

/* Remove the folder of an archiver that is no more. -EBUSY when it lives. */
int folder_remove_dead(const char *path, struct merr *err);

/* Steps that have a folder, ascending, committed or not; free(*ret). A missing dir has none. */
int folder_steps(const char *dir, uint64_t **ret, size_t *ret_n, struct merr *err);

#endif
