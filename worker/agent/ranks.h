/* ranks - the runs of this node: started, watched, stopped, found again
 *
 * A run is one generation of a job on this node. All that is needed to find it again lies in its folder
 * (docs/protocol.md), so an agent may be killed at any point and its successor adopts what it finds.
 * Every action may be asked twice. What it does to processes and files it does through the machine (machine_rank.h):
 * ends come as events on machine_fd(). One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_RANKS_H
#define MUSTER_WORKER_AGENT_RANKS_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/assignment.h"
#include "api/protocol/report.h"
#include "api/spec.h"
#include "base/merr.h"
#include "worker/agent/machine_rank.h"

#define RANKS_JOB_MAX PROTOCOL_JOB_MAX
#define RANKS_RUNS_MAX 1024

enum rank_state { RANK_STARTING, RANK_RUNNING, RANK_EXITED };

struct rank {
    int rank, slot, local_rank; /* slot -1: a source node's, which has none */
    enum rank_state state;
    struct machine_rank *on_machine; /* its processes; owned */
    int64_t kill_us;                 /* next, harder signal; INT64_MAX: none */
    int kills;                       /* hard signals so far */
    struct rank_exit exit;           /* once it has ended */
    json_t *log_tail;                /* of a rank that failed; else NULL */
};

struct run {
    char job[RANKS_JOB_MAX];
    uint64_t generation;
    char folder[PATH_MAX], dir[PATH_MAX];
    struct assignment assignment;
    struct job_spec *spec;       /* NULL: it could not be read; all ranks have ended by EXIT_CAUSE_NODE */
    enum assignment_order order; /* those from HAND_OVER on are not taken back; SAVE is asked each time after RUN */
    bool failed;                 /* a rank has ended badly and its mates were told */
    int grace_s, world, nodes;   /* nodes: of ranks, and source nodes */
    int devices_next;            /* of the run after it, for what the order says; 0: not known */
    int64_t ask_us;              /* SIGTERM for an elastic one that was told to end by a file; INT64_MAX: no matter */
    uint64_t evidence;           /* number of the newest that the server has asked for (witness.h) */
    int warned_s;                /* the limit that it was warned of; 0: of none */
    int trial;                   /* the newest test of devices that its ranks were told of */
    bool told_failure;           /* what its ranks did as one failed is told */
    int first_bad;               /* index in ranks of the first that failed of itself, -1: none */
    int n;
    struct rank *ranks; /* those of this node */
};

struct ranks_cfg {
    struct machine *machine;                    /* borrowed; it outlives the table */
    const char *node;                           /* name of this node; copied */
    int slots;                                  /* of the node */
    void (*failed)(void *arg, struct run *run); /* a rank has failed, and the others are about to be ended; NULL */
    void *arg;
};

struct ranks;

int ranks_new(const struct ranks_cfg *cfg, struct ranks **ret, struct merr *err);
/* Leaves the ranks themselves alone. */
void ranks_free(struct ranks *r);

/* Find the runs that an earlier agent left in root. Folders without an assignment held no rank yet and are
 * removed. Ranks that are gone without a word (their shim lost, the machine rebooted) end by EXIT_CAUSE_NODE. */
int ranks_adopt(struct ranks *r, struct merr *err);

/* Start this node's ranks of an assignment. 0 when it runs, or is known already; -EAGAIN when a slot is
 * still taken by another run; -EINVAL when the assignment makes no sense, -EPROTO when it is of a
 * version that is not known (nothing is kept); -ENOSPC with too
 * many runs. A rank that cannot be started is a rank that ended by EXIT_CAUSE_NODE: its exit says why. */
int ranks_start(struct ranks *r, const json_t *assignment, struct merr *err);

/* Give an order to all ranks of a run; a second STOP may shorten the grace. -ENOENT for an unknown run. */
int ranks_order(struct ranks *r, const char *job, uint64_t generation, enum assignment_order order, int grace_s);

/* Its job's limit of so many seconds is near, 0: none is. The ranks of a command are sent the signal of its spec, for
 * each limit once; once more only by an agent that has started since. */
void ranks_warn(struct ranks *r, const char *job, uint64_t generation, int limit_s);

/* Those of a training run of which the number is among these are to make this test of their devices; 0: none is. */
void ranks_try(struct ranks *r, const char *job, uint64_t generation, int number, const int rank[2]);

/* Remove a run whose ranks have all ended, with its folder. 0 also when it is not there; -EBUSY while one
 * lives. */
int ranks_forget(struct ranks *r, const char *job, uint64_t generation, struct merr *err);

/* When ranks_tick has something to do in any case, not only when machine_fd() is readable. */
int64_t ranks_deadline(const struct ranks *r);

/* Look after everything that has happened. True when a rank has started or ended. */
bool ranks_tick(struct ranks *r, int64_t now_us);

size_t ranks_count(const struct ranks *r);
const struct run *ranks_at(const struct ranks *r, size_t i);
struct run *ranks_find(const struct ranks *r, const char *job, uint64_t generation);
bool ranks_run_ended(const struct run *run);

/* The run as reports have it; to be cleared (report_run_clear). Returns 0 or -ENOMEM. */
int ranks_run_report(const struct run *run, struct report_run *ret);

/* The same with what each rank waits in, also those that go on, and without what is told once. */
int ranks_run_look(const struct run *run, struct report_run *ret);

#endif
