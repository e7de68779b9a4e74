/* lag - which rank of a run is slower than it should be, and whether it, its host or a link is why
 *
 * In a synchronous run all ranks are as slow as the slowest, so steps' times name nobody. What a rank computes itself
 * is compared with what ranks of its role (its pipeline stage, on devices of its class) compute in the same step, per
 * token; single steps deviate all the time, so windows of LAG_WINDOW steps are judged by their median, and two hits in
 * three windows make a finding, or a smaller deviation that stays for LAG_LONG windows. Of short steps, of which ranks
 * tell by sums over 2, 4, 8 … steps, a window has LAG_WINDOW such sums: each step counts, whatever its length. Ranks of
 * roles with few members are also compared with their own past. How long the
 * members of a group are in its calls tells the rest: who comes late is in them for the shortest time, and a slow link
 * makes all of them long. Counts and durations on one clock each are all that is used.
 *
 * Rules and constants after Greyhound (ATC 2025), CCL-D (PPoPP 2026) section 2.2 for telling a late member from a slow
 * transfer, C4 (HPCA 2025) for naming a node among groups. A window takes time in proportion to ranks.
 */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_LAG_H
#define MUSTER_SCHEDULER_DIAGNOSE_LAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAG_WINDOW 10
#define LAG_LONG 5
#define LAG_SPAN_MAX 1024 /* steps that are told in one sum */
#define LAG_FOUND_MAX 8

enum lag_kind { LAG_TP, LAG_DP, LAG_CP, LAG_KINDS }; /* of groups whose calls wait for all members */

struct lag_place { /* of a rank in its run; all numbers are below the number of ranks */
    uint32_t role; /* the same for ranks that do the same in each step */
    uint32_t replica, node;
    uint32_t team[LAG_KINDS]; /* the same for the members of a group; one with a single member is passed over */
};

struct lag_span {    /* consecutive steps that a rank tells of at once */
    uint64_t step;   /* the first */
    uint32_t steps;  /* how many */
    uint32_t counts; /* those that count: the others warm up, evaluate or save */
};

struct lag_sample {         /* what a rank told of the steps that count, summed; microseconds */
    float busy, data, wall; /* computing, waiting for data, all of it */
    float cpu;              /* of processors, where they compute; 0: a GPU does */
    float work;             /* tokens */
    float call[LAG_KINDS];  /* in calls */
    float kib;              /* sent */
    float starved;          /* it could have run, and had no processor; a part of it: */
    float throttled;        /* its control group was at its limit */
};

enum lag_class {
    LAG_NONE,
    LAG_COMPUTE, /* S1: the rank computes more slowly than its peers */
    LAG_LINK,    /* S2: all members of a group are long in its calls */
    LAG_BOTH,    /* S3 */
    LAG_ROLE,    /* S4: a whole pipeline stage has more to do: a matter of the layout, no fault */
    LAG_HOST,    /* S5: the rank's host withholds the processor, or data */
    LAG_CLASSES,
};

struct lag_finding {
    enum lag_class class_;
    bool over;     /* it was found before, and is as fast as the others again */
    uint32_t rank; /* of a role: its first rank; of a link: of the group, or the first of the node */
    uint32_t role;
    uint32_t node;      /* of the rank; of a link: the node that its groups have in common; UINT32_MAX: none */
    double factor;      /* how many times as long as it should: computing; of a link, in calls */
    double sigmas;      /* the deviation in robust standard deviations of the window */
    double late_us;     /* a step: by how much it is later than the first in its groups' calls */
    double p;           /* 1: others wait for it; 0: all are long in calls; between: both */
    enum lag_kind kind; /* of the group that p, and a link's factor, are of; LAG_KINDS: none */
    double withheld;    /* of a host: the share of the step that it waited for data, or had no processor */
    bool data;          /* of a host: for data, */
    bool away;          /* or it had no processor while it waited for others: what it computes took no longer */
    double starved;     /* the shares of the time in which it could have run and had no processor, */
    double throttled;   /* and its control group was at its limit */
    double share;       /* of a link: of each step, that its calls take more than usually */
    double kib_s;       /* of a link: what its members send in a second of their calls, KiB; 0: not told, */
    double kib_s_usual; /* and what they usually do */
    uint64_t early;     /* the step at which it was first suspected; 0: not before the finding */
};

struct lag_verdict {
    struct lag_finding found[LAG_FOUND_MAX]; /* news, the worst first */
    size_t n;
    uint64_t first_step; /* of the window, */
    uint64_t end_step;   /* and the one after it */
    size_t suspects;     /* ranks to which attention is drawn; most are not found to be slow later */
};

struct lag;

/* Returns 0 or -ENOMEM; places are copied. */
int lag_new(const struct lag_place *places, size_t n, struct lag **ret);
void lag_free(struct lag *l);

/* A rank tells of steps, later ones than before; s: borrowed. */
void lag_take(struct lag *l, size_t rank, const struct lag_span *at, const struct lag_sample *s);

/* Judge a window that all ranks have told of, or that is not waited for any more. False: there is none. */
bool lag_judge(struct lag *l, struct lag_verdict *ret);

/* Whether a finding of the rank stands. */
bool lag_is_slow(const struct lag *l, size_t rank);

/* "compute", "link", "compute and link", "stage", "host" */
const char *lag_class_name(enum lag_class class_);

#endif
