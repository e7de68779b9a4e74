/* host - what the machine as a whole does, as the kernel counts it: processors, memory, networks, the disk of jobs */
#ifndef MUSTER_WORKER_AGENT_HOST_H
#define MUSTER_WORKER_AGENT_HOST_H

#include <stdint.h>

#include "api/protocol/report.h"

struct host_seen { /* zeroed: never looked */
    uint64_t idle, all;
    uint64_t in, out; /* bytes */
    int64_t at_us;
};

/* Percent of the last ten seconds in which something had to wait for a processor; -1: not known. proc: where it is. */
int host_pressure(const char *proc);

/* The numbers of a report; -1: not known. What is told by the time since the last call is so the first time. disk: a
 * folder on it. */
void host_look(struct host_seen *seen, const char *proc, const char *disk, int64_t now_us,
               int ret[REPORT_HOST_NUMBERS]);

#endif
