/* tool - another program, run once with a text: what it prints comes back, within a time and a size
 *
 * SIGPIPE is to be ignored. It runs with the rights and the environment of this process, in a session of its own,
 * with the usual signals. It and all of its processes that stay in that session's group end when it exits, takes too
 * long or prints too much.
 */
#ifndef MUSTER_API_CLIENT_TOOL_H
#define MUSTER_API_CLIENT_TOOL_H

#include <stdatomic.h>

#include "base/merr.h"

#define TOOL_OUT_MAX (1 << 20)
#define TOOL_STOP_MS 2000 /* that it has once *stop is set */

/* Run argv[0], a path or a name in PATH, with in (borrowed) as its standard input. *ret: what it printed, new. 0;
 * with words, which show what it wrote to its standard error:
 *   -EIO        it ended with another status than 0, or by a signal
 *   -ETIMEDOUT  it took longer, and was killed
 *   -EMSGSIZE   it printed more than TOOL_OUT_MAX, and was killed
 * others: it could not be started. stop may be NULL. */
int tool_run(const char *const *argv, const char *in, int timeout_ms, const _Atomic int *stop, char **ret,
             struct merr *err);

/* Whether nobody but root and this user can change the program. 0; -EINVAL, -EPERM with words. */
int tool_check(const char *path, struct merr *err);

#endif
