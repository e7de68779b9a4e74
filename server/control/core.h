/* core - the server's working set and the one thread that owns it
 *
 * HTTP threads hand calls to the core's queue. The core takes all that wait as one turn: each call changes memory
 * and adds to the store's batch; then the batch is committed (one fsync for the turn); only then are the calls
 * answered, events published and long-polls looked at. A crash before the commit loses only what nobody was told.
 *
 * Everything here belongs to the core's thread unless it says otherwise.
 */
#ifndef MUSTER_SERVER_CORE_H
#define MUSTER_SERVER_CORE_H

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/cluster/explain.h"
#include "scheduler/cluster/slow.h"
#include "scheduler/plan/cost.h"
#include "server/store/files.h"
#include "server/cluster/job.h"
#include "server/http/queue.h"
#include "server/store/job_store.h"
#include "server/http/stats.h"
#include "server/store/store.h"
#include "server/control/waiters.h"

#define CORE_QUEUE_MAX 16384
#define CORE_TURN_MAX 1024
#define CORE_TURN_BYTES (STORE_BATCH_BYTES / 16) /* to be stored; a turn that has come to them takes no further call */
#define CORE_JOBS_MAX 100000
#define CORE_NODES_MAX 4096
#define CORE_PROJECTS_MAX (SCHED_TENANTS_MAX - 1) /* the first tenant is of all jobs without a project of its own */
#define CORE_CLASSES_MAX 64 /* device classes, as bits of a mask; those that nodes have: RATES_TYPES_MAX */
#define CORE_ANY_CLASS UINT64_MAX
#define ENTRY_SPEEDS_MAX 8
#define CORE_SLOTS_MAX 256
#define CORE_REMOVED_MAX 1024       /* agents of removed nodes that may still call */
#define CORE_REMOVED_S (30 * 86400) /* how long they may */
#define CORE_FOLLOWERS_MAX 4096
#define CORE_WAITERS_MAX 8192
#define CORE_KEYS_MAX 16384               /* rendezvous keys of a run */
#define CORE_RENDEZVOUS_BYTES (256 << 20) /* of all runs */
#define DRAIN_LIMIT_S 300                 /* a run that is asked to drain and does not is stopped */

enum rank_phase { RANK_NONE, RANK_STARTING, RANK_RUNNING, RANK_EXITED };

struct rank {
    enum rank_phase phase;
    int exit_code, signal;
    uint64_t step;
    bool lost; /* it is over because its node is */
};

struct rendezvous_key {
    char *key, *value; /* value as sent: base64 */
};

struct event_offset { /* how far a node's events of a run have been taken in */
    char node[JOB_NODE_MAX];
    uint32_t generation;
    int64_t offset;
};

struct target { /* devices that a job is to get once they are free */
    struct node *node;
    uint8_t class_;
    bool slow; /* those that are known to be slow */
    int32_t n;
};

struct speed { /* measured on devices of one class */
    uint8_t class_;
    int32_t devices;
    double steps_per_s;
};

#define ENTRY_LEAF_TIMES_MAX 8

struct leaf_time { /* of one virtual worker on devices of a class */
    char class_[SPEC_NAME_MAX];
    double ms;
    struct slow_usual usual; /* of devices that are well */
    int workers;             /* that a replica had for that */
};

struct shares_watch {       /* how long a job's work has not lain by its devices' speed (server/cluster/shares.h) */
    uint32_t generation;    /* that the rest is about */
    int32_t lines;          /* of metrics of it */
    int32_t off;            /* of them in a row, up to the last, that found it so */
    int32_t times;          /* that it was laid anew on these devices */
    uint64_t devices, laid; /* what they were, and how it lay: hashes */
};

struct entry { /* a job of the working set: it has not ended */
    struct job job;
    struct entry *hash_next, *dirty_next;
    bool dirty, is_new;
    uint64_t stored_version;      /* in the store; 0: not there yet */
    uint64_t key_hash, body_hash; /* of its submit's Idempotency-Key and body; 0: none */
    char *spec_text;              /* owned */
    char *refusal;                /* owned: why this musterd does not take the spec; NULL: it does */
    struct plan_facts facts;
    uint64_t classes;     /* mask over core.classes */
    bool classes_missing; /* its spec names some that no node has had */
    bool hetero_ok;       /* its spec lets it mix classes and move between them */
    int grace_s;
    int steps;                /* of a train job */
    struct explain_wait wait; /* of the last round, while it waits */
    struct target *target;    /* owned; none: n_target is 0 */
    size_t n_target;
    struct speed speeds[ENTRY_SPEEDS_MAX];
    size_t n_speeds;
    struct leaf_time leaf_times[ENTRY_LEAF_TIMES_MAX];
    size_t n_leaf_times;
    struct shares_watch shares;
    uint8_t home_class;          /* of rank 0 of its newest run */
    uint32_t learned_generation; /* whose first step was seen */
    bool on_slow;                /* its run has devices that are known to be slow */
    int64_t rescale_began_us;    /* monotonic; 0: not rescaling */
    int64_t restart_us;          /* what a change costs, measured; 0: not yet */
    bool open;                   /* its spec leaves parts of the layout to the planner */
    uint64_t planned_for;        /* core.sites for which facts were planned; 0: not yet */
    struct plan_cost predicted;  /* of its newest run, by this musterd; step_s 0: not */
    double predicted_speed;      /* with its class that many times as fast as assumed */
    bool bf16;                   /* its products are */

    struct rank *ranks; /* job.n_places of them while live */
    char fault_message[512];
    int fault_rank; /* -1: none told */
    bool save, force_stop;
    bool measure_links;        /* its run shall tell how fast its nodes reach each other */
    uint32_t progress_of;      /* generation of the newest line of metrics that was heard since the start */
    bool hand_over;            /* its next run is on the same node: state may stay where its ranks compute */
    int64_t drain_deadline_us; /* monotonic; 0: none */
    struct rendezvous_key *keys;
    size_t n_keys;
    size_t keys_bytes;
    struct event_offset *offsets;
    size_t n_offsets;
};

enum node_contact { NODE_READY, NODE_UNKNOWN, NODE_LOST };

struct slot {
    int slot;
    char kind[16];
    uint8_t class_;
    uint64_t job; /* 0: free */
    int rank;
    bool stale;  /* a run that is over still has a process on it */
    bool ill;    /* its GPU must not be used; why is in node.gpus */
    bool trains; /* training may use it */
    struct slow_device slow;
    uint64_t slow_alone;     /* the job by whose own past alone it was found slow; 0: by others beside it */
    int threads, memory_mib; /* 0: not told */
};

struct node;

#define NODE_LINKS_MAX PLAN_PARTS_MAX

struct link { /* from a node to another, measured */
    struct node *to;
    double bytes_per_s;
    int64_t at_us; /* wall */
};

struct node {
    char name[JOB_NODE_MAX], address[JOB_NODE_MAX], release[32];
    char boot_id[64], incarnation[64];
    enum node_contact contact;
    bool registered; /* with this musterd */
    bool drain;
    int64_t drain_by_us;           /* monotonic: its jobs have left by then; 0: nobody said */
    int64_t seen_us, seen_wall_us; /* monotonic, wall */
    int64_t lost_wall_us;          /* since when it has been lost; 0: it is not, or was not before this musterd */
    uint64_t version;              /* of its set of assignments */
    json_t *gpus;                  /* owned: as its agent told them last; NULL: none */
    enum plan_nic nic;             /* that links it to others */
    double nic_gbit_s;             /* 0: not told */
    struct link *links;            /* by the names of the others; at most NODE_LINKS_MAX */
    size_t n_links;
    struct slot *slots;
    size_t n_slots;
    size_t row, n_rows; /* of the snapshot being taken */
};

struct project {
    char name[SPEC_NAME_MAX];
    int quota;  /* devices; -1: none */
    int borrow; /* devices beyond it; -1: no limit */
    int64_t weight_milli;
    enum sched_class class_; /* of its jobs */
};

struct removed { /* an agent whose node was removed: it is to end */
    char node[JOB_NODE_MAX], incarnation[64];
    int64_t wall_us; /* when it was */
};

struct follower { /* a stream */
    struct http_stream *stream;
    uint64_t job; /* 0: all */
    int rank;     /* logs: -1 all */
    bool logs, done;
    struct http_identity who;
};

struct published { /* an event of this turn, sent once it is durable */
    uint64_t id;   /* 0: not kept */
    uint64_t job;
    char type[16];
    char user[SPEC_NAME_MAX];
    char *text;     /* owned */
    int rank;       /* of a log piece */
    bool log, last; /* last: the job has ended, its streams end */
};

struct auth;

struct core_cfg {
    const char *state_dir, *jobs_dir;
    int unknown_after_s, lost_after_s;
    int forget_after_s;        /* lost for so long, a node leaves the list; 0: never */
    int keep_ended;            /* jobs that have ended and are still known */
    struct sched_config sched; /* policy and times */
    struct slow_rules slow;
    struct auth *auth;                         /* borrowed */
    void (*fatal)(void *arg, const char *why); /* this process must end; any thread */
    void *arg;
};

struct core {
    struct core_cfg cfg;
    struct store *store; /* borrowed */
    struct files *files; /* owned */
    struct stats *stats; /* borrowed; safe from any thread */
    struct queue queue;
    pthread_t thread;
    bool running;
    _Atomic int stop;

    struct entry **table; /* by job number, chained; n_buckets is a power of two */
    size_t n_buckets, n_jobs;
    uint64_t *order; /* numbers of the working set, growing; those that have ended are dropped now and then */
    size_t n_order, order_cap;
    size_t by_state[JOB_STATES]; /* of the working set */
    uint64_t ended[3];           /* succeeded, failed, cancelled: ever */
    size_t ended_new;            /* since retire_jobs looked */
    uint64_t next_job, next_event;
    bool counters_changed;
    struct entry *dirty;

    uint64_t *held; /* numbers of jobs that left state in nodes' memories (givers.c); some of them may not any more */
    size_t n_held, held_cap;

    struct node **nodes; /* by name */
    size_t n_nodes;
    struct removed removed[CORE_REMOVED_MAX]; /* the newest, by turns */
    size_t n_removed;                         /* ever */
    struct project *projects;
    size_t n_projects;
    double prices[RATES_TYPES_MAX];     /* of the last full round */
    int64_t next_full_us;               /* monotonic */
    uint64_t slow_found, slow_replaced; /* devices; moves of jobs off such */
    char classes[CORE_CLASSES_MAX][SPEC_NAME_MAX];
    size_t n_classes;
    uint64_t command_classes;           /* mask of those with a slot that training must not use */
    double speeds[CORE_CLASSES_MAX][2]; /* f32, bf16: times as fast as the planner assumes, measured; 0: not yet */
    bool speeds_learned;                /* something that is not in the store */
    int64_t speeds_kept_us;             /* monotonic */
    uint64_t sites;                     /* grows when nodes or their slots change; from 1 */
    bool plans_stale;                   /* jobs that wait may have been planned for other sites */
    size_t rendezvous_bytes;

    struct waiters *waiters; /* long-polls (polls.c) */
    struct follower *followers;
    size_t n_followers, followers_cap;
    struct published *out;
    size_t n_out, out_cap;
    struct call *done; /* answered in this turn, oldest first */
    struct call **done_tail;
    struct call *later; /* taken from the queue for this turn, which was full */
    size_t turn_bytes;  /* of specs that the turn's commit will store */

    bool handed; /* the call that runs was handed on: it is no longer ours */
    bool schedule_wanted;
    int64_t next_round_us, next_tick_us, renewed_us;
    int64_t wall_ahead_us; /* of the monotonic clock, when last looked at */
    int64_t waited_us;     /* queue wait of the newest started job */
};

/* Load the working set and start the thread. The cfg's strings are borrowed. */
int core_start(const struct core_cfg *cfg, struct store *store, struct stats *stats, struct core **ret,
               struct merr *err);
/* Answer what waits, end streams and the threads; what comes later is answered 503. core_free once HTTP has stopped. */
void core_stop(struct core *c);
void core_free(struct core *c);

/* Any thread. Takes the call over; a full queue answers 503. */
void core_post(struct core *c, struct call *call);

/* --- parts of the core, by file ---------------------------------------------------------------------- */

/* core.c */
struct entry *core_find(struct core *c, uint64_t job);
struct entry *core_entry_new(struct core *c, const struct job_spec *spec);
void core_entry_insert(struct core *c, struct entry *e);
void core_entry_free(struct core *c, struct entry *e);
struct job_spec *core_spec_of(const struct entry *e); /* new; NULL: no memory, or refused */
void core_dirty(struct core *c, struct entry *e);
/* Mask of the classes whose slots the job may have: its spec's; no GPUs for training, which has no kernels there. */
uint64_t core_classes_of(const struct core *c, const struct entry *e);
/* Whether a slot that is in no job's hands can be given to one, as far as the slot goes. */
bool core_slot_usable(const struct slot *s);
void core_target_clear(struct entry *e);

/* When the run of a live job has to have left its devices, on the monotonic clock; 0: no matter. Outlives musterd. */
void core_drain_by(struct core *c, struct entry *e, int64_t mono_us);

/* Deadlines on the monotonic clock as wall time, for the store and for people, and back; 0 stays 0. */
int64_t core_wall_of(int64_t mono_us);
int64_t core_mono_of(int64_t wall_us);
/* Once a turn: where somebody has set the wall clock, all that is measured with it goes along. */
void core_follow_wall(struct core *c);

/* Whether what the turn stores is still little enough for one write. */
bool core_turn_has_room(const struct core *c);

/* Let a cause happen to a job: transition, event, record. Returns as job_transition; nothing changed on failure. */
int core_change(struct core *c, struct entry *e, const struct job_cause *cause, struct merr *err);

/* The nodes of its run have other orders for it now. */
void core_touch(struct core *c, const struct job *j);

/* load.c: all there is in the store, before the thread starts. 0 or a negative errno. */
int core_load(struct core *c, struct merr *err);

/* Load a job that may have ended. Returns 0 with *ret to be cleared, -ENOENT, -EIO. */
int core_load_job(struct core *c, uint64_t id, struct job *ret, char **ret_spec, struct merr *err);

/* events.c: give an event its id, keep it (notes: not a state event), publish it after the commit. event is taken over.
 */
void events_emit_new(struct core *c, uint64_t job, const char *user, json_t *event, bool keep, bool note, bool last);
void events_note(struct core *c, uint64_t job, const char *user, const char *type, uint32_t generation,
                 const char *actor, const char *code, const char *text, json_t *data_new);
void events_log_new(struct core *c, uint64_t job, const char *user, int rank, json_t *piece);
void events_publish(struct core *c);
void events_tick(struct core *c); /* let go of followers whose client has left */
void events_stop(struct core *c);
void events_of_job(struct core *c, struct call *call);
void events_of_all(struct core *c, struct call *call);
void events_checkpoints(struct core *c, struct call *call);
void events_follow_logs(struct core *c, struct call *call, int rank, bool ended);

/* jobs.c */
void jobs_submit(struct core *c, struct call *call);
void jobs_list(struct core *c, struct call *call);
void jobs_get(struct core *c, struct call *call);
void jobs_patch(struct core *c, struct call *call);
void jobs_action(struct core *c, struct call *call);
void jobs_explain(struct core *c, struct call *call);
void jobs_logs(struct core *c, struct call *call);
void jobs_metrics(struct core *c, struct call *call);

/* Whether the caller may see what this user's job does. */
bool jobs_visible(const struct http_identity *who, const char *user);

/* agents.c */
void agents_register(struct core *c, struct call *call);
/* Runs that are to stop, of which nothing was heard and which this report does not list, will never be started. */
void agents_end_unstarted(struct core *c, struct node *n, const json_t *body);
void agents_see(struct core *c, struct node *n, int64_t now_us); /* a word came from it */
struct node *agents_find(struct core *c, const char *name);
int agents_load(struct core *c, struct merr *err);
void agents_touch(struct core *c, const char *node); /* its set of assignments has changed */
void agents_tick(struct core *c, int64_t now_us);
void agents_store(struct core *c, const struct node *n);

/* reports.c */
void reports_take(struct core *c, struct call *call); /* once the files' thread has stored its pieces */
/* What a node says of its runs; to stale and forget go those that are over. */
void reports_take_runs(struct core *c, struct node *n, const json_t *body, json_t *stale, json_t *forget);

/* slots.c: what a node offers */
struct slots {
    struct slot *v;
    size_t n;
};
/* 0 with new ones; -EINVAL: they cannot be, or are of more classes than a cluster has; -ENOMEM. */
int slots_read(struct core *c, const json_t *list, struct slots *ret);
void slots_take(struct core *c, struct node *n, struct slots *s); /* they are the node's; those in use keep their job */
/* Look anew at which classes training may use, those all of whose slots it may, and at plans for them. */
void slots_changed(struct core *c);
json_t *slots_record(const struct core *c, const struct node *n); /* as slots_read reads them; new */
bool slots_name_ok(const char *name, size_t size); /* of a node or a class, in so many bytes: letters, digits, . _ - */

/* roster.c: nodes that leave the list */
void roster_remove(struct core *c, struct node *n, const char *actor); /* n is freed, its agent told to end */
void roster_tick(struct core *c);                                      /* forget those that have been lost for long */
void roster_oust(struct core *c, const struct node *n); /* another agent is this node now: the one before is to end */
bool roster_removed(const struct core *c, const char *node, const char *incarnation); /* this agent is to end */
int roster_load(struct core *c, struct merr *err);                                    /* whose nodes were removed */

/* classes.c */
uint8_t core_class(struct core *c, const char *name); /* a node's: its number, made when new; CORE_CLASSES_MAX: full */
void classes_of_spec(const struct core *c, struct entry *e, const struct job_spec *spec); /* sets the mask */
void classes_learned(struct core *c);                                                     /* speeds have changed */
void classes_keep(struct core *c);                                                        /* put them into the batch */
int classes_load(struct core *c, struct merr *err);                                       /* after the nodes */

/* retire.c */
void retire_jobs(struct core *c); /* forget the oldest of those that have ended, where there are too many */
void retire_generation(struct core *c, struct entry *e); /* a run was assigned: one that is long over makes room */

/* gpus.c */
void gpus_take(struct core *c, struct node *n, const json_t *body); /* from a registration or a report */
json_t *gpus_view(const struct node *n, int slot);                  /* new; NULL: no GPU, or nothing is known */
void gpus_metrics(const struct core *c, struct buf *b);

/* stragglers.c: devices that are slower than others of their class */
struct slot *stragglers_slot(struct core *c, const struct job_place *p); /* borrowed; NULL: it is not there any more */
double stragglers_factor(struct core *c, const struct job_place *p);     /* times as long as its class takes; 1: well */
void stragglers_name(struct core *c, const struct job *j, char *ret, size_t size); /* the slow devices of a run */
void stragglers_learn(struct core *c, struct entry *e, uint32_t generation, const json_t *line); /* of metrics */
void stragglers_tick(struct core *c);                                      /* let idle ones be tried again */
void stragglers_shift(struct node *n, int64_t by_us);                      /* the wall clock was set */
void stragglers_pardon(struct core *c, struct node *n, const char *actor); /* the node's are taken to be well */
json_t *stragglers_record(const struct slot *s);                           /* for the store, new; NULL: it is well */
void stragglers_load(struct core *c, struct node *n, const json_t *slots); /* back from it */
json_t *stragglers_view(const struct slot *s);                             /* new; NULL: it is well */
void stragglers_metrics(const struct core *c, struct buf *b);

/* givers.c: nodes that a job has left and whose memory may have its state */
/* A run that was told to leave its state in memory is about to be over, on its places: new, NULL: none holds it. */
struct job_holder *givers_of_run(const struct job *j, bool drained, size_t *ret_n);
/* It is over: these hold what the next one goes on from (taken over; none: those that held it before, if it did not
 * take it from them). */
void givers_hold(struct core *c, struct entry *e, struct job_holder *holders, size_t n);
void givers_load(struct core *c, struct entry *e);  /* a job as it was stored */
void givers_start(struct core *c, struct entry *e); /* a run was assigned: those that it can use, and no others */
/* The run's givers as an assignment lists them; new, NULL: it has none. */
json_t *givers_json(const struct job *j);
/* Append the assignments for which the node is to run a giver; make() gives one, new. */
void givers_append(struct core *c, const struct node *n, json_t *all,
                   json_t *(*make)(const struct core *c, const struct entry *e));
/* What a node reports of its giver for the run that is live. True: it was over before, and may be forgotten. */
bool givers_take(struct core *c, struct entry *e, const struct node *n, const json_t *run);
void givers_resumed(struct core *c, struct entry *e); /* the run has its state: who has not come by now need not */
uint64_t givers_job_on(const struct core *c, const struct node *n); /* a job whose state it may be the one to have; 0 */

/* polls.c: the agents' long-polls and the rendezvous keys */
void agents_assignments(struct core *c, struct call *call);
void agents_key_put(struct core *c, struct call *call);
void agents_keys(struct core *c, struct call *call);
struct waiters *polls_new(void);                           /* for the core; NULL: no memory */
void agents_wake_node(struct core *c, const char *node);   /* what its long-poll waits for may be there */
void agents_wake_job(struct core *c, uint64_t job);        /* what those for its rendezvous keys wait for may be */
void agents_answer_waiters(struct core *c, bool stopping); /* those that need not wait any more */
void agents_drop_keys(struct core *c, struct entry *e);

/* nodes.c */
void nodes_list(struct core *c, struct call *call);
void nodes_drain(struct core *c, struct call *call);
void nodes_undrain(struct core *c, struct call *call);
void nodes_remove(struct core *c, struct call *call);
void nodes_cluster(struct core *c, struct call *call);
void nodes_snapshot(struct core *c, struct call *call);

/* projects.c */
void projects_get(struct core *c, struct call *call);
void projects_list(struct core *c, struct call *call);
void projects_put(struct core *c, struct call *call);
int projects_load(struct core *c, struct merr *err);
struct project *projects_find(struct core *c, const char *name); /* NULL: none was put */
void projects_job_ended(struct core *c, const struct job *j);    /* keeps its device time */

/* tokens.c */
void tokens_create(struct core *c, struct call *call);
void tokens_list(struct core *c, struct call *call);
void tokens_revoke(struct core *c, struct call *call);

/* dispatch.c */
/* No new job gets a number whose folder is there: it would go on from the checkpoints of another. The store knows less
 * than the folders when it came from a backup. Returns 0, or a negative errno with words. */
int dispatch_skip_folders(struct core *c, struct merr *err);
void dispatch_round(struct core *c, int64_t now_us);
int dispatch_adopt(struct core *c, struct entry *e);                     /* a loaded live run takes its slots again */
void dispatch_ranks(struct core *c, struct entry *e, const char *actor); /* ranks changed: started, failed, over? */
void dispatch_fault(struct core *c, struct entry *e, int rank, enum job_class class_, const char *message,
                    json_t *log_tail, const char *actor);
void dispatch_release_node(struct core *c, struct entry *e, const char *node);
void dispatch_tick(struct core *c, int64_t now_us);
bool dispatch_can_run(struct core *c, const struct entry *e, char *ret_why, size_t size);

/* plans.c: layouts for jobs */
void plans_refresh(struct core *c); /* of jobs that wait, when nodes have changed */
void plans_sites_changed(struct core *c);
/* Plan a waiting job for what the cluster has: then facts are what a run of it will have. 0; -EAGAIN: there is no node;
 * else as plan_search. */
int plans_prepare(struct core *c, struct entry *e, const struct job_spec *spec, struct merr *err);
/* The layout on these places, which are put into the order that suits the nodes' links best, and the plan as JSON, new;
 * NULL stays when none could be made. 0 or as plan_search. */
int plans_choose(struct core *c, struct entry *e, struct job_place *p, size_t n, struct layout *ret, json_t **ret_plan,
                 struct merr *err);
void plans_adopt(struct entry *e); /* a loaded or newly assigned job keeps what its plan settled */
void plans_learn(struct core *c, struct entry *e, uint32_t generation, double step_ms);
/* How a job would run on what the cluster has: new, with layout and devices. */
json_t *plans_dry(struct core *c, const struct entry *e, const struct job_spec *spec);
json_t *plans_view(const struct job *j); /* its plan with what was measured; new, null: it has none */

/* links.c: how nodes reach each other. Nets are new; NULL: all links are taken to be alike, or no memory */
struct link_nic {
    enum plan_nic family;
    double gbit_s; /* 0: not told */
};
/* "nic" of a registration. 0, or -EINVAL with words. */
int links_read_nic(const json_t *body, struct link_nic *ret, struct merr *err);
void links_take_nic(struct core *c, struct node *n, const struct link_nic *nic);
json_t *links_nic_view(const struct node *n);                               /* new; NULL: nothing was told */
json_t *links_view(const struct node *n);                                   /* new; NULL: nothing was measured */
int links_load(struct core *c, struct merr *err);                           /* after the nodes */
void links_drop(struct core *c, struct node *n);                            /* those of others to a node that leaves */
bool links_due(struct core *c, const struct job *j);                        /* whether its run should measure */
void links_learn(struct core *c, const struct job *j, const json_t *event); /* what a rank of its run measured */
struct plan_net *links_of_places(struct core *c, const struct job_place *p, size_t n, const struct plan_site *site);
struct plan_net *links_of_class(const struct core *c, int class_, int devices, const struct plan_site *site);
struct plan_result;
/* Put the places, those of links_of_places(), into the order of the plan. False: no memory, and they are as before. */
bool links_lay(const struct plan_result *plan, struct job_place *p, size_t n);

/* view.c: what is shown; all new */
json_t *view_job(const struct core *c, const struct job *j, const struct entry *e, const char *spec_text);
json_t *view_node(const struct core *c, const struct node *n);
json_t *view_explain(struct core *c, const struct job *j, const struct entry *e);
json_t *view_time(int64_t wall_us);
json_t *view_progress(const json_t *line, int steps); /* from a line of metrics */

#endif
