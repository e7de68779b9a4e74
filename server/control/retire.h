/* retire - what grows with time: jobs that ended long ago and a job's old generations leave the store and the spool
 *
 * Jobs' own folders stay.
 */
#ifndef MUSTER_SERVER_RETIRE_H
#define MUSTER_SERVER_RETIRE_H

#include "server/control/entry.h"

struct core;

/* Forget a job that has ended, or cannot be read. False: no memory, and it stays. */
bool retire_job(struct core *c, uint64_t job);

/* Forget the oldest of the jobs that have ended, where there are more than the server keeps. */
void retire_jobs(struct core *c);

/* A run was assigned: one of the job that is long over makes room. */
void retire_generation(struct core *c, struct entry *e);

#endif
