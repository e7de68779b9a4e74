/* givers - nodes that a job has left and whose memory may have its state: each runs a giver for the job's next run
 *
 * What a giver is asked for and answers goes through its node's assignments and reports, as for a run.
 */
#ifndef MUSTER_SERVER_GIVERS_H
#define MUSTER_SERVER_GIVERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/protocol/assignment.h"
#include "api/protocol/report.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

struct givers; /* jobs that left state in nodes' memories; some of them may not any more */

struct givers *givers_new(void); /* NULL: no memory */
void givers_free(struct givers *all);

/* A run that was told to leave its state in memory is about to be over, on its places: new, NULL: none holds it. */
struct job_holder *givers_of_run(const struct job *j, bool drained, size_t *ret_n);
/* It is over: these hold what the next one goes on from (taken over; none: those that held it before, if it did not
 * take it from them). */
void givers_hold(struct core *c, struct entry *e, struct job_holder *holders, size_t n);
void givers_load(struct core *c, struct entry *e);  /* a job as it was stored */
void givers_start(struct core *c, struct entry *e); /* a run was assigned: those that it can use, and no others */
/* Name the run's givers in its assignment. Returns 0 or -ENOMEM. */
int givers_assign(const struct job *j, struct assignment *a);
/* Tell fn of each job for which the node is to run a giver. */
typedef void givers_fn(void *arg, const struct entry *e, const char *node);
void givers_each(struct core *c, const struct node *n, givers_fn *fn, void *arg);
/* What a node reports of its giver for the run that is live. True: it was over before, and may be forgotten. */
bool givers_take(struct core *c, struct entry *e, const struct node *n, const struct report_run *run);
void givers_resumed(struct core *c, struct entry *e); /* the run has its state: who has not come by now need not */
uint64_t givers_job_on(const struct core *c, const struct node *n); /* a job whose state it may be the one to have; 0 */

#endif
