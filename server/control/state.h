/* state - all that the control room owns, and the limits of it
 *
 * One thread owns it (turn.h). Each part belongs to the module that is named; others read it, and change it through
 * that module's functions. What a module wants done later in the turn it leaves as a flag here.
 */
#ifndef MUSTER_SERVER_STATE_H
#define MUSTER_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/client/post.h"
#include "base/chance.h"
#include "base/clock.h"
#include "scheduler/cluster/rates.h"
#include "scheduler/cluster/sched.h"
#include "scheduler/cluster/slow.h"
#include "server/cluster/bookings.h"
#include "server/cluster/cluster.h"
#include "server/cluster/powers.h"
#include "server/cluster/spares.h"
#include "server/control/moment.h"
#include "server/control/provider.h"
#include "server/control/table.h"
#include "server/control/otlp.h"
#include "server/http/call.h"
#include "server/http/queue.h"
#include "server/http/stats.h"
#include "server/store/spool.h"
#include "server/store/store.h"

#define STATE_PORTS 2000                          /* of runs (ports.h) */
#define STATE_TURN_BYTES (STORE_BATCH_BYTES / 16) /* to be stored; a turn that has come to them takes no further call */

struct audit;
struct audit_file;
struct auth;
struct deltas;
struct estimates;
struct ledger;
struct predictions;
struct events;
struct files;
struct source_nodes;
struct learned;
struct looks;
struct node_series;
struct places;
struct quarantine;
struct readers;
struct relay;
struct schedule_set;
struct scrapes;
struct storing;
struct supply;
struct usage;
struct waiters;
struct traces;
struct watermark;
struct webhook_set;

struct core_cfg {
    const char *jobs_dir;
    int unknown_after_s, lost_after_s;
    int forget_after_s;        /* lost for so long, a node leaves the list; 0: never */
    size_t max_array;          /* tasks of an array */
    int keep_ended;            /* jobs that have ended and are still known */
    uint64_t keep_ended_bytes; /* of their specs, records and events */
    struct {                   /* what one user may have who is no admin */
        int jobs;              /* that have not ended */
        uint64_t spec_bytes;   /* of those */
        int streams;
    } user;
    uint64_t audit_bytes;          /* of the audit log in the store */
    int audit_keep_s;              /* and how long an entry stays there */
    struct audit_file *audit_file; /* borrowed; NULL: none */
    struct sched_config sched;     /* policy and times */
    int64_t share_half_us;         /* after which half of what users had is forgotten; 0: it counts for nothing */
    struct slow_rules slow;
    struct spares spares;
    struct powers powers;         /* what devices draw, by class */
    uint32_t ports_from;          /* where the search for a run's port begins: servers of one machine begin apart */
    struct spool spool;           /* borrowed: what jobs print and measure */
    struct node_series *series;   /* borrowed: how nodes did; NULL: it is not kept */
    struct bundle_store *bundles; /* borrowed: what users upload; NULL: nothing is taken */
    struct auth *auth;            /* borrowed */
    const struct sealing_key *secret_key; /* borrowed; NULL: there are no secrets */
    struct post_way way;                  /* borrowed: of messages to others */
    struct otlp_way traces;               /* borrowed: of spans to a collector */
    struct relay *relay;                  /* borrowed; NULL: nobody has sessions in jobs */
    const struct node_ca *node_ca;        /* borrowed; NULL: agents show no certificates */
    const char *run_key;                  /* borrowed: for proofs of runs (agent_rights.h) */
    struct watermark *watermark;          /* borrowed; NULL: none is kept */
    bool accept_loss;                     /* go on where the store lacks what was acknowledged */
    struct {                              /* of nodes that are lent (supply.h) */
        struct provider_way way;          /* borrowed; call NULL: nobody lends any */
        const char *queues;               /* allocations.h */
        const char *url, *ca;             /* of this server; what its certificate is signed by, as PEM, or NULL */
    } supply;
    bool marked;                               /* the store is known to lack nothing */
    const struct clock *clock;                 /* borrowed; read by the turn alone */
    const struct chance *chance;               /* borrowed */
    void (*fatal)(void *arg, const char *why); /* this process must end; any thread */
    void *arg;
};

struct turn { /* of turn.c */
    struct queue queue;
    pthread_t thread;
    _Atomic int stop;
    struct call *done; /* answered in this turn, oldest first */
    struct call **done_tail;
    struct call *later; /* taken from the queue for this turn, which was full */
    size_t bytes;       /* of specs that the turn's commit will store */
    bool marked;        /* something is durable, and marked so: folders of jobs may be there before their records */
    int64_t next_round_us, next_tick_us, renewed_us, speeds_kept_us; /* monotonic */
    int64_t wall_ahead_us;                                           /* of the monotonic clock, when last looked at */
};

struct dispatch {                       /* of dispatch.c, plans.c and learn.c */
    double prices[RATES_TYPES_MAX];     /* of the last full round */
    int64_t next_full_us;               /* monotonic */
    uint64_t slow_found, slow_replaced; /* devices; moves of jobs off such */
    uint32_t ports[STATE_PORTS];        /* runs that have each */
    uint64_t planned_sites;             /* the cluster's sites for which waiting jobs have been planned */
};

struct log_quota {   /* of log_quota.c */
    int64_t next_us; /* monotonic */
    uint64_t below;  /* jobs of lower numbers are looked at next */
    bool counting;
};

/* Of a batch of new jobs those that were admitted and are not in the table yet. */
struct ahead {
    size_t jobs, bytes;
};

struct core {
    struct core_cfg cfg;
    struct store *store;     /* borrowed */
    struct stats *stats;     /* borrowed; safe from any thread */
    struct files *files;     /* owned */
    struct places *places;   /* owned */
    struct readers *readers; /* owned: of people's reads, and */
    struct readers *intake;  /* owned: of large bodies, which are parsed there */
    struct turn turn;
    struct moment now;      /* of the turn */
    uint64_t first_version; /* of sets of assignments and of rendezvous keys: above all of earlier servers */

    struct cluster cluster;
    struct table jobs;
    struct array_set arrays;
    struct audit *audit; /* owned, as those below */
    struct events *events;
    struct source_nodes *source_nodes;
    struct dispatch dispatch;
    struct waiters *waiters; /* long-polls (polls.h) */
    struct quarantine *quarantine;
    struct storing *storing;
    struct deltas *deltas;
    struct enroll *enroll;
    struct estimates *estimates;
    struct predictions *predictions;
    struct secrets *secrets;
    struct webhook_set *webhooks;
    struct traces *traces;
    struct schedule_set *schedules;
    struct usage *usage;
    struct ledger *ledger;
    struct looks *looks;
    struct learned *learned; /* of kinds.c */
    struct scrapes *scrapes;
    struct supply *supply;     /* NULL: nobody lends nodes; else of each class */
    int lendable[CLASSES_MAX]; /* so many devices at most */
    struct log_quota log_quota;
    struct ahead ahead;
    int64_t measured_tick;    /* of measures.c: 15 s of the wall clock */
    int64_t bundles_due_us;   /* monotonic: when uploads are looked through next */
    struct bookings bookings; /* of booking.c */
    int64_t booking_due_us;   /* wall: when one of them begins, ends or is to be prepared for */
    bool after_due;           /* a job has ended or started, or comes after others (after.h) */
    int64_t limits_due_us;    /* monotonic: when the next limit of a job comes (limits.h) */
    uint64_t evidence;        /* number of the newest that was asked for (incidents.h) */
    size_t rendezvous_bytes;  /* of all runs (rendezvous.h) */

    uint64_t accept_below; /* with --accept-loss: agents may name jobs of lower numbers that this store has not given */
    bool handed;           /* the call that runs was handed on: it is no longer ours */
    bool schedule_wanted;  /* what jobs or devices there are has changed: a round is due */
    bool nodes_changed;    /* some node's record is to be stored with this turn */
    bool counters_changed; /* and the numbers of the next job and event */
};

/* Memory and store would part, or there is no memory to keep them together: this process ends. */
static inline void state_fatal(const struct core *c, const char *why)
{
    c->cfg.fatal(c->cfg.arg, why);
}

/* Whether what the turn stores is still little enough for one write. */
static inline bool state_has_room(const struct core *c)
{
    return store_batch_bytes(c->store) + c->turn.bytes < STATE_TURN_BYTES;
}

/* The call is answered once this turn is durable. */
static inline void state_answered(struct core *c, struct call *call)
{
    if (call->status == 0)
        call_problem(call, 500, "internal", "the request was not answered");
    call->next = NULL;
    *c->turn.done_tail = call;
    c->turn.done_tail = &call->next;
}

#endif
