/* job - what a job is to the server, and the one function that changes it
 *
 * job_transition() decides what a cause does to a job and gives it back as an event; job_apply() is the only code that
 * changes a job, and it reads nothing but the event. So replaying the events of a job gives its state. Pure: time
 * comes in as an argument. Owned by one thread.
 *
 * live: a run of this generation was assigned and not every rank of it is known to be over; its devices are taken.
 * intent: what shall follow once the run is over.
 */
#ifndef MUSTER_SERVER_JOB_H
#define MUSTER_SERVER_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/exit.h"
#include "api/protocol/protocol.h"
#include "api/spec.h"
#include "base/merr.h"
#include "scheduler/diagnose/act.h"
#include "scheduler/plan/layout.h"

#define JOB_NODE_MAX 64

enum job_state {
    JOB_QUEUED,
    JOB_STARTING,
    JOB_RUNNING,
    JOB_RESCALING,
    JOB_SUSPENDED,
    JOB_RECOVERING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_STATES
};

enum job_intent { JOB_GO_ON, JOB_CANCEL, JOB_SUSPEND, JOB_REQUEUE, JOB_FAIL, JOB_RESCALE, JOB_TIME_UP };

enum job_class {
    JOB_CLASS_NONE,
    JOB_CLASS_DONE,
    JOB_CLASS_USER,
    JOB_CLASS_SYSTEM,
    JOB_CLASS_NODE,
    JOB_CLASS_CANCELLED
};

struct job_place { /* where a rank runs; its index is the rank */
    char node[JOB_NODE_MAX];
    char class_[SPEC_NAME_MAX];
    char address[JOB_NODE_MAX];
    int slot;
    int leaves; /* virtual workers of its replica; 0: they are shared out evenly */
};

struct job_holder { /* a node that the job has left and whose memory may have its state */
    char node[JOB_NODE_MAX];
    char address[JOB_NODE_MAX];
    bool done;    /* as a source node of the run that is live it has ended, or need not come */
    bool taken;   /* that run has its state: no later one wants it from here */
    bool started; /* it was heard of as a source node; not kept in the store */
};

enum job_when { JOB_AFTER_OK, JOB_AFTER_ENDED, JOB_AFTER_FAILED, JOB_AFTER_STARTED, JOB_WHENS };
enum job_is { JOB_IS_OPEN, JOB_IS_MET, JOB_IS_BROKEN }; /* broken: it can never be as wanted */

struct job_estimate {          /* of its first start, the first that was made; made_us 0: none was */
    int64_t made_us, start_us; /* wall */
    int64_t late_us;           /* how much later than that it started, once it has */
    uint64_t after;            /* the job whose end was to give it the last devices; 0: none */
    char basis[16];            /* forecast_basis_name() */
};

struct job_after { /* a job that another one comes after */
    uint64_t job;
    enum job_when when;
    enum job_is is;
};

struct job {
    uint64_t id; /* "j17" is 17; 0 is none */
    char name[SPEC_NAME_MAX], project[SPEC_NAME_MAX], user[SPEC_NAME_MAX];
    char trace[PROTOCOL_TRACE_MAX];    /* not of the state proper: the context that it was submitted in; "": none */
    char unix_user[PROTOCOL_USER_MAX]; /* account of its ranks, of its user's token; "": the jobs' account */
    enum job_kind kind;
    json_t *labels; /* owned: an object of texts; NULL: none */
    int priority, min, max;
    int retry_max, retry_user;
    int tasks, max_running; /* of an array, which is given no devices itself (array.h); 0: it is none */
    uint64_t array;         /* whose task it is; 0: none's */
    int task_index;
    json_t *params;              /* owned: the values of a task; NULL: none */
    int time_s, queue_s, warn_s; /* limits; 0: none */
    int64_t finish_by_us;        /* wall: when it should have ended; 0: nobody says */
    struct job_after *after;     /* owned */
    size_t n_after;
    bool after_hold;                 /* it is held, not cancelled, where one of them is broken */
    char reservation[SPEC_NAME_MAX]; /* on whose devices it runs; "": none's */
    bool singleton;                  /* it is the only one of its name and user that runs */

    enum job_state state;
    enum job_intent intent;
    bool live;
    uint32_t generation; /* of the newest assignment; 0: none yet */
    uint64_t version;    /* state events so far, the submit's included */
    int restarts_user, restarts_system, restarts_node;
    struct act_history past;                       /* failures so far */
    int64_t saved_step;                            /* of its newest checkpoint as the newest run began; 0: none */
    int64_t submitted_us, started_us, finished_us; /* wall; 0: not yet */
    int64_t retry_us;                              /* wall: not assigned before it */
    int64_t waiting_us;                            /* wall: when it last began to have no devices */
    int64_t changed_us;                            /* wall: when its devices were given or taken last */
    int64_t device_us;                             /* device time of the runs that are over */
    int64_t ran_us;                                /* and how long these ran */
    int warned_s;                                  /* the time_s whose end it was warned of; 0: of none */
    uint32_t warned_in;                            /* in this generation */
    int rescales;                                  /* runs that were drained for other devices */
    char home[SPEC_NAME_MAX];                      /* class of rank 0 of the newest run; "": has not run */
    struct job_place *places;
    size_t n_places;
    struct layout layout; /* of the newest assignment */
    int master_port;
    json_t *outcome; /* owned; NULL: none */
    json_t *plan;    /* owned: of the newest assignment (api/spec_plan.h); NULL: none was made */
    char reason_code[32];
    char *reason_text; /* owned; may be NULL */

    json_t *progress, *eval, *checkpoint; /* owned, not of the state proper; NULL: none yet */
    json_t *config, *summary;             /* the same: what its program says that it was given, and came to */
    uint64_t assigned;                    /* nor this: number of the event that gave it its places */
    double step_ms;                       /* nor this: steps of the newest run take about so long; 0: none was seen */
    int64_t shipped;                      /* nor this: bytes of logs and metrics that the server has kept of it */
    int64_t drain_by_us;                  /* nor this, wall: its run has to have ended by then; 0: no matter when */
    double energy_j, run_energy_j;        /* nor these: what the runs that are over, and the newest, have drawn */
    int64_t energy_us, run_energy_us;     /* and the device time of which that was measured */
    struct job_estimate estimate;         /* nor this */
    bool told_late;                       /* nor this: that it will end after finish_by_us */
    bool moves;                           /* nor this: its run was told to leave its state in its nodes' memories */
    bool link_suspect;                    /* nor this: its links became slow; the next run measures them */
    struct job_holder *holders;           /* nor these: of the run before, until the next one is over; owned */
    size_t n_holders;
};

enum job_cause_kind {
    CAUSE_ASSIGNED, /* places, layout, master_port, plan */
    CAUSE_STARTED,  /* every rank runs */
    CAUSE_FAULT,    /* a rank failed first: incident, outcome */
    CAUSE_OVER,     /* every rank of the run is over: all_done when each ended with 0 */
    CAUSE_CANCEL,
    CAUSE_SUSPEND,
    CAUSE_RESUME,
    CAUSE_REQUEUE, /* others get its devices: save, stop, queue again */
    CAUSE_RESCALE, /* it gets other devices: save, stop, start on them */
    CAUSE_CHANGE,  /* priority, min, max; time_s; max_running of an array */
    CAUSE_TASKS,   /* an array's tasks are over, or enough of them failed: all_done, code, class_ */
    CAUSE_AFTER,   /* of the jobs that it comes after: after_is */
    CAUSE_WARN,    /* its time is nearly up */
    CAUSE_TIME_UP, /* it has run for its limit: save, stop, fail */
    CAUSE_REFUSED, /* it can go no further, as when its spec cannot be read: code, class_, text say why */
};

struct job_cause {
    enum job_cause_kind kind;
    const char *actor; /* "scheduler", "user:NAME", "agent:NODE" */
    const char *text;  /* for people */
    const char *code;  /* of CAUSE_REFUSED, CAUSE_TASKS and a CAUSE_CANCEL that no user asked for: for programs */
    const struct job_place *places;
    size_t n_places;
    struct layout layout;
    int master_port;
    enum job_class class_;
    json_t *outcome; /* borrowed */
    json_t *plan;    /* borrowed; NULL: none */
    bool all_done;
    bool hastens;                        /* CAUSE_RESCALE: off slow devices, before its hold is over */
    bool off_links;                      /* CAUSE_REQUEUE: off links that have become slow */
    const struct act_incident *incident; /* of CAUSE_FAULT: what failed; id and times are the job's to fill in */
    int priority, min, max, max_running;
    const enum job_is *after_is; /* of each of them */
    int time_s;                  /* also of CAUSE_RESUME; there 0: it stays */
};

/* A queued job from a checked spec. */
void job_init(struct job *j, uint64_t id, const struct job_spec *spec, const char *user, int64_t now_us);
void job_clear(struct job *j);

/* What the cause does to the job at the wall time now_us. The job is not changed. Returns 0 with a new event in
 * *ret_event (to be given its "id" and applied), or with words in err
 *   -EALREADY it is so already: nothing to do
 *   -EPROTO   the cause does not fit the job's state
 *   -ENOMEM */
int job_transition(const struct job *j, const struct job_cause *cause, int64_t now_us, json_t **ret_event,
                   struct merr *err);

/* Let an event of type state happen. Returns 0, -EINVAL when it does not follow the job's state, -ENOMEM. */
int job_apply(struct job *j, const json_t *event);

/* The first event of a job; its data is null and stands for the spec, which is kept once. New. */
json_t *job_submitted_event(const struct job *j);

/* The job as kept in the store, new; and back. job_from_record: *j need not be initialised. -EINVAL. */
json_t *job_record(const struct job *j);
int job_from_record(const json_t *record, struct job *j);

/* Whether it waits for others yet; and may not start, since one of them is not as wanted. */
bool job_comes_after(const struct job *j);
static inline bool job_is_held_back(const struct job *j)
{
    for (size_t i = 0; i < j->n_after; i++)
        if (j->after[i].is != JOB_IS_MET)
            return true;
    return false;
}

/* "waits for j17 to succeed, j18 to end": in words, cut to size. is: of each, NULL: as they are. */
void job_after_text(const struct job *j, const enum job_is *is, char *ret, size_t size);

bool job_ended(enum job_state state);
bool job_waits(const struct job *j); /* wants devices: queued, or recovering with no run left */

/* From now on these nodes, which are taken over, may hold its state. */
void job_hold(struct job *j, struct job_holder *holders, size_t n);

/* "run", "drain", "stop": what the agents of a live run are told. */
const char *job_order(const struct job *j);

const char *job_state_name(enum job_state state);
int job_state_parse(const char *name, enum job_state *ret); /* 0 or -EINVAL */
const char *job_class_name(enum job_class c);

/* "j17" -> 17; 0 when it is no job id. */
uint64_t job_id_parse(const char *text);

/* The id of the failure of one of its attempts (act.h). */
uint64_t job_incident(const struct job *j, uint32_t generation);

/* The class of a rank's end, whose cause is settled (exit_settle), and which is none that it was to have. */
enum act_class job_exit_class(enum job_kind kind, const struct rank_exit *e);

/* Whose affair a failure of a class is, and from whose restarts it takes. */
enum job_class job_class_of(enum act_class class_);

#endif
