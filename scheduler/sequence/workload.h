/* workload - sequence lengths like those of real data sets, drawn from published points of their distributions
 *
 * Piecewise log-uniform between the points, by a seeded generator: the same seed gives the same lengths everywhere
 * (but for the last bit of exp, hence one token at most). For benchmarks, tests and what-if runs.
 */
#ifndef MUSTER_SCHEDULER_SEQUENCE_WORKLOAD_H
#define MUSTER_SCHEDULER_SEQUENCE_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/merr.h"

struct seq_knot {
    int64_t tokens;
    double share; /* of the sequences that are shorter */
};

struct seq_workload {
    const char *name;
    const char *about;
    const struct seq_knot *knots; /* rising in both; the first share is 0, the last 1 */
    size_t n;
};

extern const struct seq_workload seq_workloads[];
extern const size_t seq_workloads_n;

/* The workload of that name. NULL with the names there are in err. */
const struct seq_workload *seq_workload_find(const char *name, struct merr *err);

/* splitmix64: advance the state and give the next number. */
uint64_t seq_random(uint64_t *state);
double seq_random_unit(uint64_t *state); /* in [0, 1) */

/* The length below which a share u in [0, 1) of the sequences lies. */
int64_t seq_workload_length(const struct seq_workload *w, double u);

/* n lengths from the seed, each cut to at most longest tokens (0: as they come). Returns how many were cut. */
size_t seq_workload_draw(const struct seq_workload *w, uint64_t seed, int64_t longest, int64_t *ret, size_t n);

#endif
