/* io - small helpers over file descriptors: whole transfers, durable small files, folders
 *
 * Each retries EINTR and opens with O_CLOEXEC. All return 0 or a negative errno with words in err.
 */
#ifndef MUSTER_BASE_IO_H
#define MUSTER_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/merr.h"

/* Write all len bytes. Returns 0 or a negative errno. */
int io_write_all(int fd, const void *data, size_t len);

/* Read up to len bytes, less only at the end of the file. Returns the count or a negative errno. */
ssize_t io_read_full(int fd, void *data, size_t len);

/* Append the whole file to b. -EMSGSIZE when it passes b's limit. */
int io_read_file(const char *path, struct buf *b, struct merr *err);

/* Likewise the rest of an open file, which path names in words. */
int io_read_open(int fd, const char *path, struct buf *b, struct merr *err);

/* Open what others may have put there: a plain file and nothing else, without waiting for anybody. flags as for
 * open(2); a file that is made has mode 0600. -ELOOP when it is a link, -EMEDIUMTYPE when it is a folder, a pipe, a
 * device or a socket; other errors as of open(2). */
int io_open_plain(const char *path, int flags);

/* As io_read_file, of a plain file (io_open_plain). */
int io_read_plain(const char *path, struct buf *b, struct merr *err);

/* Put data into path at once or not at all: written to a new file beside it, synced, renamed into
 * place, the folder synced. mode as for open(2). */
int io_write_file(const char *path, const void *data, size_t len, mode_t mode, struct merr *err);

/* As io_write_file without the syncs: whole or not there, but not sure to survive a power loss. */
int io_publish_file(const char *path, const void *data, size_t len, mode_t mode, struct merr *err);

/* Make path and its missing parents. An existing folder is fine. */
int io_mkdirs(const char *path, mode_t mode, struct merr *err);

/* Make a folder's entries durable. */
int io_sync_dir(const char *path, struct merr *err);

/* Remove path and all below it; a path that is not there is fine. Follows no links. */
int io_remove_tree(const char *path, struct merr *err);

/* Take a lock as flock(2) does, how being LOCK_SH or LOCK_EX. -ETIMEDOUT when others hold it until deadline_us of the
 * monotonic clock. */
int io_lock(int fd, int how, int64_t deadline_us);

/* Close *fd unless it is -1, keep errno, leave -1: for cleanup. */
void io_close(int *fd);

#define IO_CLOSE_AUTO __attribute__((cleanup(io_close)))

#endif
