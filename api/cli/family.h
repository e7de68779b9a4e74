/* family - processes by their id and start, and all that descend from them */
#ifndef MUSTER_API_CLI_FAMILY_H
#define MUSTER_API_CLI_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/merr.h"

#define FAMILY_MAX (1 << 22) /* processes that Linux runs at once, at most */

struct process {
    pid_t pid, parent;
    unsigned long long start; /* with the pid, the process for good */
};

struct family {
    struct process *v; /* owned; n of them */
    size_t n;
};

/* False when there is no such process, or only its remains. */
bool family_look_up(pid_t pid, struct process *ret);

bool family_alive(const struct process *p);

/* The n processes of first and all that descend from them, first first; proc is where the machine's are ("/proc").
 * Returns 0 with *ret to be cleared, or a negative errno with words: then it cannot be said who they are. */
int family_gather(const char *proc, const struct process *first, size_t n, struct family *ret, struct merr *err);

void family_clear(struct family *f);

#endif
