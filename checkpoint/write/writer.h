/* writer - what stands above a mck_writer may ask of it: to be told of commits, and to end with it */
#ifndef MUSTER_CHECKPOINT_WRITE_WRITER_H
#define MUSTER_CHECKPOINT_WRITE_WRITER_H

#include "checkpoint/checkpoint.h"

struct writer_follower {
    void (*committed)(void *arg);                     /* another checkpoint was; returns at once */
    int (*next_failure)(void *arg, struct merr *ret); /* 1 with the words of one not told before; else 0 */
    void (*free)(void *arg);                          /* the writer ends */
};

/* As the writer was given it, with what it takes where 0 stood. Borrowed. */
const struct mck_cfg *writer_cfg(const struct mck_writer *w);

/* Let a follower (arg stolen) go along with a writer that has none. */
void writer_follow(struct mck_writer *w, const struct writer_follower *follower, void *arg);

#endif
