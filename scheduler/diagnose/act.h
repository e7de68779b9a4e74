/* act - what follows the failure of a run: again where it was, elsewhere, from an older checkpoint, or not at all
 *
 * One table of what each class of failure allows, how often, and what it says of the node. Plain data in, an action
 * with its reason out; the history goes on with the job, so a decision can be replayed. One incident is decided once.
 *
 * After the restart budgets of NVRx and the lesson of ByteRobust (SOSP 2025): isolate first, explain later.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_ACT_H
#define MUSTER_SCHEDULER_DIAGNOSE_ACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACT_WHY_MAX 240
#define ACT_STUCK_MAX 3      /* attempts in a row that do not pass the last checkpoint */
#define ACT_SOON_LOST_MAX 3  /* attempts in a row that lost a node soon after they began */
#define ACT_INFRA_PER_DAY 20 /* attempts that nodes, devices and links ended */
#define ACT_ROLL_BACKS 3
#define ACT_HEALTHY_US INT64_C(1800000000) /* an attempt of this length begins the back-off anew */
#define ACT_SOON_US INT64_C(600000000)     /* a node that is lost so soon may be lost by what the job does */
#define ACT_GONE_US INT64_C(1250000)       /* a node silent for so long when an attempt began was lost before it */
#define ACT_WAIT_MAX_US INT64_C(450000000)

enum act_class {                  /* of a failure; in parentheses the classes of the literature */
                 ACT_USER,        /* the program, its data or its memory (F1) */
                 ACT_CRASH,       /* ended by others, or a fault of Muster's (F1) */
                 ACT_STOPPED,     /* stopped or frozen (F2) */
                 ACT_LOST,        /* gone with its node (F3) */
                 ACT_DEVICE,      /* its device, disk or machine failed (F4) */
                 ACT_NOT_ENTERED, /* has not entered what the others wait in (H1) */
                 ACT_DISORDER,    /* ranks called in different orders (H2) */
                 ACT_IN_CALL,     /* nothing moves in a call that all are in (H3) */
                 ACT_PHASE,       /* loads, evaluates or saves for too long (H4) */
                 ACT_NUMERIC,     /* a loss or gradient that is no number, or jumps (N1) */
                 ACT_REPLICA,     /* its weights are not those of the other replicas (N1) */
                 ACT_SLOW,        /* it goes on, on a device that is slower than others of the class (S1) */
                 ACT_SLOW_TESTED, /* the same, and a test of the device has confirmed it */
                 ACT_SLOW_LINK,   /* it goes on, over links that have become slow (S2) */
                 ACT_CLASSES
};

enum act_verb {
    ACT_NOTHING,   /* this incident was acted upon before */
    ACT_IN_PLACE,  /* again, on the same nodes as well as on any */
    ACT_ELSEWHERE, /* again, and not on the node of the rank that failed first where others fit */
    ACT_ROLL_BACK, /* the same, from a checkpoint further back (back) */
    ACT_MOVE,      /* it saves its state and goes on on devices that are well, where there are such */
    ACT_FAIL,
    ACT_FAIL_USER, /* and it is the owner's to repair */
};

struct act_moves { /* of a day, which began with the first of */
    int64_t since_us;
    int n; /* so many */
};

struct act_left { /* restarts that the job's spec still allows */
    int system, user;
};

struct act_history {   /* of a job; zeroed: it has not failed. Times are wall microseconds */
    uint64_t incident; /* the last one that was decided */
    int in_a_row;      /* failures since an attempt was healthy, for the back-off */
    int stuck;         /* attempts in a row that did not pass their checkpoint */
    int soon_lost, disorders, roll_backs;
    int64_t infra_since_us;      /* the day that began with the first of */
    int infra;                   /* so many */
    struct act_moves moves;      /* off slow devices, before the hold was over */
    struct act_moves link_moves; /* off slow links: what one of the two has used up leaves the other as it was */
    uint64_t signature;          /* of the last failure; 0: none */
    int64_t signature_step;
    uint64_t node; /* a hash of the name: where the last one failed first */
};

struct act_incident {
    uint64_t id; /* of the attempt; never 0 */
    enum act_class class_;
    int64_t now_us, began_us; /* of the attempt */
    int64_t heard_us;         /* the last word of the node; 0: not known */
    uint64_t node;            /* a hash of the name */
    uint64_t signature;       /* of how the program ended by itself; 0: others ended it, or it is not known */
    int64_t step, saved;      /* the last step that it did, and the last that was saved before it; -1: it has none */
    bool replicas;            /* others on more nodes add to its numbers, and may have been of the run before, too */
    const char *words;        /* of the cause, for ACT_FAIL_USER; NULL: none */
};

struct act {
    enum act_verb verb;
    int64_t wait_us;       /* before it starts again */
    int back;              /* of ACT_ROLL_BACK: checkpoints to pass over, from 1 */
    char why[ACT_WHY_MAX]; /* it is not started again; "": its spec allows no further restart */
    struct act_history then;
};

/* What follows a failure; not of a class that lets the run go on. */
void act_decide(const struct act_left *left, const struct act_history *h, const struct act_incident *i,
                struct act *ret);

/* Whether a run that is found slow by such a cause may move at once, and not only when it has held its devices for long
 * enough: ACT_MOVE, else ACT_NOTHING. then (may be NULL): the history if it does. */
enum act_verb act_slow(enum act_class class_, const struct act_history *h, int64_t now_us, struct act_history *then);

/* Hundredths of an incident that such a failure is evidence against the node on which it came first; 0: none. */
int act_blame(enum act_class class_);

/* Whether a run that such a failure has ended goes on on spares at once, where there are enough. */
bool act_takes_spare(enum act_class class_);

const char *act_verb_name(enum act_verb verb); /* "in-place", "elsewhere", "roll-back", "move", "fail", "fail-user" */

#endif
