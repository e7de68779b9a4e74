/* dedicate - which node each rank of a layout is on, where links are unlike
 *
 * Sources: Pipette (2024), worker dedication on the measured bandwidths; Holmes (2023), data-parallel groups within one
 * family of NICs. Fewest groups of replicas that mix families come first, then the time that messages of a step take:
 * the slowest pipeline's hops, exposed once for each group of micro-batches, the slowest exchange between replicas on
 * the slowest hop of its ring, and sums over tp and cp that leave a node. Few nodes are tried in every order, many by
 * simulated annealing from a fixed seed. Pure.
 */
#ifndef MUSTER_SCHEDULER_PLAN_DEDICATE_H
#define MUSTER_SCHEDULER_PLAN_DEDICATE_H

#include "scheduler/plan/cost.h"

struct plan_messages { /* of one step */
    int mixed;         /* groups of replicas on NICs of several families */
    double time_s;
};

enum plan_dedicate_way { PLAN_DEDICATE, PLAN_DEDICATE_ALL, PLAN_DEDICATE_ANNEAL }; /* as fits the number of nodes */

/* What messages take with the parts where they are. 0, -ENOMEM. */
int plan_messages(const struct plan_job *job, const struct plan_shape *shape, const struct plan_net *net,
                  struct plan_messages *ret);

/* Put the parts of net where messages take least; they stay where nothing is better. The shape goes with the job and
 * takes at most the net's devices. 0 with *ret, if given; -ENOMEM with net unchanged. */
int plan_dedicate(const struct plan_job *job, const struct plan_shape *shape, enum plan_dedicate_way way,
                  struct plan_net *net, struct plan_messages *ret);

#endif
