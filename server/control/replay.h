/* replay - a step whose numbers went bad is done again on other devices, and what comes of it is a verdict
 *
 * A run whose loss or gradient is not finite goes on from an older checkpoint, away from the node where it showed, with
 * the same data in the same order. The same again there is the data's or the model's (act.h). A step that goes well
 * there speaks against the devices that are not of the run any more.
 */
#ifndef MUSTER_SERVER_REPLAY_H
#define MUSTER_SERVER_REPLAY_H

#include <jansson.h>

#include "server/control/entry.h"

struct core;

/* The job's run has done a step, which its progress does not tell yet: say so once it has passed the bad one. */
void replay_measured(struct core *c, struct entry *e, uint32_t generation, json_int_t step);

#endif
