/* load - the working set, read back from the store when musterd starts */
#ifndef MUSTER_SERVER_LOAD_H
#define MUSTER_SERVER_LOAD_H

#include "base/merr.h"

struct core;

/* All there is in the store, before the thread starts. A job whose spec this musterd does not take any more fails. 0,
 * or a negative errno with words. */
int load_all(struct core *c, struct merr *err);

#endif
