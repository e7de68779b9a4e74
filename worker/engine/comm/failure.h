/* failure - the first failure of a world: it answers every later call
 *
 * A rank whose peer, link or GPU fails cannot go on in that world. Who notices first keeps a code and words here; what
 * fails after that follows from it and is not kept. Used by one thread at a time.
 */
#ifndef MUSTER_WORKER_COMM_FAILURE_H
#define MUSTER_WORKER_COMM_FAILURE_H

#include "base/merr.h"

struct failure {
    int code; /* 0: nothing failed yet; else a negative errno */
    struct merr why;
};

/* Keep it, if it is the first. Returns the code that is kept, which is negative as the one given. */
int failure_keep(struct failure *f, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put words after those that are kept. */
void failure_add(struct failure *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put the kept failure, which there must be, into err. Returns its code. */
int failure_tell(const struct failure *f, struct merr *err);

#endif
