/* owner - whose a folder of checkpoints is: recorded in it when it is made, and asked before anything there is read
 *
 * The record is the file .owner, {"user", "job"}. Jobs of one user share folders and go on from each other's; another
 * user's is only read, by init.from. A folder without a record, which an older version or `muster run` has made, is its
 * Unix owner's, and nobody's who finds it in the folder of another job.
 */
#ifndef MUSTER_WORKER_TRAIN_OWNER_H
#define MUSTER_WORKER_TRAIN_OWNER_H

#include "base/merr.h"

struct owner {
    const char *user, *job; /* whose run this is; user "": no server's, and Unix alone decides */
    const char *dir;        /* of the job */
};

/* Make the folder if it is missing, and let it be the user's if it is nobody's. Any number of ranks may ask at once.
 * Returns 0, -EPERM when it is another's, or what the file system says. */
int owner_claim(const char *folder, const struct owner *o, struct merr *err);

#endif
