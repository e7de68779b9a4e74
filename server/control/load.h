/* load - the working set, read back from the store when musterd starts */
#ifndef MUSTER_SERVER_LOAD_H
#define MUSTER_SERVER_LOAD_H

#include <stdint.h>

#include "base/merr.h"

#define ACCEPT_JOBS 1000000 /* that may be lost at once, as far as agents are believed (--accept-loss) */

struct core;
struct entry;

/* All there is in the store, before the thread starts. A job whose spec this musterd does not take any more fails. 0,
 * or a negative errno with words. */
int load_all(struct core *c, struct merr *err);

/* Read a record that is in quarantine once more: its job, node, project or token is there again with this turn. 0;
 * -ENOENT: nothing of that name is in quarantine; -EINVAL: it still cannot be read; -EEXIST: another has come in its
 * place; -ENOMEM; with words. */
int load_again(struct core *c, const char *id, struct merr *err);

/* Take a job that has ended into the working set again, as it was stored: the caller lets it go on within this turn. 0;
 * -EIO, -ENOMEM, -EINVAL with words. */
int load_ended(struct core *c, uint64_t id, struct entry **ret, struct merr *err);

#endif
