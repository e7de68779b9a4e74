/* machine_rank - a rank on the machine: started under a shim, watched through its page, ended; see machine.h
 *
 * A rank's struct outlives neither its run's folder nor the machine. One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_MACHINE_RANK_H
#define MUSTER_WORKER_AGENT_MACHINE_RANK_H

#include "worker/agent/machine.h"

enum machine_sight {
    MACHINE_STARTING, /* its shim runs, or is about to */
    MACHINE_RUNNING,
    MACHINE_GONE, /* its shim is gone: machine_rank_exit tells how the rank ended, if anything does */
};

/* A rank of a run whose folder is there: nothing of it is running yet, or machine_rank_find looks. NULL: no memory. */
struct machine_rank *machine_rank_new(struct machine *h, const char *folder, int rank);

/* Its command has n processes, each of which is heard as a rank: the first is numbered n times as high. */
void machine_rank_share(struct machine_rank *r, int n);
void machine_rank_free(struct machine_rank *r); /* leaves the processes alone */

/* Make the flight page through which the rank is watched; before it is started. */
int machine_rank_page(struct machine_rank *r, struct merr *err);

struct machine_launch {
    const char *job, *job_dir;
    const char *user;         /* the account of its ranks, where there is a helper; "": the jobs' */
    const char *owner, *node; /* who submitted the job; this node */
    const char *trace;        /* the run's context for spans of its program; NULL or "": none */
    const char *master_addr;  /* where rank 0 runs */
    bool resumes;             /* a checkpoint is to be loaded */
    int64_t ends_at_us;       /* wall: when its time limit ends it; 0: it has none */
    int nodes;
    uint64_t generation;
    int world, local_rank, local_world, node_rank, master_port;
    int slot;            /* -1: a source's, which has none */
    const int *launched; /* slots of the local_world ranks that it starts, its own first; NULL: it starts none */
    const struct job_spec *spec; /* borrowed */
};

struct machine_place {                             /* where a rank runs, and as whom */
    char cgroup[CGROUP_LIST_MAX], quota[PATH_MAX]; /* ""; none */
    struct guard_rank guard;                       /* its texts are here and in machine_launch */
    char folders[3][PATH_MAX];
    int wire; /* to a new guard, the caller's to close; -1: it runs under our account */
    struct proc_id shim;
};

/* Of a rank for a program that is to run beside it. Of l only job, user, generation, slot, local_world, launched and
 * spec count. */
int machine_rank_place(const struct machine_rank *r, const struct machine_launch *l, struct machine_place *ret,
                       struct merr *err);

/* Start the rank under its shim. On failure nothing runs. */
int machine_rank_start(struct machine_rank *r, const struct machine_launch *l, struct merr *err);

/* Take a rank up that an earlier agent started: MACHINE_RUNNING if its processes are known by now, else
 * MACHINE_STARTING. */
enum machine_sight machine_rank_find(struct machine_rank *r);

/* What has become of it. */
enum machine_sight machine_rank_look(struct machine_rank *r);

/* Whether machine_fd() will tell of its next change; else it must be looked at now and then. */
bool machine_rank_watched(const struct machine_rank *r);

/* How it ended, as its shim or an agent has written it down. -ENOENT: nobody has. */
int machine_rank_exit(const struct machine_rank *r, struct rank_exit *ret);

/* It has ended: nothing of it is watched any more. */
void machine_rank_done(struct machine_rank *r);

/* Write down how it ended where no shim could. */
void machine_rank_keep_exit(const struct machine_rank *r, const struct rank_exit *e);

/* Its shim is gone: kill what it has left behind. True when nothing of it is alive. */
bool machine_rank_clear(struct machine_rank *r);

/* Send it a signal that shims hand on: SIGTERM asks it to end. */
void machine_rank_signal(const struct machine_rank *r, int signal);

/* End it: by its shim; try 2 and on also past a shim that was stopped; 3 and on the shim, too. */
void machine_rank_kill(const struct machine_rank *r, int try);

/* Tell it an order through its flight page, and that a test of its device is wanted. */
void machine_rank_order(const struct machine_rank *r, enum flight_order order);
void machine_rank_try(const struct machine_rank *r, uint32_t number);

#define MACHINE_STALL_US 1000000

/* How far it is, by its flight page or its heartbeat. False: it has none. */
bool machine_rank_progress(struct machine_rank *r, uint64_t *ret_step, enum flight_phase *ret_phase);

/* The newest order that a command's rank has answered. */
struct report_ack machine_rank_ack(const struct machine_rank *r);

/* What a rank waits in that has shown no sign of life for so long; idle_us 0: it goes on, has no page, or is
 * a command that says nothing of itself. Without
 * memory its groups are left out. */
struct report_stall machine_rank_stall(struct machine_rank *r, enum job_kind kind, int64_t least_us);

/* What its page says of its steps since the last call: steps_tell() of steps.h. */
int *machine_rank_steps(struct machine_rank *r, size_t *ret_n);

pid_t machine_rank_pid(const struct machine_rank *r);  /* of the rank; 0: not known yet */
pid_t machine_rank_shim(const struct machine_rank *r); /* of its shim; likewise. For tests */

/* The last lines of its log as a new array. */
json_t *machine_rank_tail(const struct machine_rank *r);

#endif
