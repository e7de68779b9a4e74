/* file - the files of a corpus: opened once, read by range
 *
 * Read rather than mapped: a file that shrinks or a mount that fails is then an error with words, not a signal.
 */
#ifndef MUSTER_WORKER_DATA_FILE_H
#define MUSTER_WORKER_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "base/merr.h"

/* Open a regular file that is not empty. Returns 0 with a new descriptor and its size in bytes, or -ENOENT and the
 * like, -EISDIR, -EINVAL (no regular file, or empty). what names it in messages: "the corpus". */
int file_open(const char *what, const char *path, int *ret_fd, uint64_t *ret_size, struct merr *err);

/* Open the corpus that a spec names. Returns 0 with its path, new, and as file_open; -EINVAL (it names none), -ENOMEM.
 */
int file_open_corpus(const struct job_spec *spec, char **ret_path, int *ret_fd, uint64_t *ret_size, struct merr *err);

/* Read len bytes from byte at. Returns 0 or -EIO: it cannot be read, or has shrunk. */
int file_read(int fd, const char *path, uint64_t at, void *data, size_t len, struct merr *err);

#endif
