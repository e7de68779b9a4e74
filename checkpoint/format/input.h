/* input - files from outside, opened and read without trust in what stands under their names */
#ifndef MUSTER_CHECKPOINT_FORMAT_INPUT_H
#define MUSTER_CHECKPOINT_FORMAT_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

/* Open a file, and nothing else that has such a name, for reading. Returns a descriptor, -EBADMSG or -errno. */
int input_open(const char *path, struct merr *err);

/* Read len bytes at off. 0, -EBADMSG when the file ends before, -errno. */
int input_read(int fd, void *data, size_t len, uint64_t off);

/* The same with words, in which path stands. */
int input_read_at(int fd, const char *path, uint64_t off, void *data, size_t len, struct merr *err);

#endif
