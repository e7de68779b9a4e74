/* scan - read chunks of a data file, verified and decoded, for one thread */
#ifndef MUSTER_CHECKPOINT_SCAN_H
#define MUSTER_CHECKPOINT_SCAN_H

#include "checkpoint/read.h"
#include "compress/chunk.h"

struct scan {
    const struct mck *c;
    struct chunk_coder *coder;
    char *stored, *plain; /* a slot of stored bytes; a chunk decoded */
    int fd;
    bool direct; /* fd reads past the page cache */
    uint32_t file; /* that fd is of */
};

int scan_init(struct scan *s, const struct mck *c, struct merr *err);
void scan_clear(struct scan *s);

/* Give take each chunk in [from, to) of a file, in order. Returns what take returned if not 0, or -EBADMSG with
 * file and chunk named, -errno. Unless *ret_chunk is not wanted, it tells the chunk at fault. */
int scan_chunks(struct scan *s, uint32_t file, uint64_t from, uint64_t to,
                int (*take)(void *arg, uint64_t chunk, const void *data, uint32_t len), void *arg, struct merr *err);

#endif
