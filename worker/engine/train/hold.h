/* hold - a step that a training run waits before: for tests, and for who wants to look at a job at a certain step
 *
 * MUSTER_HOLD, in the environment of the ranks or of their agent, names a folder; the job waits for the file there that
 * has the name of its spec. With the number N in it, the run begins no step once N are done, until the file holds a
 * larger number or is gone. A file without a number holds at once, and with the word "start" ranks wait even before
 * they read the state that they go on from. All ranks must see the same folder. They agree on
 * each wait in the step's sum, so they may read the file at different times: write a new number by renaming a file
 * into place, and before the run has come to it. A run that is held obeys its orders (save, move, hand over, drain,
 * abort) and tells what of its checkpoints has been committed.
 */
#ifndef MUSTER_WORKER_TRAIN_HOLD_H
#define MUSTER_WORKER_TRAIN_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define HOLD_PATH_MAX 4096
#define HOLD_MOST_S 3600 /* then the run fails: nobody will come */
#define HOLD_LOOK_MS 10  /* from one look at the file to the next */

struct hold {
    char path[HOLD_PATH_MAX]; /* ""; MUSTER_HOLD is not set: nothing is ever looked for */
};

/* Where a job of this name is held. -ENAMETOOLONG. */
int hold_init(struct hold *ret, const char *name, struct merr *err);

/* Whether MUSTER_HOLD is set: the same on all ranks. */
bool hold_may(const struct hold *h);

/* Whether a rank is to wait before it reads its state. */
bool hold_start_wanted(const struct hold *h);

/* Whether the run is to wait now that so many steps are done, as this rank sees it. */
bool hold_wanted(const struct hold *h, uint64_t done);

#endif
