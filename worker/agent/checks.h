/* checks - what an agent sees by itself of whether its node can work: its folders, its memory, its clock, its network
 *
 * Some of it may block, as a disk that is away does: not for the agent's own thread (checkup.h).
 */
#ifndef MUSTER_WORKER_AGENT_CHECKS_H
#define MUSTER_WORKER_AGENT_CHECKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/agent/nic.h"

#define CHECKS_REASON_MAX 1025

enum checks_level { CHECKS_WELL, CHECKS_NO_WORK, CHECKS_DRAIN, CHECKS_LEVELS }; /* the worst counts */

struct checks_cfg {     /* borrowed */
    const char *state;  /* folder that ranks' logs go to */
    const char *memory; /* folder in memory; NULL: none */
    const char *rdma;   /* NIC_SYSFS */
    const char *net;    /* CHECKS_NET */
    const char *device; /* network device that the node is reached by; "": not known */
    struct nic nic;     /* as the agent found it when it started */
    uint64_t free_least;
};

#define CHECKS_NET "/sys/class/net"
#define CHECKS_FREE_LEAST (UINT64_C(256) << 20) /* bytes of the state folder's disk: less is too little for logs */
#define CHECKS_MEMORY_LEAST (UINT64_C(4) << 20)
#define CHECKS_SKEW_US INT64_C(5000000)

struct checks_found {
    enum checks_level level;
    char reason[CHECKS_REASON_MAX]; /* "": nothing to say; it may have words although all is well */
};

/* Look. skew_us: how far the node's clock is ahead of the server's; 0: it is not, or nobody knows. */
void checks_look(const struct checks_cfg *cfg, int64_t skew_us, struct checks_found *ret);

/* Add a finding: the worse level is kept, with the words of both, the worse first. */
void checks_add(struct checks_found *all, enum checks_level level, const char *reason);

struct checks_wait {
    int timeout_ms;
    const _Atomic bool *stop; /* wait no longer once it is true; NULL: there is none */
};

/* Run a person's program: ends with 0, the node is well; 1, it shall get no new work; 2, its jobs shall leave. What it
 * prints is the reason. Returns 0; -ETIMEDOUT, -EIO or another negative errno when it says nothing: it was not started,
 * did not end in time (it is killed then, with all of its group) or ended with another status. */
int checks_run_program(const char *program, const struct checks_wait *wait, struct checks_found *ret);

/* Start argv and read what it prints, at most size - 1 bytes; returns its status or as checks_run_program. */
int checks_spawn(const char *const argv[], const struct checks_wait *wait, char *out, size_t size);

/* The network device with this address; "": none has. */
void checks_find_device(const char *address, char *ret, size_t size);

#endif
