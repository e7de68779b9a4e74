/* ranks_priv - what ranks.c and ranks_start.c share */
#ifndef MUSTER_WORKER_AGENT_RANKS_PRIV_H
#define MUSTER_WORKER_AGENT_RANKS_PRIV_H

#include "worker/agent/ranks.h"

struct ranks {
    struct machine *machine; /* borrowed */
    char *node;
    int slots;
    void (*failed)(void *arg, struct run *run); /* see ranks_cfg */
    void *arg;
    int64_t sweep_us; /* next look for memory that nobody uses */
    struct run **v;   /* n runs, at most RANKS_RUNS_MAX */
    size_t n;
};

/* Whether a launcher, which is the first rank of this node, starts the rank: it has no shim of its own, and ends with
 * the launcher. What it leaves in the run's folder is its own. */
bool ranks_is_launched(const struct run *run, const struct rank *rank);

void ranks_run_free(struct run *run);

/* A rank has ended like this. */
void ranks_end_rank(struct run *run, struct rank *rank, const struct rank_exit *end);

/* A rank that could not be started, or is gone without a word: by a cause of the node. It is written down, if its
 * folder is there. */
void ranks_lose_rank(const struct ranks *r, struct run *run, struct rank *rank, const char *reason);

/* Likewise by another cause. */
void ranks_fail_rank(const struct ranks *r, struct run *run, struct rank *rank, enum exit_cause cause,
                     const char *reason);

#endif
