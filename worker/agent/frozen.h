/* frozen - whether a control group of a process is frozen, so that it does nothing until that is taken back
 *
 * A frozen process is not in the state of a stopped one: with version 1 it looks as one that waits for a disk, with
 * version 2 as one that sleeps. Its groups tell, and for those above it, too: "freezer.state" of version 1,
 * "cgroup.events" of version 2.
 */
#ifndef MUSTER_WORKER_AGENT_FROZEN_H
#define MUSTER_WORKER_AGENT_FROZEN_H

#include <stdbool.h>
#include <sys/types.h>

/* proc, cgroup: where they are mounted. false also where the kernel does not tell. */
bool frozen_is(const char *proc, const char *cgroup, pid_t pid);

#endif
