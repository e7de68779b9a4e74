/* search - which layout a training job runs best in, and what it beat
 *
 * Every layout that the job leaves open is bounded from below; from the most promising on they are weighed exactly
 * (cost.h) until none that is left can be better; where nodes reach each other unlike, the best few with their ranks
 * laid on the nodes anew (dedicate.h). Among layouts whose steps are alike the one with the smallest replica wins,
 * since that job is the most elastic. Pure; the same input gives the same plan.
 */
#ifndef MUSTER_SCHEDULER_PLAN_SEARCH_H
#define MUSTER_SCHEDULER_PLAN_SEARCH_H

#include "base/buf.h"
#include "base/merr.h"
#include "scheduler/plan/cost.h"

#define PLAN_BEATEN_MAX 8
#define PLAN_ALIKE 1.02 /* steps that differ by less are alike */

enum plan_schedule { PLAN_1F1B, PLAN_INTERLEAVED, PLAN_ZB_H1, PLAN_SCHEDULES };

struct plan_wish {             /* what the job's owner decided */
    int tp, pp, micro, chunks; /* PLAN_AUTO: chosen here */
    int cp;                    /* 0 counts as 1 */
    int least_tp;              /* of those that are chosen here */
    double most_s;             /* layouts whose steps surely take longer are not looked at; 0: all are */
    /* Where these are true the fields of the same meaning here and of the job are what is tried first. */
    bool any_cp, any_workers, any_sequence_parallel;
    bool any_schedule, any_recompute;
    enum plan_schedule schedule;
    enum plan_recompute recompute;
    bool least_recompute; /* of as few blocks as the devices' memory asks for */
    int n_remade;         /* of so many stages, given one by one, how many blocks recompute is for; 0: all */
    uint16_t remade[PLAN_STAGES_MAX];
    int n_layers; /* of stages, given one by one; 0: none were */
    uint16_t layers[PLAN_STAGES_MAX];
};

/* Whether anything is left open. */
bool plan_wish_open(const struct plan_wish *w);

struct plan_result {
    struct plan_job job; /* with what was chosen of it: virtual_workers, sequence_parallel */
    struct plan_option best;
    struct plan_option beaten[PLAN_BEATEN_MAX]; /* the next best, of other shapes; those that do not fit at the end */
    int n_beaten;
    int considered;                       /* layouts */
    int unfit;                            /* of those weighed, for lack of memory */
    bool measured;                        /* times are by profiles of all of the devices' classes */
    int devices;                          /* that were there */
    uint64_t room_bytes[PLAN_STAGES_MAX]; /* of a device of each place in the pipeline; 0: not known */
    int parts;                            /* of the site's net; 0: it has none. Then */
    uint16_t at[PLAN_PARTS_MAX]; /* which of them is at each place in the order of ranks, as dedicate.h has it, */
    double in_order_s;           /* what a step of best takes with the parts as they were given, */
    int mixed, mixed_in_order;   /* and its groups of replicas on NICs of several families */
};

/* Plan for the site's devices with the job, cp and sequence parallelism as they are given. Returns 0 with *ret, or with
 * words in err
 *   -EINVAL  no layout can be, however many devices
 *   -ENOSPC  too few devices for one replica
 *   -E2BIG   none that can be fits into the devices' memory
 *   -ENOMEM */
int plan_layouts(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                 struct plan_result *ret, struct merr *err);

/* The same over what the wish leaves open of them, too (choose.c): never slower than plan_layouts() alone. */
int plan_search(const struct plan_job *job, const struct plan_wish *wish, const struct plan_site *site,
                struct plan_result *ret, struct merr *err);

/* One JSON object: layout, predicted step and memory, what it beat and why. 0 or as buf_printf. */
int plan_print(const struct plan_result *p, struct buf *out);

/* "tp 2 x pp 1 x dp 4, micro 2, interleaved (2 chunks), recompute full". */
#define PLAN_SHAPE_TEXT_MAX 128
void plan_shape_text(const struct plan_shape *s, char ret[PLAN_SHAPE_TEXT_MAX]);

#endif
