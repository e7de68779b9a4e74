/* machine - the machine as an agent sees it: its clocks, its processes, the folders of its runs, the memory of its jobs
 *
 * All that the agent's decisions (ranks, ship) do to a process or a file goes through here, so the decisions themselves
 * run on any machine: the simulator of the cluster (tests/sim) links a second one beneath them, of a thousand machines
 * that are not there. machine.c is the real one. Ranks are in machine_rank.h.
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

/* These devices are to have a started program that waits for a rank (images.h); the others need none any more. */
void machine_keep_images(struct machine *h, const int *slots, size_t n);
bool machine_has_image(const struct machine *h, int slot);

bool machine_is_shared(const struct machine *h);  /* ranks run under the account of the agent */
int64_t machine_mono_us(const struct machine *h); /* for deadlines */
int64_t machine_wall_us(const struct machine *h); /* for people and records */
void machine_boot_id(const struct machine *h, char ret[PROC_BOOT_ID_MAX]); /* "": the system does not tell */
int machine_pressure(const struct machine *h);                             /* struct report's */
int machine_steal(struct machine *h);                                      /* likewise; since the last call */
void machine_host(struct machine *h, int ret[REPORT_HOST_NUMBERS]);        /* likewise */
int machine_fd(const struct machine *h); /* readable when a process has started or ended */

/* --- runs -------------------------------------------------------------------------------------------- */

/* Path of the folder of a run. -ENAMETOOLONG. */
int machine_run_folder(const struct machine *h, const char *job, uint64_t generation, char ret[PATH_MAX],
                       struct merr *err);

/* Make a run's folder and its job's (dir), whose user is that of the job's ranks. What is there already is fine. */
int machine_run_make(struct machine *h, const char *folder, const char *dir, const char *user, struct merr *err);

/* Whether a program may listen on the port of any address. -EADDRINUSE. */
int machine_port_free(const struct machine *h, int port, struct merr *err);

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

/* --- memory of jobs (memory.h) ------------------------------------------------------------------------ */

/* A run of the job is over. done: so is the job. */
void machine_memory_close(struct machine *h, const char *job, bool done);

/* Remove what no job has used for long. used(arg, job): has it a run here? */
void machine_memory_sweep(struct machine *h, bool (*used)(const void *arg, const char *job), const void *arg);

/* Give all of it back. Nothing is asked of the machine after that but machine_free(). */
void machine_memory_drop(struct machine *h);

#endif
