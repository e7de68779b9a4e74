/* planned - how fast jobs with a spec are on a class of devices, as the planner foretells it
 *
 * A plan is made once for each spec, class, number of devices and number of them in a node, and kept. As in the server,
 * the layout of a replica and the virtual workers are those of a plan for as many devices as the spec takes; what it
 * leaves open of micro-batches, schedule and recomputation is chosen anew for each number. Pure, but that it remembers.
 */
#ifndef MUSTER_SCHEDULER_SIM_PLANNED_H
#define MUSTER_SCHEDULER_SIM_PLANNED_H

#include "base/merr.h"
#include "scheduler/cluster/rates.h"
#include "scheduler/plan/search.h"

#define PLANNED_SPECS_MAX 256

struct planned_class {      /* of the cluster; devices 0: no job with a spec runs there */
    struct plan_site site;  /* of one group; what it borrows lasts as long as the planned. Its links are all alike */
    uint64_t program_bytes; /* plan_job */
    int devices;            /* in the cluster */
};

struct planned;

/* Classes by type, as jobs in f32 and in bf16 find them; copied. NULL: no memory. */
struct planned *planned_new(const struct planned_class *f32, const struct planned_class *bf16, size_t n);
void planned_free(struct planned *p); /* NULL is fine */

/* Add a spec of a job on up to so many devices. Returns its index, from 0 on; -EINVAL when no class can run it, with
 * the planner's words for that which has most devices; -E2BIG of too many; -ENOMEM. */
int planned_add(struct planned *p, const struct plan_job *job, const struct plan_wish *wish, int devices,
                struct merr *err);

/* Devices of a replica, and virtual workers: replicas at most. */
int planned_replica(const struct planned *p, int spec);
int planned_workers(const struct planned *p, int spec);

/* Steps a second, in millionths, on so many devices of a type, of which each node has node_devices: 0 where it cannot
 * run. */
int64_t planned_rate(struct planned *p, int spec, int type, int devices, int node_devices);

/* The same for numbers of whole replicas on full nodes, as a profile. */
void planned_profile(struct planned *p, int spec, struct rates_profile *ret);

#endif
