/* starve - how long a process had no processor though it could have run, and why: other processes, its control groups'
 * limit, or the hypervisor
 *
 * From what the kernel counts: the time that its main thread waited in a queue (/proc/PID/schedstat, of which the time
 * at a limit is a part), cpu.stat of the control groups that it is in, and "steal" of /proc/stat. A process that is
 * stopped waits in no queue; how long it was, its parent says.
 */
#ifndef MUSTER_WORKER_AGENT_STARVE_H
#define MUSTER_WORKER_AGENT_STARVE_H

#include <stdint.h>
#include <sys/types.h>

#include "worker/agent/steps.h"

struct starve_seen { /* of a process, at some time; zeroed: never */
    pid_t pid;
    int64_t at_us, waited_us, throttled_us, stopped_us;
};

/* What of the time since it was seen last, at most 1; 0 where the kernel does not tell, and the first time. proc,
 * cgroup: where they are mounted; stopped_us: in all time. */
struct steps_lack starve_look(struct starve_seen *seen, const char *proc, const char *cgroup, pid_t pid,
                              int64_t stopped_us, int64_t now_us);

/* Microseconds that control groups were at their limits in all time, the most of those that groups, the text of
 * /proc/PID/cgroup, names, and those above; 0: they have none. */
int64_t starve_throttled_us(const char *cgroup, const char *groups);

struct starve_steal { /* zeroed: never looked */
    uint64_t stolen, all;
};

/* Percent of the processors' time since the last call, by /proc/stat; -1: not known. */
int starve_steal(struct starve_steal *seen, const char *proc);

#endif
