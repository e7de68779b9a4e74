/* agent_priv - what agent.c and agent_main.c share */
#ifndef MUSTER_WORKER_AGENT_AGENT_PRIV_H
#define MUSTER_WORKER_AGENT_AGENT_PRIV_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "worker/agent/backoff.h"
#include "worker/agent/cgroup.h"
#include "worker/agent/checkup.h"
#include "worker/agent/devices.h"
#include "worker/agent/mirror.h"
#include "worker/agent/nic.h"
#include "worker/agent/node_cert.h"
#include "worker/agent/proc.h"
#include "worker/agent/profiles.h"
#include "worker/agent/ranks.h"
#include "worker/agent/sessions.h"
#include "worker/agent/ship.h"
#include "worker/agent/strangers.h"
#include "worker/agent/witness.h"

struct agent_wanted { /* an assignment of the wanted set */
    struct report_ref run;
    bool readable; /* else its run is left as it is */
    enum assignment_order order;
    int grace_s;
    uint64_t evidence; /* that is asked for */
    int devices_next;
    int warned_s;
    int trial, trial_rank[2]; /* the newest test of devices, and whose */
    json_t *doc;              /* owned */
};

struct agent {
    const char *node, *rack;
    char token_file[PATH_MAX];
    char incarnation[33]; /* of this process: reports of an earlier one are not ours */
    char succeeds[33];    /* that of the process before in the same folder; "": there was none */
    char address[64];
    struct devices devices;
    struct gpus *gpus; /* NULL: none are offered */
    struct strangers strangers[DEVICES_MAX];
    const char *visible[DEVICES_MAX]; /* of the devices, where some are GPUs */
    double shares[DEVICES_MAX];       /* of the devices, */
    char quota[PATH_MAX];             /* where some have one; "": none has */
    int helper;                       /* socket to a helper that gives ranks other accounts (guard.h); 0: none */
    struct cgroup_limits limits[DEVICES_MAX]; /* with it: what a rank on each device may take */
    struct nic nic;                           /* that links this node to others */
    struct machine *machine;
    struct ranks *ranks;
    struct ship *ship;
    struct calls *calls;
    struct node_cert *cert; /* NULL: it shows none */
    struct mirror *mirror;
    struct checkup *checkup;   /* NULL: nothing looks after the node */
    struct profiles *profiles; /* NULL: nothing is measured */
    struct witness *witness;
    struct sessions *sessions; /* NULL: nobody has any here */
    int signal_fd;

    bool registered, out_of_reach;
    bool polling, reporting; /* a call is on its way; register counts as a report */
    bool report_now;         /* do not wait for report_us */
    bool report_more;        /* nor for it, if the server takes what the last one carries: more is at hand */
    bool helper_lost;        /* it ends, and its ranks run on */
    bool removed;            /* the server has taken this node off its list: the agent ends */
    bool ending;             /* ranks are being stopped for good: nothing is started any more */
    int64_t leave_at_us;     /* wall: it has left by then; 0: nobody said */
    int64_t leave_within_us; /* told to end, it has the server move away what runs here first; 0: it ends at once */
    int64_t leaving_us;      /* monotonic: since when it does; 0: it does not */
    int64_t report_us, heartbeat_us;
    int64_t sent_wall_us; /* when the report that is on its way was sent */
    size_t report_bytes;  /* most bytes of files in one report */
    uint64_t seq;
    json_int_t version;          /* of the wanted set */
    struct agent_wanted *wanted; /* the set, */
    size_t n_wanted;
    bool told;                    /* once the server has told it */
    struct report_ref *forgotten; /* runs of it that are gone for good */
    size_t n_forgotten;
    struct backoff poll_backoff, report_backoff;
};

void agent_forget_wanted(struct agent *a);

/* Do all that is due: look after ranks, call the server. Returns when to come again (monotonic), if nothing happens
 * before: an answer, or what machine_fd() tells. */
int64_t agent_tick(struct agent *a, int64_t now_us);

/* Do an agent's work until SIGTERM, SIGINT or SIGUSR1, or until its node is removed. */
void agent_loop(struct agent *a);

/* End every rank, within its grace and a little, and tell the server if it listens. */
void agent_stop_ranks(struct agent *a);

#endif
