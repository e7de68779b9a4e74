/* disk_log - what this process asks of the disk, in order, and what a power loss may leave of that
 *
 * The linker's --wrap (CHANGING in mk/test.mk) puts each call that changes files below a folder through here.
 * After a power loss there is what was synced: a file's bytes once the file was, a folder's names once the folder was.
 * Of what was not yet, any part may be there: writes torn between sectors of 512 bytes, and of changed names either all
 * up to some instant, as a journal has it, or any of them.
 */
#ifndef MUSTER_TESTS_FAULT_DISK_LOG_H
#define MUSTER_TESTS_FAULT_DISK_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

/* Log from here on what happens below root, an empty folder. Once; the log stays until the process ends. */
void disk_log_begin(const char *root);
void disk_log_end(void);

/* Remember here that a number was reached. */
void disk_log_mark(uint64_t number);

/* How many changes there are. */
size_t disk_log_length(void);

/* The last number marked before change `at`; 0: none. */
uint64_t disk_log_marked(size_t at);

/* Make below `to`, an empty folder, what may be there after the first `at` changes and a power loss; another seed,
 * another of the possibilities. */
int disk_log_replay(size_t at, uint64_t seed, const char *to, struct merr *err);

#endif
