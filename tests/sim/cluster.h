/* cluster - a whole simulated cluster: run it from a seed and its faults, and say what was found
 *
 * Production code: server/control with all below it, worker/agent's agent, ranks and ship. Simulated: time, the
 * network, the store's and the nodes' disks, processes, users. First everything happens for a while; then faults stop,
 * what was broken is put right, and every job must end.
 */
#ifndef MUSTER_TESTS_SIM_CLUSTER_H
#define MUSTER_TESTS_SIM_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/sim/faults.h"
#include "tests/sim/hostile.h"
#include "tests/sim/users.h"

struct cluster_wish {
    uint64_t seed;
    int agents, slots, jobs;
    int servers;        /* 1, or 2 of which one leads */
    bool arrays;        /* some jobs are arrays */
    int spares;         /* that are kept */
    int hostile;        /* actors: agents and users by turns */
    int64_t over_us;    /* jobs are submitted and faults happen for so long */
    uint64_t steps_max; /* events of the simulation; 0: no limit */
    FILE *trace;        /* NULL: none */
};

struct cluster_found {
    char broken[1024]; /* "": all held */
    uint64_t hash, events, turns;
    int64_t time_us; /* simulated */
    int server_lives;
    bool cut_short; /* steps_max came first */
    struct users_sum users;
    struct hostile_sum hostile;
};

/* The faults are borrowed. */
void cluster_run(const struct cluster_wish *wish, const struct faults_list *faults, struct cluster_found *ret);

#endif
