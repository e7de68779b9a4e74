/* assignment - which ranks of a run are where, and what is wanted of it
 *
 * The server sends each agent the set of those that its node is to have; the agent leaves one in the run's folder
 * (assignment.json), with what is of its node added, for the ranks and for the agent that comes after it.
 */
#ifndef MUSTER_API_PROTOCOL_ASSIGNMENT_H
#define MUSTER_API_PROTOCOL_ASSIGNMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/protocol.h"
#include "api/spec.h"
#include "base/merr.h"
#include "scheduler/plan/layout.h"

#define ASSIGNMENT_GRACE_S 10
#define ASSIGNMENT_GRACE_S_MAX 3600
#define ASSIGNMENT_BYTES_MAX (8 << 20) /* of assignment.json */

/* Later orders are larger. */
enum assignment_order {
    ASSIGNMENT_RUN,
    ASSIGNMENT_SAVE,      /* checkpoint, go on */
    ASSIGNMENT_HAND_OVER, /* leave the state in this node's memory where the ranks compute, and end */
    ASSIGNMENT_MOVE,      /* leave a snapshot in the memories of the run's nodes, and end */
    ASSIGNMENT_DRAIN,     /* checkpoint, and end */
    ASSIGNMENT_STOP,      /* end */
    ASSIGNMENT_ORDERS
};

struct assignment_rank {
    int rank;
    int slot; /* -1: not told, or a source node's, which has none */
    char node[PROTOCOL_NODE_MAX];
    char class_[SPEC_NAME_MAX]; /* of its device */
    char address[PROTOCOL_NODE_MAX];
};

struct assignment {
    int protocol;
    char job[PROTOCOL_JOB_MAX];
    char user[SPEC_NAME_MAX]; /* who submitted it; "": nobody, it is no server's */
    int64_t generation;
    enum assignment_order order;
    int grace_s;
    char dir[PROTOCOL_PATH_MAX]; /* of the job */
    struct layout layout;        /* .world is not of it */
    int world;                   /* ranks that train, or all of a command's; 0: not told */
    struct assignment_rank *ranks;
    size_t n_ranks;
    int master_port;
    json_t *spec;
    int *leaves; /* virtual workers of each replica; none: they are shared out evenly */
    size_t n_leaves;
    struct assignment_rank *source_nodes; /* source nodes: the job has left them, and their memory has its state */
    size_t n_source_nodes;
    bool measure_links;
    int trial;                  /* the newest test of devices, from 1; 0: none */
    int trial_rank, trial_peer; /* whose: of one that seems slow, and of another to compare it with */
    int pass_over;              /* newest checkpoints that it does not go on from */
    int devices_next;           /* that an elastic command goes on with once it has obeyed `order`; 0: not told */
    int64_t evidence;           /* the newest that is asked for, before an order is obeyed; 0: none */
    json_t *secrets;            /* values by name, of those that the spec names; NULL: none. Not kept in the folder */
    bool resumes;               /* an earlier run of the job has left a checkpoint */
    int64_t ends_at_us;         /* wall: when the run has used up the job's time; 0: it has no limit */
    int warned_s; /* the limit whose end is near: a command's ranks are sent the signal of its spec; 0: of none */
    char proof[PROTOCOL_PROOF_MAX];    /* that the run is this node's, for its reports */
    char unix_user[PROTOCOL_USER_MAX]; /* the account of its ranks, where agents can have another; "": the jobs' */
    char trace[PROTOCOL_TRACE_MAX];    /* the context of the run, for its program's own spans; "": none */

    /* Of the node, in the folder of the run. */
    char node[PROTOCOL_NODE_MAX];
    int threads;                    /* a rank; 0: not told */
    char boot_id[64];               /* of the machine as the run began */
    char memory[PROTOCOL_PATH_MAX]; /* folder for snapshots; "": none */
    int64_t memory_limit;           /* bytes that the snapshots of all jobs may take there; 0: none is set */
    char no_memory[MERR_TEXT_MAX];  /* why there is none; "": there is, or it was not wanted */
};

struct assignment_set { /* all that a node is to have */
    int64_t version;
    json_t *list;     /* of assignments, to be read one by one: one that cannot be does not keep the others */
    json_t *sessions; /* likewise of sessions; NULL: there are none */
};

struct assignment_session { /* one beside a rank of this node, that the agent is to join (frame.h) */
    char session[PROTOCOL_JOB_MAX];
    char job[PROTOCOL_JOB_MAX];
    int64_t generation;
    int rank;
};

extern const char *const assignment_order_names[ASSIGNMENT_ORDERS];
extern const struct wire_message assignment_message, assignment_rank_message, assignment_layout_message;
extern const struct wire_message assignment_set_message, assignment_session_message;

/* Read doc, borrowed. Returns 0, -EINVAL with every fault, -EPROTO of a version that is not known, -ENOMEM; *ret is
 * unchanged then. Ranks are listed once each and are within the world; source nodes come after them and have no ranks.
 * The spec is an object and not looked into. */
int assignment_read(const json_t *doc, struct assignment *ret, struct merr *err);
json_t *assignment_write(const struct assignment *a); /* new; NULL without memory. The version is this program's. */
void assignment_clear(struct assignment *a);

int assignment_set_read(const json_t *doc, struct assignment_set *ret, struct merr *err);
void assignment_set_clear(struct assignment_set *s);

int assignment_session_read(const json_t *doc, struct assignment_session *ret, struct merr *err);
json_t *assignment_session_write(const struct assignment_session *s);

/* The port of a run's command whose name is number i of command.ports: below those that the system gives out by itself,
 * and of one run in the cluster as far as its MASTER_PORT is. */
int assignment_port(int master_port, size_t i);

#endif
