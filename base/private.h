/* private - files and folders that nobody else may have a hand in: tokens, and where they lie
 *
 * What is not so is refused by name, with what to do: a token that others can read is theirs, too. Owners are this
 * process's user and root; of root's files a group may read (as systemd's credentials are). Root takes any owner's.
 */
#ifndef MUSTER_BASE_PRIVATE_H
#define MUSTER_BASE_PRIVATE_H

#include "base/buf.h"
#include "base/merr.h"

/* As io_read_file, of a regular file that is no symbolic link and that others can neither read nor write. -EPERM. */
int private_read_file(const char *path, struct buf *b, struct merr *err);

/* A folder of ours that others cannot write to. -EPERM; -ENOENT and the like as stat(2) has them. */
int private_check_folder(const char *path, struct merr *err);

#endif
