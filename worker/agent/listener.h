/* listener - the program of a job that listens on a port of this node, and a connection to it
 *
 * Who may reach a job's ports may not reach what else the node has on 127.0.0.1. A port is the job's when every socket
 * that listens on it there is held by a process whose environment has the job's MUSTER_JOB, as all have that a rank or
 * a session of it began. What this process may not look into, as those of other accounts, is nobody's of the job.
 */
#ifndef MUSTER_WORKER_AGENT_LISTENER_H
#define MUSTER_WORKER_AGENT_LISTENER_H

#include "base/merr.h"

/* Whether the port of 127.0.0.1 is the job's; proc: "/proc". 0; -ECONNREFUSED: nobody listens there; -EACCES: somebody
 * else does. */
int listener_find(const char *proc, int port, const char *job, struct merr *err);

/* A connection to it, which does not block. Errors of listener_find, or of connect(2). */
int listener_connect(int port, const char *job, int *ret_fd, struct merr *err);

#endif
