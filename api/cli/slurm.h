/* slurm - a batch script of Slurm read as a spec of Muster
 *
 * Directives (#SBATCH) become fields, the rest of the script becomes the job's command. Slurm runs a batch script once
 * and its srun lines on each task; Muster runs the command on each device. What has no counterpart is named, with its
 * line. Pure: text in, documents out. The directives are those of sbatch(1) and srun(1) of Slurm 23.
 */
#ifndef MUSTER_API_CLI_SLURM_H
#define MUSTER_API_CLI_SLURM_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/merr.h"

#define SLURM_SCRIPT_MAX (128 << 10) /* bytes of a script: what one argument of a command may have */

/* What a script says of its job. Times in seconds, memory in MiB; 0: it says nothing. */
struct slurm_ask {
    long nodes, tasks, tasks_per_node, gpus, gpus_per_node, gpus_per_task, cpus_per_task;
    long node_mib, cpu_mib, gpu_mib;
};

/* A new spec, and what has no counterpart: a new array of {"line", "what", "text"}. -EINVAL with words when text is no
 * batch script. */
int slurm_read(const char *text, json_t **ret_spec, json_t **ret_notes, struct merr *err);

/* The parts of slurm_read, for their tests. -EINVAL: not such a value. */
int slurm_time(const char *text, long *ret_s);     /* [D-]H[:M[:S]], M[:S]; 0: without end */
int slurm_memory(const char *text, long *ret_mib); /* N[K|M|G|T], of MiB without a letter */
int slurm_hosts(const char *text, json_t *names);  /* n1,n[3-5,08]: appended */

/* Append the script's line, srun and torchrun taken from before the program that they start. Returns how many. */
int slurm_unwrap(const char *line, size_t len, struct buf *out);

void slurm_note(json_t *notes, size_t line, const char *what, const char *text);

/* Append lines for the shell that give those of Slurm's variables that text reads; note those without counterpart. */
void slurm_variables(const char *text, const char *name, const struct slurm_ask *ask, struct buf *out, json_t *notes);

#endif
