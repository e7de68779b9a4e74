/* waste - folders that are to go: set aside at once, removed by a thread of its own
 *
 * A program may leave a million files, and to remove them takes as long as it takes, in which a node must go on telling
 * that it lives. So such a folder gets another name beside where it was (".gone-NAME~0"), which is one rename. What is
 * to go is on the disk alone: the thread looks for such names, so a later agent goes on where one ended. It removes as
 * the user what is the user's (account.h). What cannot be removed is told, and tried again after a while.
 */
#ifndef MUSTER_WORKER_AGENT_WASTE_H
#define MUSTER_WORKER_AGENT_WASTE_H

#include "base/merr.h"
#include "worker/agent/account.h"

#define WASTE_MAX 256 /* folders that wait to be removed; a further one stays where it is until there is room */

struct waste;

/* root: folder of runs' folders, memory: of jobs' memory, NULL: there is none; what is set aside in them is removed.
 * account is borrowed. NULL: no memory. */
struct waste *waste_new(const struct account *account, const char *root, const char *memory);

/* Remove what an earlier agent has left set aside. */
void waste_begin(struct waste *w);

/* Set a folder in one of the two aside, and what is its /dev/shm. Returns 0, also when it is not there; -EBUSY while
 * too many wait; another negative errno: it is where it was. w NULL: it is removed here and now. */
int waste_take(struct waste *w, const char *path, struct merr *err);

/* End the thread, in the middle of a folder, too. NULL is fine. */
void waste_free(struct waste *w);

#endif
