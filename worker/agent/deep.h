/* deep - folders of a user's in folders, deeper than a path can say
 *
 * A program may leave what io_remove_tree() cannot reach: below so many folders that their path is too long, or in one
 * without rights. Its run would stay for ever, and a node holds so many.
 */
#ifndef MUSTER_WORKER_AGENT_DEEP_H
#define MUSTER_WORKER_AGENT_DEEP_H

#define DEEP_STEPS_MAX 200000 /* folders and files that one call looks at */

/* Remove the folders in a folder with all that is in them, from the top, by moving folders up. Returns 0, -EAGAIN after
 * DEEP_STEPS_MAX, where another call goes on, or another negative errno. */
int deep_empty(const char *folder);

#endif
