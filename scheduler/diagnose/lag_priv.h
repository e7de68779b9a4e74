/* lag_priv - a run's windows and what is known of its ranks and groups, for the files of lag.h */
#ifndef MUSTER_SCHEDULER_DIAGNOSE_LAG_PRIV_H
#define MUSTER_SCHEDULER_DIAGNOSE_LAG_PRIV_H

#include "scheduler/diagnose/lag.h"

#define OPEN_MAX 8       /* windows that ranks are still telling of */
#define STEPS_LEAST 5    /* cells of a window that count */
#define LAG_LANES 64     /* of ranks, replicas or groups that are sorted side by side */
#define SAMPLE 512       /* ranks of which a median is taken, spread evenly */
#define FEW 8            /* ranks of a role: below that they are compared with their own past, too */
#define REPLICA_LEAST 16 /* ranks of a replica that has a factor of its own */
#define PAST_LEAST 4     /* windows before a rank's own past says anything */
#define PAST_WEIGHT 0.1
#define LATE 0.7 /* P of section 2.2 of CCL-D: from here on the others wait for one */

struct told {     /* by a rank of a window */
    bool closed;  /* it tells no more of it */
    float counts; /* steps */
    struct lag_sample sum;
};

struct window { /* of LAG_WINDOW cells, each of so many steps */
    bool used;
    uint32_t scale, span; /* steps of a cell; the most that were told at once */
    uint64_t from, end;   /* its first step, and the one after it */
    size_t closed;
    struct told *told;       /* by rank */
    float *cost, *work;      /* by cell, then rank: busy, when it is judged for each unit of work; 0: not told */
    float *least[LAG_KINDS]; /* of each group, by cell: the shortest that a member was in its calls; < 0: not told */
};

/* What a rank is compared by: time that it computes, and processor time where the processor computes. */
enum lag_measure { LAG_BUSY, LAG_CPU, LAG_MEASURES };

struct usual {        /* of one of few */
    uint32_t windows; /* told so far */
    float own, apart; /* ln cost; its deviation from the others */
    float spread;     /* how much that varies */
};

struct held { /* how long a rank has been slow without two windows of other findings, and the means of that time */
    uint32_t windows, missed;
    float us, more[LAG_MEASURES]; /* times us */
    float starved;                /* us of that time that ranks of the role waited for a processor */
};

struct past { /* of a rank */
    struct held held;
    uint8_t hits, data_hits, away_hits; /* of the last windows, the newest lowest */
    uint8_t quiet;                      /* windows without, of one that was found */
    bool slow;
    bool lacks;          /* and it is told that its host withholds the processor */
    uint64_t end;        /* it has told of the steps before this one */
    uint64_t early_step; /* rule C */
    struct usual usual[LAG_MEASURES];
};

struct team {                /* of a kind */
    float least, most, wall; /* of the window, a step */
    uint32_t first, members; /* first: rank */
    bool apart;              /* on several nodes */
    bool linked;             /* they are, or have devices of their own: ranks that processors compute meet in memory */
    float usual;             /* least, usually; 0: not known */
    float spread;            /* how much that varies */
    float kib, kib_usual;    /* that a member sends, a step; 0: not told */
    uint32_t windows;
    uint8_t hits;
    bool slow;
    bool lacking; /* a member is told to have no processor: its calls are long for that, and no link is blamed */
    float lack, lack_usual; /* the shares of their time that members had no processor, added up */
    float stretch;          /* as many times as long calls may take because a member lacks a processor */
};

struct lag {
    struct lag_place *place;
    size_t n, roles;
    uint32_t *by_role, *role_at; /* ranks by role; role i has by_role[role_at[i]] .. by_role[role_at[i + 1] - 1] */
    uint32_t *by_replica, *replica_at;
    bool *spread; /* replicas of several nodes and enough ranks */
    bool any_spread;
    size_t replicas;
    bool any_few; /* roles with few members */
    struct window window[OPEN_MAX];
    struct past *past;
    struct team *team[LAG_KINDS]; /* by number */
    size_t teams[LAG_KINDS];
    bool long_told[LAG_KINDS];     /* that calls of groups are long, */
    uint32_t long_rank[LAG_KINDS]; /* of this one's */
    uint8_t *role_hits;
    bool *role_told;
    uint32_t judged;
    uint64_t end;                  /* of the newest window */
    uint32_t scale;                /* of the next one */
    float *early, *late[LAG_LONG]; /* by rank: rule C; the last windows' ln of its cost to what it should be */
    /* of the window that is judged */
    float *cells;              /* by rank: how many count */
    float *more[LAG_MEASURES]; /* by rank: ln of its cost to what it should be; NAN: not told */
    bool *hit[LAG_MEASURES];   /* and whether that is no chance */
    float *excess;             /* by rank: ln of its slowness; 0: no hit */
    bool *lasting;             /* and whether it has been there for LAG_LONG windows */
    uint8_t *crowded; /* by role: in which of the last three windows its ranks shared their processors with others, */
    float *crowding;  /* and the most that one waited for one in this one, as a share of its time */
    float *withheld;  /* the share of its time computing that it had no processor, and would have needed one */
    float *sigmas;
    float *scratch;
};

float lag_median(const float *v, size_t n); /* 0: of none */
float lag_median_few(float *v, size_t n);   /* the same, cheaper where n is small; v is sorted */

/* Sort each lane's n values, side by side with the other lanes'. */
void lag_sort_lanes(float (*v)[LAG_LANES], int n);
float lag_starved_more(const struct lag *l, const struct window *w, uint32_t rank);
bool lag_twice(uint8_t hits); /* in the last three windows */

/* The share of a time computing that is longer by busy, of which cpu is more processor time (both ln), in which the
 * rank had no processor; 0: that is the smaller part of it. */
float lag_lacks(float busy, float cpu);
void lag_add(struct lag_verdict *v, const struct lag_finding *f);

/* lag_ranks: more, hit, excess, lasting, withheld and sigmas of all ranks in a window. Costs in it become ratios. */
void lag_count(struct lag *l, struct window *w); /* first: cells, and costs for each unit of work */
void lag_compare(struct lag *l, struct window *w);

/* lag_groups */
void lag_measure_groups(struct lag *l, const struct window *w);
void lag_judge_groups(struct lag *l, struct lag_verdict *v);
void lag_find_lateness(const struct lag *l, const struct window *w, struct lag_finding *f);

#endif
