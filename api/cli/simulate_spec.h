/* simulate_spec - specs that jobs of a trace have, planned for the classes of the simulator's cluster file */
#ifndef MUSTER_API_CLI_SIMULATE_SPEC_H
#define MUSTER_API_CLI_SIMULATE_SPEC_H

#include "scheduler/sim/trace.h"

struct cli;
struct simulate_spec;

/* Let a setup, whose cluster was read from the file of --cluster, have jobs with specs. Returns 0 with *ret, which
 * simulate_spec_free() frees after the setup was cleared; else an exit status. The file is read when the first spec
 * is. */
int simulate_spec_new(const struct cli *c, struct sim_setup *s, struct simulate_spec **ret);
void simulate_spec_free(struct simulate_spec *p); /* NULL is fine */

#endif
