/* deep - folders of a user's: as many files as they are, and deeper than a path can say
 *
 * A program may leave what io_remove_tree() cannot reach: below so many folders that their path is too long, or in one
 * without rights. It may leave more than there is time for, so this is done a part at a time.
 */
#ifndef MUSTER_WORKER_AGENT_DEEP_H
#define MUSTER_WORKER_AGENT_DEEP_H

#define DEEP_STEPS_MAX 20000 /* folders and files that one call looks at */

/* Remove what is in a folder, from the top, by moving folders up. Returns 0, -EAGAIN after
 * DEEP_STEPS_MAX, where another call goes on, or another negative errno. */
int deep_empty(const char *folder);

#endif
