/* launch - one rank brought to life under its shim */
#ifndef MUSTER_WORKER_AGENT_LAUNCH_H
#define MUSTER_WORKER_AGENT_LAUNCH_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/spec.h"
#include "base/merr.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/guard.h"

/* Variables that a rank gets from the agent's environment, whatever else it gets. */
#define LAUNCH_JOBS "muster-job" /* whose home a rank of the jobs' account has, where there is one of that name */
#define LAUNCH_ENV "PATH,HOME,LANG,TZ,USER"
#define LAUNCH_ENV_MUSTER "MUSTER_KERNELS,MUSTER_CUDA_BACKEND,MUSTER_NCCL,MUSTER_CUDA_GRAPHS,MUSTER_HOLD"

/* The bit that is set in the first letter of each variable of the spec in the environment of a shim, which runs under
 * the agent's account: the loader and the libraries of the shim know none of those names, so the job's user cannot have
 * them do anything. A variable is not longer with it: the kernel takes none longer than what a spec may have. */
#define LAUNCH_SEAL 0x80

/* Take it off: of one variable, of all of an environment, as the rank's program is to have them. */
void launch_unseal_one(char *variable);
void launch_unseal(char **env);

struct launch_image { /* a started program that waits, below its shim (shim_wait.h) */
    pid_t pid;        /* of the shim, our unreaped child; 0: there is none */
    int fd;           /* the socket to it */
};

struct launch {
    const char *self;   /* path of muster-agent, for the shim */
    const char *train;  /* path of muster-train */
    const char *cwd;    /* of a train rank, and of a command without workdir */
    const char *folder; /* of the run */
    const char *cgroup; /* control groups to make for the rank (cgroup.h), or NULL */
    struct cgroup_limits limits;
    const struct guard_rank *guard; /* how it is to be under another account; NULL: under ours */
    int wire;                       /* with guard: the socket to it */
    const char *quota;              /* a cgroup with a share of the processor (quota.h) that it must be in, or NULL */
    double share;
    const char *job, *job_dir;
    const char *owner, *node; /* who submitted the job; this node */
    const char *trace;        /* the run's context for spans of its program; NULL or "": none */
    int nodes;
    bool resumes;            /* a checkpoint is to be loaded */
    int64_t ends_at_us;      /* wall: when its time limit ends it; 0: it has none */
    const char *master_addr; /* where rank 0 runs */
    const char *visible;     /* CUDA_VISIBLE_DEVICES; NULL: as the agent has it. A train rank that sees a GPU computes
                                there */
    const char *pass_env;    /* names of more variables of the agent's for it, such as "UCX_*,TMPDIR"; NULL: all */
    uint64_t generation;
    int rank, world, local_rank, local_world, node_rank, master_port, threads;
    struct launch_image image;   /* the rank goes on in it where it can */
    bool with_parent;            /* the rank ends when the caller's process does */
    const struct job_spec *spec; /* borrowed */
};

/* Where the upload lies that a job of this owner runs in. -ENOENT: it runs in none. */
int launch_bundle(const char *job_dir, const char *owner, const struct job_spec *spec, char ret[PATH_MAX]);

#define LAUNCH_VISIBLE_MAX 8192 /* bytes of the names of a node's GPUs */

/* CUDA_VISIBLE_DEVICES of all n ranks that a launcher starts, by what each slot's is. Returns ret. */
const char *launch_visible(const char *const *visible, const int *slots, int n, char ret[LAUNCH_VISIBLE_MAX]);

/* Start the shim of a rank. The log is made and locked by the descriptor that the shim inherits, so a lock
 * that can be taken means that no shim is there. Returns 0 with the shim's process id (a child of the
 * caller, unreaped) and a descriptor that ends once rank-NNNNN.pid is there; or a negative errno with
 * nothing started. */
int launch_rank(const struct launch *l, pid_t *ret_shim, int *ret_ready_fd, struct merr *err);

/* Start a program that waits for a rank, with the environment that the rank would have. */
int launch_image(const struct launch *l, struct launch_image *ret, struct merr *err);

/* 0 when nobody holds the log of a rank (its shim is gone or never came), -EBUSY when somebody does. */
int launch_log_free(const char *folder, int rank);

#endif
