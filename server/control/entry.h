/* entry - a job of the working set: one that has not ended, with what only its run or its wait needs
 *
 * The job itself is changed by change_job() alone (change.h); the rest is of this process and found again after a
 * restart by other means, or not needed any more. Owned by the core's thread.
 */
#ifndef MUSTER_SERVER_ENTRY_H
#define MUSTER_SERVER_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/spec.h"
#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/finish.h"
#include "scheduler/cluster/profile.h"
#include "scheduler/plan/cost.h"
#include "server/cluster/classes.h"
#include "server/cluster/job.h"
#include "server/cluster/node.h"
#include "server/cluster/pace.h"

enum rank_phase { RANK_NONE, RANK_STARTING, RANK_RUNNING, RANK_EXITED };

struct rank {
    enum rank_phase phase;
    struct rank_exit exit; /* of one that has exited, its cause settled */
    uint64_t step;
    bool of_itself; /* it has exited badly, and not since another did */
    int64_t acked;  /* 1 + the number of the newest order that it has answered; 0: it has not reported */
};

struct rendezvous_key {
    char *key, *value; /* value as sent: base64 */
};

struct array;

struct event_offset { /* how far a node's events of a run have been taken in */
    char node[JOB_NODE_MAX];
    uint32_t generation;
    int64_t offset;
};

struct target { /* devices that a job is to get once they are free */
    struct node *node;
    uint8_t class_;
    bool slow;         /* those that are known to be slow */
    bool spare;        /* those that are set aside */
    uint64_t holder;   /* those that are kept for a reservation's jobs; 0: all others */
    int64_t closes_us; /* those that close then; -1: whenever they do */
    int32_t n;
};

enum entry_folders { ENTRY_FOLDERS_MADE, ENTRY_FOLDERS_WANTED, ENTRY_FOLDERS_ASKED };

struct entry_test { /* of the devices of two ranks of a run, the second to compare the first with (slow_care.h) */
    int number;     /* of the newest; 0: none was made */
    bool asked;     /* and has not been told of by both */
    int rank[2];
    int64_t deadline_us;              /* monotonic: another may be asked for */
    double product_us[2], copy_us[2]; /* 0: not told */
};

struct entry_run {            /* of a live job */
    struct rank *ranks;       /* job.n_places of them while live */
    struct stalls *stalls;    /* NULL until one of them stands still */
    struct lag *lag;          /* NULL until they tell of steps (lags.h) */
    struct step_parts *parts; /* NULL until then, too: what those were spent on (rank_steps.h) */
    json_t *slow;             /* those that are slow now, as the job's view has them; NULL: none was found */
    int slow_told;            /* events of that */
    int64_t link_since_us;    /* monotonic: its links are slow since then; 0: they are not */
    double link_share;        /* of each step that is lost by that */
    struct entry_test test;
    bool links_judged; /* what its nodes have measured, once */
    char fault_message[512];
    int fault_rank;    /* -1: none told */
    uint64_t evidence; /* number of the newest that its nodes are asked for; 0: none */
    int64_t looked_us; /* monotonic: when somebody last began to look at it */
    bool save, force_stop;
    int64_t save_by_us;         /* monotonic: when a command should have answered that it saves; 0: none is asked to */
    bool trouble;               /* a file of it is not read, and that was told */
    bool hung;                  /* a rank was found to stand still: it cannot obey, and is not waited for */
    bool judged;                /* why it failed is a verdict over all of its ranks */
    bool gave_up;               /* a rank has ended because it lost another, or was told to by its mates */
    int64_t gave_up_us;         /* monotonic: the first of them */
    enum entry_folders folders; /* its nodes hear of it once they are made */
    bool measure_links;         /* it shall tell how fast its nodes reach each other */
    bool hand_over;             /* the next run is on the same node: state may stay where its ranks compute */
    int64_t drain_deadline_us;  /* monotonic; 0: none */
    struct rendezvous_key *keys;
    size_t n_keys, keys_bytes;
};

struct entry_plan {             /* of the layout */
    struct plan_facts facts;    /* of what the job asks for, and what was planned of it */
    bool open;                  /* its spec leaves parts of the layout to the planner */
    uint64_t planned_for;       /* the cluster's sites for which facts were planned; 0: not yet */
    struct plan_cost predicted; /* of its newest run, by this musterd; step_s 0: not */
    double predicted_speed;     /* with its class that many times as fast as assumed */
    struct profile_speed prior; /* how fast the planner thinks the job is on some devices; steps_per_s 0: it has not */
    bool bf16, measured;        /* its products are; that is by profiles of the classes */
};

struct entry_notes { /* the bytes of the notes that the store keeps, oldest first: a ring */
    uint16_t *v;     /* owned; NULL: not known yet */
    size_t first, n, bytes;
};

struct entry {
    struct job job;
    struct entry *hash_next, *dirty_next; /* of the table */
    bool dirty, is_new;
    struct array *array;          /* borrowed: its own, or whose task it is; NULL: none */
    size_t position;              /* of a task in it */
    uint64_t stored_version;      /* in the store; 0: not there yet */
    uint64_t key_hash, body_hash; /* of its submit's Idempotency-Key and body; 0: none */

    char *spec_text;            /* owned */
    uint64_t alike;             /* jobs whose specs ask for the same work have the same (kinds.h) */
    char *refusal;              /* owned: why this musterd does not take the spec; NULL: it does */
    uint64_t classes;           /* mask of those that its spec names */
    bool classes_missing;       /* its spec names some that no node has had */
    int memory_mib;             /* that it wants for each rank, and */
    double cpus;                /* processors; 0: the share of a device */
    struct spec_names *exclude; /* owned: nodes that it never runs on; NULL: none */
    struct spec_names *prefer;  /* owned: classes, racks and nodes that it would rather have; NULL: all alike */
    bool within;                /* all its devices are of one rack */
    bool moves;                 /* between its runs it may change to another class, one at a time */
    bool hetero_ok;             /* its spec lets it mix classes and move between them */
    int grace_s;
    bool elastic, one_a_node; /* of a command: it takes other numbers of devices; a launcher starts it on a node */
    int stop_s;               /* of an elastic one */
    int steps;                /* of a train job */
    char *bundle;             /* owned: name of its user's upload that it needs; NULL: none */

    struct entry_plan plan;
    struct pace pace;
    struct explain_wait wait; /* of the last round, while it waits */
    struct forecast forecast; /* of that round, too */
    struct finish finish;     /* of the last round that it was in */
    struct target *target;    /* owned; none: n_target is 0 */
    size_t n_target;
    struct entry_run run;
    uint32_t progress_of; /* generation of the newest line of metrics that was heard since the start */
    struct entry_notes notes;
    struct event_offset *offsets;
    size_t n_offsets;
};

/* One of a checked spec; its job, spec_text and refusal are the caller's to set. New; NULL: no memory. */
/* The classes whose devices it may have: those that its spec names, for its kind, with the share that it wants. */
uint64_t entry_classes(const struct entry *e, const struct classes *k);

struct entry *entry_new(const struct classes *k, const struct job_spec *spec);
void entry_free(struct entry *e);

/* The spec, read again; new. NULL: no memory, or this musterd does not take it. */
struct job_spec *entry_spec(const struct entry *e);

/* Whether its spec keeps it off the node. */
bool entry_excludes(const struct entry *e, const char *node);

/* Whether it would rather have this class, rack or node. */
bool entry_prefers(const struct entry *e, const char *name);

/* How long its run may take to save and end once it is told to: so long, or what the spec of an elastic one says. */
int64_t entry_leave_us(const struct entry *e, int64_t usual_us);

/* It is to get no devices any more. */
void entry_target_clear(struct entry *e);

/* The classes that its spec names, as they are known now. */
void entry_set_classes(struct entry *e, const struct classes *k, const struct job_spec *spec);

#endif
