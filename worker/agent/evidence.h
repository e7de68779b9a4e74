/* evidence - what the processes of a rank do: read from /proc, the rank's flight page and its log
 *
 * All of it belongs to the user of the job and may be anything: nothing is believed, all is bounded, and nothing is
 * waited for beyond the deadline. Any thread.
 */
#ifndef MUSTER_WORKER_AGENT_EVIDENCE_H
#define MUSTER_WORKER_AGENT_EVIDENCE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/agent/proc.h"

#define EVIDENCE_PROCESSES 16 /* of a rank */
#define EVIDENCE_THREADS 32   /* of a process */

struct evidence_of {
    char folder[PATH_MAX]; /* of the run */
    int rank;
    struct proc_id child; /* its first process; pid 0: not known */
    bool python;          /* ask py-spy for the stacks of Python programs, where it is installed */
};

/* "flight", "processes" and "log" of an evidence message's rank (api/protocol/evidence.h), as far as there are any;
 * new. NULL without memory. */
json_t *evidence_gather(const struct evidence_of *of, int64_t deadline_us);

/* The newest messages of the kernel, new; NULL where a user of this machine may not read them, or nobody here can. */
char *evidence_kernel(void);

/* The same for n ranks (of is taken over), on a thread of its own: see machine_evidence_begin(). */
struct machine_evidence *evidence_begin_take(struct evidence_of *of, size_t n, int64_t budget_us, int epoll_fd);

#endif
