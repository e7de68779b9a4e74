/* cgroup - the control groups of a rank: what it may take, and what it cannot leave
 *
 * A rank has a group under one name in each hierarchy where this process may make some: that of version 2, and of
 * version 1 those of memory, pids, cpu and freezer. They are named by a list, their folders parted by ':'. Where a
 * helper runs (worker/helper/helper.h), they lie in groups that it has given to the agent; else in the agent's own.
 */
#ifndef MUSTER_WORKER_AGENT_CGROUP_H
#define MUSTER_WORKER_AGENT_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_LIST_MAX 4096
#define CGROUP_FOLDERS_MAX 6

struct cgroup_limits { /* 0: none */
    uint64_t memory_bytes, pids;
    double cpus;
};

/* The folders below which groups can be made, as a list; "": there is none. at: where the hierarchies are mounted,
 * self: what /proc/self/cgroup says. helper: those of the helper. */
void cgroup_find(const char *at, const char *self, bool helper, char ret[CGROUP_LIST_MAX]);

/* The list of the groups of that name below them. Returns ret; "" when it is too long. */
const char *cgroup_list(const char *roots, const char *name, char ret[CGROUP_LIST_MAX]);

/* Make the groups and set their limits; those without a controller are left out. 0 or a negative errno. */
int cgroup_make(const char *list, const struct cgroup_limits *limits);

/* Move a process (0: this one) into them. 0 or a negative errno. Safe between fork and exec. */
int cgroup_enter(const char *list, pid_t pid);

/* Descriptors of their folders, at most n, -1 after the last. */
void cgroup_open(const char *list, int *fds, int n);

/* Kill all in them, once, and remove them if they are empty. 0 when they are gone; -EBUSY while some live. */
int cgroup_end(const char *list);

/* Has the kernel killed in them for want of memory? Then why says how much it was, and might be, if known. */
bool cgroup_oom(const char *list, char *why, size_t size);

#endif
