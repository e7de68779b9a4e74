/* simulate_read - a cluster and throughputs as JSON, for the simulator; docs/simulator.md describes both */
#ifndef MUSTER_API_CLI_SIMULATE_READ_H
#define MUSTER_API_CLI_SIMULATE_READ_H

#include "scheduler/sim/sim.h"

/* Read a cluster into a setup that sim_setup_init() made, then throughputs into the same. Return 0; -EINVAL naming the
 * field; -ENOMEM. After a failure the setup is only fit for sim_setup_clear(). */
int simulate_read_cluster(struct sim_setup *s, const char *text, size_t len, struct merr *err);
int simulate_read_throughputs(struct sim_setup *s, const char *text, size_t len, struct merr *err);

#endif
