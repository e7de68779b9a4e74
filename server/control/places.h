/* places - the folders of runs that begin, made on a thread of its own
 *
 * They may be on a file system of another machine, which is slow, or stands still for minutes: what is decided must not
 * wait for it. So a turn asks for them before it commits, and looks afterwards which are there; until then nothing of
 * the run is told to its nodes. Without a thread they are made before places_ask() returns: so a simulation of the
 * server has one thread.
 */
#ifndef MUSTER_SERVER_PLACES_H
#define MUSTER_SERVER_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/merr.h"

#define PLACES_WAIT_US 20000 /* for what a turn has asked for, unless it is behind already */

struct core;
struct entry;
struct places;

/* core is borrowed. Returns 0 with *ret, or a negative errno with words. */
int places_start(struct core *core, bool thread, struct places **ret, struct merr *err);

/* Wait for the folder that is being made, and leave the others. NULL is fine. */
void places_free(struct places *p);

/* The folders of the entry's run are wanted. */
void places_ask(struct core *c, struct entry *e);

/* Note which are made; wait for them until deadline_us (monotonic). The nodes hear of a run that had to wait longer. */
void places_note(struct core *c, int64_t deadline_us);

#endif
