/* metrics_priv - the indexes of a job's metrics files, for those who choose from them */
#ifndef MUSTER_SERVER_METRICS_PRIV_H
#define MUSTER_SERVER_METRICS_PRIV_H

#include "server/store/metrics_index.h"

struct of_job { /* indexes of a job's files, in the order of their generations */
    struct of_job *next;
    uint64_t job;
    struct metrics_index v[SPOOL_GENERATIONS];
    int generation[SPOOL_GENERATIONS];
    size_t n, bytes;
};

/* Whether a list of names, separated by commas, has this one; NULL or "" has all, and each has the step. */
bool metrics_named(const char *names, const char *key);

/* From which step on a later file replaces each file's. */
void metrics_below(const struct of_job *o, int64_t ret[SPOOL_GENERATIONS]);

#endif
