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

/* Forget ended jobs where there are more of them, or more bytes, than the server keeps: the oldest of the user who has
 * the most of them. */
void retire_jobs(struct core *c);

/* A run was assigned: one of the job that is long over makes room. */
void retire_generation(struct core *c, struct entry *e);

#endif
