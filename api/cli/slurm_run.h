/* slurm_run - `muster run` in an allocation of Slurm: on all of its nodes, by a server and agents of its own */
#ifndef MUSTER_API_CLI_SLURM_RUN_H
#define MUSTER_API_CLI_SLURM_RUN_H

#include <stdbool.h>

/* Whether this process is in an allocation of several nodes, and in none of its steps. */
bool slurm_run_here(void);

/* Replace this program by one that trains there. devices: of the job, NULL: as its spec says. Returns only an exit
 * status, when that failed. */
int slurm_run(const char *file, const char *dir, const char *devices);

#endif
