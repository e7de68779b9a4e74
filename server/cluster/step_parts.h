/* step_parts - what the steps of each rank of a run were spent on: lately, and over the whole run in few buckets
 *
 * The buckets hold consecutive steps, equally many each, the same for all ranks; a run that outgrows them has each two
 * of them joined into one. So a run takes the same memory however long it is: 4 KiB a rank. Plain data.
 */
#ifndef MUSTER_SERVER_STEP_PARTS_H
#define MUSTER_SERVER_STEP_PARTS_H

#include <stddef.h>
#include <stdint.h>

#define STEP_PARTS_BUCKETS 64

enum step_part {                /* of a step; microseconds, but for what says KiB */
                 STEP_PART_ALL, /* until the next step began */
                 STEP_PART_COMPUTE,
                 STEP_PART_TP, /* in calls of groups: waiting for others, and moving bytes */
                 STEP_PART_PP,
                 STEP_PART_DP,
                 STEP_PART_CP,
                 STEP_PART_OTHER, /* of any other group */
                 STEP_PART_DATA,  /* waiting for what is trained on */
                 STEP_PART_SAVE,  /* waiting for checkpoints: also of the steps that do not count otherwise */
                 STEP_PART_KIB,   /* sent */
                 STEP_PARTS,
};

struct step_parts_sum { /* over steps */
    float steps;        /* how many, */
    float counted;      /* of which so many count: the others warm up, evaluate or save */
    float v[STEP_PARTS];
};

struct step_parts;

/* Returns 0 or -ENOMEM. */
int step_parts_new(size_t ranks, struct step_parts **ret);
void step_parts_free(struct step_parts *p); /* NULL is fine */

/* A rank (below ranks) tells of consecutive steps from this one on. */
void step_parts_take(struct step_parts *p, size_t rank, uint64_t step, const struct step_parts_sum *told);

/* The buckets in use: their first step, and how many steps each holds; 0: nothing was told yet. */
size_t step_parts_buckets(const struct step_parts *p, uint64_t *ret_first, uint64_t *ret_width);

/* What a rank told of bucket i (below STEP_PARTS_BUCKETS), and of its last steps: about ten records weigh in. Borrowed,
 * until the next step_parts_take(). */
const struct step_parts_sum *step_parts_bucket(const struct step_parts *p, size_t rank, size_t i);
const struct step_parts_sum *step_parts_last(const struct step_parts *p, size_t rank);

/* Add one to another, so that means over ranks can be taken. */
void step_parts_add(struct step_parts_sum *to, const struct step_parts_sum *s);

/* The mean of a step; NAN: no step is known. */
double step_parts_mean(const struct step_parts_sum *s, enum step_part part);

/* What is left of a step beside its parts: between two steps, and what nobody measures; NAN: no step is known. */
double step_parts_rest(const struct step_parts_sum *s);

#endif
