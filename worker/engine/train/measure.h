/* measure - the profile of this machine's devices (api/profile.h), by the engine's own kernels and groups */
#ifndef MUSTER_WORKER_TRAIN_MEASURE_H
#define MUSTER_WORKER_TRAIN_MEASURE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/merr.h"

struct measure_cfg {
    int devices, threads; /* ranks side by side, and threads of each */
    bool quick;           /* fewer sizes, in some two seconds; else some thirty */
    const char *keep;     /* write it to this file, too; NULL: do not */
};

/* Print the profile as a line of JSON on standard output. One process a device measures, all at the same time, as ranks
 * of a job compute. folder: where they meet, which is made anew and stays when this process is killed; NULL: a new one
 * under /tmp. -EIO when one of them failed, which it has said. */
int measure_print(const struct measure_cfg *cfg, const char *folder, struct merr *err);

/* One of these, which meets the others in the folder; the first prints. */
int measure_rank(const struct measure_cfg *cfg, int rank, const char *folder, FILE *out, struct merr *err);

#endif
