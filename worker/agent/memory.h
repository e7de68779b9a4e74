/* memory - folders in this node's memory (a tmpfs) where the ranks of a job leave snapshots
 *
 * They outlive rank, shim and agent, though not the machine. ROOT/JOB belongs to one job: the one whose own folder it
 * was made for. It stays while the job has a run here, and MEMORY_KEEP_S longer, for the job's next generation; it goes
 * at once when the job is done: by waste (waste.h), or here and now where that is NULL. All state is in the folders, so
 * any agent of the same root goes on where one ended.
 */
#ifndef MUSTER_WORKER_AGENT_MEMORY_H
#define MUSTER_WORKER_AGENT_MEMORY_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"
#include "worker/agent/waste.h"

#define MEMORY_KEEP_S 300

/* WHERE/muster-…, apart for each user and each state folder. Nothing is made. */
void memory_root(const char *where, const char *state, char ret[PATH_MAX]);

/* Make or find ROOT/JOB for the job that works in dir; what another job of that name left there is removed. */
int memory_open(struct waste *waste, const char *root, const char *job, const char *dir, char ret[PATH_MAX],
                struct merr *err);

/* A run of the job is over. done: so is the job. */
void memory_close(struct waste *waste, const char *root, const char *job, bool done);

/* Remove folders that nobody has used for MEMORY_KEEP_S. used(arg, job): has it a run here? */
void memory_sweep(struct waste *waste, const char *root, bool (*used)(const void *arg, const char *job),
                  const void *arg, int64_t wall_us);

#endif
