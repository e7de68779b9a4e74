/* explain - why a job waits or has less than it could use, as data, and in plain words
 *
 * Read off a snapshot and its plan, so a saved round explains itself anywhere. Pure; not tied to a thread.
 */
#ifndef MUSTER_SCHEDULER_CLUSTER_EXPLAIN_H
#define MUSTER_SCHEDULER_CLUSTER_EXPLAIN_H

#include "scheduler/cluster/forecast.h"

#define EXPLAIN_BEHIND_MAX 8
#define EXPLAIN_HELP_MAX 8

enum explain_code {
    EXPLAIN_ASSIGNED,
    EXPLAIN_INSUFFICIENT, /* others have the devices */
    EXPLAIN_BEHIND,       /* devices are kept for a job before it */
    EXPLAIN_LIMIT,        /* its project holds as much as it may */
    EXPLAIN_FRAGMENTED,   /* enough are free, not side by side */
    EXPLAIN_FREEING,      /* its devices are being left by others */
    EXPLAIN_DRAINED,      /* it would fit if drained nodes came back */
    EXPLAIN_TOO_SMALL,    /* the cluster never holds as many */
    EXPLAIN_NO_CLASS,     /* no device of its classes */
    EXPLAIN_NO_NODES,
    EXPLAIN_BACK_OFF,    /* it failed a moment ago */
    EXPLAIN_NO_LAYOUT,   /* no whole number of replicas lies between min and max */
    EXPLAIN_SHRUNK,      /* it runs on fewer devices than it could use */
    EXPLAIN_MAX_RUNNING, /* its project has as many jobs running as it may: total */
    EXPLAIN_MAX_DEVICES, /* its user holds as many devices in the project as they may: total */
    EXPLAIN_ARRAY,       /* its array has as many tasks running as it may: total */
    EXPLAIN_SPARES,      /* it would fit if no devices were kept as spares */
    EXPLAIN_DEPENDENCY,  /* it comes after jobs that are not as wanted yet */
    EXPLAIN_SINGLETON,   /* behind is of its name and user, and it is to be the only one */
    EXPLAIN_CLOSING,     /* its time limit runs into maintenance or a reservation of the free devices */
    EXPLAIN_RESERVATION, /* behind: number of the reservation that it names, which begins later */
    EXPLAIN_POWER,       /* devices may not draw as much together: power_w, of which drawn_w are drawn */
    EXPLAIN_SLOW,        /* it runs on devices that are slower than others of their class; need: so many */
};

struct explain_tally {              /* devices by type */
    int32_t total[RATES_TYPES_MAX]; /* that count: also those drained or out of contact */
    int32_t drained[RATES_TYPES_MAX], spare[RATES_TYPES_MAX];
    int32_t free[RATES_TYPES_MAX];         /* that the plan leaves free */
    int32_t side_by_side[RATES_TYPES_MAX]; /* most of these on one node */
    int64_t closes_us[RATES_TYPES_MAX];    /* when the first node closes on which some are free; 0: none does */
    int32_t held[SCHED_TENANTS_MAX];       /* devices, by tenant, those of tenants within it included */
    int64_t drawn_w;
};

struct explain_wait { /* the short of it, cheap enough for every job of every round */
    enum explain_code code;
    int32_t need;             /* least devices it takes */
    int32_t free;             /* free devices of the types it may use */
    int32_t total;            /* devices of these types */
    int32_t spare;            /* devices of these types that are kept as spares */
    int32_t elsewhere;        /* free devices that it may not use because it stays on the type it began on */
    uint64_t behind;          /* the job for which devices are kept, 0: none */
    int32_t drained;          /* devices of these types that are drained */
    int32_t has;              /* devices that it has */
    int32_t side_by_side;     /* most free ones on one node */
    int32_t limit, held;      /* LIMIT: devices that its tenant, or one that it is within, may hold, and holds */
    int64_t power_w, drawn_w; /* POWER: that devices may draw together, and draw; need_w: its least */
    int64_t need_w;
    int64_t
        until_us; /* CLOSING: when the first node closes on which devices are free; BACK_OFF, RESERVATION: wall, when
                         it is over; 0: nobody says */
    int32_t replica, most; /* NO_LAYOUT: devices of a replica, and the most that it takes */
    bool bound;            /* it stays on the type that it began on */
    bool rack;             /* it takes them within one rack alone */
};

enum explain_help_kind {
    EXPLAIN_END_JOB,   /* job: end or suspend it */
    EXPLAIN_LOWER_MIN, /* n: to so many */
    EXPLAIN_PRIORITY,  /* above that of job */
    EXPLAIN_UNDRAIN,
    EXPLAIN_ADD_NODE,
    EXPLAIN_WIDEN,         /* lower its minimum or allow more classes */
    EXPLAIN_RAISE_QUOTA,   /* n: to so many, or it never starts; 0: by as many as it takes */
    EXPLAIN_SHORTEN,       /* its time limit */
    EXPLAIN_RELEASE,       /* let it change classes */
    EXPLAIN_RAISE_RUNNING, /* the ceiling of its project or array */
    EXPLAIN_RAISE_POWER,
    EXPLAIN_RAISE_MAX, /* n: devices.max, to so many */
};

struct explain_help {
    enum explain_help_kind kind;
    uint64_t job;
    int32_t n;
};

struct explain_class { /* of the types it may use, those with devices */
    int type;
    int32_t total, free, drained, spare;
};

struct explain_cause {
    struct explain_wait wait;
    struct explain_class classes[RATES_TYPES_MAX];
    size_t n_classes;
    uint64_t behind[EXPLAIN_BEHIND_MAX]; /* jobs that hold what it could use, those that hold most first; or that go
                                            before it */
    size_t n_behind;
    struct explain_help help[EXPLAIN_HELP_MAX];
    size_t n_help;
    struct forecast forecast; /* while it waits; start_us is -1 otherwise */
};

void explain_count(const struct sched_input *in, const struct sched_plan *plan, struct explain_tally *ret);

/* Why the job waits; EXPLAIN_ASSIGNED when it does not. */
struct explain_wait explain_wait(const struct explain_tally *tally, const struct sched_input *in,
                                 const struct sched_plan *plan, size_t job);

/* The whole of it. Returns 0 or -ENOMEM with *ret unchanged. */
int explain_job(const struct sched_input *in, const struct sched_plan *plan, size_t job, struct explain_cause *ret);

/* "insufficient-devices" and so on. */
const char *explain_code_name(enum explain_code code);

/* A cause as one JSON object, as REST and the CLI show it; types: their names. Returns 0 or -EMSGSIZE of the buffer. */
int explain_print(const struct explain_cause *cause, const char *const *types, struct buf *out);

/* When it starts, as an object. */
void explain_print_forecast(const struct forecast *f, struct buf *out);

/* In words; cut to size. Jobs are named as "j17". */
void explain_wait_text(const struct explain_wait *wait, char *ret, size_t size);

#endif
