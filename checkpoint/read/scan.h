/* scan - read chunks of a data file, verified and decoded, for one thread */
#ifndef MUSTER_CHECKPOINT_READ_SCAN_H
#define MUSTER_CHECKPOINT_READ_SCAN_H

#include "checkpoint/read/read.h"
#include "compress/chunk.h"

struct scan {
    struct mck *c;
    struct chunk_coder *coder;
    char *stored, *plain; /* a slot of stored bytes; a chunk decoded */
    int fd;
    bool may_direct, direct; /* fd can read past the page cache, and does */
    bool cached;             /* set by the caller: others on this node read the same, so through it all the same */
    uint32_t file;           /* that fd is of */
};

int scan_init(struct scan *s, struct mck *c, struct merr *err);
void scan_clear(struct scan *s);

/* Give take, unless NULL, each chunk in [from, to) of a file, in order. Returns what take returned if not 0, or
 * -EBADMSG with file, chunk and tensors named, -errno. */
int scan_chunks(struct scan *s, uint32_t file, uint64_t from, uint64_t to,
                int (*take)(void *arg, uint64_t chunk, const void *data, uint32_t len), void *arg, struct merr *err);

/* Check all chunks of a file; tell is called for each damaged one, and may use the scan meanwhile. */
void scan_check(struct scan *s, uint32_t file,
                void (*tell)(void *arg, uint32_t file, uint64_t chunk, const struct merr *why), void *arg);

/* Names and roles of the tensors that lie in [lo, hi) of the stream of a file, at most 100, as new JSON. */
json_t *scan_tensors(const struct mck *c, uint32_t file, uint64_t lo, uint64_t hi);

/* The same for people, appended to words that say what is wrong there. */
void scan_add_tensors(const struct mck *c, uint32_t file, uint64_t lo, uint64_t hi, struct merr *err);

#endif
