/* nic - which family of NIC links this node to others, and how fast it is
 *
 * Layouts keep the replicas of a job within one family (scheduler/plan/dedicate.h). Pure but for nic_find.
 */
#ifndef MUSTER_WORKER_AGENT_NIC_H
#define MUSTER_WORKER_AGENT_NIC_H

#include "base/merr.h"
#include "scheduler/plan/net.h"

#define NIC_SYSFS "/sys/class/infiniband"

struct nic {
    enum plan_nic family; /* PLAN_NIC_UNKNOWN: nobody said */
    double gbit_s;        /* 0: not known */
};

/* "roce@100", "ethernet": 0, or -EINVAL with *ret unchanged. */
int nic_parse(const char *text, struct nic *ret, struct merr *err);

/* The fastest port of an RDMA device that is up, from the folder NIC_SYSFS (tests: another). Without one the family is
 * unknown: how fast a plain network device is says little of where it leads. */
struct nic nic_find(const char *folder);

#endif
