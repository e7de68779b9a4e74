/* runs - a run from its start to its end, by what is heard of its ranks
 *
 * A run is over when all its ranks are; the rank that failed first names the cause.
 */
#ifndef MUSTER_SERVER_RUNS_H
#define MUSTER_SERVER_RUNS_H

#include <jansson.h>
#include <stddef.h>

#include "server/control/entry.h"

struct core;

/* The run of a live job, newly assigned or loaded, has its slots. */
void runs_adopt(struct core *c, struct entry *e);

/* Its slots on a node are free: all of its ranks there are over. */
void runs_release(struct core *c, const struct entry *e, const char *node);

/* A rank of the run failed first, of what class and with what words; log_tail (borrowed, may be NULL) is the end of
 * what it printed. What follows is scheduler/diagnose/act.h. */
void runs_fault(struct core *c, struct entry *e, int rank, enum act_class class_, const char *message, json_t *log_tail,
                const char *actor);

/* Ranks have changed: whether the run has started, or is over. */
void runs_follow(struct core *c, struct entry *e, const char *actor);

/* Where it runs, in words. */
void runs_describe(const struct job_place *p, size_t n, char *ret, size_t size);

/* Several ranks of the run have failed of themselves: one incident, which is told with all of them. known: of fewer it
 * was told before. */
void runs_tell_roots(struct core *c, const struct entry *e, bool known, const char *actor);

/* Node n has told of the run. A rank there that another has lost, and that runs all the same, will wait for ever: what
 * is broken is the connection between them. True: the run has failed for it. */
bool runs_look_cut(struct core *c, struct entry *e, const struct node *n, const char *actor);

#endif
