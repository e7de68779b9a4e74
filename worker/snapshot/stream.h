/* stream - the data files of one node of a snapshot, read or written as one run of bytes (parity.h)
 *
 * Behind its end there are zeros to read, and what is written there is left out.
 */
#ifndef MUSTER_WORKER_SNAPSHOT_STREAM_H
#define MUSTER_WORKER_SNAPSHOT_STREAM_H

#include "worker/snapshot/parity.h"

#define STREAM_PATH_MAX 4096

struct stream;

/* FOLDER/rank-%05u.mck and what follows it, "" but for files not yet whole. */
void stream_path(const char *folder, uint32_t rank, const char *suffix, char ret[STREAM_PATH_MAX]);

enum stream_mode {
    STREAM_READ,
    STREAM_CHANGE, /* what there is */
    STREAM_MAKE,   /* new files, with room for all */
};

/* The files of n parts in a folder. -ENOENT, -EBADMSG when one has another length,
 * -ENOSPC. */
int stream_open(const char *folder, const char *suffix, const struct parity_part *part, uint32_t n,
                enum stream_mode mode, struct stream **ret, struct merr *err);
int stream_read(struct stream *s, uint64_t at, void *data, size_t len, struct merr *err);
int stream_write(struct stream *s, uint64_t at, const void *data, size_t len, struct merr *err);
void stream_free(struct stream *s);

/* The same for one file, as input_read_at() of checkpoint/format/input.h reads. path stands in words. */
int stream_write_at(int fd, const char *path, uint64_t at, const void *data, size_t len, struct merr *err);

#endif
