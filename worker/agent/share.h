/* share - several ranks of a command on one device: their parent, in the place of one
 *
 * They are in one process group, so that signals that a rank is sent reach all of them. When one fails the others are
 * told to end and, if they do not, are killed: a rank that waits for one that is gone would wait for ever. Those that
 * stop since they were ordered to are left to the agent's own deadlines.
 */
#ifndef MUSTER_WORKER_AGENT_SHARE_H
#define MUSTER_WORKER_AGENT_SHARE_H

#include "base/merr.h"

/* Become n ranks, with the numbers from RANK and LOCAL_RANK of the environment on: 0 is returned in each. In their
 * parent, once all have ended, 1 with the status to end with: that of the first that failed, else 0. A signal that
 * ended the first ends the parent. -errno: not all could be started, and none is left. */
int share_device(int n, int *ret_status, struct merr *err);

#endif
