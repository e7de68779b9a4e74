/* slurm_batch - the batch script of a Slurm job whose tasks are agents
 *
 * One task a node: it joins by a code of its own, offers what Slurm has bound to it, tells the server when the job
 * ends, and leaves when Slurm signals it. Pure.
 */
#ifndef MUSTER_API_CLI_SLURM_BATCH_H
#define MUSTER_API_CLI_SLURM_BATCH_H

#include <jansson.h>

#include "base/buf.h"
#include "base/merr.h"

#define SLURM_BATCH_MAX (1 << 20)

struct slurm_batch { /* NULL: not given */
    const char *name, *partition, *account, *output;
    const char *options;  /* of sbatch: words that begin with "--" */
    const char *agent;    /* options of muster-agent, likewise */
    const char *server;   /* URL */
    const char *ca;       /* PEM */
    const char *programs; /* folder of muster-agent, seen by all nodes */
    const char *class_;   /* of the devices; NULL: as they are called */
    int devices;          /* of a node; 0: GPUs that are bound to the job, else a processor each */
    int nodes, time_s, grace_s;
    const json_t *codes; /* borrowed: of each node */
};

/* Append the script. 0; -EINVAL with words: something cannot stand in a script; -ENOMEM. */
int slurm_batch_write(const struct slurm_batch *b, struct buf *out, struct merr *err);

/* What of it a task runs, and needs in its environment: for `muster run` in an allocation. */
extern const char slurm_batch_task[];

#endif
