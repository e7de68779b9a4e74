/* split - which layers of a model each stage of a pipeline has
 *
 * Values only. Stage s of P·v is on rank s modulo P of the pipeline, as one of its v chunks.
 */
#ifndef MUSTER_SCHEDULER_PLAN_SPLIT_H
#define MUSTER_SCHEDULER_PLAN_SPLIT_H

#include <stdint.h>

struct plan_split {
    int layers, stages;    /* 1 <= stages <= layers */
    const uint16_t *given; /* layers of each stage, borrowed; NULL: shared evenly, and */
    double head_cost;      /* the head on the last stage counts as that many layers */
};

/* Layers [*ret_begin, *ret_end) of stage s: every stage gets at least one. */
void plan_split_layers(const struct plan_split *m, int s, int *ret_begin, int *ret_end);

#endif
