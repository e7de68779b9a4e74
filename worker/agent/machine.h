/* machine - the machine as an agent sees it: its clocks, its processes, the folders of its runs, the memory of its jobs
 *
 * All that the agent's decisions (ranks, ship) do to a process or a file goes through here, so the decisions themselves
 * run on any machine: the simulator of the cluster (tests/sim) links a second one beneath them, of a thousand machines
 * that are not there. machine.c is the real one.
 *
 * A run's folder holds all that is needed to find the run again (docs/protocol.md). Nothing here blocks beyond a file
 * or a spawn: what happens to processes makes machine_fd() readable. One owner thread.
 */
#ifndef MUSTER_WORKER_AGENT_MACHINE_H
#define MUSTER_WORKER_AGENT_MACHINE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/protocol/assignment.h"
#include "api/protocol/report.h"
#include "api/spec.h"
#include "base/merr.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/guard.h"
#include "worker/agent/proc.h"
#include "worker/agent/program.h"
#include "worker/agent/shim.h"
#include "worker/flight/flight.h"

struct machine;
struct machine_rank;

struct machine_cfg {            /* strings are copied */
    const char *root;           /* folder of the runs' folders */
    const char *self;           /* path of muster-agent */
    const char *train;          /* path of muster-train */
    const char *cwd;            /* of train ranks; NULL: the job's folder */
    const char *memory;         /* folder for what outlives ranks in memory (memory.h); NULL: none */
    uint64_t memory_limit;      /* bytes that the snapshots of all jobs may take there; 0: none is set */
    int threads;                /* a rank */
    const char *pass_env;       /* more of this process's environment for ranks (launch.h); NULL: all of it */
    const char *const *visible; /* CUDA_VISIBLE_DEVICES of a rank on each slot; NULL: as the agent has it. Borrowed */
    const double *shares;       /* of a processor for a rank on each slot, 0: no limit; NULL: none has one. Borrowed */
    const char *quota;          /* where groups with shares can be made (quota.h); with shares */
    bool cgroups;               /* make some for each rank where permitted */
    int helper;                 /* socket to a helper (guard.h) that starts ranks under other accounts; 0: none */
    const struct cgroup_limits *share; /* with a helper: what a rank on each slot may take. Borrowed */
    bool with_parent;                  /* ranks end when this process does, however it ends */
};

/* Returns 0 or -ENOMEM. */
int machine_new(const struct machine_cfg *cfg, struct machine **ret, struct merr *err);

/* Leaves the processes alone. NULL is fine. */
void machine_free(struct machine *h);

bool machine_is_shared(const struct machine *h);  /* ranks run under the account of the agent */
int64_t machine_mono_us(const struct machine *h); /* for deadlines */
int64_t machine_wall_us(const struct machine *h); /* for people and records */
void machine_boot_id(const struct machine *h, char ret[PROC_BOOT_ID_MAX]); /* "": the system does not tell */
int machine_pressure(const struct machine *h);                             /* struct report's */
int machine_steal(struct machine *h);                                      /* likewise; since the last call */
int machine_fd(const struct machine *h); /* readable when a process has started or ended */

/* --- runs -------------------------------------------------------------------------------------------- */

/* Path of the folder of a run. -ENAMETOOLONG. */
int machine_run_folder(const struct machine *h, const char *job, uint64_t generation, char ret[PATH_MAX],
                       struct merr *err);

/* Make a run's folder and its job's (dir), whose user is that of the job's ranks. What is there already is fine. */
int machine_run_make(struct machine *h, const char *folder, const char *dir, const char *user, struct merr *err);

/* Keep a run's assignment, whole or not at all, with what this machine adds to it: the boot it belongs to, the
 * threads of a rank and, for a train job, the job's memory (or why there is none). */
int machine_run_keep(struct machine *h, const char *folder, enum job_kind kind, const struct assignment *assignment,
                     struct merr *err);

/* Call fn for each run whose folder is there, with its assignment, which fn may take over and leave cleared; same_boot:
 * this machine has not been started anew since. What runs without an assignment that can be read is ended; folders
 * without one are removed. Returns 0 or the first error of fn or of a folder; the others are seen all the same. */
typedef int machine_run_fn(void *arg, const char *folder, struct assignment *assignment, bool same_boot,
                           struct merr *err);
int machine_each_run(struct machine *h, machine_run_fn *fn, void *arg, struct merr *err);

/* Remove a run's folder, whose processes are gone: it is set aside at once (waste.h). -EBUSY while too many wait. */
int machine_run_remove(struct machine *h, const char *folder, struct merr *err);

/* Up to n bytes from offset on of a file of a run ("metrics.jsonl"), rank < 0, or of a rank's log. Returns how many,
 * 0 at its end, or a negative errno; its size goes to *ret_size. */
ssize_t machine_run_read(const struct machine *h, const char *folder, const char *name, int rank, off_t offset,
                         char *text, size_t n, off_t *ret_size);

/* Give the programs of a command's run an order as a file. What cannot be written is left: signals say the same. */
void machine_run_tell(struct machine *h, const char *folder, const struct program_telling *t);

/* Give the disk back what a rank's log has before an offset; its later bytes keep their offsets. Where the disk cannot
 * do that, or the log is not this agent's alone, nothing happens. */
void machine_log_drop(const struct machine *h, const char *folder, int rank, off_t before);

/* --- ranks ------------------------------------------------------------------------------------------- */

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

/* What ranks do, for people (evidence.h): gathered on a thread of its own, for budget_us at most; then machine_fd() is
 * readable. NULL: it cannot be. */
struct machine_evidence;
struct machine_evidence *machine_evidence_begin(struct machine *h, struct machine_rank *const *ranks, size_t n,
                                                bool python, int64_t budget_us);
bool machine_evidence_ready(const struct machine_evidence *e); /* NULL is ready */

/* Wait for it, and take it: a new list, by rank, of those that there was time for. *ret_kernel (may be NULL) is new:
 * the kernel's messages, NULL where they are not for users. e is freed; NULL gives NULL. */
json_t *machine_evidence_end(struct machine_evidence *e, char **ret_kernel);

/* What its page says of its steps since the last call: steps_tell() of steps.h. */
int *machine_rank_steps(struct machine_rank *r, size_t *ret_n);

pid_t machine_rank_pid(const struct machine_rank *r);  /* of the rank; 0: not known yet */
pid_t machine_rank_shim(const struct machine_rank *r); /* of its shim; likewise. For tests */

/* The last lines of its log as a new array. */
json_t *machine_rank_tail(const struct machine_rank *r);

/* --- memory of jobs (memory.h) ------------------------------------------------------------------------ */

/* A run of the job is over. done: so is the job. */
void machine_memory_close(struct machine *h, const char *job, bool done);

/* Remove what no job has used for long. used(arg, job): has it a run here? */
void machine_memory_sweep(struct machine *h, bool (*used)(const void *arg, const char *job), const void *arg);

/* Give all of it back. Nothing is asked of the machine after that but machine_free(). */
void machine_memory_drop(struct machine *h);

#endif
