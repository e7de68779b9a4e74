/* unpack - a bundle (api/bundle.h) laid out in a folder */
#ifndef MUSTER_WORKER_AGENT_UNPACK_H
#define MUSTER_WORKER_AGENT_UNPACK_H

#include <stddef.h>

#include "base/merr.h"

/* Lay out a bundle of len bytes in the empty folder that dir_fd is. Nothing outside of it is touched, whatever the
 * bytes say. Returns 0, -EBADMSG of a bundle that is refused, or another negative errno; the folder may have a part of
 * it. */
int unpack_bundle(const void *data, size_t len, int dir_fd, struct merr *err);

/* The same of a file, which must have that name by its content. */
int unpack_file(const char *path, const char *name, int dir_fd, struct merr *err);

#endif
