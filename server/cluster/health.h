/* health - what a node is charged with, and whether it is given work: its score, its state and the tests it has to pass
 *
 * Each failure that may be the node's is evidence of some weight, halved every seven days. A node is guilty when the
 * evidence adds up to one incident, or when it has failed more often than the others of the cluster let expect for the
 * time that it has been there. Evidence of jobs counts once it is of two users: one user's jobs may all fail for a
 * reason of their own. Incidents within HEALTH_APART_US are one.
 *
 * A guilty node is drained and quarantined for half an hour, twice as long each further time; then it has to pass an
 * active test twice, and serves on probation for a day. It stays out until somebody has looked when it fails a test or
 * is quarantined for the third time in 30 days. Plain data; all times are wall microseconds.
 */
#ifndef MUSTER_SERVER_HEALTH_H
#define MUSTER_SERVER_HEALTH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEALTH_KEPT 32        /* incidents of a node */
#define HEALTH_TERMS 8        /* quarantines of a node that are remembered */
#define HEALTH_REASON_MAX 320 /* bytes */
#define HEALTH_APART_US (INT64_C(60) * 1000000)
#define HEALTH_WINDOW_US (INT64_C(28) * 86400 * 1000000)
#define HEALTH_HOLD_US (INT64_C(1800) * 1000000)
#define HEALTH_HOLD_MAX_US (INT64_C(7) * 86400 * 1000000)
#define HEALTH_SUSPECT_US (INT64_C(60) * 1000000)
#define HEALTH_PROBATION_US (INT64_C(86400) * 1000000)
#define HEALTH_RATE_A_DAY 0.0065 /* incidents of a node that are usual: 6.5 in 1000 node-days */

enum health_state {
    HEALTH_WELL,
    HEALTH_SUSPECT,     /* given work only where there is no other way, for a minute */
    HEALTH_DRAINING,    /* its jobs leave it */
    HEALTH_QUARANTINED, /* until the hold is over */
    HEALTH_TESTING,     /* until it has passed its tests */
    HEALTH_PROBATION,   /* given work as SUSPECT, and none of jobs that need several nodes */
    HEALTH_REPAIR,      /* until somebody has looked */
    HEALTH_HELD,        /* somebody has drained it */
    HEALTH_STATES
};

enum health_check { HEALTH_CHECK_WELL, HEALTH_CHECK_NO_WORK, HEALTH_CHECK_DRAIN, HEALTH_CHECKS };

struct health_incident {
    uint64_t user; /* a hash of the name of the job's; 0: of the hardware itself */
    int64_t at_us;
    int milli;   /* of an incident, among all that are suspected of it */
    bool silent; /* the node was lost: says nothing where many were at once */
};

struct health { /* of a node; zeroed: nothing is known against it */
    enum health_state state;
    int64_t since_us, until_us; /* of the state; 0: from the beginning; without end */
    char reason[HEALTH_REASON_MAX];
    int64_t known_us;                             /* since when it is of the cluster */
    struct health_incident incident[HEALTH_KEPT]; /* oldest first */
    size_t n_incidents;
    int64_t term_us[HEALTH_TERMS]; /* when it was quarantined, oldest first */
    size_t n_terms;
    int passed;              /* tests in a row */
    enum health_check check; /* what its agent's checks say, */
    int64_t check_since_us;
    char check_reason[HEALTH_REASON_MAX];
    bool by_check; /* it is drained for that */
};

/* Evidence against the node. False: it is of an incident that was counted. */
bool health_blame(struct health *h, const struct health_incident *what);

/* What was counted of the node's silence since then is taken back. */
void health_forgive_silence(struct health *h, int64_t since_us);

double health_score(const struct health *h, int64_t now_us);
int health_incidents(const struct health *h, int64_t now_us); /* in the window */
double health_days(const struct health *h, int64_t now_us);   /* of the window that the node has been there */

/* Whether it is to be quarantined, where others have so many incidents a day; why goes to ret. */
bool health_is_guilty(const struct health *h, double rate_a_day, int64_t now_us, char *ret, size_t size);

/* Quarantine begins: DRAINING, or REPAIR the third time in 30 days. */
void health_convict(struct health *h, const char *reason, int64_t now_us);

/* For SUSPECT, HELD, WELL and what tests do. The reason may be its own. */
void health_set(struct health *h, enum health_state state, const char *reason, int64_t now_us);

/* Somebody has looked: it is well, and what it was charged with is forgotten. */
void health_forgive(struct health *h, int64_t now_us);

/* What time does; empty: no job is on the node. Returns whether the state has changed. */
bool health_tick(struct health *h, bool empty, int64_t now_us);

/* A test that it had to pass is over. Returns whether the state has changed. */
bool health_tested(struct health *h, bool passed, const char *why, int64_t now_us);

/* What its agent's checks say now. Returns whether that is new. */
bool health_checked(struct health *h, enum health_check check, const char *reason, int64_t now_us);

bool health_is_out(const struct health *h); /* its state is one in which it is drained */
bool health_is_shy(const struct health *h); /* it is given work only where there is no other way */

/* The wall clock was set by so much: what is measured with it goes along. */
void health_shift(struct health *h, int64_t by_us);

json_t *health_record(const struct health *h); /* for the store; new */
void health_load(struct health *h, const json_t *o);
json_t *health_view(const struct health *h, int64_t now_us); /* new */

extern const char *const health_state_names[HEALTH_STATES];
extern const char *const health_check_names[HEALTH_CHECKS]; /* "well", "no-work", "drain" */

#endif
