/* node - a node of the cluster as the server knows it: what its agent told, its slots and its links
 *
 * Plain data: owned by the thread that owns the cluster, which keeps the nodes (cluster.h).
 */
#ifndef MUSTER_SERVER_NODE_H
#define MUSTER_SERVER_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/report.h"
#include "base/bucket.h"
#include "scheduler/cluster/calendar.h"
#include "scheduler/cluster/slow.h"
#include "scheduler/plan/cost.h"
#include "server/cluster/health.h"
#include "server/cluster/job.h"

#define NODE_SILENT_US INT64_C(2500000) /* two words of its agent have not come */

enum node_contact { NODE_READY, NODE_UNKNOWN, NODE_LOST };

struct slot_meter { /* how a device did since it was read last (meter.h): sums, and of how many */
    int32_t use, n_use, power, n_power, busy, n;
    uint8_t memory, temperature; /* percent in use, degrees; the newest */
};

struct node_meter { /* how the node as a whole did */
    int64_t sum[REPORT_HOST_NUMBERS];
    int32_t n[REPORT_HOST_NUMBERS];
};

struct slot { /* a device, or a share of a processor (slots.h) */
    int slot;
    char kind[16];
    uint8_t class_;
    uint64_t job; /* 0: free */
    int rank;
    bool stale;         /* a run that is over still has a process on it */
    bool ill;           /* its GPU must not be used; why is in node.gpus */
    int64_t found_us;   /* wall: when the newest error of its GPU that was taken in was found */
    uint64_t error_job; /* on which the newest error came that is most likely a program's, at */
    int64_t error_us;   /* wall */
    bool trains;        /* training may use it */
    bool spare;         /* set aside for a run that loses one (spares.h) */
    struct slow_device slow;
    uint64_t slow_alone;            /* the job by whose own past alone it was found slow; 0: by others beside it */
    int threads, memory_mib;        /* 0: not told */
    struct calendar_state calendar; /* what maintenance and reservations say of it now (bookings.h) */
    struct slot_meter meter;
};

struct node;

#define NODE_LINKS_MAX PLAN_PARTS_MAX

struct link { /* from a node to another, measured (links.h) */
    struct node *to;
    double bytes_per_s;
    double usual;  /* what it was before it became slow; 0: not known */
    int64_t at_us; /* wall */
};

struct node_test {       /* an active test of the node */
    int64_t id;          /* of the one that its agent is to do; 0: none */
    int64_t deadline_us; /* monotonic: it has failed by then */
    json_t *result;      /* owned: of the newest one that is over; NULL: none */
};

struct node {
    char name[JOB_NODE_MAX], address[JOB_NODE_MAX], release[32];
    uint32_t leaf;           /* number of its rack (topology.h) */
    bool shy;                /* of the last round: it is given work only where there is no other way */
    bool far;                /* its links are slower than others (topology.h) */
    char rack[JOB_NODE_MAX]; /* the same for nodes that share a switch and power; "": not told */
    bool shared_account;     /* its jobs run under the account of its agent */
    bool no_exec;            /* its agent joins no sessions */
    char boot_id[64], incarnation[64];
    int64_t seq; /* of its newest registration, by that incarnation */
    enum node_contact contact;
    bool registered;   /* with this musterd */
    bool changed;      /* what the store keeps of it, since it was kept last */
    bool drain;        /* nobody gets its devices, and its jobs leave: health says why */
    int64_t leaves_us; /* wall: it goes for good then, as its agent says; 0: it stays */
    bool leaving;      /* its agent was told to: it goes off the list once nothing is left there */
    struct health health;
    struct node_test test;
    int64_t check_after_us;        /* monotonic: what its checks say is not taken in before */
    int64_t drain_by_us;           /* monotonic: its jobs have left by then; 0: nobody said */
    int64_t power_us;              /* monotonic: it told what its GPUs draw; 0: it has not */
    int64_t seen_us, seen_wall_us; /* monotonic, wall */
    int64_t lost_wall_us;          /* since when it has been lost; 0: it is not, or was not before this musterd */
    uint64_t version;              /* of its set of assignments */
    uint64_t told;                 /* mark of what was told last of it (deltas.h) */
    uint64_t storing;              /* its report whose pieces are being stored; 0: none */
    int64_t told_refused;          /* minute of the last warning that it sends what is of other nodes' runs */
    struct node_meter meter;
    int pressure, steal; /* as its agent told it last (struct report) */
    json_t *gpus;        /* owned: as its agent told them last; NULL: none */
    enum plan_nic nic;   /* that links it to others */
    double nic_gbit_s;   /* 0: not told */
    struct link *links;  /* by the names of the others; at most NODE_LINKS_MAX */
    size_t n_links;
    struct bucket bytes;    /* of logs and metrics that it may send */
    struct bucket lines;    /* that it may send of its runs' events */
    struct bucket evidence; /* bytes of it that it may send */
    uint64_t *listed; /* jobs of which it has a run, as it told last: until the run is forgotten, its logs may come */
    size_t n_listed;
    struct slot *slots;
    size_t n_slots;
    size_t row, n_rows; /* of the snapshot being taken */
};

/* Whether jobs can be given its free devices: it is heard of, has registered, is not drained, and its own checks let
 * it. */
bool node_gives(const struct node *n);

/* Borrowed; NULL: the node (which may be NULL) has none of that number. */
struct slot *node_slot(const struct node *n, int slot);

/* Free the node and what it owns; others' links to it must have been dropped. */
void node_free(struct node *n);

#endif
