/* check - what must hold in a cluster, looked at after every turn of the server
 *
 *   a device has one owner: slots and the places of live runs name each other
 *   a job's generation and version only grow; one that has ended is not changed any more
 *   a project that may not borrow never has more devices than its quota
 *   an array and its tasks agree, and no more of them have devices than may
 *   what is kept in memory stays within its limits
 *   no run begins on a device on which its agent has told of another process
 *   a run that the server takes for over is over (check_runs.h)
 */
#ifndef MUSTER_TESTS_SIM_CHECK_H
#define MUSTER_TESTS_SIM_CHECK_H

#include "tests/sim/users.h"
#include "tests/sim/world.h"

struct book;
struct core;
struct check;

struct check *check_new(struct world *w, const struct users *u, const struct book *book);
void check_free(struct check *k);

/* From now on nothing goes wrong. */
void check_calm(struct check *k);

void check_turn(struct check *k, struct core *c);

/* All is over; NULL: no server runs, which is a violation. */
void check_end(struct check *k, struct core *c);

#endif
