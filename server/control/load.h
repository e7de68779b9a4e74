/* load - the working set, read back from the store when musterd starts */
#ifndef MUSTER_SERVER_LOAD_H
#define MUSTER_SERVER_LOAD_H

#include "base/merr.h"

#define ACCEPT_JOBS 1000000 /* that may be lost at once, as far as agents are believed (--accept-loss) */

struct core;

/* All there is in the store, before the thread starts. A job whose spec this musterd does not take any more fails. 0,
 * or a negative errno with words. */
int load_all(struct core *c, struct merr *err);

/* Read a record that is in quarantine once more: its job, node, project or token is there again with this turn. 0;
 * -ENOENT: nothing of that name is in quarantine; -EINVAL: it still cannot be read; -EEXIST: another has come in its
 * place; -ENOMEM; with words. */
int load_again(struct core *c, const char *id, struct merr *err);

#endif
