/* evidence - what a node tells of the ranks of a run that stands still, has failed or is looked at
 *
 * An agent sends it when an assignment asks (`evidence`), before it obeys an order to stop that comes with it; and by
 * itself, with number 0, when a rank of its own has failed first. Nothing is decided by it: it is for people.
 */
#ifndef MUSTER_API_PROTOCOL_EVIDENCE_H
#define MUSTER_API_PROTOCOL_EVIDENCE_H

#include "api/protocol/report.h"
#include "scheduler/plan/layout.h"

#define EVIDENCE_RANKS_MAX 256     /* of a node of which all is told */
#define EVIDENCE_LOG_BYTES 4096    /* of the end of a log */
#define EVIDENCE_KERNEL_BYTES 8192 /* of the kernel's messages */

struct evidence_rank {
    struct report_rank told; /* as in a report, but also of a rank that goes on */
    json_t *flight;          /* what its page has; NULL: none */
    json_t *processes;       /* it and what it started: state, what it waits in, threads, stacks; NULL: none is left */
    const char *log;         /* the end of what it printed; NULL: nothing */
    char left_out[160];      /* what is missing, and why; "": nothing */
};

struct evidence {
    char incarnation[PROTOCOL_NODE_MAX]; /* of the agent's process */
    char job[PROTOCOL_JOB_MAX];
    int64_t generation, number; /* that was asked for; 0: nobody asked */
    char proof[PROTOCOL_PROOF_MAX];
    int64_t took_ms;
    const char *kernel; /* the newest messages of the node's kernel; NULL: they are not for its users */
    struct evidence_rank *ranks;
    size_t n_ranks;
};

extern const struct wire_message evidence_message, evidence_rank_message;

/* Read doc, borrowed; its texts are borrowed from it. Returns 0, -EINVAL with every fault, -ENOMEM; *ret is unchanged
 * then. */
int evidence_read(const json_t *doc, struct evidence *ret, struct merr *err);
json_t *evidence_write(const struct evidence *e); /* new; NULL without memory */
void evidence_clear(struct evidence *e);

#endif
