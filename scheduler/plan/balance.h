/* balance - contiguous blocks for the stages of a pipeline, so that the slowest stage is as fast as can be
 *
 * Pure. For stages of unlike devices, or of unlike ends. Stages with less memory get no more blocks than they hold.
 */
#ifndef MUSTER_SCHEDULER_PLAN_BALANCE_H
#define MUSTER_SCHEDULER_PLAN_BALANCE_H

#include <stdint.h>

struct plan_stage {
    double block_s; /* a block takes so long there; above 0 */
    double fixed_s; /* on top: the embedding, the head */
    int most;       /* blocks it has memory for */
};

/* Share out layers over n stages, each at least one block, into ret[n]. Among the ways whose slowest stage is fastest
 * the one that takes surplus blocks from the slowest stages. Returns the slowest stage's seconds, or -1 when the stages
 * cannot hold all layers (ret is unchanged then). */
double plan_balance(const struct plan_stage *stage, int n, int layers, uint16_t *ret);

#endif
